//! HIP's numeric constants. They are the interface: the twin translates those that differ in CUDA.

use std::ffi::c_int;
use std::ops::RangeInclusive;

/// Success.
pub const SUCCESS: c_int = 0;
/// An argument was rejected.
pub const INVALID_VALUE: c_int = 1;
/// Not enough memory.
pub const OUT_OF_MEMORY: c_int = 2;
/// No device on this machine.
pub const NO_DEVICE: c_int = 100;
/// No device has this ordinal; HIP 5 also returns this if there is no device at all.
pub const INVALID_DEVICE: c_int = 101;
/// The kernel image cannot be read.
pub const INVALID_IMAGE: c_int = 200;
/// The module has no function with that name.
pub const NOT_FOUND: c_int = 500;
/// The queried work is still running.
pub const NOT_READY: c_int = 600;
/// Peer access was already enabled.
pub const PEER_ACCESS_ALREADY_ENABLED: c_int = 704;
/// The driver does not support this.
pub const NOT_SUPPORTED: c_int = 801;
/// Statuses of calls that a stream under capture, or one that waits for it, rejects. The same in HIP and CUDA.
pub const CAPTURE: RangeInclusive<c_int> = 900..=908;
/// A graph could not be updated; the result argument says why.
pub const GRAPH_EXEC_UPDATE_FAILURE: c_int = 910;

/// Sticky statuses: an uncorrectable memory error, an illegal address, a kernel that timed out, an assertion, hardware
/// faults, a kernel that failed. The same in HIP and CUDA.
pub const DEVICE_LOST: [c_int; 9] = [214, 700, 702, 710, 714, 715, 716, 718, 719];

/// Stream flag: does not wait for the default stream.
pub const STREAM_NON_BLOCKING: u32 = 1;
/// Event flag: no time stamps.
pub const EVENT_DISABLE_TIMING: u32 = 2;
/// Pinned memory flag: pinned for every device.
pub const HOST_MALLOC_PORTABLE: u32 = 1;
/// Pinned memory flag: devices can access it. AMD's runtime allocates coherent memory with this flag (or with no flag
/// at all), but not with `HOST_MALLOC_PORTABLE` alone; kernel writes would then not be visible after waiting for an
/// event.
pub const HOST_MALLOC_MAPPED: u32 = 2;

/// First runtime version whose memory types and properties have today's values.
pub const HIP_6: c_int = 60_000_000;

/// Device attribute numbers.
pub mod attribute {
    use std::ffi::c_int;

    /// The device shares the host's memory.
    pub const INTEGRATED: c_int = 16;
    /// Compute capability, major number.
    pub const CAPABILITY_MAJOR: c_int = 23;
    /// Compute capability, minor number.
    pub const CAPABILITY_MINOR: c_int = 61;
    /// Compute units; from RDNA on, pairs of them.
    pub const MULTIPROCESSOR_COUNT: c_int = 63;
    /// PCI bus.
    pub const PCI_BUS: c_int = 67;
    /// PCI device.
    pub const PCI_DEVICE: c_int = 68;
    /// PCI domain.
    pub const PCI_DOMAIN: c_int = 69;
    /// LDS bytes that a block may use.
    pub const LDS_PER_BLOCK: c_int = 74;
    /// Lanes of a wave.
    pub const WAVE_SIZE: c_int = 87;
    /// Stream-ordered allocation is supported.
    pub const MEMORY_POOLS: c_int = 88;
}

/// Function attribute numbers, the same on every driver.
pub mod function {
    use std::ffi::c_int;

    /// Largest block.
    pub const MAX_THREADS: c_int = 0;
    /// LDS bytes fixed at compile time.
    pub const STATIC_LDS: c_int = 1;
    /// Scratch bytes per lane.
    pub const SCRATCH: c_int = 3;
    /// Registers per lane.
    pub const REGISTERS: c_int = 4;
}
