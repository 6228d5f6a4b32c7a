//! Products with weights packed into a few bits.
use crate::ops::{Meaning, QuantProduct};
use crate::{Graph, Node, Tensor, fragments};

/// `a [1, m, k]` times the transpose of quantised weights `[n, k]`: the output is `[1, m, n]`, of a's type.
///
/// The inputs are a (f32, f16 or bf16), the weights, their scales, and their zero points if [`zeros`](Self::zeros) says
/// so. A weight is `(q - zero) · scale`; each `block` of neighbours along k shares a scale and a zero point. Sums are
/// at least in single precision.
///
/// In [`WeightLayout::Onnx`], with `blocks = ceil(k / block)`, all dense:
///
/// | input | type | shape | |
/// |---|---|---|---|
/// | weights | u8 | `[n, blocks, block · bits / 8]` | the first number in the lowest bits of a byte; the last block's padding is arbitrary |
/// | scales | f32, f16 or bf16 | `[n, blocks]` | may be negative |
/// | zero points, packed | u8 | `[n, ceil(blocks · bits / 8)]` | packed as the weights, each row starts a new byte |
/// | zero points, floats | f32, f16 or bf16 | `[n, blocks]` | |
///
/// In a device's own layout, the device defines what these inputs hold ([`lay_out`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QuantMatMul {
    /// Bits per weight: 2, 4 or 8.
    pub bits: usize,
    /// How many weights along k share a scale: a power of two, at least 16.
    pub block: usize,
    /// Where the zero points come from.
    pub zeros: Zeros,
    /// Whether the model lets activations be rounded to 8 bits, with one scale per block.
    pub rounds_activations: bool,
    /// How the weights are laid out in memory.
    pub layout: WeightLayout,
}

impl QuantMatMul {
    /// How many blocks a depth takes.
    pub const fn blocks(&self, depth: usize) -> usize {
        depth.div_ceil(self.block)
    }

    /// Bytes of a block of weights.
    pub const fn block_bytes(&self) -> usize {
        self.block * self.bits / 8
    }

    /// Bytes of a row of packed zero points.
    pub const fn zero_bytes(&self, depth: usize) -> usize {
        (self.blocks(depth) * self.bits).div_ceil(8)
    }

    /// The zero point if none is given.
    pub const fn middle(&self) -> usize {
        1 << (self.bits - 1)
    }
}

/// Where the zero points of quantised weights come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Zeros {
    /// The middle of the range, `2^(bits-1)`.
    Middle,
    /// One per block, with as many bits as a weight.
    Packed,
    /// One float per block.
    Floats,
}

/// How weights, scales and zero points are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightLayout {
    /// As in the model: see [`QuantMatMul`].
    Onnx,
    /// As the model builder packs them for CUDA, in tiles for Ampere or column by column for Hopper. They are
    /// [unpacked](unpack) before a partition is planned.
    Fragments {
        /// Whether groups of columns stand together, tile by tile.
        is_tiled: bool,
    },
    /// As a device laid them out when it loaded the partition, under the device's own name for the layout.
    Own(&'static str),
}

/// The constant weights of a product.
#[derive(Clone, Debug)]
pub struct QuantWeights {
    /// The product, with the tensors' current layout.
    pub product: QuantMatMul,
    /// Columns of the output, n.
    pub columns: usize,
    /// Columns of the activations, k.
    pub depth: usize,
    /// Weights, scales, and zero points if there are any.
    pub tensors: Vec<Tensor>,
}

/// Lets a device rearrange the constant weights of all quantised products, once for all plans, and returns how many it
/// rearranged. The device returns `None` to leave a product as it is. A weight with no other reader is then kept in the
/// new layout only.
pub fn lay_out(graph: &mut Graph, device: &mut dyn FnMut(&QuantWeights) -> Option<QuantWeights>) -> usize {
    rearrange(graph, &mut |given| (given.product.layout == WeightLayout::Onnx).then(|| device(given))?)
}

/// Puts constant weights that were packed for CUDA in ONNX's layout, and returns how many.
pub fn unpack(graph: &mut Graph) -> usize {
    rearrange(graph, &mut fragments::unpacked)
}

fn rearrange(graph: &mut Graph, arranged: &mut dyn FnMut(&QuantWeights) -> Option<QuantWeights>) -> usize {
    let mut count = 0;
    for at in 0..graph.nodes().len() {
        let Some((node, tensors)) = rearranged(graph, at, arranged) else { continue };
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

/// A node with rearranged weights, and these weights by input index.
fn rearranged(
    graph: &Graph,
    at: usize,
    arranged: &mut dyn FnMut(&QuantWeights) -> Option<QuantWeights>,
) -> Option<(Node, Vec<(usize, Tensor)>)> {
    let node = &graph.nodes()[at];
    let Meaning::QuantMatMul(op) = node.op.meaning() else { return None };
    let made = arranged(&op.weights(graph, node)?)?;
    let op = QuantProduct { product: made.product, ..op.clone() };
    let mut node = Node { op: std::sync::Arc::new(op), ..node.clone() };
    let inputs = 1..1 + made.tensors.len();
    node.inputs.resize(node.inputs.len().max(inputs.end), None);
    Some((node, inputs.zip(made.tensors).collect()))
}
