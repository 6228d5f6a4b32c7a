//! Every difference between CUDA and HIP that is more than a name.
//!
//! Callers use HIP's constants and signatures; the functions here translate them for the loaded driver.

use std::ffi::{c_int, c_uint};
use std::mem::offset_of;
use std::path::Path;
use std::ptr;

use dylib::Library;

use super::runtime::RuntimeTable;
use super::{Handle, Status};
use crate::DriverKind;

/// HIP's and CUDA's numbers for the same device attribute.
const ATTRIBUTES: [(c_int, c_int); 40] = [
    (0, 32),   // ECC
    (2, 40),   // copy engines
    (3, 19),   // can map host memory
    (5, 13),   // clock, kHz
    (8, 31),   // concurrent kernels
    (9, 89),   // concurrent managed access
    (10, 95),  // cooperative launch
    (16, 18),  // integrated
    (19, 38),  // L2 bytes
    (23, 75),  // compute capability, major
    (24, 83),  // managed memory
    (25, 106), // blocks per compute unit
    (26, 2),   // largest block, x
    (27, 3),   // y
    (28, 4),   // z
    (29, 5),   // largest grid, x
    (30, 6),   // y
    (31, 7),   // z
    (56, 1),   // threads per block
    (57, 39),  // threads per compute unit
    (59, 37),  // memory bus, bits
    (60, 36),  // memory clock, kHz
    (61, 76),  // compute capability, minor
    (63, 16),  // compute units
    (65, 88),  // pageable memory access
    (67, 33),  // PCI bus
    (68, 34),  // PCI device
    (69, 50),  // PCI domain
    (71, 12),  // registers per block
    (73, 111), // reserved LDS per block
    (74, 8),   // LDS per block
    (75, 97),  // LDS per block, opt-in
    (76, 81),  // LDS per compute unit
    (78, 78),  // stream priorities
    (83, 9),   // constant memory
    (85, 41),  // unified addresses
    (87, 10),  // wave size
    (88, 115), // memory pools
    (89, 102), // virtual memory management
    (90, 99),  // host register
];

/// The driver's number for a HIP device attribute, or `None` if the driver has no such attribute.
pub fn attribute(kind: DriverKind, hip: c_int) -> Option<c_int> {
    match kind {
        DriverKind::Nvidia => ATTRIBUTES.iter().find(|(number, _)| *number == hip).map(|(_, twin)| *twin),
        DriverKind::Amd | DriverKind::Host => Some(hip),
    }
}

/// CUDA 12's result of a graph update.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GraphExecUpdateInfo {
    /// 0 if the update succeeded, otherwise the reason, numbered as in HIP.
    pub result: c_int,
    /// The node that could not be updated.
    pub error_node: Handle,
    /// The node it was compared with.
    pub error_from_node: Handle,
}

const _: () = assert!(size_of::<GraphExecUpdateInfo>() == 24);

/// `hipGraphExecUpdate` with the signature that the driver has; `None` if it has neither. The second value is the
/// result number.
///
/// # Safety
/// Both handles are alive and belong to this driver.
pub unsafe fn graph_exec_update(table: &RuntimeTable, exec: Handle, graph: Handle) -> Option<(Status, c_int)> {
    if let Some(update) = table.graph_exec_update {
        let (mut node, mut result) = (ptr::null_mut(), 0);
        // SAFETY: the out-pointers live for the call; the caller vouches for the handles.
        let status = unsafe { update(exec, graph, &mut node, &mut result) };
        return Some((status, result));
    }
    let update = table.twin_graph_exec_update?;
    let mut info = GraphExecUpdateInfo { result: 0, error_node: ptr::null_mut(), error_from_node: ptr::null_mut() };
    // SAFETY: as above.
    let status = unsafe { update(exec, graph, &mut info) };
    Some((status, info.result))
}

/// `cuLaunchKernelEx`'s description of a launch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LaunchConfig {
    /// Blocks along x, y, z.
    pub grid: [c_uint; 3],
    /// Threads of a block along x, y, z.
    pub block: [c_uint; 3],
    /// Dynamic shared memory.
    pub lds_bytes: c_uint,
    /// Stream to queue it on.
    pub stream: Handle,
    /// The attributes.
    pub attributes: *const LaunchAttribute,
    /// Number of attributes.
    pub attribute_count: c_uint,
}

const _: () = assert!(size_of::<LaunchConfig>() == 56 && offset_of!(LaunchConfig, stream) == 32);

/// An attribute of a launch.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub struct LaunchAttribute {
    /// Which one.
    pub number: c_int,
    /// Pads to byte 8, where a union of up to 64 bytes begins.
    pub padding: c_int,
    /// The value; an integer occupies the first element.
    pub value: [c_int; 16],
}

const _: () = assert!(size_of::<LaunchAttribute>() == 72 && align_of::<LaunchAttribute>() == 8);
const _: () = assert!(offset_of!(LaunchAttribute, value) == 8);

impl LaunchAttribute {
    /// The launch may begin once all blocks of the previous one have started, and waits for its end with an
    /// instruction.
    pub const EARLY: Self = {
        let mut value = [0; 16];
        value[0] = 1;
        Self { number: 6, padding: 0, value }
    };
}

/// `cuFuncSetAttribute`'s number for the largest dynamic shared memory of a function.
pub const MAX_DYNAMIC_SHARED: c_int = 8;
/// Dynamic shared memory up to this size needs no opt-in on any driver.
pub const SHARED_WITHOUT_OPT_IN: u32 = 48 * 1024;

/// Opens nvrtc's data library by its full path.
///
/// nvrtc opens it by plain name at the first compilation, which fails (status 7) if nvrtc itself came from a folder
/// that is not on the loader's path. If a library with that name is already open, the lookup succeeds.
pub(crate) fn preload_compiler_data(compiler: &Path) {
    let Some(folder) = compiler.parent() else { return };
    if !compiler.exists() {
        return;
    }
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with("libnvrtc-builtins.so")
            && let Err(reason) = Library::open(entry.path())
        {
            tracing::debug!(target: "amdgpu_ep::load", file = %entry.path().display(), reason, "not opened");
        }
    }
}

/// BLASLt's constants, which differ between hipBLASLt and cublasLt.
#[derive(Clone, Copy, Debug)]
pub struct BlasNumbers {
    /// Operation: as stored.
    pub op_none: c_int,
    /// Operation: transposed.
    pub op_transpose: c_int,
    /// Compute type: f32.
    pub compute_f32: c_int,
    /// Compute type: f32 through TF32 units.
    pub compute_tf32: c_int,
    /// Compute type: f64.
    pub compute_f64: c_int,
    /// Compute type: i32.
    pub compute_i32: c_int,
    /// Descriptor attribute: operation on A.
    pub desc_transpose_a: c_int,
    /// Descriptor attribute: operation on B.
    pub desc_transpose_b: c_int,
    /// Descriptor attribute: epilogue.
    pub desc_epilogue: c_int,
    /// Descriptor attribute: address of the bias vector.
    pub desc_bias_pointer: c_int,
    /// Descriptor attribute: type of the bias vector.
    pub desc_bias_type: c_int,
    /// Layout attribute: number of matrices.
    pub layout_batch_count: c_int,
    /// Layout attribute: elements from one matrix to the next.
    pub layout_batch_stride: c_int,
    /// Preference attribute: workspace bytes.
    pub preference_workspace: c_int,
    /// Preference attributes: guaranteed alignment of A, B, C, D, if the library has them.
    pub preference_alignment: Option<[c_int; 4]>,
    /// Bytes of one heuristic result.
    pub result_stride: usize,
    /// Offset in a heuristic result of the workspace size it needs; the algorithm precedes it.
    pub result_workspace: usize,
    /// Offset in a heuristic result of its state, 0 if usable.
    pub result_state: usize,
    /// The status that means "no kernel for this".
    pub not_supported: Status,
}

const HIP_BLAS: BlasNumbers = BlasNumbers {
    op_none: 111,
    op_transpose: 112,
    compute_f32: 2,
    compute_tf32: 6,
    compute_f64: 7,
    compute_i32: 9,
    desc_transpose_a: 0,
    desc_transpose_b: 1,
    desc_epilogue: 2,
    desc_bias_pointer: 3,
    desc_bias_type: 4,
    layout_batch_count: 0,
    layout_batch_stride: 1,
    preference_workspace: 1,
    preference_alignment: None,
    result_stride: 56,
    result_workspace: 24,
    result_state: 32,
    not_supported: 7,
};

const CUBLAS: BlasNumbers = BlasNumbers {
    op_none: 0,
    op_transpose: 1,
    compute_f32: 68,
    compute_tf32: 77,
    compute_f64: 70,
    compute_i32: 72,
    desc_transpose_a: 3,
    desc_transpose_b: 4,
    desc_epilogue: 7,
    desc_bias_pointer: 8,
    desc_bias_type: 26,
    layout_batch_count: 5,
    layout_batch_stride: 6,
    preference_workspace: 1,
    preference_alignment: Some([5, 6, 7, 8]),
    result_stride: 96,
    result_workspace: 64,
    result_state: 72,
    not_supported: 15,
};

/// The constants of the BLASLt that belongs to a driver.
pub fn blas_numbers(kind: DriverKind) -> &'static BlasNumbers {
    match kind {
        DriverKind::Nvidia => &CUBLAS,
        DriverKind::Amd | DriverKind::Host => &HIP_BLAS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hip_numbers_pass_unchanged_and_unknown_ones_are_refused_by_the_twin() {
        assert_eq!(attribute(DriverKind::Amd, 10015), Some(10015));
        assert_eq!(attribute(DriverKind::Host, 87), Some(87));
        assert_eq!(attribute(DriverKind::Nvidia, 87), Some(10));
        assert_eq!(attribute(DriverKind::Nvidia, 10015), None);
    }

    #[test]
    fn no_attribute_is_listed_twice() {
        let distinct = |pick: fn(&(c_int, c_int)) -> c_int| {
            ATTRIBUTES.iter().map(pick).collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!((distinct(|pair| pair.0), distinct(|pair| pair.1)), (ATTRIBUTES.len(), ATTRIBUTES.len()));
    }
}
