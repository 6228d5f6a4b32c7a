//! Whether a hipBLASLt has kernels for a chip.
//!
//! The kernels are files beside the library. Without those for the chip, hipBLASLt prints several lines to stderr, and
//! then refuses every product with a status that also means a wrong argument. So look for the files before calling it.
use std::fs;
use std::path::{Path, PathBuf};

/// The variable with which users tell hipBLASLt where its kernels are.
const FOLDER_VARIABLE: &str = "HIPBLASLT_TENSILE_LIBPATH";
/// The folder of the kernels, from that of the library.
const FOLDER: &str = "hipblaslt/library";
/// The prefix of the names of files that list a chip's kernels.
const LIST: &str = "TensileLibrary";

/// The folder where hipBLASLt would find kernels for the target, if it is certain that it has none.
pub(crate) fn folder_without_kernels(library: &Path, target: &str) -> Option<PathBuf> {
    let named = std::env::var_os(FOLDER_VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let folder = named.or_else(|| library.parent().map(|folder| folder.join(FOLDER)))?;
    // A package may keep the kernels elsewhere. Then only the library itself knows which ones it has.
    (folder.is_dir() && !lists_kernels(&folder, target)).then_some(folder)
}

/// Whether the folder, or one below it, lists kernels for the target. Newer releases have a folder for each.
fn lists_kernels(folder: &Path, target: &str) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| {
        let path = entry.path();
        let name = entry.file_name();
        let is_list = name.to_str().is_some_and(|name| name.starts_with(LIST) && names(name, target));
        is_list || (path.is_dir() && name.to_str() == Some(target) && lists_kernels(&path, target))
    })
}

/// Whether a file name contains a target as a whole word: `gfx110` is not in `…_gfx1100.dat`.
fn names(file: &str, target: &str) -> bool {
    file.match_indices(target).any(|(at, _)| {
        let next = file[at + target.len()..].chars().next();
        next.is_none_or(|next| !next.is_ascii_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_in_both_layouts() {
        let root = tempfile::tempdir().unwrap();
        let library = root.path().join("libhipblaslt.so.1");
        assert_eq!(folder_without_kernels(&library, "gfx1100"), None, "the folder is unknown");
        let folder = root.path().join(FOLDER);
        fs::create_dir_all(folder.join("gfx1201")).unwrap();
        for file in ["TensileLibrary_lazy_gfx1100.dat", "Kernels.so-000-gfx942.hsaco", "extop_gfx942.co"] {
            fs::write(folder.join(file), "").unwrap();
        }
        fs::write(folder.join("gfx1201/TensileLibrary_BB_gfx1201.dat.zlib"), "").unwrap();
        for (target, is_there) in
            [("gfx1100", true), ("gfx1201", true), ("gfx942", false), ("gfx110", false), ("gfx906", false)]
        {
            let wanted = (!is_there).then(|| folder.clone());
            assert_eq!(folder_without_kernels(&library, target), wanted, "{target}");
        }
    }
}
