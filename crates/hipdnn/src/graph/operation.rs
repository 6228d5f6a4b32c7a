//! Code that is common to all operations of a graph.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::tensor::{Tensor, TensorId, axis_order, packed_in};
use crate::safe::Descriptor;
use crate::sys::{AttributeName, AttributeType, Backend, DataType, DescriptorType};
use crate::{Error, Result};

/// An operation: its name, its tensors by attribute, its parameters, and its rule.
pub(super) struct Operation {
    /// The name in messages.
    pub name: &'static str,
    /// The kind of its descriptor.
    pub descriptor: DescriptorType,
    /// The attribute for the compute type.
    pub compute_type: AttributeName,
    /// The tensors that it reads.
    pub reads: Vec<(AttributeName, TensorId)>,
    /// The tensors that it creates.
    pub makes: Vec<(AttributeName, TensorId)>,
    /// The parameters.
    pub settings: Vec<(AttributeName, Setting)>,
    /// Checks the operation's rules, and infers missing properties of its results.
    pub rule: Box<Rule>,
}

/// See [`Operation::rule`].
pub(super) type Rule = dyn Fn(&mut Tensors) -> Result<()> + Send;

/// The value of a parameter.
#[derive(Clone, Debug)]
pub(super) enum Setting {
    I64s(Vec<i64>),
    I32s(Vec<i32>),
    F32(f32),
    Bool(bool),
    Bytes(Vec<u8>),
    Mode(AttributeType, i32),
}

impl Operation {
    /// All tensors, inputs first.
    pub fn tensors(&self) -> impl Iterator<Item = TensorId> {
        self.reads.iter().chain(&self.makes).map(|&(_, id)| id)
    }

    /// The operation's finalized descriptor.
    pub fn lower(
        &self,
        backend: &Arc<dyn Backend>,
        tensors: &HashMap<TensorId, Descriptor>,
        compute: DataType,
    ) -> Result<Descriptor> {
        let descriptor = Descriptor::new(backend, self.descriptor)?;
        // An attribute that occurs several times is a list.
        let mut set: Vec<AttributeName> = Vec::new();
        for (name, _) in self.reads.iter().chain(&self.makes) {
            if !set.contains(name) {
                let all = self.reads.iter().chain(&self.makes).filter(|(other, _)| other == name);
                descriptor.set_descriptors(*name, all.filter_map(|(_, id)| tensors.get(id)))?;
                set.push(*name);
            }
        }
        for (name, setting) in &self.settings {
            match setting {
                Setting::I64s(values) => descriptor.set_i64s(*name, values)?,
                Setting::I32s(values) => descriptor.set_i32s(*name, values)?,
                Setting::F32(value) => descriptor.set_f32(*name, *value)?,
                Setting::Bool(value) => descriptor.set_bool(*name, *value)?,
                Setting::Bytes(bytes) => descriptor.set_bytes(*name, bytes)?,
                Setting::Mode(kind, value) => descriptor.set_mode(*name, *kind, *value)?,
            }
        }
        descriptor.set_data_type(self.compute_type, compute)?;
        descriptor.finalize()?;
        Ok(descriptor)
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} = {}{:?} {:?}", self.makes, self.name, self.settings, self.reads)
    }
}

/// The tensors of a graph.
#[derive(Debug, Default)]
pub(super) struct Tensors(Vec<Tensor>);

impl Tensors {
    pub fn add(&mut self, tensor: Tensor) -> TensorId {
        self.0.push(tensor);
        TensorId(self.0.len() - 1)
    }

    pub fn get(&self, id: TensorId) -> &Tensor {
        &self.0[id.0]
    }

    pub fn find(&self, id: TensorId) -> Option<&Tensor> {
        self.0.get(id.0)
    }

    pub fn get_mut(&mut self, id: TensorId) -> &mut Tensor {
        &mut self.0[id.0]
    }

    pub fn has(&self, id: TensorId) -> bool {
        self.find(id).is_some()
    }

    pub fn ids(&self) -> impl Iterator<Item = TensorId> + use<> {
        (0..self.0.len()).map(TensorId)
    }

    pub fn dims(&self, id: TensorId) -> &[i64] {
        &self.get(id).dims
    }

    pub fn label(&self, id: TensorId) -> String {
        self.get(id).label(id)
    }

    /// The error for a tensor that violates a rule.
    pub fn refuse<T>(&self, id: TensorId, rule: impl Into<String>) -> Result<T> {
        Err(Error::invalid(self.label(id), rule))
    }

    /// Requires a minimum number of axes.
    pub fn require_rank(&self, id: TensorId, least: usize) -> Result<()> {
        let rank = self.dims(id).len();
        if rank < least {
            return self.refuse(id, format!("it has {rank} axes, expected at least {least}"));
        }
        Ok(())
    }

    /// Requires these extents.
    pub fn require_dims(&self, id: TensorId, wanted: &[i64]) -> Result<()> {
        if self.dims(id) != wanted {
            return self.refuse(id, format!("its extents are {:?}, expected {wanted:?}", self.dims(id)));
        }
        Ok(())
    }

    /// Requires a single element.
    pub fn require_scalar(&self, id: TensorId) -> Result<()> {
        if self.dims(id).iter().any(|&extent| extent != 1) {
            return self.refuse(id, format!("it must be a scalar, but its extents are {:?}", self.dims(id)));
        }
        Ok(())
    }

    /// Sets the extents of a result, or checks those it has; missing strides follow the axis order of `like`.
    pub fn set_result(&mut self, id: TensorId, dims: &[i64], like: Option<TensorId>) -> Result<()> {
        if self.dims(id).is_empty() {
            self.get_mut(id).dims = dims.to_vec();
        } else {
            self.require_dims(id, dims)?;
        }
        if self.get(id).strides.is_empty() {
            let order = match like.map(|like| &self.get(like).strides) {
                Some(strides) if strides.len() == dims.len() => axis_order(strides),
                _ => (0..dims.len()).collect(),
            };
            self.get_mut(id).strides = packed_in(dims, &order);
        }
        Ok(())
    }

    /// Requires that a result's extents were given, and uses the axis order of `like` if it has no strides.
    pub fn complete(&mut self, id: TensorId, like: TensorId) -> Result<()> {
        if self.dims(id).is_empty() {
            return self.refuse(id, "its extents cannot be inferred and must be set");
        }
        let dims = self.dims(id).to_vec();
        self.set_result(id, &dims, Some(like))
    }
}
