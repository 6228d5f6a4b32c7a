//! Operation graphs: tensors and operations, validated and inferred here, built by a backend.

mod build;
mod operation;
mod ops;
mod tensor;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use operation::{Operation, Tensors};
pub use ops::{
    Attention, BatchNormStatistics, Convolution, Dropout, MoeGroupedMatmul, Pointwise, Reduction, Resample,
    RunningStatistics,
};
pub use tensor::{Scalar, Tensor, TensorId};

use crate::safe::{Descriptor, Handle, OperationGraph};
use crate::sys::{AttributeName, DataType, DescriptorType};
use crate::{Error, Result};

/// A graph of operations.
///
/// Add tensors first. Operations then create new ones, which are virtual until [`output`](Self::output) makes them
/// visible.
#[derive(Debug)]
pub struct Graph {
    name: String,
    io: DataType,
    intermediate: DataType,
    compute: DataType,
    tensors: Tensors,
    operations: Vec<Operation>,
    preferred: Option<i64>,
    /// The error of the first `output` call whose tensor is not a result of an operation.
    misuse: Option<Error>,
}

impl Graph {
    /// An empty graph with input and output tensors of type `io`, which computes in `compute`.
    pub fn new(io: DataType, compute: DataType) -> Self {
        Self {
            name: String::new(),
            io,
            intermediate: compute,
            compute,
            tensors: Tensors::default(),
            operations: Vec::new(),
            preferred: None,
            misuse: None,
        }
    }

    /// Sets a name for messages.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the type of virtual tensors, instead of the compute type.
    #[must_use]
    pub fn intermediate(mut self, intermediate: DataType) -> Self {
        self.intermediate = intermediate;
        self
    }

    /// Sets an engine, by its id, that [`plan`](OperationGraph::plan) tries before the others if it supports the graph.
    #[must_use]
    pub fn preferring(mut self, engine: i64) -> Self {
        self.preferred = Some(engine);
        self
    }

    /// The graph's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of operations so far.
    pub fn operations(&self) -> usize {
        self.operations.len()
    }

    /// Adds a tensor that the caller provides.
    pub fn tensor(&mut self, tensor: Tensor) -> TensorId {
        self.tensors.add(tensor)
    }

    /// Makes a result visible: the caller provides its memory. `wanted` may set its name, type, uid, extents and
    /// strides.
    pub fn output(&mut self, id: TensorId, wanted: Tensor) -> TensorId {
        if !self.operations.iter().any(|operation| operation.makes.iter().any(|&(_, made)| made == id)) {
            let misuse = Error::invalid(self.label(), format!("{id:?} is not the result of any of its operations"));
            self.misuse.get_or_insert(misuse);
            return id;
        }
        let made = self.tensors.get_mut(id);
        let keep = |given: Vec<i64>, had: &[i64]| if given.is_empty() { had.to_vec() } else { given };
        *made = Tensor {
            is_virtual: false,
            dims: keep(wanted.dims, &made.dims),
            strides: keep(wanted.strides, &made.strides),
            ..wanted
        };
        id
    }

    /// A tensor's current extents and strides: after [`validate`](Self::validate) with everything that could be
    /// inferred, empty for a tensor of another graph.
    pub fn extents(&self, id: TensorId) -> (&[i64], &[i64]) {
        self.tensors.find(id).map(|tensor| (&tensor.dims[..], &tensor.strides[..])).unwrap_or_default()
    }

    fn result(&mut self, tensor: Tensor) -> TensorId {
        self.tensors.add(Tensor { is_virtual: true, ..tensor })
    }

    /// Checks every rule that can be checked without a backend, and infers missing properties.
    ///
    /// # Errors
    /// The first violated rule, with the tensor or operation concerned.
    pub fn validate(&mut self) -> Result<()> {
        self.check_structure()?;
        let (io, intermediate) = (self.io, self.intermediate);
        for id in self.tensors.ids() {
            let tensor = self.tensors.get_mut(id);
            let default = if tensor.is_virtual { intermediate } else { io };
            tensor.data_type.get_or_insert(default);
        }
        for operation in &self.operations {
            operation.reads.iter().try_for_each(|&(_, id)| self.tensors.get(id).check(id))?;
            (operation.rule)(&mut self.tensors)?;
            operation.makes.iter().try_for_each(|&(_, id)| self.tensors.get(id).check(id))?;
        }
        self.number_tensors()
    }

    /// Checks that all ids belong to this graph, that `output` was called on results only, and that the graph is
    /// connected.
    fn check_structure(&self) -> Result<()> {
        if let Some(misuse) = &self.misuse {
            return Err(misuse.clone());
        }
        if self.operations.is_empty() {
            return Err(Error::invalid(self.label(), "it has no operation"));
        }
        // The group of each tensor: the lowest index of the tensors that it is connected to.
        let mut group: Vec<usize> = self.tensors.ids().map(|id| id.0).collect();
        for operation in &self.operations {
            let all: Vec<TensorId> = operation.tensors().collect();
            if let Some(foreign) = all.iter().find(|&&id| !self.tensors.has(id)) {
                return Err(Error::invalid(operation.name, format!("{foreign:?} is a tensor of another graph")));
            }
            let lowest = all.iter().map(|id| group[id.0]).min().unwrap_or(0);
            let joined: HashSet<usize> = all.iter().map(|id| group[id.0]).collect();
            group.iter_mut().filter(|group| joined.contains(group)).for_each(|group| *group = lowest);
        }
        let used = self.operations.iter().flat_map(Operation::tensors);
        if used.map(|id| group[id.0]).collect::<HashSet<_>>().len() > 1 {
            return Err(Error::invalid(self.label(), "the graph is not connected"));
        }
        Ok(())
    }

    /// Assigns the smallest free uids, in the order in which tensors were added, to those without one.
    fn number_tensors(&mut self) -> Result<()> {
        let mut taken = HashSet::new();
        for id in self.tensors.ids() {
            if let Some(uid) = self.tensors.get(id).uid
                && !taken.insert(uid)
            {
                return self.tensors.refuse(id, format!("uid {uid} is also used by another tensor"));
            }
        }
        let mut next = 0;
        for id in self.tensors.ids() {
            if self.tensors.get(id).uid.is_none() {
                while taken.contains(&next) {
                    next += 1;
                }
                taken.insert(next);
                self.tensors.get_mut(id).uid = Some(next);
            }
        }
        Ok(())
    }

    fn label(&self) -> String {
        format!("graph {:?}", self.name)
    }

    /// A tensor's uid for [`Plan::execute`](crate::Plan::execute); `None` before [`validate`](Self::validate).
    pub fn uid(&self, id: TensorId) -> Option<i64> {
        self.tensors.find(id)?.uid
    }

    /// Validates the graph and passes it to a backend.
    ///
    /// # Errors
    /// A rule is violated, or the backend rejects the graph.
    pub fn build(&mut self, handle: &Handle) -> Result<OperationGraph> {
        self.validate()?;
        let backend = handle.backend();
        let mut tensors = HashMap::new();
        for operation in &self.operations {
            for id in operation.tensors() {
                if let Entry::Vacant(slot) = tensors.entry(id) {
                    slot.insert(self.lower_tensor(handle, id)?);
                }
            }
        }
        let lower = |operation: &Operation| operation.lower(backend, &tensors, self.compute);
        let lowered = self.operations.iter().map(lower).collect::<Result<Vec<_>>>()?;
        let graph = Descriptor::new(backend, DescriptorType::OPERATIONGRAPH_DESCRIPTOR)?;
        graph.set_descriptors(AttributeName::OPERATIONGRAPH_OPS, &lowered)?;
        graph.set_data_type(AttributeName::OPERATIONGRAPH_COMPUTE_DATA_TYPE_EXT, self.compute)?;
        graph.set_data_type(AttributeName::OPERATIONGRAPH_INTERMEDIATE_DATA_TYPE_EXT, self.intermediate)?;
        graph.set_data_type(AttributeName::OPERATIONGRAPH_IO_DATA_TYPE_EXT, self.io)?;
        if let Some(engine) = self.preferred {
            graph.set_i64s(AttributeName::OPERATIONGRAPH_PREFERRED_ENGINE_ID_EXT, &[engine])?;
        }
        if !self.name.is_empty() {
            graph.set_bytes(AttributeName::OPERATIONGRAPH_NAME_EXT, self.name.as_bytes())?;
        }
        graph.set_handle(AttributeName::OPERATIONGRAPH_HANDLE, handle)?;
        graph.finalize()?;
        Ok(OperationGraph::new(graph, self.name.clone(), self.preferred, handle))
    }

    fn lower_tensor(&self, handle: &Handle, id: TensorId) -> Result<Descriptor> {
        use AttributeName as A;
        let tensor = self.tensors.get(id);
        let descriptor = Descriptor::new(handle.backend(), DescriptorType::TENSOR_DESCRIPTOR)?;
        descriptor.set_i64s(A::TENSOR_UNIQUE_ID, &[tensor.uid.unwrap_or(0)])?;
        if !tensor.name.is_empty() {
            descriptor.set_bytes(A::TENSOR_NAME_EXT, tensor.name.as_bytes())?;
        }
        descriptor.set_data_type(A::TENSOR_DATA_TYPE, tensor.data_type.unwrap_or(self.io))?;
        descriptor.set_i64s(A::TENSOR_DIMENSIONS, &tensor.dims)?;
        descriptor.set_i64s(A::TENSOR_STRIDES, &tensor.strides)?;
        descriptor.set_bool(A::TENSOR_IS_VIRTUAL, tensor.is_virtual)?;
        if let Some(bytes) = tensor.alignment {
            descriptor.set_i64s(A::TENSOR_BYTE_ALIGNMENT, &[bytes])?;
        }
        if let Some(value) = tensor.value {
            descriptor.set_bytes(A::TENSOR_VALUE_EXT, &value.bytes())?;
        }
        if tensor.by_value {
            descriptor.set_bool(A::TENSOR_IS_RUNTIME_PASS_BY_VALUE_EXT, true)?;
        }
        descriptor.finalize()?;
        Ok(descriptor)
    }
}

#[cfg(test)]
mod tests;
