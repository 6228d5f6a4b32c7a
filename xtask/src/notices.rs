//! Licences of the crates that are linked into shipped files.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::platform::Platform;
use crate::workspace::Workspace;
use crate::{shell, windows};

const HEAD: &str = "\
The libraries and the command contain the following packages, besides Rust's standard library (MIT OR Apache-2.0) and, in
releases, LLVM's libunwind (Apache-2.0 WITH LLVM-exception) on Linux, or MinGW-w64's runtime (ZPL-2.1) and GCC's libgcc
(GPL-3.0-or-later WITH GCC-exception-3.1) on Windows. Each text is followed by those it covers.
";

/// Prefixes of the names of licence files.
const LICENCE_FILES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

/// The licences of all third-party packages that `products` need at run time on a platform.
///
/// # Errors
/// When cargo cannot list the packages, or a package's folder cannot be read.
pub fn text(workspace: &Workspace, products: &[&str], platform: Platform) -> Result<String> {
    let target = if platform.is_windows() { windows::TARGET } else { "x86_64-unknown-linux-gnu" };
    let mut metadata = shell::cargo(workspace.root());
    metadata.args(["metadata", "--format-version", "1", "--filter-platform", target]);
    let metadata: Value = serde_json::from_str(&shell::capture(&mut metadata)?).context("cargo's metadata")?;
    let packages: HashMap<&str, &Value> =
        array(&metadata["packages"]).filter_map(|package| Some((package["id"].as_str()?, package))).collect();
    let mut listed = String::new();
    let mut covered: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for id in linked(&metadata, products) {
        let Some(package) = packages.get(id).filter(|package| !package["source"].is_null()) else { continue };
        let field = |name: &str| package[name].as_str().unwrap_or_default();
        let name = format!("{} {}", field("name"), field("version"));
        let _ = writeln!(listed, "  {name} ({})", field("license"));
        let folder = Path::new(field("manifest_path")).parent().unwrap_or(Path::new(""));
        for text in licences_in(folder)? {
            covered.entry(text).or_default().push(name.clone());
        }
    }
    let mut text = format!("{HEAD}\n{listed}");
    for (licence, names) in covered {
        let _ = write!(text, "\n{}\n{}\n\n{}\n", "-".repeat(72), names.join(", "), licence.trim_end());
    }
    Ok(text)
}

/// The ids of the packages that are reachable from `products` without tests and build scripts, sorted by name.
fn linked<'a>(metadata: &'a Value, products: &[&str]) -> BTreeSet<&'a str> {
    let nodes: HashMap<&str, &Value> =
        array(&metadata["resolve"]["nodes"]).filter_map(|node| Some((node["id"].as_str()?, node))).collect();
    let is_product = |package: &&Value| products.iter().any(|product| package["name"] == **product);
    let mut next: Vec<&str> =
        array(&metadata["packages"]).filter(is_product).filter_map(|package| package["id"].as_str()).collect();
    let mut reached = BTreeSet::new();
    while let Some(id) = next.pop() {
        if !reached.insert(id) {
            continue;
        }
        for dependency in nodes.get(id).into_iter().flat_map(|node| array(&node["deps"])) {
            if array(&dependency["dep_kinds"]).any(|kind| kind["kind"].is_null()) {
                next.extend(dependency["pkg"].as_str());
            }
        }
    }
    reached
}

fn licences_in(folder: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        if path.is_file() && LICENCE_FILES.iter().any(|start| name.starts_with(start)) {
            files.push(path);
        }
    }
    files.sort();
    files
        .iter()
        .map(|file| fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display())))
        .collect()
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linked_packages_exclude_tests_and_build_scripts() {
        let kind = |kind: Value| serde_json::json!([{ "kind": kind }]);
        let metadata = serde_json::json!({
            "packages": [{"name": "ours", "id": "o"}, {"name": "log", "id": "l"}],
            "resolve": {"nodes": [
                {"id": "o", "deps": [
                    {"pkg": "l", "dep_kinds": kind(Value::Null)},
                    {"pkg": "proptest", "dep_kinds": kind("dev".into())},
                    {"pkg": "cc", "dep_kinds": kind("build".into())},
                ]},
                {"id": "l", "deps": [{"pkg": "deep", "dep_kinds": kind(Value::Null)}]},
            ]},
        });
        assert_eq!(linked(&metadata, &["ours"]).into_iter().collect::<Vec<_>>(), ["deep", "l", "o"]);
    }

    #[test]
    fn notices_hold_the_licence_of_a_crate_that_the_plugin_needs() {
        let text = text(&Workspace::locate(), &["umbrella"], Platform::Host).unwrap();
        assert!(text.contains("thiserror 2.") && text.contains("Permission is hereby granted"), "{text}");
        assert!(!text.contains("proptest"), "tests are not shipped");
    }
}
