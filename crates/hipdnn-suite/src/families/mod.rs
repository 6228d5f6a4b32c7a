//! The families of cases. A new one is a file here and a line in [`FAMILIES`].

mod attention;
mod batch_norm;
mod convolution;
mod matmul;
mod norm;
mod pointwise;
mod pooling;
mod reduction;

use hipdnn::sys::DataType;
use hipdnn::{Graph, Scalar, Tensor, TensorId};

use crate::bench::{Answer, Bench};
use crate::data::Element;
use crate::draw::Draw;

/// Cases of one operation, or of operations that belong together.
pub struct Family {
    /// What they are called.
    pub name: &'static str,
    /// How many a test runs.
    pub cases: u64,
    /// Runs the case that is drawn.
    pub case: fn(&Bench, &mut Draw) -> Answer,
}

const fn family(name: &'static str, cases: u64, case: fn(&Bench, &mut Draw) -> Answer) -> Family {
    Family { name, cases, case }
}

/// All families.
pub const FAMILIES: &[Family] = &[
    family("convolution_bias_relu", 200, convolution::forward),
    family("convolution_to_data", 200, convolution::to_data),
    family("convolution_to_filter", 200, convolution::to_filter),
    family("matmul", 200, matmul::product),
    family("pointwise", pointwise::CASES, pointwise::mode),
    family("reduction", 200, reduction::reduction),
    family("pooling", 200, pooling::forward),
    family("pooling_backward", 200, pooling::backward),
    family("attention", 200, attention::forward),
    family("layer_norm", 200, norm::layer),
    family("rms_norm", 200, norm::rms),
    family("layer_norm_backward", 100, norm::layer_backward),
    family("rms_norm_backward", 100, norm::rms_backward),
    family("batch_norm_training", 200, batch_norm::training),
    family("batch_norm_inference", 200, batch_norm::inference),
];

/// A graph whose tensors are of a type, and which computes in single precision, or in double for doubles.
fn graph(element: Element) -> Graph {
    let compute = if element == Element::F64 { DataType::DOUBLE } else { DataType::FLOAT };
    Graph::new(element.code(), compute)
}

/// What is added to a variance.
const EPSILON: f64 = 1e-3;

fn epsilon(graph: &mut Graph, element: Element) -> TensorId {
    scalar(graph, element, EPSILON)
}

/// A number in the graph's compute type.
fn scalar(graph: &mut Graph, element: Element, value: f64) -> TensorId {
    let value = if element == Element::F64 { Scalar::F64(value) } else { Scalar::F32(value as f32) };
    graph.tensor(Tensor::scalar(value))
}
