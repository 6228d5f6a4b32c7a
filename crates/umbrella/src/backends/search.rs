//! Where to look for a backend's library.
use std::env;
use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::ffi::OsString;
use std::path::PathBuf;

use crate::routing::BackendName;

/// Folders to search for backend libraries, after this library's own.
pub(crate) const PATH_VARIABLE: &str = "AMDGPU_EP_BACKEND_PATH";

/// The files to try for a backend, in order: next to this library, in the variable's folders, on the loader's path. For
/// a library given as a file, only that file.
pub(crate) fn files(backend: &BackendName, own: Option<PathBuf>, folders: Option<OsString>) -> Vec<OsString> {
    let Some(stem) = backend.stem() else {
        return match backend {
            BackendName::Library(file) => vec![file.clone().into_os_string()],
            _ => Vec::new(),
        };
    };
    let file = file_name(stem);
    let listed = folders.as_ref().map(|list| env::split_paths(list).collect::<Vec<_>>()).unwrap_or_default();
    let folders = own.into_iter().chain(listed).filter(|folder| !folder.as_os_str().is_empty());
    folders.map(|folder| folder.join(&file).into_os_string()).chain([OsString::from(&file)]).collect()
}

/// The help text for a backend that was not found.
pub(super) fn help(backend: &BackendName) -> String {
    match backend.stem() {
        Some(stem) => {
            let (file, own) = (file_name(stem), file_name("amdgpu-ep"));
            format!(
                "put {file} next to {own}, or add its folder to {PATH_VARIABLE}; profile=auto uses a backend that is installed"
            )
        }
        None => "set backend_library to a plugin library of ONNX Runtime".to_owned(),
    }
}

fn file_name(stem: &str) -> String {
    format!("{DLL_PREFIX}{stem}{DLL_SUFFIX}")
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn looks_beside_the_library_first_and_on_the_loaders_path_last() {
        let found = files(&BackendName::Hip, Some("/opt/ep".into()), Some("/a::/b".into()));
        let want = ["/opt/ep/libhip-backend.so", "/a/libhip-backend.so", "/b/libhip-backend.so", "libhip-backend.so"];
        assert_eq!(found, want);
        assert_eq!(files(&BackendName::HipGpu, None, None), ["libhipgpu-backend.so"]);
    }

    #[test]
    fn a_library_given_by_path_is_not_searched_elsewhere() {
        let backend = BackendName::Library("/opt/x/libx.so".into());
        assert_eq!(files(&backend, Some("/opt/ep".into()), Some("/a".into())), ["/opt/x/libx.so"]);
    }
}
