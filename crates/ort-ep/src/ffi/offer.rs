//! Turns offered devices into ONNX Runtime's objects.
use std::ptr;
use std::sync::{Arc, PoisonError};

use ort_ep_sys as sys;

use super::factory::FactoryState;
use super::memory_info::MemoryInfo;
use super::runtime::c_string;
use crate::view::OwnedKeyValues;
use crate::{DeviceOffer, NewHardware, OfferedHardware, OfferedMemory, Result, Runtime};

/// Hardware we created: ONNX Runtime keeps its address, so the factory owns it.
pub(super) struct NewHardwareDevice {
    runtime: Runtime,
    raw: *mut sys::OrtHardwareDevice,
}

// SAFETY: a hardware device never changes once it is created.
unsafe impl Send for NewHardwareDevice {}

impl NewHardwareDevice {
    fn new(runtime: Runtime, hardware: &NewHardware) -> Result<Self> {
        let vendor = c_string(&hardware.vendor);
        let metadata = OwnedKeyValues::from_pairs(runtime, hardware.metadata.iter().map(|(key, value)| (key, value)))?;
        let mut raw = ptr::null_mut();
        // SAFETY: texts and metadata are copied; `raw` is a valid out-pointer.
        let status = unsafe {
            runtime.ep_api.CreateHardwareDevice(
                hardware.kind.to_raw(),
                hardware.vendor_id,
                hardware.device_id,
                vendor.as_ptr(),
                metadata.as_view().as_ptr(),
                &mut raw,
            )
        };
        runtime.check("CreateHardwareDevice", status)?;
        Ok(Self { runtime, raw })
    }
}

impl Drop for NewHardwareDevice {
    fn drop(&mut self) {
        // SAFETY: made by `CreateHardwareDevice`; the devices that pointed to it are released before the factory.
        unsafe { self.runtime.ep_api.ReleaseHardwareDevice(self.raw) };
    }
}

/// Devices created so far: released again unless all of them are handed over.
pub(super) struct EpDevices {
    runtime: Runtime,
    factory: *mut sys::OrtEpFactory,
    raw: Vec<*mut sys::OrtEpDevice>,
}

impl EpDevices {
    pub fn new(runtime: Runtime, factory: *mut sys::OrtEpFactory) -> Self {
        Self { runtime, factory, raw: Vec::new() }
    }

    pub fn add(&mut self, offer: DeviceOffer<'_>, state: &FactoryState) -> Result<()> {
        let runtime = self.runtime;
        let hardware = match offer.hardware {
            OfferedHardware::Listed(listed) => listed.as_ptr(),
            OfferedHardware::New(new) => {
                let device = NewHardwareDevice::new(runtime, &new)?;
                let raw = device.raw;
                state.hardware.lock().unwrap_or_else(PoisonError::into_inner).push(device);
                raw
            }
        };
        let metadata = OwnedKeyValues::from_pairs(runtime, offer.metadata.iter().map(|(key, value)| (key, value)))?;
        let options = OwnedKeyValues::from_pairs(runtime, offer.options.iter().map(|(key, value)| (key, value)))?;
        let mut device = ptr::null_mut();
        // SAFETY: factory and hardware outlive the device; metadata and options are copied.
        let status = unsafe {
            runtime.ep_api.CreateEpDevice(
                self.factory,
                hardware,
                metadata.as_view().as_ptr(),
                options.as_view().as_ptr(),
                &mut device,
            )
        };
        runtime.check("CreateEpDevice", status)?;
        self.raw.push(device);
        for memory in &offer.memories {
            let info = info_of(runtime, memory, state)?;
            // SAFETY: the device is ours for now; the info is kept as long as the factory.
            let status = unsafe { runtime.ep_api.EpDevice_AddAllocatorInfo(device, info.as_ptr()) };
            runtime.check("EpDevice_AddAllocatorInfo", status)?;
        }
        Ok(())
    }

    /// Hands all devices over.
    pub fn into_raw(mut self) -> Vec<*mut sys::OrtEpDevice> {
        std::mem::take(&mut self.raw)
    }
}

impl Drop for EpDevices {
    fn drop(&mut self) {
        for &device in &self.raw {
            // SAFETY: made by `CreateEpDevice` and not handed over.
            unsafe { self.runtime.ep_api.ReleaseEpDevice(device) };
        }
    }
}

/// One info per memory, however many devices offer it.
fn info_of(runtime: Runtime, memory: &OfferedMemory, state: &FactoryState) -> Result<Arc<MemoryInfo>> {
    if let Some(info) = state.info(memory.memory) {
        return Ok(info);
    }
    let info = Arc::new(MemoryInfo::new(runtime, memory)?);
    state.infos.lock().unwrap_or_else(PoisonError::into_inner).push(info.clone());
    Ok(info)
}
