//! Captured graphs and their launchable instances.

use std::sync::{Arc, Mutex};

use crate::errors::Status;
use crate::handles::lock;
use crate::memory::Memory;
use crate::random::Random;
use crate::stream::{Stream, Ticket};
use crate::work::{Pins, Step, Task};

/// A captured step.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) handle: usize,
    pub(crate) step: Step,
    /// Indices of the nodes that must run first; all are smaller than the node's own.
    pub(crate) after: Vec<usize>,
}

impl Node {
    /// `hipGraphNodeType`.
    pub(crate) fn kind(&self) -> i32 {
        match self.step {
            Step::Kernel(_) => 0,
            Step::Copy(_) => 1,
            Step::Fill(_) => 2,
            Step::Host { .. } => 3,
            Step::Graph(_) => 4,
        }
    }
}

/// An immutable captured graph. Nodes are in the order of capture, which respects their edges.
#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
}

impl Graph {
    pub(crate) fn edges(&self) -> impl Iterator<Item = (&Node, &Node)> {
        self.nodes.iter().flat_map(move |node| node.after.iter().map(move |before| (&self.nodes[*before], node)))
    }

    pub(crate) fn pin(&self, memory: &Memory, pins: &mut Pins) -> Result<(), Status> {
        self.nodes.iter().try_for_each(|node| node.step.pin(memory, pins))
    }

    /// Visits all steps: in the order of capture, or, with `random`, in a random order that respects the edges.
    pub(crate) fn each_in_order(&self, random: Option<&mut Random>, visit: &mut dyn FnMut(&Step, Option<&mut Random>)) {
        let Some(random) = random else {
            return self.nodes.iter().for_each(|node| visit(&node.step, None));
        };
        let mut open: Vec<usize> = self.nodes.iter().map(|node| node.after.len()).collect();
        let mut ready: Vec<usize> = (0..open.len()).filter(|at| open[*at] == 0).collect();
        while !ready.is_empty() {
            let at = ready.swap_remove(random.below(ready.len()));
            visit(&self.nodes[at].step, Some(random));
            for (later, node) in self.nodes.iter().enumerate().skip(at + 1) {
                if node.after.contains(&at) {
                    open[later] -= 1;
                    if open[later] == 0 {
                        ready.push(later);
                    }
                }
            }
        }
    }
}

/// Why an instantiated graph could not take another graph's parameters.
pub(crate) enum UpdateFailure {
    /// The number of nodes or an edge differs.
    Topology,
    /// This node of the new graph is of another type.
    NodeType(usize),
}

/// An instantiated graph.
pub(crate) struct Exec {
    graph: Mutex<Arc<Graph>>,
    /// Launches of one instance never overlap, whatever streams they are on.
    last: Mutex<Option<Ticket>>,
}

impl Exec {
    pub(crate) fn new(graph: Arc<Graph>) -> Arc<Self> {
        Arc::new(Exec { graph: Mutex::new(graph), last: Mutex::new(None) })
    }

    pub(crate) fn graph(&self) -> Arc<Graph> {
        Arc::clone(&lock(&self.graph))
    }

    /// Runs the whole graph as one task of `stream`.
    ///
    /// # Errors
    /// [`Status::IllegalAddress`] if memory the graph uses was freed; a GPU would fault.
    pub(crate) fn launch(&self, memory: &Memory, stream: &Arc<Stream>) -> Result<(), Status> {
        let step = Step::Graph(self.graph());
        let mut pins = Pins::new();
        step.pin(memory, &mut pins).map_err(|_| Status::IllegalAddress)?;
        let mut last = lock(&self.last);
        let submission = stream.submit(last.take().into_iter().collect(), Task::Step(step, pins));
        *last = Some(submission.ticket());
        drop(last);
        submission.finish();
        Ok(())
    }

    /// Replaces the parameters for all later launches.
    pub(crate) fn update(&self, graph: Arc<Graph>) -> Result<(), UpdateFailure> {
        let mut current = lock(&self.graph);
        same_shape(&current, &graph)?;
        *current = graph;
        Ok(())
    }
}

fn same_shape(old: &Graph, new: &Graph) -> Result<(), UpdateFailure> {
    if old.nodes.len() != new.nodes.len() {
        return Err(UpdateFailure::Topology);
    }
    for (before, after) in old.nodes.iter().zip(&new.nodes) {
        if before.kind() != after.kind() {
            return Err(UpdateFailure::NodeType(after.handle));
        }
        if before.after != after.after {
            return Err(UpdateFailure::Topology);
        }
        if let (Step::Graph(before), Step::Graph(after)) = (&before.step, &after.step) {
            same_shape(before, after)?;
        }
    }
    Ok(())
}
