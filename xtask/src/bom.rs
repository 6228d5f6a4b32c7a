//! A software bill of materials for each shippable file, as CycloneDX JSON.
//!
//! It lists the packages that are linked into a file. It depends on neither the time nor the machine: two builds of one
//! commit produce the same text.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::shell;
use crate::stage::{Shipped, Stage};
use crate::workspace::Workspace;

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The facts about each package, by name and version.
type Packages = BTreeMap<(String, String), Facts>;

/// The facts about one package.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Facts {
    licence: String,
    /// The digest of its archive; our own packages have none.
    sha256: Option<String>,
}

/// Writes `sbom/FILE.cdx.json` for each library, the command and the wheels below `stage`.
///
/// # Errors
/// When cargo cannot list the packages, or a file cannot be written.
pub fn write(workspace: &Workspace, stage: &Stage, wheels: &[&Path]) -> Result<()> {
    let known = packages(workspace)?;
    let rust = rust_version()?;
    let folder = stage.root.join("sbom");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut all = BTreeSet::new();
    let mut bills = Vec::new();
    for Shipped { package, file, is_program } in stage.shipped() {
        let linked = linked(workspace, &stage.packages(), package)?;
        all.extend(linked.iter().cloned());
        bills.push((file, if is_program { "application" } else { "library" }, linked));
    }
    for wheel in wheels {
        let file = wheel.file_name().unwrap_or_default().to_string_lossy().into_owned();
        bills.push((file, "application", all.clone()));
    }
    for (file, kind, linked) in bills {
        let bill = bill(&file, kind, env!("CARGO_PKG_VERSION"), &linked, &known, &rust)?;
        let path = folder.join(format!("{file}.cdx.json"));
        fs::write(&path, format!("{bill:#}\n")).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The packages that are linked into the library or program of a package, including itself, but not tests, build
/// scripts and macros.
fn linked(workspace: &Workspace, products: &[&str], package: &str) -> Result<BTreeSet<(String, String)>> {
    let mut tree = shell::cargo(workspace.root());
    // Select all products, as the build does, so that the features are the same.
    tree.args(["tree", "--locked", "--target", TARGET, "--edges", "normal,no-proc-macro", "--prefix", "depth"]);
    tree.args(["--no-dedupe", "--format", " {p}"]);
    tree.args(products.iter().flat_map(|product| ["--package", product]));
    Ok(below(&shell::capture(&mut tree)?, package))
}

/// The packages below one root in the output of `cargo tree`: a depth, a name and a version on each line.
fn below(tree: &str, root: &str) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    let mut is_inside = false;
    for line in tree.lines() {
        let Some((depth, package)) = line.split_once(' ') else { continue };
        let mut words = package.split_whitespace();
        let (Some(name), Some(version)) = (words.next(), words.next()) else { continue };
        if depth == "0" {
            is_inside = name == root;
        }
        if is_inside {
            found.insert((name.to_owned(), version.trim_start_matches('v').to_owned()));
        }
    }
    found
}

/// Licences come from the manifests, digests from the lock file.
fn packages(workspace: &Workspace) -> Result<Packages> {
    let mut metadata = shell::cargo(workspace.root());
    metadata.args(["metadata", "--locked", "--format-version", "1", "--filter-platform", TARGET]);
    let metadata: Value = serde_json::from_str(&shell::capture(&mut metadata)?).context("cargo's metadata")?;
    let lock = fs::read_to_string(workspace.path("Cargo.lock")).context("cannot read Cargo.lock")?;
    let mut digests = digests(&lock);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages = metadata["packages"].as_array().into_iter().flatten().map(|package| {
        let key = (text(&package["name"]), text(&package["version"]));
        let sha256 = digests.remove(&key);
        (key, Facts { licence: text(&package["license"]), sha256 })
    });
    Ok(packages.collect())
}

/// The digests of archives in a lock file, by name and version.
fn digests(lock: &str) -> BTreeMap<(String, String), String> {
    let entry = |text: &str| {
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \"")?.strip_suffix('"'));
            value.map(str::to_owned)
        };
        Some(((field("name")?, field("version")?), field("checksum")?))
    };
    lock.split("[[package]]").filter_map(entry).collect()
}

fn rust_version() -> Result<String> {
    let version = shell::capture(Command::new("rustc").arg("--version"))?;
    Ok(version.split_whitespace().nth(1).context("rustc prints no version")?.to_owned())
}

fn bill(
    file: &str,
    kind: &str,
    version: &str,
    linked: &BTreeSet<(String, String)>,
    known: &Packages,
    rust: &str,
) -> Result<Value> {
    let mut components = Vec::new();
    for key @ (name, version) in linked {
        let facts = known.get(key).with_context(|| format!("cargo's metadata has no {name} {version}"))?;
        components.push(component(name, version, facts));
    }
    let licence = |text: &str| json!([{ "expression": text }]);
    components.push(json!({
        "type": "library", "bom-ref": format!("rust-std@{rust}"), "name": "Rust standard library", "version": rust,
        "licenses": licence("MIT OR Apache-2.0"),
    }));
    // zig links its own libunwind.
    components.push(json!({
        "type": "library", "bom-ref": "libunwind", "name": "LLVM libunwind", "licenses": licence("Apache-2.0 WITH LLVM-exception"),
    }));
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {
            "type": kind, "bom-ref": file, "name": file, "version": version, "licenses": licence("MIT OR Apache-2.0"),
        }},
        "components": components,
    }))
}

fn component(name: &str, version: &str, facts: &Facts) -> Value {
    let mut component = json!({"type": "library", "name": name, "version": version});
    match &facts.sha256 {
        Some(sha256) => {
            let purl = format!("pkg:cargo/{name}@{version}");
            component["bom-ref"] = json!(purl);
            component["purl"] = json!(purl);
            component["hashes"] = json!([{"alg": "SHA-256", "content": sha256}]);
        }
        // One of our own packages, which is on no registry.
        None => component["bom-ref"] = json!(format!("amdgpu-ep/{name}@{version}")),
    }
    if !facts.licence.is_empty() {
        // Old manifests separate alternatives with a slash instead of OR.
        component["licenses"] = json!([{ "expression": facts.licence.replace('/', " OR ") }]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_one_root_are_found_in_the_tree() {
        let tree = "0 umbrella v0.1.0 (/r/crates/umbrella)\n1 log v0.4.35\n2 libc v0.2.1\n\n0 cli v0.1.0 (/r)\n1 clap v4.6.7\n";
        let pair = |name: &str, version: &str| (name.to_owned(), version.to_owned());
        let found: Vec<_> = below(tree, "umbrella").into_iter().collect();
        assert_eq!(found, [pair("libc", "0.2.1"), pair("log", "0.4.35"), pair("umbrella", "0.1.0")]);
        assert_eq!(below(tree, "other"), BTreeSet::new());
    }

    #[test]
    fn the_plugins_bill_lists_what_is_linked_with_licences_and_digests() {
        let workspace = Workspace::locate();
        let (known, linked) =
            (packages(&workspace).unwrap(), linked(&workspace, &["backend-hip"], "backend-hip").unwrap());
        let make = || bill("libhip-backend.so", "library", "0.1.0", &linked, &known, "1.95.0").unwrap();
        let text = format!("{:#}", make());
        assert_eq!(text, format!("{:#}", make()));
        assert!(text.contains("\"purl\": \"pkg:cargo/blake3@") && text.contains("\"alg\": \"SHA-256\""), "{text}");
        assert!(text.contains("\"bom-ref\": \"amdgpu-ep/graph@0.1.0\""), "{text}");
        for absent in ["proptest", "tempfile", "thiserror-impl", "tokenizers"] {
            assert!(!text.contains(&format!("\"name\": \"{absent}\"")), "{absent} is not linked into the backend");
        }
        let components = make()["components"].as_array().unwrap().clone();
        assert!(components.iter().all(|component| component["licenses"].is_array()), "{text}");
    }

    #[test]
    fn digests_come_from_the_lock_file() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"0f\"\n\n[[package]]\nname = \"ours\"\nversion = \"0.1.0\"\n";
        assert_eq!(
            digests(lock).into_iter().collect::<Vec<_>>(),
            [(("a".to_owned(), "1.0.0".to_owned()), "0f".to_owned())]
        );
    }
}
