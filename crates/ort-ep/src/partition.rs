//! Claimed groups of nodes, before and after compiling.
use crate::Result;
use crate::view::{Graph, KernelContext, Node};

/// A claimed group of nodes, to be compiled. Valid only during [`Ep::compile`](crate::Ep::compile).
#[derive(Clone, Copy)]
pub struct FusedPartition<'a> {
    /// The claimed nodes.
    pub graph: Graph<'a>,
    /// The one node that replaces them. Inputs and outputs of [`Partition::compute`] come in *its* order, which is not
    /// the order of the nodes inside: map by name.
    pub node: Node<'a>,
}

/// A compiled partition. Concurrent runs share it.
pub trait Partition: Send + Sync + 'static {
    /// Runs it.
    ///
    /// # Errors
    /// Fails the run.
    fn compute(&self, context: &KernelContext<'_>) -> Result<()>;
}

/// What [`Ep::compile`](crate::Ep::compile) returns for each partition.
pub struct Compiled {
    /// Runs the partition.
    pub partition: Box<dyn Partition>,
    /// The node that replaces it in a compiled model, if one is being saved.
    pub context_node: Option<EpContextNode>,
}

impl Compiled {
    /// A partition that is not saved.
    pub fn new(partition: impl Partition) -> Self {
        Self { partition: Box::new(partition), context_node: None }
    }
}

/// The attributes of an EPContext node; its name, inputs and outputs are the fused node's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpContextNode {
    /// The blob itself, or the name of the file that holds it, relative to the model.
    pub context: Vec<u8>,
    /// True if `context` is the blob itself.
    pub embedded: bool,
    /// True for the node that holds the shared blob.
    pub main: bool,
    /// Further string attributes: `ep_sdk_version`, `hardware_architecture`, `partition_name`, `notes`, … The SDK adds
    /// `source`, the provider's name.
    pub texts: Vec<(String, String)>,
}
