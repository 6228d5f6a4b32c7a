//! The SDK: crates of the workspace that other projects can use, which are those that may be published.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::shell;
use crate::workspace::Workspace;

/// A crate of the SDK.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SdkCrate {
    pub name: String,
    /// The name of its library in Rust code.
    pub library: String,
    pub folder: PathBuf,
    /// The oldest Rust that it promises to support.
    pub rust_version: String,
}

/// The crates of the SDK, by name.
///
/// # Errors
/// When the manifests cannot be read.
pub fn crates(workspace: &Workspace) -> Result<Vec<SdkCrate>> {
    let metadata = shell::metadata(workspace.root())?;
    let packages = metadata["packages"].as_array().context("`cargo metadata` lists no packages")?;
    let mut crates: Vec<SdkCrate> = packages.iter().filter_map(published).collect();
    crates.sort();
    Ok(crates)
}

/// `None` for a package with `publish = false`, whose list of registries is empty.
fn published(package: &Value) -> Option<SdkCrate> {
    if !package["publish"].is_null() {
        return None;
    }
    let is_library = |target: &&Value| target["kind"].as_array().is_some_and(|kinds| kinds.contains(&"lib".into()));
    let library = package["targets"].as_array()?.iter().find(is_library)?;
    Some(SdkCrate {
        name: package["name"].as_str()?.to_owned(),
        library: library["name"].as_str()?.to_owned(),
        folder: Path::new(package["manifest_path"].as_str()?).parent()?.to_owned(),
        rust_version: package["rust_version"].as_str()?.to_owned(),
    })
}

/// `--package` for each crate.
pub fn selected(crates: &[SdkCrate]) -> impl Iterator<Item = &str> {
    crates.iter().flat_map(|one| ["--package", one.name.as_str()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_is_published_unless_its_manifest_forbids_it() {
        let package = |publish: Value| {
            serde_json::json!({
                "name": "ort-ep", "publish": publish, "manifest_path": "/r/crates/ort-ep/Cargo.toml", "rust_version": "1.88",
                "targets": [{"name": "one", "kind": ["example"]}, {"name": "ort_ep", "kind": ["lib"]}]})
        };
        let found = published(&package(Value::Null)).unwrap();
        assert_eq!((found.name.as_str(), found.library.as_str()), ("ort-ep", "ort_ep"));
        assert_eq!((found.folder.as_path(), found.rust_version.as_str()), (Path::new("/r/crates/ort-ep"), "1.88"));
        assert_eq!(published(&package(serde_json::json!([]))), None);
    }
}
