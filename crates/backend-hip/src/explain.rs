//! Reports which nodes were placed and why the others were not, for `amdgpu-ep explain`.
use graph::pass::Fired;
use ort_ep::Result;
use ort_ep::view::Node;
use reports::{Counts, Explain, OfferedGraph, OfferedNode, PartitionPasses};

use crate::claim::Placement;

/// One graph that ONNX Runtime offered.
///
/// # Errors
/// ONNX Runtime failed to describe a node.
pub(crate) fn graph(name: &str, placement: &Placement<'_>) -> Result<Explain> {
    let mut nodes = Vec::new();
    for node in placement.partitions.iter().flatten().chain(&placement.alone) {
        nodes.push(entry(*node, None)?);
    }
    for (node, reason) in &placement.declined {
        nodes.push(entry(*node, Some(reason.to_string()))?);
    }
    Ok(Explain::Graph(OfferedGraph { graph: name.to_owned(), partitions: placement.partitions.len(), nodes }))
}

/// The passes that changed a partition.
pub(crate) fn passes(partition: &str, fired: &[Fired]) -> Explain {
    let passes = Counts(fired.iter().map(|fired| (fired.pass.to_owned(), fired.count)).collect());
    Explain::Passes(PartitionPasses { partition: partition.to_owned(), passes })
}

fn entry(node: Node<'_>, reason: Option<String>) -> Result<OfferedNode> {
    Ok(OfferedNode {
        name: node.name()?.to_owned(),
        op: node.op_type()?.to_owned(),
        domain: node.domain()?.to_owned(),
        since_version: node.since_version()?,
        placed: reason.is_none(),
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line in the file.
    fn line(report: &Explain) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("explain");
        reports::ReportFile::new(&file).append(report);
        std::fs::read_to_string(file).unwrap()
    }

    #[test]
    fn a_graph_without_nodes_is_recorded() {
        let empty = Placement { partitions: Vec::new(), alone: Vec::new(), declined: Vec::new() };
        assert_eq!(
            line(&graph("a \"graph\"", &empty).unwrap()),
            "{\"graph\":\"a \\\"graph\\\"\",\"partitions\":0,\"nodes\":[]}\n"
        );
    }

    #[test]
    fn passes_are_counted_by_name() {
        let fired = [Fired { pass: "gelu", count: 2 }, Fired { pass: "attention", count: 1 }];
        assert_eq!(
            line(&passes("p \"0\"", &fired)),
            "{\"partition\":\"p \\\"0\\\"\",\"passes\":{\"gelu\":2,\"attention\":1}}\n"
        );
    }
}
