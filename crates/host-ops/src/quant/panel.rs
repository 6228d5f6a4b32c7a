//! Weights of 16 columns at a time, word by word: a vector of words holds the same depths of all 16 columns.
use graph::prim::{BufferId, QuantMatMul, WeightLayout, Zeros};
use graph::quant::QuantWeights;
use graph::shape::dense_strides;
use graph::{DType, Tensor as Constant, View};
use half::{bf16, f16};

use crate::Tensor;
use crate::carve::{carve, piece};

/// Columns of a panel.
pub(super) const COLUMNS: usize = 16;
/// Bytes of a word.
const WORD: usize = 4;

/// The layout that the host reads in place.
///
/// With panels of 16 columns, the last one padded with zeros: weights `[panels, blocks · block_bytes / 4, 16, 4]` of
/// u8, scales `[panels, blocks, 16]` of f32, and, unless zero is in the middle, zero points times scales in the same
/// shape.
pub const INTERLEAVED: WeightLayout = WeightLayout::Own("interleaved-16");

/// The location of a panel.
#[derive(Clone, Copy)]
pub(super) struct Panel {
    pub weights: *const u8,
    /// Scales of the first block, followed by those of the next ones.
    pub scales: *const f32,
    /// Zero points times scales, or null.
    pub zeros: *const f32,
}

/// The weights of a product.
#[derive(Clone, Copy)]
pub(super) struct Panels<'a> {
    product: &'a QuantMatMul,
    columns: usize,
    depth: usize,
    /// Weights, scales and zero points.
    operands: &'a [Tensor<'a>],
}

impl<'a> Panels<'a> {
    pub fn new(product: &'a QuantMatMul, columns: usize, depth: usize, operands: &'a [Tensor<'a>]) -> Self {
        Self { product, columns, depth, operands }
    }

    pub fn product(&self) -> &'a QuantMatMul {
        self.product
    }

    /// True if panels have to be packed first.
    pub fn is_packed(&self) -> bool {
        self.product.layout == WeightLayout::Onnx
    }

    fn blocks(&self) -> usize {
        self.product.blocks(self.depth)
    }

    /// Bytes of a panel's weights.
    fn bytes(&self) -> usize {
        COLUMNS * self.blocks() * self.product.block_bytes()
    }

    /// Elements of a panel's scales.
    fn scales(&self) -> usize {
        COLUMNS * self.blocks()
    }

    /// Bytes that [`get`](Self::get) needs for two panels.
    pub fn scratch_bytes(&self) -> usize {
        if self.is_packed() { piece::<u8>(2 * self.bytes()) + 2 * piece::<f32>(2 * self.scales()) } else { 0 }
    }

    /// One or two adjacent panels, in place or packed into `memory`.
    pub fn get(&self, first: usize, count: usize, memory: &mut [u8]) -> [Panel; 2] {
        let (weights, scales) = (self.bytes(), self.scales());
        if self.is_packed() {
            let mut rest = memory;
            let to_weights = carve::<u8>(&mut rest, 2 * weights);
            let to_scales = carve::<f32>(&mut rest, 2 * scales);
            let to_zeros = carve::<f32>(&mut rest, 2 * scales);
            for at in 0..count {
                let to = (at * weights..(at + 1) * weights, at * scales..(at + 1) * scales);
                self.pack(first + at, &mut to_weights[to.0], &mut to_scales[to.1.clone()], &mut to_zeros[to.1]);
            }
            return self.at(to_weights.as_ptr(), to_scales.as_ptr(), to_zeros.as_ptr());
        }
        let start = |number: usize| self.operands[number].start().cast::<f32>().wrapping_add(first * scales);
        let zeros = if self.product.zeros == Zeros::Middle { std::ptr::null() } else { start(2) };
        self.at(self.operands[0].start().wrapping_add(first * weights), start(1), zeros)
    }

    /// The panels that an earlier call of [`get`](Self::get) packed into `memory`.
    pub fn packed(&self, memory: &mut [u8], count: usize) -> [Panel; 2] {
        let mut rest = memory;
        let weights = carve::<u8>(&mut rest, 2 * self.bytes()).as_ptr();
        let scales = carve::<f32>(&mut rest, 2 * self.scales()).as_ptr();
        let zeros = carve::<f32>(&mut rest, 2 * self.scales()).as_ptr();
        debug_assert!(count <= 2);
        self.at(weights, scales, zeros)
    }

    fn at(&self, weights: *const u8, scales: *const f32, zeros: *const f32) -> [Panel; 2] {
        let zeros = if self.product.zeros == Zeros::Middle { std::ptr::null() } else { zeros };
        let first = Panel { weights, scales, zeros };
        let step = |from: *const f32| if from.is_null() { from } else { from.wrapping_add(self.scales()) };
        let second = Panel { weights: weights.wrapping_add(self.bytes()), scales: step(scales), zeros: step(zeros) };
        [first, second]
    }

    /// Packs rows in ONNX's layout into a panel.
    fn pack(&self, panel: usize, weights: &mut [u8], scales: &mut [f32], zeros: &mut [f32]) {
        let (blocks, columns) = (self.blocks(), COLUMNS.min(self.columns - panel * COLUMNS));
        if columns < COLUMNS {
            weights.fill(0);
            scales.fill(0.0);
            zeros.fill(0.0);
        }
        let row_bytes = blocks * self.product.block_bytes();
        let from = self.operands[0].start().wrapping_add(panel * COLUMNS * row_bytes);
        // SAFETY: the rows of these columns are contiguous in a dense view.
        let from = unsafe { std::slice::from_raw_parts(from, columns * row_bytes) };
        for (column, row) in from.chunks_exact(row_bytes).enumerate() {
            let to = weights[column * WORD..].chunks_mut(COLUMNS * WORD);
            for (to, word) in to.zip(row.chunks_exact(WORD)) {
                to[..WORD].copy_from_slice(word);
            }
        }
        for column in 0..columns {
            let row = panel * COLUMNS + column;
            for block in 0..blocks {
                let to = block * COLUMNS + column;
                scales[to] = float(&self.operands[1], row * blocks + block);
                zeros[to] = self.zero(row, block) * scales[to];
            }
        }
    }

    /// The zero point of a block.
    fn zero(&self, row: usize, block: usize) -> f32 {
        let product = self.product;
        match product.zeros {
            Zeros::Middle => product.middle() as f32,
            Zeros::Floats => float(&self.operands[2], row * self.blocks() + block),
            Zeros::Packed => {
                let bit = block * product.bits;
                let at = row * product.zero_bytes(self.depth) + bit / 8;
                // SAFETY: the view is dense, and its memory covers its extents.
                let byte = unsafe { self.operands[2].as_ptr::<u8>().add(at).read() };
                f32::from((byte >> (bit % 8)) & (u8::MAX >> (8 - product.bits)))
            }
        }
    }
}

/// An element of a dense tensor of floats.
fn float(tensor: &Tensor<'_>, at: usize) -> f32 {
    // SAFETY: callers pass elements of the view, whose memory covers its extents.
    unsafe {
        match tensor.dtype() {
            DType::F16 => tensor.as_ptr::<f16>().add(at).read().to_f32(),
            DType::Bf16 => tensor.as_ptr::<bf16>().add(at).read().to_f32(),
            _ => tensor.as_ptr::<f32>().add(at).read(),
        }
    }
}

/// Converts weights from ONNX's layout to the one that the host reads in place; `None` if they are not in ONNX's
/// layout.
pub fn interleaved(given: &QuantWeights) -> Option<QuantWeights> {
    if given.product.layout != WeightLayout::Onnx {
        return None;
    }
    let views: Vec<View> = given.tensors.iter().map(whole).collect();
    let operands: Vec<Tensor<'_>> = views
        .iter()
        .zip(&given.tensors)
        // SAFETY: the view covers the whole constant, which lives as long.
        .map(|(view, tensor)| unsafe { Tensor::new(view, tensor.bytes().as_ptr()) })
        .collect();
    let from = Panels::new(&given.product, given.columns, given.depth, &operands);
    let (panels, blocks) = (given.columns.div_ceil(COLUMNS), from.blocks());
    let mut weights = vec![0u8; panels * from.bytes()];
    let mut scales = vec![0f32; panels * from.scales()];
    let mut zeros = scales.clone();
    for panel in 0..panels {
        let (bytes, elems) = (from.bytes(), from.scales());
        from.pack(
            panel,
            &mut weights[panel * bytes..][..bytes],
            &mut scales[panel * elems..][..elems],
            &mut zeros[panel * elems..][..elems],
        );
    }
    let floats = |values: &[f32]| {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        Constant::from_bytes(DType::F32, &[panels, blocks, COLUMNS], &bytes)
    };
    let words = from.bytes() / (COLUMNS * WORD);
    let mut tensors =
        vec![Constant::from_bytes(DType::U8, &[panels, words, COLUMNS, WORD], &weights)?, floats(&scales)?];
    if given.product.zeros != Zeros::Middle {
        tensors.push(floats(&zeros)?);
    }
    let product = QuantMatMul { layout: INTERLEAVED, ..given.product.clone() };
    Some(QuantWeights { product, tensors, ..*given })
}

/// A view of a whole constant.
pub(super) fn whole(tensor: &Constant) -> View {
    let shape = tensor.shape();
    View { buffer: BufferId(0), dtype: tensor.dtype(), shape: shape.into(), strides: dense_strides(shape), offset: 0 }
}
