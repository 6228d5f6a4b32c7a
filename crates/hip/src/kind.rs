//! The kinds of driver.

use std::fmt;
use std::str::FromStr;

/// The three libraries that can back the driver table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DriverKind {
    /// AMD's HIP runtime, `libamdhip64`.
    Amd,
    /// The CUDA twin: the CUDA runtime and driver behind HIP's signatures.
    Nvidia,
    /// Our own `libhip-host`: the HIP runtime C ABI on RAM and worker threads.
    Host,
}

impl DriverKind {
    /// Every kind, in the order in which reports list them.
    pub const ALL: [DriverKind; 3] = [DriverKind::Amd, DriverKind::Nvidia, DriverKind::Host];

    /// The name used on the command line, in the environment and in logs.
    pub const fn name(self) -> &'static str {
        match self {
            DriverKind::Amd => "amd",
            DriverKind::Nvidia => "nvidia",
            DriverKind::Host => "host",
        }
    }

    /// The driver that the value of `AMDGPU_EP_DRIVER` selects; unset, empty and `auto` select AMD's.
    ///
    /// # Errors
    /// The value is not one of the accepted names.
    pub fn wanted(text: Option<&str>) -> Result<Self, UnknownDriver> {
        match text.map(str::trim) {
            None | Some("") => Ok(Self::Amd),
            Some(text) if text.eq_ignore_ascii_case("auto") => Ok(Self::Amd),
            Some(text) => text.parse(),
        }
    }

    pub(crate) const fn index(self) -> usize {
        match self {
            DriverKind::Amd => 0,
            DriverKind::Nvidia => 1,
            DriverKind::Host => 2,
        }
    }
}

impl fmt::Display for DriverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text is not one of `amd`, `nvidia`, `host`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown driver {text:?}\n  help: use one of amd, nvidia, host")]
pub struct UnknownDriver {
    /// The text as given.
    pub text: String,
}

impl FromStr for DriverKind {
    type Err = UnknownDriver;

    fn from_str(text: &str) -> Result<DriverKind, UnknownDriver> {
        let wanted = text.trim();
        DriverKind::ALL
            .into_iter()
            .find(|kind| kind.name().eq_ignore_ascii_case(wanted))
            .ok_or_else(|| UnknownDriver { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_in_any_case() {
        for kind in DriverKind::ALL {
            assert_eq!(kind.to_string().parse::<DriverKind>().unwrap(), kind);
            assert_eq!(format!(" {} ", kind.name().to_uppercase()).parse::<DriverKind>().unwrap(), kind);
        }
    }

    #[test]
    fn unknown_name_is_quoted_with_the_choices() {
        let message = "cuda".parse::<DriverKind>().unwrap_err().to_string();
        assert_eq!(message, "unknown driver \"cuda\"\n  help: use one of amd, nvidia, host");
    }
}
