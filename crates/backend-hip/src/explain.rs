//! Records which nodes were placed and why the others were not, for `amdgpu-ep explain`.
//!
//! The session-config entry `ep.hip.explain_file` names a file. Each graph that ONNX Runtime offers adds one line of
//! JSON:
//! `{"graph":…,"partitions":n,"nodes":[{"name":…,"op":…,"domain":…,"since_version":n,"placed":bool,"reason":…}]}`. Each
//! compiled partition adds `{"partition":…,"passes":{pass:n,…}}`: the passes that changed it, and how often. Each plan
//! adds `{"partition":…,"steps":[{"node":…,"op":…,"step":…,"run_by":…,"reason":…,"tuned":…}]}`: what runs each step,
//! why hipDNN declined it if it was offered the step, and the measurements if they decided.
use std::{
    fs::OpenOptions,
    io::Write as _,
    path::{Path, PathBuf},
};

use exec::Prepared;
use graph::{Graph, pass::Fired};
use ort_ep::{Result, view::Node};

use crate::{claim::Placement, json, steps};

/// The file that records are appended to.
pub(crate) struct Explain {
    file: PathBuf,
}

impl Explain {
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into() }
    }

    /// Appends the record of one graph. A write error does not fail the session.
    ///
    /// # Errors
    /// ONNX Runtime failed to describe a node.
    pub fn record(&self, graph: &str, placement: &Placement<'_>) -> Result<()> {
        self.append(&line(graph, placement)?);
        Ok(())
    }

    /// Appends the passes that changed a partition.
    pub fn record_passes(&self, partition: &str, fired: &[Fired]) {
        self.append(&passes_line(partition, fired));
    }

    /// Appends which code runs each step of a plan.
    pub fn record_steps(&self, partition: &str, graph: &Graph, prepared: &dyn Prepared) {
        self.append(&steps::line(partition, graph, prepared));
    }

    fn append(&self, line: &str) {
        if let Err(error) = append(&self.file, line) {
            let file = self.file.display();
            tracing::warn!(target: "amdgpu_ep::partition", "the explain file {file} could not be written: {error}");
        }
    }
}

/// Writes the line in one call, so that lines from sessions created concurrently do not interleave.
pub(crate) fn append(file: &Path, line: &str) -> std::io::Result<()> {
    OpenOptions::new().create(true).append(true).open(file)?.write_all(line.as_bytes())
}

fn line(graph: &str, placement: &Placement<'_>) -> Result<String> {
    let mut nodes = Vec::new();
    for node in placement.partitions.iter().flatten() {
        nodes.push(entry(*node, None)?);
    }
    for (node, reason) in &placement.declined {
        nodes.push(entry(*node, Some(&reason.to_string()))?);
    }
    let (graph, partitions) = (json::text(graph), placement.partitions.len());
    Ok(format!("{{\"graph\":{graph},\"partitions\":{partitions},\"nodes\":[{}]}}\n", nodes.join(",")))
}

fn passes_line(partition: &str, fired: &[Fired]) -> String {
    let counts: Vec<String> = fired.iter().map(|fired| format!("{}:{}", json::text(fired.pass), fired.count)).collect();
    format!("{{\"partition\":{},\"passes\":{{{}}}}}\n", json::text(partition), counts.join(","))
}

fn entry(node: Node<'_>, reason: Option<&str>) -> Result<String> {
    let (name, op, domain) = (json::text(node.name()?), json::text(node.op_type()?), json::text(node.domain()?));
    let (version, placed) = (node.since_version()?, reason.is_none());
    let reason = reason.map_or_else(|| "null".to_owned(), json::text);
    Ok(format!(
        "{{\"name\":{name},\"op\":{op},\"domain\":{domain},\"since_version\":{version},\"placed\":{placed},\"reason\":{reason}}}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_added_to_what_is_there() {
        let folder = std::env::temp_dir().join(format!("backend-hip-explain-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("record");
        append(&file, "one\n").unwrap();
        append(&file, "two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "one\ntwo\n");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_graph_without_nodes_is_a_record_too() {
        let empty = Placement { partitions: Vec::new(), declined: Vec::new() };
        assert_eq!(
            line("a \"graph\"", &empty).unwrap(),
            "{\"graph\":\"a \\\"graph\\\"\",\"partitions\":0,\"nodes\":[]}\n"
        );
    }

    #[test]
    fn passes_are_counted_by_name() {
        let fired = [Fired { pass: "gelu", count: 2 }, Fired { pass: "attention", count: 1 }];
        assert_eq!(
            passes_line("p \"0\"", &fired),
            "{\"partition\":\"p \\\"0\\\"\",\"passes\":{\"gelu\":2,\"attention\":1}}\n"
        );
    }

    #[test]
    fn a_file_that_cannot_be_written_fails_nothing() {
        let empty = Placement { partitions: Vec::new(), declined: Vec::new() };
        let missing = std::env::temp_dir().join("no-such-folder-of-backend-hip/record");
        Explain::new(missing).record("graph", &empty).unwrap();
    }
}
