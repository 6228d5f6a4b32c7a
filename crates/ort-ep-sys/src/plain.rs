//! Plain data structs and function types of the C API.
use core::ffi::{c_char, c_int, c_void};

use crate::types::*;
use crate::{OrtAllocator, OrtKernelImpl};

pub type OrtKernelCreateFunc = Option<
    unsafe extern "system" fn(
        state: *mut c_void,
        info: *const OrtKernelInfo,
        kernel_out: *mut *mut OrtKernelImpl,
    ) -> Status,
>;
pub type OrtReadNamedBufferFunc = Option<
    unsafe extern "system" fn(
        state: *mut c_void,
        name: *const c_char,
        allocator: *mut OrtAllocator,
        buffer: *mut *mut c_void,
        data_size: *mut usize,
    ) -> Status,
>;
pub type OrtWriteNamedBufferFunc = Option<
    unsafe extern "system" fn(
        state: *mut c_void,
        name: *const c_char,
        buffer: *const c_void,
        buffer_num_bytes: usize,
    ) -> Status,
>;

#[repr(C)]
pub struct OrtNodeFusionOptions {
    pub ort_version_supported: u32,
    /// Constant initializers are not inputs of the fused node; the plugin copies them while it compiles.
    pub drop_constant_initializers: bool,
}

#[repr(C)]
pub struct OrtExternalMemoryDescriptor {
    pub version: u32,
    pub handle_type: OrtExternalMemoryHandleType,
    pub native_handle: *mut c_void,
    pub size_bytes: usize,
    pub offset_bytes: usize,
}

#[repr(C)]
pub struct OrtExternalSemaphoreDescriptor {
    pub version: u32,
    pub kind: OrtExternalSemaphoreType,
    pub native_handle: *mut c_void,
}

#[repr(C)]
pub struct OrtExternalTensorDescriptor {
    pub version: u32,
    pub element_type: ONNXTensorElementDataType,
    pub shape: *const i64,
    pub rank: usize,
    pub offset_bytes: usize,
}

#[repr(C)]
pub struct OrtExternalMemoryHandle {
    pub version: u32,
    pub ep_device: *const OrtEpDevice,
    pub descriptor: OrtExternalMemoryDescriptor,
    pub Release: Option<unsafe extern "system" fn(this: *mut Self)>,
}

#[repr(C)]
pub struct OrtExternalSemaphoreHandle {
    pub version: u32,
    pub ep_device: *const OrtEpDevice,
    pub descriptor: OrtExternalSemaphoreDescriptor,
    pub Release: Option<unsafe extern "system" fn(this: *mut Self)>,
}

#[repr(C)]
pub struct OrtGraphicsInteropConfig {
    pub version: u32,
    pub graphics_api: OrtGraphicsApi,
    pub command_queue: *mut c_void,
    pub additional_options: *const OrtKeyValuePairs,
}

/// A budget or a remaining amount, in the unit of `kind`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OrtResourceCount {
    pub kind: u32,
    pub reserved: u32,
    /// `words[0]` is the byte count of kind [`ORT_RESOURCE_TOTAL_BYTES`].
    pub words: [u64; 6],
}

impl OrtResourceCount {
    /// A number of bytes.
    pub const fn of_bytes(bytes: u64) -> Self {
        Self { kind: ORT_RESOURCE_TOTAL_BYTES, reserved: 0, words: [bytes, 0, 0, 0, 0, 0] }
    }
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<c_int>() == 4);
    assert!(size_of::<OrtNodeFusionOptions>() == 8);
    assert!(offset_of!(OrtNodeFusionOptions, drop_constant_initializers) == 4);
    assert!(size_of::<OrtExternalMemoryDescriptor>() == 32);
    assert!(offset_of!(OrtExternalMemoryDescriptor, native_handle) == 8);
    assert!(size_of::<OrtExternalSemaphoreDescriptor>() == 16);
    assert!(size_of::<OrtExternalTensorDescriptor>() == 32);
    assert!(offset_of!(OrtExternalMemoryHandle, Release) == 48);
    assert!(offset_of!(OrtExternalSemaphoreHandle, Release) == 32);
    assert!(size_of::<OrtGraphicsInteropConfig>() == 24);
    assert!(size_of::<OrtResourceCount>() == 56);
};
