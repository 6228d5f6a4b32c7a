//! Which nodes produce and read each value.
use crate::{Graph, NodeId, ValueId};

/// Producers and readers of a graph's values.
pub(super) struct Links {
    makers: Vec<Option<NodeId>>,
    readers: Vec<Vec<NodeId>>,
    wanted: Vec<bool>,
}

impl Links {
    pub fn new(graph: &Graph) -> Self {
        let count = graph.values().len();
        let mut links =
            Self { makers: vec![None; count], readers: vec![Vec::new(); count], wanted: vec![false; count] };
        for (at, node) in graph.nodes().iter().enumerate() {
            let id = NodeId(at as u32);
            for output in node.outputs.iter().flatten() {
                links.makers[output.0 as usize] = Some(id);
            }
            for input in node.inputs.iter().flatten() {
                let readers = &mut links.readers[input.0 as usize];
                if readers.last() != Some(&id) {
                    readers.push(id);
                }
            }
        }
        graph.outputs().iter().for_each(|output| links.wanted[output.0 as usize] = true);
        links
    }

    /// The node that produces a value.
    pub fn maker(&self, value: ValueId) -> Option<NodeId> {
        self.makers[value.0 as usize]
    }

    /// The nodes that read a value, each once.
    pub fn readers(&self, value: ValueId) -> &[NodeId] {
        &self.readers[value.0 as usize]
    }

    /// True if the value is an output of the graph.
    pub fn is_wanted(&self, value: ValueId) -> bool {
        self.wanted[value.0 as usize]
    }

    /// The only node that reads a value that is not an output.
    pub fn only_reader(&self, value: ValueId) -> Option<NodeId> {
        match self.readers(value) {
            [reader] if !self.is_wanted(value) => Some(*reader),
            _ => None,
        }
    }
}
