//! Operator kernels that run node by node, without compiling.
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::view::{KernelContext, KernelInfo};
use crate::{DataTransfer, ElementType, Result};

/// The operator kernel of one node.
pub trait Kernel: Send + Sync + 'static {
    /// Runs it.
    ///
    /// # Errors
    /// Fails the run.
    fn compute(&self, context: &KernelContext<'_>) -> Result<()>;
}

/// Creates a kernel for a node.
pub type KernelCreator = Arc<dyn Fn(KernelInfo<'_>) -> Result<Box<dyn Kernel>> + Send + Sync>;

/// What makes a kernel.
#[derive(Clone)]
pub(crate) enum Creator {
    Own(KernelCreator),
    /// ONNX Runtime, for a node with subgraphs.
    ControlFlow(ControlFlow, Arc<dyn DataTransfer>),
}

/// The operators with subgraphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControlFlow {
    If,
    Loop,
    Scan,
}

/// Which nodes a kernel is for.
#[derive(Clone)]
pub struct KernelDef {
    pub(crate) domain: String,
    pub(crate) op_type: String,
    pub(crate) versions: RangeInclusive<i32>,
    pub(crate) host_inputs: Vec<usize>,
    pub(crate) host_outputs: Vec<usize>,
    pub(crate) constraints: Vec<(String, Vec<ElementType>)>,
    pub(crate) create: Creator,
}

impl KernelDef {
    /// A kernel for `op_type` of `domain` (`""` is ONNX's own) in the given schema versions.
    pub fn new<F>(domain: &str, op_type: &str, versions: RangeInclusive<i32>, create: F) -> Self
    where
        F: Fn(KernelInfo<'_>) -> Result<Box<dyn Kernel>> + Send + Sync + 'static,
    {
        Self::made_by(Creator::Own(Arc::new(create)), domain, op_type, versions)
    }

    /// ONNX Runtime's kernel for an operator with subgraphs.
    pub(crate) fn control_flow(
        kind: ControlFlow,
        op_type: &str,
        versions: RangeInclusive<i32>,
        transfer: Arc<dyn DataTransfer>,
    ) -> Self {
        Self::made_by(Creator::ControlFlow(kind, transfer), "", op_type, versions)
    }

    fn made_by(create: Creator, domain: &str, op_type: &str, versions: RangeInclusive<i32>) -> Self {
        Self {
            domain: domain.to_owned(),
            op_type: op_type.to_owned(),
            versions,
            host_inputs: Vec::new(),
            host_outputs: Vec::new(),
            constraints: Vec::new(),
            create,
        }
    }

    /// Requires input `index` in host memory.
    #[must_use]
    pub fn host_input(mut self, index: usize) -> Self {
        self.host_inputs.push(index);
        self
    }

    /// Produces output `index` in host memory.
    #[must_use]
    pub fn host_output(mut self, index: usize) -> Self {
        self.host_outputs.push(index);
        self
    }

    /// Accepts only these types for the schema's type parameter `name`.
    #[must_use]
    pub fn types(mut self, name: &str, types: &[ElementType]) -> Self {
        self.constraints.push((name.to_owned(), types.to_vec()));
        self
    }
}
