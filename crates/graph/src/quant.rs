//! Products with weights that stay packed in a few bits.
use crate::{
    Graph, Node, Tensor,
    ops::{Meaning, QuantProduct},
};

/// `a [1, m, k]` times the transpose of quantised weights `[n, k]`: the output is `[1, m, n]`, of a's type.
///
/// The inputs are a (f32, f16 or bf16), the weights, their scales, and where [`zeros`](Self::zeros) says so their zero
/// points. A weight is `(q - zero) · scale`; `block` neighbours along k share a scale and a zero point. Sums are in single
/// precision at least.
///
/// In [`WeightLayout::Onnx`], with `blocks = ceil(k / block)`, all dense:
///
/// | input | type | shape | |
/// |---|---|---|---|
/// | weights | u8 | `[n, blocks, block · bits / 8]` | the first number in the lowest bits of a byte; the last block is padded with anything |
/// | scales | f32, f16 or bf16 | `[n, blocks]` | may be negative |
/// | zero points, packed | u8 | `[n, ceil(blocks · bits / 8)]` | as the weights, each row in bytes of its own |
/// | zero points, floats | f32, f16 or bf16 | `[n, blocks]` | |
///
/// In a layout of a device's own, these inputs are what the device made of them ([`lay_out`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QuantMatMul {
    /// Bits of a weight: 2, 4 or 8.
    pub bits: usize,
    /// Weights along k that share a scale: a power of two from 16 on.
    pub block: usize,
    /// What stands for zero.
    pub zeros: Zeros,
    /// Whether the model lets activations be rounded to 8 bits, block by block, with a scale for each.
    pub rounds_activations: bool,
    /// How the weights lie.
    pub layout: WeightLayout,
}

impl QuantMatMul {
    /// Blocks along a depth.
    pub const fn blocks(&self, depth: usize) -> usize {
        depth.div_ceil(self.block)
    }

    /// Bytes of a block of weights.
    pub const fn block_bytes(&self) -> usize {
        self.block * self.bits / 8
    }

    /// Bytes of one row of packed zero points.
    pub const fn zero_bytes(&self, depth: usize) -> usize {
        (self.blocks(depth) * self.bits).div_ceil(8)
    }

    /// The zero point where no others are given.
    pub const fn middle(&self) -> usize {
        1 << (self.bits - 1)
    }
}

/// What stands for zero among quantised weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Zeros {
    /// The middle of the range, `2^(bits-1)`.
    Middle,
    /// A number of as many bits as the weights for each block.
    Packed,
    /// A float for each block.
    Floats,
}

/// How weights, scales and zero points lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightLayout {
    /// As in the model: see [`QuantMatMul`].
    Onnx,
    /// As a device laid them out when it took the partition in, under its own name for that.
    Own(&'static str),
}

/// The constant weights of a product.
#[derive(Clone, Debug)]
pub struct QuantWeights {
    /// The product, with the layout of the tensors.
    pub product: QuantMatMul,
    /// Columns of the output, n.
    pub columns: usize,
    /// Columns of the activations, k.
    pub depth: usize,
    /// Weights, scales, and zero points where there are any.
    pub tensors: Vec<Tensor>,
}

/// Gives a device the chance to lay out the constant weights of all quantised products anew, once for all plans, and says
/// how often it did. What it leaves as it is gets `None`. A weight that nobody else reads is then held in the new layout
/// only.
pub fn lay_out(graph: &mut Graph, device: &mut dyn FnMut(&QuantWeights) -> Option<QuantWeights>) -> usize {
    let mut count = 0;
    for at in 0..graph.nodes().len() {
        let Some((node, tensors)) = relaid(graph, at, device) else { continue };
        let mut node = node;
        for (input, tensor) in tensors {
            let name = node.inputs[input].map_or_else(String::new, |id| graph.value(id).name.clone());
            node.inputs[input] = Some(graph.add_value(name, tensor.dtype(), Some(tensor)));
        }
        graph.nodes_mut()[at] = node;
        count += 1;
    }
    if count > 0 {
        graph.keep_nodes(|_| true);
    }
    count
}

/// A node with its weights laid out anew, and these by number of the input.
fn relaid(
    graph: &Graph,
    at: usize,
    device: &mut dyn FnMut(&QuantWeights) -> Option<QuantWeights>,
) -> Option<(Node, Vec<(usize, Tensor)>)> {
    let node = &graph.nodes()[at];
    let Meaning::QuantMatMul(op) = node.op.meaning() else { return None };
    let given = op.weights(graph, node).filter(|given| given.product.layout == WeightLayout::Onnx)?;
    let made = device(&given)?;
    let op = QuantProduct { product: made.product, ..op.clone() };
    let mut node = Node { op: std::sync::Arc::new(op), ..node.clone() };
    let inputs = 1..1 + made.tensors.len();
    node.inputs.resize(node.inputs.len().max(inputs.end), None);
    Some((node, inputs.zip(made.tensors).collect()))
}
