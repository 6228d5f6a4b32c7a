//! What a device reports about itself: name, attributes, and the two layouts of the properties structure.

use crate::device::Device;

/// `major * 10^7 + minor * 10^5`: the HIP version whose rules the library follows.
pub(crate) const VERSION: i32 = 70_200_000;
pub(crate) const ARCH: &str = "host";
/// What kernel-like code may assume; the value of RDNA.
const WARP_SIZE: i32 = 32;
const MAX_THREADS: i32 = 1024;
const MAX_GRID: i32 = i32::MAX;
const SHARED_BYTES: i32 = 64 << 10;
const REGISTERS: i32 = 64 << 10;

/// The attribute that says whether there are memory pools.
pub(crate) const MEMORY_POOLS: i32 = 88;

pub(crate) fn name(device: &Device) -> String {
    format!("Host CPU {}", device.index)
}

/// Unique per device, equal in every process: nothing distinguishes two machines.
pub(crate) fn uuid(device: &Device) -> [u8; 16] {
    let mut uuid = *b"hip-host device ";
    uuid[15] = device.index as u8;
    uuid
}

fn processors() -> i32 {
    std::thread::available_parallelism().map_or(1, |count| i32::try_from(count.get()).unwrap_or(i32::MAX))
}

/// The value of a HIP device attribute; `None` if the host has no value for it, for example for PCI numbers.
pub(crate) fn attribute(number: i32) -> Option<i32> {
    Some(match number {
        56 | 26 | 27 | 28 | 57 => MAX_THREADS,
        29..=31 => MAX_GRID,
        74..=76 | 10002 => SHARED_BYTES,
        71 => REGISTERS,
        87 => WARP_SIZE,
        63 => processors(),
        25 => 1,
        // Unified addressing, host memory mapping and registration, memory pools, stream priorities.
        85 | 3 | 90 | MEMORY_POOLS | 78 => 1,
        // Capability, ECC, reserved shared memory, constant memory, clocks, bus width, L2, concurrent kernels, copy
        // engines, integrated, managed memory (two), pageable access, cooperative launch, virtual memory.
        23 | 61 | 0 | 73 | 83 | 5 | 60 | 59 | 19 | 8 | 2 | 16 | 24 | 9 | 65 | 10 | 89 => 0,
        _ => return None,
    })
}

/// A structure filled by offset: the layouts have over a hundred fields, of which a host device knows few.
struct Layout<const N: usize>([u8; N]);

impl<const N: usize> Layout<N> {
    fn put(&mut self, offset: usize, bytes: &[u8]) -> &mut Self {
        self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
        self
    }

    fn int(&mut self, offset: usize, value: i32) -> &mut Self {
        self.put(offset, &value.to_ne_bytes())
    }

    fn size(&mut self, offset: usize, value: u64) -> &mut Self {
        self.put(offset, &value.to_ne_bytes())
    }

    fn triple(&mut self, offset: usize, value: i32) -> &mut Self {
        self.int(offset, value).int(offset + 4, value).int(offset + 8, value)
    }
}

/// `hipDeviceProp_tR0600`, the structure of HIP 6 and 7.
pub(crate) fn r0600(device: &Device) -> [u8; 1472] {
    let mut layout = Layout([0; 1472]);
    layout
        .put(0, name(device).as_bytes())
        .put(256, &uuid(device))
        .size(288, device.budget.total)
        .size(296, SHARED_BYTES as u64)
        .int(304, REGISTERS)
        .int(308, WARP_SIZE)
        .int(320, MAX_THREADS)
        .triple(324, MAX_THREADS)
        .triple(336, MAX_GRID)
        .int(388, processors())
        .put(1160, ARCH.as_bytes())
        .size(1416, SHARED_BYTES as u64);
    layout.0
}

/// The structure of HIP 5, which the plain `hipGetDeviceProperties` of HIP 6 and 7 still fills.
pub(crate) fn r0000(device: &Device) -> [u8; 792] {
    let mut layout = Layout([0; 792]);
    layout
        .put(0, name(device).as_bytes())
        .size(256, device.budget.total)
        .size(264, SHARED_BYTES as u64)
        .int(272, REGISTERS)
        .int(276, WARP_SIZE)
        .int(280, MAX_THREADS)
        .triple(284, MAX_THREADS)
        .triple(296, MAX_GRID)
        .int(336, processors())
        .int(344, MAX_THREADS)
        .size(376, SHARED_BYTES as u64)
        .put(396, ARCH.as_bytes());
    layout.0
}
