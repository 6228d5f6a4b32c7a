//! The cache folder for compiled kernels.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::environment::Environment;
use crate::ffi;

/// The current state of the cache folder. Examining it creates nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cache {
    /// The folder; absent if no variable determines it.
    pub path: Option<String>,
    /// The variable that determined it.
    pub from: Option<&'static str>,
    /// Whether it exists.
    pub exists: bool,
    /// Whether files can be written to it, or it can be created.
    pub writable: bool,
    /// Total size of all files in bytes.
    pub size_bytes: u64,
    /// Number of files.
    pub files: u64,
}

/// Examines the folder that the environment selects.
pub fn collect(environment: &Environment) -> Cache {
    let Some((path, from)) = place(environment) else { return Cache::default() };
    let (size_bytes, files) = size(&path);
    Cache {
        exists: path.is_dir(),
        writable: path.ancestors().find(|folder| folder.exists()).is_some_and(ffi::is_writable_folder),
        path: Some(path.display().to_string()),
        from: Some(from),
        size_bytes,
        files,
    }
}

fn place(environment: &Environment) -> Option<(PathBuf, &'static str)> {
    disk_cache::root(|name| environment.raw(name).map(OsStr::to_owned))
}

/// Total size and number of the files below a folder. Links are not followed; unreadable files are left out.
fn size(folder: &Path) -> (u64, u64) {
    let (mut bytes, mut files) = (0, 0);
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(found) if found.is_dir() => open.push(entry.path()),
                Ok(found) if found.is_file() => {
                    bytes += found.len();
                    files += 1;
                }
                _ => {}
            }
        }
    }
    (bytes, files)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    #[test]
    fn first_variable_that_is_set_decides() {
        let all = [("AMDGPU_EP_CACHE_DIR", "/own"), ("XDG_CACHE_HOME", "/xdg"), ("HOME", "/home/me")];
        for (skipped, path, from) in [
            (0, "/own", "AMDGPU_EP_CACHE_DIR"),
            (1, "/xdg/amdgpu-ep", "XDG_CACHE_HOME"),
            (2, "/home/me/.cache/amdgpu-ep", "HOME"),
        ] {
            let environment = all.into_iter().skip(skipped).collect();
            assert_eq!(place(&environment), Some((PathBuf::from(path), from)));
        }
        assert_eq!(collect(&Environment::default()), Cache::default());
    }

    #[test]
    fn relative_xdg_folder_is_ignored() {
        let environment = [("XDG_CACHE_HOME", "cache"), ("HOME", "/home/me")].into_iter().collect();
        assert_eq!(place(&environment).unwrap().1, "HOME");
    }

    #[test]
    fn files_below_are_counted_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        fs::write(folder.path().join("a/b/kernel"), [0; 300]).unwrap();
        fs::write(folder.path().join("index"), [0; 20]).unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("a/loop")).unwrap();
        let cache = collect(&[("AMDGPU_EP_CACHE_DIR", folder.path())].into_iter().collect());
        assert_eq!((cache.size_bytes, cache.files), (320, 2));
        assert!(cache.exists && cache.writable);
    }

    #[test]
    fn missing_folder_is_writable_if_it_could_be_created_and_is_not_created() {
        let folder = tempfile::tempdir().unwrap();
        let wanted = folder.path().join("x/y");
        let cache = collect(&[("AMDGPU_EP_CACHE_DIR", &wanted)].into_iter().collect());
        assert!(!cache.exists && cache.writable);
        assert!(!folder.path().join("x").exists());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn folder_below_proc_cannot_be_created_even_by_root() {
        for folder in ["/proc/cache", "/proc/self/cache", "/sys/kernel/cache"] {
            let cache = collect(&[("AMDGPU_EP_CACHE_DIR", folder)].into_iter().collect());
            assert!(!cache.exists && !cache.writable, "{folder}");
        }
    }

    #[test]
    fn folder_below_a_file_is_not_writable() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let cache = collect(&[("AMDGPU_EP_CACHE_DIR", file.path().join("cache"))].into_iter().collect());
        assert!(!cache.exists && !cache.writable);
    }
}
