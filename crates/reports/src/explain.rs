//! The report `explain`: what the backend made of a model.

use serde::{Deserialize, Serialize};

use crate::{Counts, Kind, Report};

/// A line of the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected the nodes of a graph, the passes of a partition or the steps of a plan")]
pub enum Explain {
    /// ONNX Runtime offered a graph.
    Graph(OfferedGraph),
    /// A partition was compiled.
    Passes(PartitionPasses),
    /// A plan was made.
    Steps(PlanSteps),
}

impl Report for Explain {
    const KIND: Kind = Kind::Explain;
}

report! {
    /// A graph that ONNX Runtime offered, with the answer for each node.
    pub struct OfferedGraph {
        /// name of the graph
        pub graph: String,
        /// number of partitions that the backend made of its nodes
        pub partitions: usize,
        /// every node that was offered
        pub nodes: Vec<OfferedNode>,
    }

    /// A node that ONNX Runtime offered.
    pub struct OfferedNode {
        /// name of the node, often empty
        pub name: String,
        /// operator
        pub op: String,
        /// domain of the operator; empty for ONNX's own
        pub domain: String,
        /// operator set version that defines this form of the operator
        pub since_version: i32,
        /// whether the backend claimed the node
        pub placed: bool,
        /// why the backend declined the node; `null` if it claimed it
        pub reason: Option<String>,
    }

    /// A compiled partition, with the passes that changed it.
    pub struct PartitionPasses {
        /// name of the partition
        pub partition: String,
        /// how often each pass changed it, by the name of the pass, in the order in which they ran
        pub passes: Counts,
    }

    /// A plan of a partition for one set of input shapes.
    pub struct PlanSteps {
        /// name of the partition
        pub partition: String,
        /// the steps, in the order in which they run
        pub steps: Vec<Step>,
    }

    /// A step of a plan.
    pub struct Step {
        /// name of the node that it came from
        pub node: String,
        /// operator of that node
        pub op: String,
        /// primitive that the step computes
        pub step: String,
        /// what runs it: `own: conv`, `BLASLt: matmul`, `host: gather`, `hipDNN: ENGINE`, or for a graph of several
        /// operations `hipDNN: ENGINE, 4 operations`
        pub run_by: String,
        /// why hipDNN declined it if it was offered the step, or why the host runs it; otherwise `null`
        pub reason: Option<String>,
        /// the measurements, if they decided what runs the step; otherwise `null`
        pub tuned: Option<Tuned>,
    }

    /// The measurements of a step.
    pub struct Tuned {
        /// fastest candidate: `own-1`, `blaslt-3`, `hipdnn-0`
        pub choice: String,
        /// its time in microseconds
        pub micros: f64,
        /// time of the step without tuning, in microseconds
        pub usual_micros: f64,
        /// number of candidates that were measured
        pub tried: usize,
    }
}
