//! Files that a model refers to by name.
use std::path::{Component, Path, PathBuf};

use crate::{Error, ErrorCode, Result};

/// Resolves a file name found in a model. The file must be in the model's folder or below it: a model must not make the
/// process read any other file.
///
/// # Errors
/// The name points outside the folder, or there is no such file.
pub fn resolve(folder: &Path, name: &str) -> Result<PathBuf> {
    let refused = |why: &str| {
        let folder = folder.display();
        let text = format!("the model refers to the file {name:?}, {why}: only files in {folder} and below are read");
        Error::new(ErrorCode::InvalidGraph, text)
    };
    // Both separators are checked on every platform, so that a model means the same everywhere.
    let plain = name.split(['/', '\\']).all(|part| part != "..")
        && Path::new(name).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        && !name.starts_with('\\')
        && !name.contains(':');
    if name.is_empty() || !plain {
        return Err(refused("which is not a path inside its folder"));
    }
    let path = folder.join(name);
    let found = path.canonicalize().map_err(|error| unreadable(&path, &error))?;
    let root = folder.canonicalize().map_err(|error| unreadable(folder, &error))?;
    if !found.starts_with(&root) {
        return Err(refused("a link to a file outside"));
    }
    if !found.is_file() {
        return Err(refused("which is not a file"));
    }
    Ok(found)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    let code = match error.kind() {
        std::io::ErrorKind::NotFound => ErrorCode::NoSuchFile,
        _ => ErrorCode::InvalidGraph,
    };
    let path = path.display();
    Error::new(code, format!("could not read {path}: {error}\n  help: keep the model's files next to it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_files_of_the_folder_and_below() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("below")).unwrap();
        for name in ["a.bin", "below/b.bin", "./c.bin"] {
            std::fs::write(folder.path().join(name), name).unwrap();
            assert_eq!(std::fs::read(resolve(folder.path(), name).unwrap()).unwrap(), name.as_bytes());
        }
    }

    #[test]
    fn refuses_names_that_lead_elsewhere() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("model");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(outer.path().join("secret"), "secret").unwrap();
        let absolute = outer.path().join("secret").display().to_string();
        for name in ["", ".", "../secret", "x/../../secret", "..\\secret", "\\secret", "C:secret", "..", &absolute] {
            let error = resolve(&folder, name).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidGraph, "{name}: {error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn follows_links_only_within_the_folder() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("model");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(outer.path().join("secret"), "secret").unwrap();
        std::fs::write(folder.join("own"), "own").unwrap();
        std::os::unix::fs::symlink("../secret", folder.join("out")).unwrap();
        std::os::unix::fs::symlink("own", folder.join("in")).unwrap();
        assert_eq!(std::fs::read(resolve(&folder, "in").unwrap()).unwrap(), b"own");
        assert!(resolve(&folder, "out").unwrap_err().message().contains("a link to a file outside"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = resolve(folder.path(), "gone.bin").unwrap_err();
        assert_eq!(error.code(), ErrorCode::NoSuchFile);
        assert!(error.message().contains("gone.bin"), "{error}");
    }
}
