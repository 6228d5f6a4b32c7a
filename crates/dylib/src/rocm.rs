//! The names of ROCm's libraries.

/// A library of ROCm.
#[derive(Debug, PartialEq, Eq)]
pub struct Library {
    /// The display name.
    pub name: &'static str,
    /// The file names, best first. A `*` stands for the digits of a version.
    pub files: &'static [&'static str],
    /// The subfolders, relative to an installation's library folder, that contain it.
    pub below: &'static [&'static str],
    /// The environment variable that overrides the search.
    pub variable: Option<&'static str>,
    /// A function that every version has, to ask the loader which file it came from.
    pub anchor: &'static str,
    /// Whether to use a copy that the process has already loaded. Pointers and streams of two copies of the HIP runtime
    /// cannot be mixed, and other code may already have loaded one (PyTorch ships its own).
    pub is_shared: bool,
    /// Whether to search next to our own library: on Windows, MIGraphX ships with the provider that uses it.
    pub is_beside_us: bool,
}

/// The HIP runtime.
pub const HIP: Library = Library {
    name: "HIP runtime",
    files: if cfg!(windows) {
        &["amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"]
    } else {
        &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"]
    },
    below: &[""],
    variable: Some("AMDGPU_EP_HIP_LIBRARY"),
    anchor: "hipGetDeviceCount",
    is_shared: true,
    is_beside_us: false,
};

/// The run-time compiler.
pub const HIPRTC: Library = Library {
    name: "hiprtc",
    files: if cfg!(windows) {
        // Two digits each for the major and the minor version: all of them in a folder, and some for the system loader.
        &["hiprtc*.dll", "hiprtc0714.dll", "hiprtc0701.dll", "hiprtc0602.dll", "hiprtc0507.dll"]
    } else {
        &["libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libhiprtc.so"]
    },
    below: &[""],
    variable: None,
    anchor: "hiprtcVersion",
    is_shared: false,
    is_beside_us: false,
};

/// Matrix products.
pub const HIPBLASLT: Library = Library {
    name: "hipBLASLt",
    files: if cfg!(windows) {
        // The first name is that of HIP SDK 7.1 and newer.
        &["libhipblaslt.dll", "hipblaslt.dll"]
    } else {
        &["libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so"]
    },
    below: &[""],
    variable: None,
    anchor: "hipblasLtCreate",
    is_shared: false,
    is_beside_us: false,
};

/// hipDNN's backend. The unversioned name comes first: hipDNN is built without a version in its name, and packagers add
/// one.
pub const HIPDNN: Library = Library {
    name: "hipDNN",
    files: if cfg!(windows) {
        &["hipdnn_backend.dll"]
    } else {
        &["libhipdnn_backend.so", "libhipdnn_backend.so.0", "libhipdnn_backend.so.1"]
    },
    below: &[""],
    variable: Some("AMDGPU_EP_HIPDNN_LIBRARY"),
    anchor: "hipdnnVersionString_ext",
    is_shared: false,
    is_beside_us: false,
};

/// MIGraphX's C library.
pub const MIGRAPHX: Library = Library {
    name: "MIGraphX",
    files: if cfg!(windows) { &["migraphx_c.dll"] } else { &["libmigraphx_c.so.3", "libmigraphx_c.so"] },
    below: if cfg!(windows) { &[""] } else { &["migraphx/lib", ""] },
    variable: Some("AMDGPU_EP_MIGRAPHX_LIBRARY"),
    anchor: "migraphx_program_destroy",
    is_shared: true,
    is_beside_us: cfg!(windows),
};

/// All libraries.
pub const LIBRARIES: [&Library; 5] = [&HIP, &HIPRTC, &HIPBLASLT, &HIPDNN, &MIGRAPHX];
