//! ROCm installations.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// The folders below a root that contain libraries.
const LIBRARIES: &[&str] = if cfg!(windows) { &["bin"] } else { &["lib", "lib64"] };

/// Why an installation is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The HIP runtime in use comes from it.
    Hip,
    /// An environment variable names it.
    Variable(&'static str),
    /// It is in the usual place.
    Usual,
    /// Python packages next to ours.
    Python,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Hip => "beside the HIP runtime",
            Origin::Variable(name) => name,
            Origin::Usual => "the usual place",
            Origin::Python => "Python packages",
        })
    }
}

/// One ROCm installation: libraries that were built together. In a Python environment, it is spread over several
/// packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The folders that contain libraries, best first.
    pub folders: Vec<PathBuf>,
    /// Why it is searched.
    pub origin: Origin,
}

impl Tree {
    /// The installation at a root, even if it does not exist.
    pub fn at(root: &Path, origin: Origin) -> Tree {
        let mut folders: Vec<PathBuf> = LIBRARIES.iter().map(|name| root.join(name)).collect();
        // Keep the first folder even if it does not exist, so that an error can name it.
        let mut number = 0;
        folders.retain(|folder| {
            number += 1;
            number == 1 || folder.is_dir()
        });
        Tree { folders, origin }
    }

    /// The installation that a HIP runtime belongs to.
    pub fn of_hip(file: &Path) -> Option<Tree> {
        // A bare name has no folder.
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty())?;
        let mut folders = vec![folder.to_owned()];
        let package = folder.parent();
        if let Some(site) = package.filter(|package| is_package(package)).and_then(Path::parent) {
            folders.extend(packages(site).into_iter().filter(|other| other != folder));
        }
        Some(Tree { folders, origin: Origin::Hip })
    }

    /// The Python packages next to our own library, as one installation.
    pub fn of_python(own_folder: &Path) -> Option<Tree> {
        let is_site = |folder: &&Path| {
            let name = folder.file_name().and_then(OsStr::to_str);
            matches!(name, Some("site-packages" | "dist-packages"))
        };
        let folders = packages(own_folder.ancestors().find(is_site)?);
        (!folders.is_empty()).then_some(Tree { folders, origin: Origin::Python })
    }

    /// `rocm` and then `rocm-*`, newest first, in the folder that usually contains them.
    pub fn usual(parent: &Path) -> Vec<Tree> {
        let mut versioned = entries(parent, |name| name.starts_with("rocm-"));
        versioned.sort_by_key(|path| std::cmp::Reverse(numbers(path)));
        let roots = std::iter::once(parent.join("rocm")).chain(versioned);
        roots.map(|root| Tree::at(&root, Origin::Usual)).collect()
    }

    /// Whether a library is in this installation, after resolving symlinks.
    pub fn holds(&self, file: &Path) -> bool {
        let file = real(file);
        self.real_folders().iter().any(|folder| file.starts_with(folder))
    }

    /// The folders, with symlinks resolved.
    pub(crate) fn real_folders(&self) -> Vec<PathBuf> {
        self.folders.iter().map(|folder| real(folder)).collect()
    }
}

fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Whether a folder is one of the packages that TheRock splits ROCm into.
fn is_package(folder: &Path) -> bool {
    folder.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with("_rocm_sdk"))
}

/// The library folders of the packages in a Python environment that contain parts of ROCm.
fn packages(site: &Path) -> Vec<PathBuf> {
    let wanted = |name: &str| ["_rocm_sdk", "rocm", "migraphx"].iter().any(|prefix| name.starts_with(prefix));
    let roots = entries(site, wanted);
    let folders = roots.iter().flat_map(|root| LIBRARIES.iter().map(move |name| root.join(name)));
    folders.filter(|folder| folder.is_dir()).collect()
}

fn entries(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        entries.filter(|entry| entry.file_name().to_str().is_some_and(&wanted)).map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// The numbers in a file name, so that 7.10 sorts as newer than 7.9.
fn numbers(path: &Path) -> Vec<u64> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used, reason = "test helpers may panic")]
mod tests {
    use super::*;

    fn made(root: &Path, folders: &[&str]) {
        folders.iter().for_each(|folder| fs::create_dir_all(root.join(folder)).unwrap());
    }

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        let root = tempfile::tempdir().unwrap();
        made(root.path(), &["rocm-7.9.0/lib", "rocm-7.10.0/lib", "rocm-6.4.3/lib", "rocmplus/lib", "other/lib"]);
        let found: Vec<Tree> = Tree::usual(root.path());
        let folders: Vec<_> = found.iter().map(|tree| tree.folders[0].strip_prefix(root.path()).unwrap()).collect();
        let want = ["rocm/lib", "rocm-7.10.0/lib", "rocm-7.9.0/lib", "rocm-6.4.3/lib"];
        assert_eq!(folders, want.map(Path::new));
    }

    #[test]
    fn packages_of_one_environment_are_one_installation() {
        let root = tempfile::tempdir().unwrap();
        let site = root.path().join("lib/python3.11/site-packages");
        let core = site.join("_rocm_sdk_core/lib");
        made(&site, &["_rocm_sdk_core/lib", "_rocm_sdk_libraries_gfx110X_all/lib", "amdgpu_ep/lib", "numpy/lib"]);
        let libraries = site.join("_rocm_sdk_libraries_gfx110X_all/lib");
        let found = Tree::of_python(&site.join("amdgpu_ep/lib")).unwrap();
        assert_eq!(found.folders, [core.clone(), libraries.clone()]);
        let found = Tree::of_hip(&core.join("libamdhip64.so.7")).unwrap();
        assert_eq!(found.folders, [core, libraries.clone()]);
        assert!(found.holds(&libraries.join("libhipblaslt.so.1")));
        assert!(!found.holds(&site.join("numpy/lib/libhipblaslt.so.1")));
        assert_eq!(Tree::of_python(Path::new("/usr/lib")), None);
        assert_eq!(Tree::of_hip(Path::new("libamdhip64.so.7")), None);
    }
}
