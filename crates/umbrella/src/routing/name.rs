//! The names of the backends.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

/// A backend that can run a session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackendName {
    /// AMD's MIGraphX compiler.
    MiGraphX,
    /// This project's graph engine.
    Hip,
    /// DirectX 12, on Windows.
    DirectX,
    /// AMD's external HIP execution provider, `libhipgpu`.
    HipGpu,
    /// Any plugin library, by its path.
    Library(PathBuf),
}

/// The names of each backend, canonical names first.
const NAMES: [(&str, BackendName); 7] = [
    ("migraphx", BackendName::MiGraphX),
    ("hip", BackendName::Hip),
    ("directx", BackendName::DirectX),
    ("hipgpu", BackendName::HipGpu),
    ("directml", BackendName::DirectX),
    ("dml", BackendName::DirectX),
    ("hipep", BackendName::Hip),
];

impl BackendName {
    /// The backends with a fixed name.
    pub const NAMED: [Self; 4] = [Self::MiGraphX, Self::Hip, Self::DirectX, Self::HipGpu];

    /// The library's name without the platform's prefix and suffix; `None` for a library given by its path.
    pub const fn stem(&self) -> Option<&'static str> {
        match self {
            Self::MiGraphX => Some("migraphx-backend"),
            Self::Hip => Some("hip-backend"),
            Self::DirectX => Some("directx-backend"),
            Self::HipGpu => Some("hipgpu-backend"),
            Self::Library(_) => None,
        }
    }

    /// The part between `ep.` and the next dot in the keys of the backend's own options; `None` if unknown.
    pub const fn namespace(&self) -> Option<&'static str> {
        match self {
            Self::MiGraphX => Some("migraphx"),
            Self::Hip => Some("hip"),
            Self::DirectX => Some("directml"),
            Self::HipGpu => Some("hipgpu"),
            Self::Library(_) => None,
        }
    }
}

impl fmt::Display for BackendName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MiGraphX => f.write_str("migraphx"),
            Self::Hip => f.write_str("hip"),
            Self::DirectX => f.write_str("directx"),
            Self::HipGpu => f.write_str("hipgpu"),
            Self::Library(file) => file.display().fmt(f),
        }
    }
}

/// A string that does not name a backend.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown backend {text:?}: expected migraphx, hip, directx, hipgpu or the path of a plugin library")]
pub struct UnknownBackend {
    /// The string as given.
    pub text: String,
}

impl FromStr for BackendName {
    type Err = UnknownBackend;

    /// Parses a name, ignoring case and surrounding whitespace. A string that contains a path separator is a library's
    /// path.
    fn from_str(text: &str) -> Result<Self, UnknownBackend> {
        let word = text.trim();
        if let Some((_, name)) = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)) {
            return Ok(name.clone());
        }
        if word.contains(['/', '\\']) {
            return Ok(Self::Library(word.into()));
        }
        Err(UnknownBackend { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_in_any_case() {
        for backend in BackendName::NAMED {
            for text in [backend.to_string(), backend.to_string().to_uppercase(), format!(" {backend}\t")] {
                assert_eq!(text.parse(), Ok(backend.clone()), "{text:?}");
            }
            assert!(backend.stem().unwrap().ends_with("-backend"));
        }
        assert_eq!("DML".parse(), Ok(BackendName::DirectX));
    }

    #[test]
    fn a_path_names_a_library_and_other_words_do_not() {
        assert_eq!("/opt/some ep/libx.so".parse(), Ok(BackendName::Library("/opt/some ep/libx.so".into())));
        assert_eq!(r"C:\ep\x.dll".parse(), Ok(BackendName::Library(r"C:\ep\x.dll".into())));
        for text in ["", "auto", "libx.so", "migraphx-backend"] {
            assert_eq!(text.parse::<BackendName>(), Err(UnknownBackend { text: text.to_owned() }));
        }
    }
}
