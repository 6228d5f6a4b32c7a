//! Identifies memories.
use ort_ep_sys as sys;

/// The kind of device a memory belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceKind {
    /// Plain host memory.
    Cpu,
    /// A GPU.
    Gpu,
    /// An NPU.
    Npu,
    /// Any other number of the runtime.
    Other(i32),
}

impl DeviceKind {
    pub(crate) fn from_raw(raw: sys::OrtMemoryInfoDeviceType) -> Self {
        match raw {
            sys::ORT_DEVICE_CPU => Self::Cpu,
            sys::ORT_DEVICE_GPU => Self::Gpu,
            sys::ORT_DEVICE_NPU => Self::Npu,
            other => Self::Other(other),
        }
    }

    pub(crate) fn to_raw(self) -> sys::OrtMemoryInfoDeviceType {
        match self {
            Self::Cpu => sys::ORT_DEVICE_CPU,
            Self::Gpu => sys::ORT_DEVICE_GPU,
            Self::Npu => sys::ORT_DEVICE_NPU,
            Self::Other(raw) => raw,
        }
    }
}

/// The kinds of memory that a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryKind {
    /// The device's own memory.
    Default,
    /// Memory that both the device and the host can access (pinned).
    HostAccessible,
    /// Any other number of the runtime.
    Other(i32),
}

impl MemoryKind {
    pub(crate) fn from_raw(raw: sys::OrtDeviceMemoryType) -> Self {
        match raw {
            sys::ORT_MEMORY_DEFAULT => Self::Default,
            sys::ORT_MEMORY_HOST_ACCESSIBLE => Self::HostAccessible,
            other => Self::Other(other),
        }
    }

    pub(crate) fn to_raw(self) -> sys::OrtDeviceMemoryType {
        match self {
            Self::Default => sys::ORT_MEMORY_DEFAULT,
            Self::HostAccessible => sys::ORT_MEMORY_HOST_ACCESSIBLE,
            Self::Other(raw) => raw,
        }
    }
}

/// A memory of one device. Alignment is not part of its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryDevice {
    /// The kind of device.
    pub device: DeviceKind,
    /// Which of its memories.
    pub memory: MemoryKind,
    /// The PCI vendor id; 0 for host memory.
    pub vendor_id: u32,
    /// The index of the device among its vendor's devices.
    pub device_id: u32,
}

impl MemoryDevice {
    /// Plain host memory.
    pub const CPU: Self = Self { device: DeviceKind::Cpu, memory: MemoryKind::Default, vendor_id: 0, device_id: 0 };

    /// The memory of a GPU.
    pub const fn gpu(vendor_id: u32, device_id: u32) -> Self {
        Self { device: DeviceKind::Gpu, memory: MemoryKind::Default, vendor_id, device_id }
    }

    /// The pinned memory of the same device.
    pub const fn host_accessible(self) -> Self {
        Self { memory: MemoryKind::HostAccessible, ..self }
    }

    /// True if the host may read and write through the address.
    pub fn is_host_readable(&self) -> bool {
        self.device == DeviceKind::Cpu || self.memory == MemoryKind::HostAccessible
    }
}
