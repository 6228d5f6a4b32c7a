//! The only unsafe code of this crate, for operations without a safe API in `ort`: tensors in memory that the session
//! asks for, runs into given outputs, providers by their names inside ONNX Runtime, device metadata, and the exports of
//! our provider.
//!
//! All calls but those of the exports go through `ort::api()`, ONNX Runtime's function table, which is static once the
//! library is loaded.

mod exports;
mod made;
mod memory;
mod run;
mod tensor;

use std::ffi::{CStr, CString, c_char};
use std::path::PathBuf;

use ort::AsPointer;
use ort::device::Device;
use ort::sys::{OrtHardwareDeviceType, OrtSessionOptions, OrtStatusPtr};

pub(crate) use exports::last_backend;
pub use exports::with_trusted_options;
pub(crate) use made::{MadeTensor, Output};
pub(crate) use memory::{Memory, Place};
pub use run::Canceller;
pub(crate) use run::{Call, RunOptions};
pub(crate) use tensor::{HostTensor, Kind, Tensor, bytes_of};

use crate::config::HardwareKind;

/// Turns a status into a result.
fn check(status: OrtStatusPtr) -> ort::Result<()> {
    // SAFETY: every caller passes the status that a function of the table has just returned, once; the result owns it.
    unsafe { ort::Error::result_from_status(status) }
}

/// Metadata of a device.
#[derive(Clone, Debug)]
pub(crate) struct DeviceFacts {
    pub kind: HardwareKind,
    pub vendor_id: u32,
    pub device_id: u32,
    pub driver: Option<String>,
    /// Path of the provider's library.
    pub library: Option<PathBuf>,
}

/// Reads the metadata of a device.
pub(crate) fn device_facts(device: &Device<'_>) -> DeviceFacts {
    let api = ort::api();
    // SAFETY: a `Device` lives as long as the environment that it borrows, and so do all pointers below; the functions
    // take no ownership and return null or strings that live as long as the device.
    unsafe {
        let hardware = (api.EpDevice_Device)(device.ptr());
        let metadata = (api.EpDevice_EpMetadata)(device.ptr());
        let said = |key: &CStr| {
            let text = if metadata.is_null() { std::ptr::null() } else { (api.GetKeyValue)(metadata, key.as_ptr()) };
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        };
        DeviceFacts {
            kind: match (api.HardwareDevice_Type)(hardware) {
                OrtHardwareDeviceType::OrtHardwareDeviceType_CPU => HardwareKind::Cpu,
                OrtHardwareDeviceType::OrtHardwareDeviceType_GPU => HardwareKind::Gpu,
                OrtHardwareDeviceType::OrtHardwareDeviceType_NPU => HardwareKind::Npu,
            },
            vendor_id: (api.HardwareDevice_VendorId)(hardware),
            device_id: (api.HardwareDevice_DeviceId)(hardware),
            driver: said(c"driver"),
            // ONNX Runtime adds this entry.
            library: said(c"library_path").map(PathBuf::from),
        }
    }
}

/// Appends a provider by its name inside ONNX Runtime.
pub(crate) fn append_by_name(
    session_options: *mut OrtSessionOptions,
    name: &str,
    options: &[(String, String)],
) -> ort::Result<()> {
    let name = CString::new(name)?;
    let keys: Vec<CString> = options.iter().map(|(key, _)| CString::new(key.as_str())).collect::<Result<_, _>>()?;
    let values: Vec<CString> =
        options.iter().map(|(_, value)| CString::new(value.as_str())).collect::<Result<_, _>>()?;
    let pointers = |texts: &[CString]| -> Vec<*const c_char> { texts.iter().map(|text| text.as_ptr()).collect() };
    let (keys, values) = ((pointers(&keys), keys), (pointers(&values), values));
    // SAFETY: the caller's builder owns the options and is borrowed mutably for this call; names, keys and values are
    // NUL-terminated and outlive it, and both arrays have the given length.
    check(unsafe {
        (ort::api().SessionOptionsAppendExecutionProvider)(
            session_options,
            name.as_ptr(),
            keys.0.as_ptr(),
            values.0.as_ptr(),
            options.len(),
        )
    })
}
