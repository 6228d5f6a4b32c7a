//! Products with the weights of experts that the data chooses.
use graph::DType;
use graph::prim::{ExpertProduct, ExpertWeights};

use crate::index::{Bounds, Indices};
use crate::number::Number;
use crate::rows::ranges_with;
use crate::{Context, OpError, Tensor, TensorMut};

/// Minimum number of multiplications per task.
const GRAIN: usize = 64 * 1024;
/// Independent partial sums, so that the additions do not wait for each other.
const LANES: usize = 16;

pub(crate) fn run(
    prim: &ExpertProduct,
    inputs: &[Tensor<'_>],
    out: TensorMut<'_>,
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let unsupported = |dtype| OpError::Unsupported { prim: "expert_product", dtype };
    let floats = [DType::F32, DType::F16, DType::Bf16];
    let (&[x, experts, weights, ref more @ ..], &[rows, columns]) = (inputs, out.shape()) else {
        return Err(unsupported(out.dtype()));
    };
    let &[_, depth] = x.shape() else { return Err(unsupported(x.dtype())) };
    if !floats.contains(&x.dtype()) || !floats.contains(&out.dtype()) {
        return Err(unsupported(x.dtype()));
    }
    let own = prim.weights.operands() - 1;
    let (scales, zeros) = (more.first().filter(|_| own > 0), more.get(1).filter(|_| own > 1));
    let bias = more.get(own).filter(|_| prim.bias);
    let chosen = Indices::new(experts, "expert_product")?;
    let count = weights.shape()[0];
    let bounds = Bounds::default();
    // SAFETY: the view is `[rows]`.
    let expert = |row: usize| unsafe { chosen.at(row as isize * experts.strides()[0]) };
    for row in 0..rows {
        // Negative numbers of experts do not count from the end.
        if !(0..count as i64).contains(&expert(row)) {
            bounds.position(expert(row).max(count as i64), count);
        }
    }
    bounds.result()?;
    let column = Column { weights: &weights, scales: scales.copied(), zeros: zeros.copied(), prim, depth };
    let grain = (GRAIN / (rows * depth).max(1)).max(1);
    ranges_with::<f32>(cx, columns, grain, 2 * depth, |range, memory| {
        let (row_memory, weight_memory) = memory.split_at_mut(depth);
        for row in 0..rows {
            load(&x, row / prim.share, row_memory);
            let expert = expert(row) as usize;
            for at in range.clone() {
                column.load(expert * columns + at, weight_memory);
                let mut sum = [dot(row_memory, weight_memory)];
                if let Some(bias) = bias {
                    let mut own = [0f32];
                    load_flat(bias, expert * columns + at, &mut own);
                    sum[0] += own[0];
                }
                let place = row as isize * out.strides()[0] + at as isize * out.strides()[1];
                let to = out.start().wrapping_offset(place * out.dtype().bytes() as isize);
                // SAFETY: the element is within the view, and each column belongs to one task.
                unsafe { f32::store(out.dtype(), to, 1, &sum) };
            }
        }
    });
    Ok(())
}

/// The columns of all experts.
struct Column<'a> {
    weights: &'a Tensor<'a>,
    scales: Option<Tensor<'a>>,
    zeros: Option<Tensor<'a>>,
    prim: &'a ExpertProduct,
    depth: usize,
}

impl Column<'_> {
    /// The weights of a column, counted over all experts.
    fn load(&self, column: usize, out: &mut [f32]) {
        let (bits, block, scales) = match (self.prim.weights, &self.scales) {
            (ExpertWeights::Packed { bits, block, .. }, Some(scales)) => (bits, block, scales),
            (ExpertWeights::Float4 { block }, Some(scales)) => (4, block, scales),
            _ => return load_flat(self.weights, column * self.depth, out),
        };
        let is_float = matches!(self.prim.weights, ExpertWeights::Float4 { .. });
        let row_bytes = self.depth * bits / 8;
        let blocks = self.depth.div_ceil(block.max(1));
        let bytes = bytes_of(self.weights);
        for (number, part) in out.chunks_mut(block.max(1)).enumerate() {
            let mut scale = [0f32];
            load_flat(scales, column * blocks + number, &mut scale);
            let zero = self.zeros.as_ref().map_or(1 << (bits - 1), |zeros| {
                field(&bytes_of(zeros)[column * (blocks * bits).div_ceil(8)..], bits, number)
            });
            for (at, to) in part.iter_mut().enumerate() {
                let q = field(&bytes[column * row_bytes..], bits, number * block + at);
                let number = if is_float { float4(q) } else { (i32::from(q) - i32::from(zero)) as f32 };
                *to = number * scale[0];
            }
        }
    }
}

/// The number of a 4-bit float: a sign, two bits of exponent and one of mantissa.
fn float4(code: u8) -> f32 {
    const MAGNITUDES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let magnitude = MAGNITUDES[usize::from(code & 7)];
    if code & 8 == 0 { magnitude } else { -magnitude }
}

/// The number at an index of packed numbers, lowest bits first.
fn field(bytes: &[u8], bits: usize, at: usize) -> u8 {
    bytes[at * bits / 8] >> (at * bits % 8) & ((1u16 << bits) - 1) as u8
}

fn bytes_of<'a>(tensor: &Tensor<'a>) -> &'a [u8] {
    tensor.as_slice::<u8>().unwrap_or(&[])
}

/// Reads a row of a matrix.
fn load(tensor: &Tensor<'_>, row: usize, out: &mut [f32]) {
    let (strides, bytes) = (tensor.strides(), tensor.dtype().bytes() as isize);
    let from = tensor.start().wrapping_offset(row as isize * strides[0] * bytes);
    // SAFETY: the row is within the view.
    unsafe { f32::load(tensor.dtype(), from, strides[1], out) };
}

/// Reads elements of a dense tensor, starting at element `first`.
fn load_flat(tensor: &Tensor<'_>, first: usize, out: &mut [f32]) {
    let from = tensor.start().wrapping_add(first * tensor.dtype().bytes());
    // SAFETY: callers pass elements within the tensor, which is dense.
    unsafe { f32::load(tensor.dtype(), from, 1, out) };
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    let mut sums = [0f32; LANES];
    for (a, b) in a.iter().zip(b) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    sums.iter().sum::<f32>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f32>()
}
