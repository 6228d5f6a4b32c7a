//! Which files to try for the library, in which order.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use hip::sys::file_at;

use crate::Attempt;

/// The library's file names, the plain one first: hipDNN is built without a version in its name, packagers add one.
#[cfg(not(windows))]
pub(super) const FILES: &[&str] = &["libhipdnn_backend.so", "libhipdnn_backend.so.0", "libhipdnn_backend.so.1"];
/// The library's file name.
#[cfg(windows)]
pub(super) const FILES: &[&str] = &["hipdnn_backend.dll"];

/// Where to look for the backend library.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// A file or folder to take instead of the environment's.
    pub place: Option<PathBuf>,
    /// The file of the HIP runtime in use, whose folder is a good place to look.
    pub hip_runtime: Option<PathBuf>,
    /// Major versions to accept besides [`KNOWN_MAJORS`](crate::KNOWN_MAJORS).
    pub further_majors: Vec<u32>,
}

/// What the process and its environment say.
pub(super) struct Surroundings {
    pub file: Option<OsString>,
    pub folder: Option<OsString>,
    pub own_folder: Option<PathBuf>,
    /// The process runs with more rights than its caller: nothing the caller can write may choose a library.
    pub is_privileged: bool,
}

impl Surroundings {
    pub fn here() -> Self {
        Self {
            file: env::var_os("AMDGPU_EP_HIPDNN_LIBRARY"),
            folder: env::var_os("HIPDNN_BACKEND_LIBRARY_PATH"),
            own_folder: own_folder(),
            is_privileged: is_privileged(),
        }
    }
}

impl Search {
    /// The file that `AMDGPU_EP_HIPDNN_LIBRARY` names, unless the process has more rights than its caller.
    pub fn named_file() -> Option<PathBuf> {
        let around = Surroundings::here();
        given(&around.file).filter(|_| !around.is_privileged).map(PathBuf::from)
    }

    /// The files to try, and what was refused without trying.
    pub(super) fn candidates(&self, around: &Surroundings) -> (Vec<PathBuf>, Vec<Attempt>) {
        let (mut files, mut refused) = (Vec::new(), Vec::new());
        if let Some(place) = &self.place {
            // A caller that names a place wants that one and no other.
            files.extend(in_place(place));
            return (files, refused);
        }
        if !around.is_privileged {
            if let Some(file) = given(&around.file) {
                // So does a user who names a file.
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
            files.extend(self.hip_runtime.as_deref().and_then(Path::parent).into_iter().flat_map(in_folder));
        }
        files.extend(FILES.iter().map(PathBuf::from));
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
    FILES.iter().map(|file| folder.join(file)).collect()
}

fn own_folder() -> Option<PathBuf> {
    let file = file_at(own_folder as fn() -> Option<PathBuf> as usize).or_else(|| env::current_exe().ok())?;
    file.canonicalize().unwrap_or(file).parent().map(Path::to_owned)
}

#[cfg(target_os = "linux")]
fn is_privileged() -> bool {
    // SAFETY: asks for a number of the process's auxiliary vector.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(not(target_os = "linux"))]
fn is_privileged() -> bool {
    false
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn around() -> Surroundings {
        Surroundings {
            file: None,
            folder: Some("/opt/dnn".into()),
            own_folder: Some("/usr/app/bin".into()),
            is_privileged: false,
        }
    }

    fn plain(files: &[PathBuf]) -> Vec<String> {
        files.iter().map(|file| file.display().to_string()).filter(|file| !file.ends_with(['0', '1'])).collect()
    }

    #[test]
    fn the_environment_comes_first_and_the_loaders_path_last() {
        let search = Search { hip_runtime: Some("/opt/rocm/lib/libamdhip64.so.7".into()), ..Search::default() };
        let (files, refused) = search.candidates(&around());
        let want = [
            "/opt/dnn/libhipdnn_backend.so",
            "/usr/app/bin/libhipdnn_backend.so",
            "/usr/app/lib/libhipdnn_backend.so",
            "/usr/app/lib64/libhipdnn_backend.so",
            "/opt/rocm/lib/libhipdnn_backend.so",
            "libhipdnn_backend.so",
        ];
        assert_eq!(plain(&files), want);
        assert!(refused.is_empty());
    }

    #[test]
    fn a_named_place_is_the_only_one() {
        let around = Surroundings { file: Some("/opt/mine.so".into()), ..around() };
        let search = Search { place: Some("/opt/other/libfoo.so".into()), ..Search::default() };
        assert_eq!(plain(&search.candidates(&around).0), ["/opt/other/libfoo.so"]);
        assert_eq!(plain(&Search::default().candidates(&around).0), ["/opt/mine.so"]);
    }

    #[test]
    fn a_relative_folder_is_refused_with_a_reason() {
        let around = Surroundings { file: None, folder: Some("dnn".into()), own_folder: None, is_privileged: false };
        let (files, refused) = Search::default().candidates(&around);
        assert_eq!(plain(&files), ["libhipdnn_backend.so"]);
        assert_eq!(refused[0].file, Path::new("dnn"));
    }

    #[test]
    fn a_privileged_process_takes_the_loaders_word_alone() {
        let around = Surroundings { is_privileged: true, ..around() };
        assert_eq!(plain(&Search::default().candidates(&around).0), ["libhipdnn_backend.so"]);
    }
}
