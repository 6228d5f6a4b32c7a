//! The families of cases. To add one, add a file here and a line in [`FAMILIES`].

mod attention;
mod batch_norm;
mod block_scale;
mod chain;
mod convolution;
mod matmul;
mod norm;
mod pointwise;
mod pooling;
mod reduction;
mod slopes;

use hipdnn::sys::DataType;
use hipdnn::{Graph, Scalar, Tensor, TensorId};

use crate::bench::{Answer, Bench};
use crate::draw::Draw;
use crate::element::Element;

/// Cases of one operation, or of related operations.
pub struct Family {
    /// The name of the family.
    pub name: &'static str,
    /// How many a test runs.
    pub cases: u64,
    /// Runs the drawn case.
    pub case: fn(&Bench, &mut Draw) -> Answer,
}

const fn family(name: &'static str, cases: u64, case: fn(&Bench, &mut Draw) -> Answer) -> Family {
    Family { name, cases, case }
}

/// All families.
pub const FAMILIES: &[Family] = &[
    family("convolution_bias_relu", 400, convolution::forward),
    family("convolution_residual_swish", 200, convolution::with_residual),
    family("convolution_bias_residual_relu", 200, convolution::with_bias_and_residual),
    family("convolution_of_bytes", 200, convolution::of_bytes),
    family("convolution_wide", 24, convolution::wide),
    family("convolution_to_data", 400, convolution::to_data),
    family("convolution_to_filter", 400, convolution::to_filter),
    family("matmul", 400, matmul::product),
    family("matmul_bias_sigmoid", 200, matmul::with_bias),
    family("matmul_of_bytes", 200, matmul::of_bytes),
    family("experts", 200, matmul::of_experts),
    family("experts_backward", 200, matmul::of_experts_backward),
    family("pointwise", pointwise::CASES, pointwise::mode),
    family("pointwise_shapes", 800, pointwise::shapes),
    family("pointwise_chain", 400, pointwise::chain),
    family("conversion", block_scale::CONVERSIONS, block_scale::conversion),
    family("reduction", 400, reduction::reduction),
    family("pooling", 400, pooling::forward),
    family("pooling_places", 400, pooling::places),
    family("pooling_backward", 400, pooling::backward),
    family("attention", 400, attention::forward),
    family("attention_wide", 48, attention::wide),
    family("attention_bounded", 200, attention::bounded),
    family("attention_padded", 200, attention::padded),
    family("attention_backward", 200, attention::backward),
    family("attention_chain", 200, chain::attention),
    family("layer_norm", 300, norm::layer),
    family("rms_norm", 300, norm::rms),
    family("layer_norm_backward", 200, norm::layer_backward),
    family("rms_norm_backward", 200, norm::rms_backward),
    family("batch_norm_training", 300, batch_norm::training),
    family("batch_norm_inference", 300, batch_norm::inference),
    family("batch_norm_backward", 200, batch_norm::backward),
    family("block_scale_quantize", 400, block_scale::quantize),
    family("block_scale_dequantize", 300, block_scale::dequantize),
    family("block_scale_matmul", 100, block_scale::matmul),
    family("custom", 1, block_scale::custom),
];

/// A graph with tensors of one type, which computes in single precision, or in double for doubles.
fn graph(element: Element) -> Graph {
    let compute = if element == Element::F64 { DataType::DOUBLE } else { DataType::FLOAT };
    Graph::new(element.code(), compute)
}

/// The number added to a variance.
const EPSILON: f64 = 1e-3;

fn epsilon(graph: &mut Graph, element: Element) -> TensorId {
    scalar(graph, element, EPSILON)
}

/// A number in the graph's compute type.
fn scalar(graph: &mut Graph, element: Element, value: f64) -> TensorId {
    let value = if element == Element::F64 { Scalar::F64(value) } else { Scalar::F32(value as f32) };
    graph.tensor(Tensor::scalar(value))
}
