//! Hardware that the runtime found.
use std::borrow::Cow;

use ort_ep_sys as sys;

use super::key_values::KeyValues;
use crate::ffi::runtime::text;

/// The type of a hardware device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HardwareKind {
    /// The CPU.
    Cpu,
    /// A GPU.
    Gpu,
    /// An NPU.
    Npu,
    /// Any other number of the runtime.
    Other(i32),
}

impl HardwareKind {
    /// The type for the runtime's number.
    pub fn from_raw(raw: sys::OrtHardwareDeviceType) -> Self {
        match raw {
            sys::ORT_HARDWARE_CPU => Self::Cpu,
            sys::ORT_HARDWARE_GPU => Self::Gpu,
            sys::ORT_HARDWARE_NPU => Self::Npu,
            other => Self::Other(other),
        }
    }

    /// The runtime's number.
    pub fn to_raw(self) -> sys::OrtHardwareDeviceType {
        match self {
            Self::Cpu => sys::ORT_HARDWARE_CPU,
            Self::Gpu => sys::ORT_HARDWARE_GPU,
            Self::Npu => sys::ORT_HARDWARE_NPU,
            Self::Other(raw) => raw,
        }
    }
}

view! {
    /// One piece of hardware, as the runtime or a factory described it.
    HardwareDevice(OrtHardwareDevice)
}

impl<'a> HardwareDevice<'a> {
    /// The type of hardware.
    pub fn kind(self) -> HardwareKind {
        // SAFETY: `from_raw`'s caller vouches for the device.
        HardwareKind::from_raw(unsafe { self.runtime.api.HardwareDevice_Type(self.raw) })
    }

    /// The PCI vendor id.
    pub fn vendor_id(self) -> u32 {
        // SAFETY: as above.
        unsafe { self.runtime.api.HardwareDevice_VendorId(self.raw) }
    }

    /// The vendor's name; empty for GPUs found on Linux.
    pub fn vendor(self) -> Cow<'a, str> {
        // SAFETY: as above; the name lives as long as the device.
        unsafe { text(self.runtime.api.HardwareDevice_Vendor(self.raw)) }
    }

    /// The PCI device id: it identifies the model, not the slot.
    pub fn device_id(self) -> u32 {
        // SAFETY: as above.
        unsafe { self.runtime.api.HardwareDevice_DeviceId(self.raw) }
    }

    /// Further metadata from the runtime.
    pub fn metadata(self) -> KeyValues<'a> {
        // SAFETY: as above; the metadata is part of the device.
        unsafe { KeyValues::from_raw(self.runtime, self.runtime.api.HardwareDevice_Metadata(self.raw)) }
    }

    /// The PCI address, such as `0000:65:00.0`; identical cards differ only here.
    pub fn pci_bus_id(self) -> Option<Cow<'a, str>> {
        self.metadata().get("pci_bus_id")
    }
}
