//! File names of each library, by driver, newest first.

use dylib::rocm;

use crate::DriverKind;

/// The libraries of a driver. Devices and memory need only the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Devices, memory, streams, modules.
    Runtime,
    /// The run-time compiler.
    Rtc,
    /// Matrix products.
    BlasLt,
}

/// A library of one driver: its file names and its name in messages.
pub(crate) struct LibraryNames {
    pub what: &'static str,
    pub files: &'static [&'static str],
    pub help: &'static str,
    /// A function that every version has, used to ask the loader which file it came from.
    pub anchor: &'static str,
}

const HIP_HELP: &str = if cfg!(windows) {
    "install AMD's display driver or the HIP SDK, or set AMDGPU_EP_HIP_LIBRARY to the full path of amdhip64_7.dll"
} else {
    "install ROCm, or set AMDGPU_EP_HIP_LIBRARY to the full path of libamdhip64.so"
};
const HOST_HELP: &str = if cfg!(windows) {
    "put hip-host.dll next to the library that loads it, or set AMDGPU_EP_HIP_HOST_LIBRARY to its full path"
} else {
    "put libhip-host.so next to the library that loads it, or set AMDGPU_EP_HIP_HOST_LIBRARY to its full path"
};
const CUDA_HELP: &str = "install the CUDA libraries, or list the folders that hold them in AMDGPU_EP_CUDA_LIBRARY_PATH";

/// The CUDA driver's library: the half of the twin that comes with the display driver.
pub(crate) const CUDA_DRIVER: &[&str] = either(&["nvcuda.dll"], &["libcuda.so.1", "libcuda.so"]);

/// The names on Windows, or those on other systems.
const fn either(windows: &'static [&'static str], others: &'static [&'static str]) -> &'static [&'static str] {
    if cfg!(windows) { windows } else { others }
}

/// The names of a library, or `None` if the driver does not come with it.
pub(crate) fn library(kind: DriverKind, role: Role) -> Option<LibraryNames> {
    Some(match (kind, role) {
        (DriverKind::Amd, Role::Runtime) => {
            LibraryNames { what: "HIP runtime", files: rocm::HIP.files, help: HIP_HELP, anchor: rocm::HIP.anchor }
        }
        (DriverKind::Amd, Role::Rtc) => LibraryNames {
            what: "HIP run-time compiler",
            files: rocm::HIPRTC.files,
            help: "install ROCm's hiprtc next to the HIP runtime",
            anchor: rocm::HIPRTC.anchor,
        },
        (DriverKind::Amd, Role::BlasLt) => LibraryNames {
            what: "hipBLASLt",
            files: rocm::HIPBLASLT.files,
            help: "install ROCm's hipblaslt next to the HIP runtime",
            anchor: rocm::HIPBLASLT.anchor,
        },
        (DriverKind::Nvidia, Role::Runtime) => LibraryNames {
            what: "CUDA runtime",
            files: either(&["cudart64_13.dll", "cudart64_12.dll"], &["libcudart.so.13", "libcudart.so.12"]),
            help: CUDA_HELP,
            anchor: "cudaGetDeviceCount",
        },
        (DriverKind::Nvidia, Role::Rtc) => LibraryNames {
            what: "CUDA run-time compiler",
            files: either(&["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"], &["libnvrtc.so.13", "libnvrtc.so.12"]),
            help: CUDA_HELP,
            anchor: "nvrtcVersion",
        },
        (DriverKind::Nvidia, Role::BlasLt) => LibraryNames {
            what: "cublasLt",
            files: either(&["cublasLt64_13.dll", "cublasLt64_12.dll"], &["libcublasLt.so.13", "libcublasLt.so.12"]),
            help: CUDA_HELP,
            anchor: "cublasLtCreate",
        },
        // The second name is cargo's name for the crate's output.
        (DriverKind::Host, Role::Runtime) => LibraryNames {
            what: "host driver",
            files: either(&["hip-host.dll", "hip_host.dll"], &["libhip-host.so", "libhip_host.so"]),
            help: HOST_HELP,
            anchor: "hipGetDeviceCount",
        },
        (DriverKind::Host, Role::Rtc | Role::BlasLt) => return None,
    })
}

/// The name of a role in messages about a driver that lacks it.
pub(crate) fn role_in_words(role: Role) -> &'static str {
    match role {
        Role::Runtime => "runtime",
        Role::Rtc => "run-time compiler",
        Role::BlasLt => "BLASLt library",
    }
}
