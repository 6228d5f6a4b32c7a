//! Which files to try for the library, in which order.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use dylib::rocm::HIPDNN;
use dylib::{Candidate, Candidates};

use crate::Attempt;

/// Where to look for the backend library.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// A file or folder to use instead of the environment's.
    pub place: Option<PathBuf>,
    /// The file of the HIP runtime in use; its folder is searched too.
    pub hip_runtime: Option<PathBuf>,
    /// Major versions to accept in addition to [`KNOWN_MAJORS`](crate::KNOWN_MAJORS).
    pub further_majors: Vec<u32>,
}

/// The inputs of the search from the process and its environment.
pub(super) struct SearchContext {
    pub file: Option<OsString>,
    pub folder: Option<OsString>,
    pub own_folder: Option<PathBuf>,
    /// Where ROCm may be installed.
    pub rocm: dylib::SearchContext,
    /// The process has more privileges than its caller: nothing that the caller can write may select a library.
    pub is_privileged: bool,
}

impl SearchContext {
    pub fn here() -> Self {
        Self {
            file: env::var_os("AMDGPU_EP_HIPDNN_LIBRARY"),
            folder: env::var_os("HIPDNN_BACKEND_LIBRARY_PATH"),
            own_folder: dylib::own_folder(),
            rocm: dylib::SearchContext::of_process(),
            is_privileged: dylib::is_privileged(),
        }
    }
}

impl Search {
    /// The file that `AMDGPU_EP_HIPDNN_LIBRARY` names, unless the process has more privileges than its caller.
    pub fn named_file() -> Option<PathBuf> {
        let around = SearchContext::here();
        given(&around.file).filter(|_| !around.is_privileged).map(PathBuf::from)
    }

    /// The files to try, and the ones rejected without trying.
    pub(super) fn candidates(&self, around: &SearchContext) -> (Vec<PathBuf>, Vec<Attempt>) {
        let (mut files, mut refused) = (Vec::new(), Vec::new());
        if let Some(place) = &self.place {
            // If the caller names a place, only that one is tried.
            files.extend(in_place(place));
            return (files, refused);
        }
        if !around.is_privileged {
            if let Some(file) = given(&around.file) {
                // The same if the user names a file.
                return (vec![file.into()], refused);
            }
            if let Some(folder) = given(&around.folder) {
                let folder = Path::new(folder);
                if folder.is_absolute() {
                    files.extend(in_folder(folder));
                } else {
                    let reason = "HIPDNN_BACKEND_LIBRARY_PATH must name an absolute folder".to_owned();
                    refused.push(Attempt { file: folder.to_owned(), reason });
                }
            }
            if let Some(own) = &around.own_folder {
                files.extend(in_folder(own));
                let beside = |name| own.parent().map(|parent| parent.join(name));
                files.extend(["lib", "lib64"].into_iter().filter_map(beside).flat_map(|folder| in_folder(&folder)));
            }
            let mut installed = Candidates::of(HIPDNN.files);
            around.rocm.installed(&HIPDNN, self.hip_runtime.as_deref(), &mut installed);
            for candidate in installed.list() {
                match candidate {
                    Candidate::File(file) => files.push(file),
                    Candidate::NoFolder(file) => refused.push(Attempt { file, reason: "no such folder".to_owned() }),
                    // The plain names are added below.
                    Candidate::Plain(_) | Candidate::Loaded(_) => {}
                }
            }
        }
        files.extend(HIPDNN.files.iter().map(PathBuf::from));
        (files, refused)
    }
}

fn given(value: &Option<OsString>) -> Option<&OsStr> {
    value.as_deref().filter(|value| !value.is_empty())
}

fn in_place(place: &Path) -> Vec<PathBuf> {
    if place.is_dir() { in_folder(place) } else { vec![place.to_owned()] }
}

fn in_folder(folder: &Path) -> Vec<PathBuf> {
    HIPDNN.files.iter().map(|file| folder.join(file)).collect()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn around() -> SearchContext {
        SearchContext {
            file: None,
            folder: Some("/opt/dnn".into()),
            own_folder: Some("/usr/app/bin".into()),
            rocm: dylib::SearchContext::default(),
            is_privileged: false,
        }
    }

    fn plain(files: &[PathBuf]) -> Vec<String> {
        files.iter().map(|file| file.display().to_string()).filter(|file| !file.ends_with(['0', '1'])).collect()
    }

    #[test]
    fn the_environment_comes_first_then_rocm_and_the_loaders_path_last() {
        let root = tempfile::tempdir().unwrap();
        let [hip, therock] = ["rocm-7.9/lib", "therock/lib"].map(|folder| root.path().join(folder));
        [&hip, &therock].iter().for_each(|folder| std::fs::create_dir_all(folder).unwrap());
        let mut around = around();
        around.rocm.variables.insert("THEROCK_DIST", root.path().join("therock"));
        around.rocm.variables.insert("ROCM_PATH", root.path().join("missing"));
        let search = Search { hip_runtime: Some(hip.join("libamdhip64.so.7")), ..Search::default() };
        let (files, refused) = search.candidates(&around);
        let want = [
            "/opt/dnn/libhipdnn_backend.so",
            "/usr/app/bin/libhipdnn_backend.so",
            "/usr/app/lib/libhipdnn_backend.so",
            "/usr/app/lib64/libhipdnn_backend.so",
            &hip.join("libhipdnn_backend.so").display().to_string(),
            &therock.join("libhipdnn_backend.so").display().to_string(),
            "libhipdnn_backend.so",
        ];
        assert_eq!(plain(&files), want);
        let missing = Attempt { file: root.path().join("missing/lib"), reason: "no such folder".to_owned() };
        assert_eq!(refused, [missing]);
    }

    #[test]
    fn a_named_place_is_the_only_one() {
        let around = SearchContext { file: Some("/opt/mine.so".into()), ..around() };
        let search = Search { place: Some("/opt/other/libfoo.so".into()), ..Search::default() };
        assert_eq!(plain(&search.candidates(&around).0), ["/opt/other/libfoo.so"]);
        assert_eq!(plain(&Search::default().candidates(&around).0), ["/opt/mine.so"]);
    }

    #[test]
    fn a_relative_folder_is_refused_with_a_reason() {
        let around = SearchContext { folder: Some("dnn".into()), own_folder: None, ..around() };
        let (files, refused) = Search::default().candidates(&around);
        assert_eq!(plain(&files), ["libhipdnn_backend.so"]);
        assert_eq!(refused[0].file, Path::new("dnn"));
    }

    #[test]
    fn a_privileged_process_uses_only_the_loaders_path() {
        let around = SearchContext { is_privileged: true, ..around() };
        assert_eq!(plain(&Search::default().candidates(&around).0), ["libhipdnn_backend.so"]);
    }
}
