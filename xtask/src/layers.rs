//! The layer rule: a crate uses only crates of lower layers. `docs::sizes` draws the table and checks
//! docs/architecture.md against it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::workspace::{Workspace, folder_name};
use crate::{output, shell};

/// A crate's place in the architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerRule {
    /// Below every layer: any crate may use it, and it uses none.
    Floor,
    /// May use every crate of a lower layer.
    Layer(u8),
    /// An ordinary user of ONNX Runtime: may use only the crates listed here, and no crate uses it.
    User(&'static [&'static str]),
    /// Development only: may use every layer, and is used only as a dev-dependency.
    Development,
}

/// Every crate of `crates/` and its place.
pub const TABLE: [(&str, LayerRule); 33] = [
    ("dylib", LayerRule::Floor),
    ("ort-ep-sys", LayerRule::Layer(0)),
    ("hip", LayerRule::Layer(0)),
    ("graph", LayerRule::Layer(0)),
    ("options", LayerRule::Layer(0)),
    ("disk-cache", LayerRule::Layer(0)),
    ("host-ops", LayerRule::Layer(1)),
    ("hipdnn", LayerRule::Layer(1)),
    ("ort-client", LayerRule::Layer(1)),
    ("ort-ep", LayerRule::Layer(1)),
    ("hip-host", LayerRule::Layer(1)),
    ("reports", LayerRule::Layer(1)),
    ("device-status", LayerRule::Layer(2)),
    ("kernels", LayerRule::Layer(2)),
    ("hipdnn-abi", LayerRule::Layer(2)),
    ("hipdnn-linked", LayerRule::Layer(2)),
    ("hipdnn-host", LayerRule::Layer(3)),
    ("hipdnn-cudnn", LayerRule::Layer(3)),
    ("exec", LayerRule::Layer(4)),
    ("backend-hip", LayerRule::Layer(5)),
    ("backend-migraphx", LayerRule::Layer(5)),
    ("backend-directx", LayerRule::Layer(5)),
    ("backend-hipgpu", LayerRule::Layer(5)),
    ("umbrella", LayerRule::Layer(6)),
    // `doctor` reports which drivers were tried, which runtimes were found and how sessions are routed (docs/adr/0002).
    (
        "cli",
        LayerRule::User(&[
            "disk-cache",
            "hip",
            "hipdnn",
            "kernels",
            "options",
            "ort-client",
            "reports",
            "serve",
            "textgen",
            "umbrella",
        ]),
    ),
    ("serve", LayerRule::User(&["ort-client", "textgen"])),
    ("textgen", LayerRule::User(&["options", "ort-client"])),
    ("amd-model", LayerRule::Development),
    ("gfx-emu", LayerRule::Development),
    ("migraphx-standin", LayerRule::Development),
    ("kernel-catalogue", LayerRule::Development),
    ("hipdnn-suite", LayerRule::Development),
    ("testkit", LayerRule::Development),
];

/// `xtask` and the fuzz targets are development crates too, but not part of the table's picture.
const TOOLS: [&str; 2] = ["xtask", "fuzz"];

/// All crates except those for development only.
pub fn shipped() -> Vec<&'static str> {
    TABLE.iter().filter(|(_, place)| *place != LayerRule::Development).map(|(name, _)| *name).collect()
}

/// A dependency of one workspace crate on another.
struct Edge {
    from: String,
    to: String,
    dev: bool,
}

/// Checks the manifests of the workspace.
///
/// # Errors
/// When a crate is not in the table or uses one that it may not use; the message lists every such case.
pub fn run(workspace: &Workspace) -> Result<()> {
    let (crates, edges) = manifest_graph(&shell::metadata(workspace.root())?);
    let faults = faults(&crates, &edges);
    if !faults.is_empty() {
        bail!("crates violate the layer rule\n  {}\n  help: the table is in xtask/src/layers.rs", faults.join("\n  "));
    }
    output::say(format_args!(
        "layers: {} crates, {} uses between them, all to lower layers",
        crates.len(),
        edges.len()
    ));
    Ok(())
}

/// The crates and their dependencies, by the names of their folders: some packages have other names.
fn manifest_graph(metadata: &Value) -> (Vec<String>, Vec<Edge>) {
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    let folder_of = |package: &Value| Some(folder_name(Path::new(package["manifest_path"].as_str()?).parent()?));
    let crates: Vec<String> = packages.iter().filter_map(folder_of).collect();
    let mut edges = Vec::new();
    for package in &packages {
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let (Some(from), Some(to)) = (folder_of(package), dependency["path"].as_str()) else { continue };
            let to = folder_name(Path::new(to));
            // A crate may depend on itself in its tests, to enable a feature.
            if from != to && crates.contains(&to) {
                edges.push(Edge { from, to, dev: dependency["kind"] == "dev" });
            }
        }
    }
    (crates, edges)
}

fn faults(crates: &[String], edges: &[Edge]) -> Vec<String> {
    let table: BTreeMap<&str, LayerRule> =
        TABLE.into_iter().chain(TOOLS.map(|tool| (tool, LayerRule::Development))).collect();
    let unknown = crates.iter().filter(|name| !table.contains_key(name.as_str()));
    let mut faults: Vec<String> = unknown.map(|name| format!("{name} has no layer")).collect();
    for edge in edges {
        let (Some(&from), Some(&to)) = (table.get(edge.from.as_str()), table.get(edge.to.as_str())) else { continue };
        if let Err(reason) = allowed(edge, from, to) {
            faults.push(format!("{} uses {}: {reason}", edge.from, edge.to));
        }
    }
    faults
}

fn allowed(edge: &Edge, from: LayerRule, to: LayerRule) -> Result<(), String> {
    match (from, to) {
        (LayerRule::Development, _) => Ok(()),
        (_, LayerRule::Development) if edge.dev => Ok(()),
        (_, LayerRule::Development) => Err("it is for development only".into()),
        (LayerRule::Floor, _) => Err("crates of the floor use no other crate of ours".into()),
        (_, LayerRule::Floor) => Ok(()),
        (LayerRule::User(may), _) if may.contains(&edge.to.as_str()) => Ok(()),
        (LayerRule::User(may), _) => Err(format!("it may use only {may:?}")),
        (LayerRule::Layer(_), LayerRule::User(_)) => Err("no crate may use it".into()),
        (LayerRule::Layer(from), LayerRule::Layer(to)) if to < from => Ok(()),
        (LayerRule::Layer(from), LayerRule::Layer(to)) => Err(format!("layer {to} is not below layer {from}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(edges: &[(&str, &str, bool)]) -> Vec<String> {
        let edges: Vec<Edge> =
            edges.iter().map(|&(from, to, dev)| Edge { from: from.into(), to: to.into(), dev }).collect();
        faults(&[], &edges)
    }

    #[test]
    fn accepts_uses_that_go_down() {
        let down = [
            ("umbrella", "ort-ep", false),
            ("umbrella", "hip", false),
            ("ort-ep", "ort-ep-sys", false),
            ("exec", "kernels", false),
            ("cli", "hip", false),
            ("hip", "testkit", true),
            ("hip", "dylib", false),
            ("cli", "dylib", false),
            ("testkit", "ort-ep-sys", false),
            ("xtask", "testkit", false),
        ];
        assert_eq!(faults_of(&down), Vec::<String>::new());
    }

    #[test]
    fn refuses_uses_that_go_up_or_sideways() {
        assert_eq!(faults_of(&[("hip", "umbrella", false)]), ["hip uses umbrella: layer 6 is not below layer 0"]);
        assert_eq!(faults_of(&[("graph", "ort-ep", false)]), ["graph uses ort-ep: layer 1 is not below layer 0"]);
        assert_eq!(faults_of(&[("graph", "ort-ep", true)]).len(), 1, "a dev-dependency does not bypass the rule");
        assert_eq!(
            faults_of(&[("dylib", "hip", false)]),
            ["dylib uses hip: crates of the floor use no other crate of ours"]
        );
    }

    #[test]
    fn refuses_users_below_and_development_crates_in_products() {
        assert_eq!(faults_of(&[("umbrella", "cli", false)]), ["umbrella uses cli: no crate may use it"]);
        assert_eq!(faults_of(&[("umbrella", "testkit", false)]), ["umbrella uses testkit: it is for development only"]);
        assert_eq!(
            faults_of(&[("textgen", "exec", false)]),
            ["textgen uses exec: it may use only [\"options\", \"ort-client\"]"]
        );
    }

    #[test]
    fn refuses_a_crate_without_a_layer() {
        assert_eq!(faults(&["novelty".to_owned()], &[]), ["novelty has no layer"]);
    }

    #[test]
    fn reads_path_dependencies_out_of_the_metadata() {
        let metadata = serde_json::json!({"packages": [
            {"name": "a", "manifest_path": "/r/a/Cargo.toml", "dependencies": [
                {"name": "long-b", "path": "/r/b", "kind": null},
                {"name": "c", "path": "/r/c", "kind": "dev"},
                {"name": "serde", "kind": null}]},
            {"name": "long-b", "manifest_path": "/r/b/Cargo.toml", "dependencies": [{"name": "c", "kind": null}]},
            {"name": "c", "manifest_path": "/r/c/Cargo.toml", "dependencies": []}]});
        let (crates, edges) = manifest_graph(&metadata);
        assert_eq!(crates, ["a", "b", "c"], "folders, not packages");
        let edges: Vec<_> = edges.iter().map(|edge| (edge.from.as_str(), edge.to.as_str(), edge.dev)).collect();
        assert_eq!(edges, [("a", "b", false), ("a", "c", true)], "a registry crate of the same name is not ours");
    }
}
