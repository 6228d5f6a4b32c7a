//! A graph in cuDNN's terms: operations over views of tensors, before any descriptor is made of it.

use crate::descriptor::Setting;
use crate::sys::{AttributeName, DataType, DescriptorType};

/// Where a tensor's elements are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// In device memory that the caller gives.
    Device,
    /// One element in host memory that the caller gives.
    Host,
    /// One element that is part of the graph.
    Value(Scalar),
    /// Between operations.
    Inside,
}

/// The bytes of one element, where cuDNN can read them as it likes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(8))]
pub struct Scalar(pub [u8; 8]);

impl Scalar {
    /// The first eight of some bytes, filled up with zeros.
    pub fn new(bytes: &[u8]) -> Self {
        let mut all = [0; 8];
        all.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Self(all)
    }
}

/// A tensor.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// The caller's number of it; none for those that a lowering adds.
    pub uid: Option<i64>,
    /// Where it is.
    pub home: Home,
    /// Its element type.
    pub data_type: DataType,
    /// What addresses of it are a multiple of.
    pub alignment: i64,
    /// The memory it takes where it has to be kept between operations.
    pub bytes: Option<usize>,
}

/// A tensor as an operation sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Which of the graph's tensors.
    pub tensor: usize,
    /// Extents.
    pub dims: Vec<i64>,
    /// Strides in elements.
    pub strides: Vec<i64>,
}

/// A descriptor of parameters, which some of cuDNN's operations refer to.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Its kind.
    pub kind: DescriptorType,
    /// The operation's attribute that refers to it.
    pub held_by: AttributeName,
    /// Its attributes.
    pub settings: Vec<(AttributeName, Setting)>,
}

/// An operation.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Its kind.
    pub kind: DescriptorType,
    /// Its parameters, if they are apart.
    pub parameters: Option<Parameters>,
    /// Its own attributes.
    pub settings: Vec<(AttributeName, Setting)>,
    /// What it reads.
    pub reads: Vec<(AttributeName, View)>,
    /// What it writes.
    pub writes: Vec<(AttributeName, View)>,
}

impl Operation {
    /// Everything it reads and writes.
    pub fn views(&self) -> impl Iterator<Item = &(AttributeName, View)> {
        self.reads.iter().chain(&self.writes)
    }
}

/// A graph.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Its tensors.
    pub tensors: Vec<Tensor>,
    /// Its operations, in the order of their dependence.
    pub operations: Vec<Operation>,
}

impl Graph {
    /// True if a tensor must be in memory when these operations run alone: it is the caller's, or other operations of the
    /// graph touch it too.
    pub fn is_bound(&self, tensor: usize, operations: &std::ops::Range<usize>) -> bool {
        let touches = |operation: &Operation| operation.views().any(|(_, view)| view.tensor == tensor);
        let outside = (0..self.operations.len()).filter(|at| !operations.contains(at));
        self.tensors[tensor].home != Home::Inside || outside.into_iter().any(|at| touches(&self.operations[at]))
    }

    /// True if single precision goes into a product: then engines with lower precision inside are no answer.
    pub fn multiplies_single_precision(&self) -> bool {
        let products = [
            DescriptorType::OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            DescriptorType::OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
            DescriptorType::OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            DescriptorType::OPERATION_MATMUL_DESCRIPTOR,
        ];
        let single = |view: &View| self.tensors[view.tensor].data_type == DataType::FLOAT;
        let products = self.operations.iter().filter(|operation| products.contains(&operation.kind));
        products.flat_map(|operation| &operation.reads).any(|(_, view)| single(view))
    }
}
