//! Compatibility infos of compiled models: the name of the backend that made the model, followed by the backend's own
//! text.
//!
//! `amdgpu-ep/1;backend=hip;<the backend's text>`
use crate::routing::BackendName;

/// The start of all our infos, whatever their version.
const FAMILY: &str = "amdgpu-ep/";
const HEAD: &str = "amdgpu-ep/1;backend=";

/// The text before a backend's own text.
pub(crate) fn prefix(backend: &BackendName) -> String {
    // A file name may contain the character that ends the name here.
    let name = backend.to_string().replace('%', "%25").replace(';', "%3B");
    format!("{HEAD}{name};")
}

/// The origin of an info.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Info<'i> {
    /// Not one of ours.
    Foreign,
    /// Ours, but in a format this version does not know.
    Unknown,
    /// A backend's own text.
    Of(BackendName, &'i str),
}

/// Parses an info.
pub(crate) fn read(info: &str) -> Info<'_> {
    if !info.starts_with(FAMILY) {
        return Info::Foreign;
    }
    let parts = info.strip_prefix(HEAD).and_then(|rest| rest.split_once(';'));
    let Some((name, inner)) = parts else { return Info::Unknown };
    let name = name.replace("%3B", ";").replace("%25", "%");
    name.parse().map_or(Info::Unknown, |backend| Info::Of(backend, inner))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn other_texts_are_recognised() {
        assert_eq!(read(""), Info::Foreign);
        assert_eq!(read("hip;1"), Info::Foreign);
        assert_eq!(read("amdgpu-ep/2;backend=hip;x"), Info::Unknown);
        assert_eq!(read("amdgpu-ep/1;backend=warp;x"), Info::Unknown);
        assert_eq!(read("amdgpu-ep/1;backend=hip"), Info::Unknown);
        assert_eq!(read("amdgpu-ep/1;backend=hip;"), Info::Of(BackendName::Hip, ""));
    }

    proptest! {
        #[test]
        fn a_wrapped_text_survives_a_round_trip(inner in ".*", file in "/[a-z;%3B25]{1,12}", named in 0usize..5) {
            let backend = BackendName::NAMED.get(named).cloned().unwrap_or(BackendName::Library(file.into()));
            let info = format!("{}{inner}", prefix(&backend));
            prop_assert_eq!(read(&info), Info::Of(backend, &inner));
        }

        #[test]
        fn any_text_is_read(text in ".*") {
            read(&text);
        }
    }
}
