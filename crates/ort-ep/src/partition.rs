//! What a claimed part of a graph becomes.
use crate::{
    Result,
    view::{Graph, KernelContext, Node},
};

/// A claimed group of nodes, to be compiled. Valid during [`Ep::compile`](crate::Ep::compile) only.
#[derive(Clone, Copy)]
pub struct FusedPartition<'a> {
    /// The claimed nodes.
    pub graph: Graph<'a>,
    /// The one node that stands for them. Inputs and outputs of [`Partition::compute`] come in *its* order, which is not
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

/// What [`Ep::compile`](crate::Ep::compile) gives for each partition.
pub struct Compiled {
    /// Runs the partition.
    pub partition: Box<dyn Partition>,
    /// The node that stands for it in a model saved for later, when such a model is being made.
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
    /// True for the node that carries the shared blob.
    pub main: bool,
    /// Further text attributes: `ep_sdk_version`, `hardware_architecture`, `partition_name`, `notes`, … The SDK adds
    /// `source`, the provider's name.
    pub texts: Vec<(String, String)>,
}
