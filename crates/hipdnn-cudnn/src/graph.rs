//! A graph in cuDNN's terms: operations on views of tensors, before any descriptor is created.

use crate::safe::Setting;
use crate::sys::{AttributeName, AttributeName as A, AttributeType as T, DataType, DescriptorType, PointwiseMode};
use crate::translate;

/// Where a tensor's elements are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// In device memory from the caller.
    Device,
    /// One element in host memory from the caller.
    Host,
    /// One element that is part of the graph.
    Value(Scalar),
    /// Between operations.
    Inside,
}

/// The bytes of one element, aligned for cuDNN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(8))]
pub struct Scalar(pub [u8; 8]);

impl Scalar {
    /// The first eight bytes, padded with zeros.
    pub fn new(bytes: &[u8]) -> Self {
        let mut all = [0; 8];
        all.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Self(all)
    }
}

/// A tensor.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// The caller's uid; `None` for tensors that a lowering adds.
    pub uid: Option<i64>,
    /// Where it is.
    pub home: Storage,
    /// The element type.
    pub data_type: DataType,
    /// The alignment of its addresses.
    pub alignment: i64,
    /// The memory it takes if it has to be stored between operations.
    pub bytes: Option<usize>,
    /// Whether its bytes are hipDNN's booleans, 0 or 1.
    pub is_boolean: bool,
}

/// A tensor as an operation sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The index of the tensor in the graph.
    pub tensor: usize,
    /// Extents.
    pub dims: Vec<i64>,
    /// Strides in elements.
    pub strides: Vec<i64>,
}

impl View {
    /// True if the axes are in this order in memory, without gaps.
    pub fn is_packed(&self, order: &[usize]) -> bool {
        let mut step = 1;
        order.iter().rev().all(|&axis| {
            let fits = self.dims[axis] == 1 || self.strides[axis] == step;
            step *= self.dims[axis];
            fits
        })
    }

    /// True if the elements are in memory without gaps, in any order of axes.
    pub fn is_dense(&self) -> bool {
        let mut axes: Vec<(i64, i64)> = self.strides.iter().copied().zip(self.dims.iter().copied()).collect();
        axes.retain(|&(_, extent)| extent != 1);
        axes.sort_unstable();
        let mut step = 1;
        axes.into_iter().all(|(stride, extent)| {
            let fits = stride == step;
            step *= extent;
            fits
        })
    }
}

/// A descriptor of parameters that some of cuDNN's operations refer to.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// The kind.
    pub kind: DescriptorType,
    /// The operation's attribute that refers to it.
    pub held_by: AttributeName,
    /// The attributes.
    pub settings: Vec<(AttributeName, Setting)>,
}

/// An operation.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The kind.
    pub kind: DescriptorType,
    /// The parameters, if they have a separate descriptor.
    pub parameters: Option<Parameters>,
    /// The operation's own attributes.
    pub settings: Vec<(AttributeName, Setting)>,
    /// The inputs.
    pub reads: Vec<(AttributeName, View)>,
    /// The outputs.
    pub writes: Vec<(AttributeName, View)>,
}

impl Operation {
    /// An elementwise operation.
    pub fn pointwise(
        mode: PointwiseMode,
        reads: &[&View],
        to: &View,
        compute: DataType,
        further: Vec<(AttributeName, Setting)>,
    ) -> Self {
        let (sources, target) = if translate::is_backward(mode) {
            (&[A::OPERATION_POINTWISE_DYDESC, A::OPERATION_POINTWISE_XDESC][..], A::OPERATION_POINTWISE_DXDESC)
        } else {
            let sources =
                &[A::OPERATION_POINTWISE_XDESC, A::OPERATION_POINTWISE_BDESC, A::OPERATION_POINTWISE_TDESC][..];
            (sources, A::OPERATION_POINTWISE_YDESC)
        };
        let mut settings = vec![
            (A::POINTWISE_MODE, Setting::Code(T::POINTWISE_MODE, mode.0)),
            (A::POINTWISE_MATH_PREC, Setting::Code(T::DATA_TYPE, compute.0)),
        ];
        settings.extend(further);
        Self {
            kind: DescriptorType::OPERATION_POINTWISE_DESCRIPTOR,
            parameters: Some(Parameters {
                kind: DescriptorType::POINTWISE_DESCRIPTOR,
                held_by: A::OPERATION_POINTWISE_PW_DESCRIPTOR,
                settings,
            }),
            settings: Vec::new(),
            reads: sources.iter().copied().zip(reads.iter().map(|view| (*view).clone())).collect(),
            writes: vec![(target, to.clone())],
        }
    }

    /// A parameter that is a value of an enumeration.
    pub fn code(&self, name: AttributeName) -> Option<i32> {
        let settings = self.parameters.iter().flat_map(|parameters| &parameters.settings);
        settings.into_iter().find_map(|(known, value)| match value {
            Setting::Code(_, code) if *known == name => Some(*code),
            _ => None,
        })
    }

    /// All its inputs and outputs.
    pub fn views(&self) -> impl Iterator<Item = &(AttributeName, View)> {
        self.reads.iter().chain(&self.writes)
    }
}

/// A graph.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The tensors.
    pub tensors: Vec<Tensor>,
    /// The operations, in topological order.
    pub operations: Vec<Operation>,
    /// Whether they are one attention, in the pattern of cuDNN's fused engines.
    pub is_attention: bool,
}

impl Graph {
    /// A new intermediate tensor, with its axes in the given order in memory.
    pub fn add_inside(&mut self, data_type: DataType, dims: &[i64], order: &[usize]) -> View {
        let (mut strides, mut step) = (vec![1; dims.len()], 1);
        for &axis in order.iter().rev() {
            strides[axis] = step;
            step *= dims[axis];
        }
        self.add(None, Storage::Inside, data_type, View { tensor: 0, dims: dims.to_vec(), strides })
    }

    /// A new tensor with a view of it.
    pub fn add(&mut self, uid: Option<i64>, home: Storage, data_type: DataType, view: View) -> View {
        let elems: i64 =
            view.dims.iter().zip(&view.strides).map(|(extent, stride)| (extent - 1) * stride).sum::<i64>() + 1;
        let bytes = match data_type {
            // cuDNN stores booleans as bits.
            DataType::BOOLEAN => None,
            _ => translate::bytes_of(data_type).and_then(|bytes| Some(bytes * usize::try_from(elems).ok()?)),
        };
        self.tensors.push(Tensor { uid, home, data_type, alignment: 16, bytes, is_boolean: false });
        View { tensor: self.tensors.len() - 1, ..view }
    }

    /// True if a tensor must be in memory when these operations run alone: it belongs to the caller, or other
    /// operations of the graph use it too.
    pub fn is_bound(&self, tensor: usize, operations: &std::ops::Range<usize>) -> bool {
        let touches = |operation: &Operation| operation.views().any(|(_, view)| view.tensor == tensor);
        let outside = (0..self.operations.len()).filter(|at| !operations.contains(at));
        self.tensors[tensor].home != Storage::Inside || outside.into_iter().any(|at| touches(&self.operations[at]))
    }

    /// True if these operations multiply in single precision: engines that reduce the precision are then not allowed.
    pub fn multiplies_single_precision(&self, operations: &[Operation]) -> bool {
        let products = [
            DescriptorType::OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            DescriptorType::OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
            DescriptorType::OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            DescriptorType::OPERATION_MATMUL_DESCRIPTOR,
        ];
        let single = |view: &View| self.tensors[view.tensor].data_type == DataType::FLOAT;
        let products = operations.iter().filter(|operation| products.contains(&operation.kind));
        products.flat_map(|operation| &operation.reads).any(|(_, view)| single(view))
    }
}
