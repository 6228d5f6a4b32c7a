//! Releases of MIGraphX, and what they added.

use std::fmt;

/// A release of MIGraphX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Features that not every release has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Feature {
    /// A folder for external data.
    ExternalDataPath,
    /// Quantising to fp8.
    Fp8,
    /// Quantising to bfloat16.
    Bf16,
    /// The list of operators the parser knows.
    OperatorList,
    /// A compile mode between eager and maximum.
    CompileMode,
    /// Options without a dedicated function.
    BackendOptions,
}

impl Feature {
    /// The release that introduced it.
    pub fn since(self) -> &'static str {
        match self {
            Self::ExternalDataPath => "2.10, ROCm 6.2",
            Self::Fp8 => "2.12, ROCm 6.4",
            Self::Bf16 => "2.13, ROCm 7.0",
            Self::OperatorList => "2.15, ROCm 7.2",
            Self::CompileMode | Self::BackendOptions => "2.17",
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ExternalDataPath => "folder for external data",
            Self::Fp8 => "fp8 quantisation",
            Self::Bf16 => "bf16 quantisation",
            Self::OperatorList => "list of operators",
            Self::CompileMode => "compile mode",
            Self::BackendOptions => "backend options",
        })
    }
}
