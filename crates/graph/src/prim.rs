//! The primitives: everything a device has to implement.
//!
//! A [`Step`] is one primitive with the views it reads and writes. Views have strides, so movement (transpose, slice,
//! broadcast, concatenation) is a [`Map`] that copies, or nothing at all.
use std::fmt;

use crate::expr::Expr;
use crate::shape::{self, Strides};
use crate::{DType, Shape};

pub use crate::cache::{Append, AppendAttention, CachedAttention, Filled, Positions, Rotary, Sinks};
pub use crate::experts::{ExpertProduct, ExpertWeights};
pub use crate::paged::{PagedAttention, PagedPlaces, place};
pub use crate::product::{Conv, Epilogue, Gate, MatMul, Product, ProductKind};
pub use crate::quant::{QuantMatMul, WeightLayout, Zeros};
pub use crate::recurrent::{Activation, ActivationKind, Cell, Recurrent, RecurrentInputs};
pub use crate::state::{CausalConv, LinearAttention};

/// A buffer of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// Part of a buffer, as a tensor.
#[derive(Clone, PartialEq, Eq)]
pub struct View {
    /// The buffer.
    pub buffer: BufferId,
    /// The element type: the buffer's, or another of the same width (BitCast).
    pub dtype: DType,
    /// The extents.
    pub shape: Shape,
    /// The distance in elements between neighbours along each axis.
    pub strides: Strides,
    /// The number of elements before the first one.
    pub offset: isize,
}

impl View {
    /// How many elements it shows.
    pub fn elems(&self) -> usize {
        shape::elems(&self.shape).unwrap_or(0)
    }

    /// True if its elements are contiguous in row-major order.
    pub fn is_dense(&self) -> bool {
        let mut step = 1isize;
        self.shape.iter().zip(&self.strides).rev().all(|(&extent, &stride)| {
            let fits = extent == 1 || stride == step;
            step = step.wrapping_mul(extent.max(1) as isize);
            fits
        })
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b{}:{}{:?}", self.buffer.0, self.dtype, self.shape.as_slice())?;
        if !self.is_dense() {
            write!(f, "*{:?}", self.strides.as_slice())?;
        }
        if self.offset != 0 {
            write!(f, "+{}", self.offset)?;
        }
        Ok(())
    }
}

/// An operation on views.
#[derive(Clone, PartialEq)]
pub struct Step {
    /// The node it came from, for profiles and errors.
    pub node: u32,
    /// The operation.
    pub prim: Prim,
    /// The views it reads.
    pub inputs: Vec<View>,
    /// The views it writes.
    pub outputs: Vec<View>,
}

impl Step {
    /// How many inputs come before the operands of an epilogue; all of them if there is none.
    pub fn own_inputs(&self) -> usize {
        let epilogue = self.prim.product().and_then(|product| product.epilogue.as_ref());
        epilogue.map_or(self.inputs.len(), |epilogue| epilogue.operands)
    }
}

/// An operation. Each primitive names the order of its views.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Prim {
    /// Elementwise: each input has the output's shape.
    Map(Map),
    /// Input `[outer…]` reduced over its last axes to the output.
    Reduce(Reduce),
    /// The index of the largest or smallest element along the last axis, as i64.
    ArgReduce(ArgReduce),
    /// Softmax or its logarithm along the last axis.
    Softmax(Softmax),
    /// Normalisation over the last axes: inputs x, then the optional scale and bias, of shape `[normalised…]`.
    Norm(Norm),
    /// Matrix products and convolutions, with the work fused into them: see [`Product`].
    Product(Product),
    /// Pooling over the spatial axes of `[n, c, spatial…]`.
    Pool(Pool),
    /// Slices of data along one axis: data `[outer, axis, inner]`, indices `[count]`, output `[outer, count, inner]`.
    ///
    /// Indices, here and in the four below, are i32 or i64. Negative ones count from the end: the device adds the
    /// extent to them, and checks that all are in range.
    Gather,
    /// Elements by index: data and indices have the same rank; the output has the indices' shape. Each output element
    /// is data's element at the same index, with the coordinate of the axis replaced by the one in `indices`. So no
    /// extent of the indices, except along the axis, exceeds data's.
    GatherElements(Axis),
    /// Slices by index tuples: data, indices `[batch…, …, depth]`, which share `batch_dims` leading axes; the output
    /// has the indices' shape without `depth`, then data's extents after the first `batch_dims + depth`.
    GatherNd(BatchDims),
    /// Copies data to the output, then writes each update where [`GatherElements`](Self::GatherElements) would read:
    /// data, indices, updates in the indices' shape. If several updates hit one element, the last in row-major order
    /// wins, or all are combined in that order.
    ScatterElements(Scatter),
    /// Copies data to the output, then writes slices: data, indices `[…, depth]`, updates with the indices' shape
    /// without `depth`, then data's extents after the first `depth`. Updates to the same slice combine as in
    /// [`ScatterElements`](Self::ScatterElements).
    ScatterNd(Scatter),
    /// Running sums or products along an axis of `[outer, axis, inner]`.
    Cumulative(Cumulative),
    /// The k largest or smallest along the last axis: outputs values and i64 indices.
    TopK(TopK),
    /// Interpolation.
    Resize(Resize),
    /// A recurrent layer: see [`Recurrent`].
    Recurrent(Recurrent),
    /// Local response normalisation over the channels of `[n, c, spatial…]`.
    Lrn(Lrn),
    /// Values weighted by the softmax of a product that is never stored: see [`Attention`].
    Attention(Attention),
    /// Rotates pairs of elements by angles that depend on the tokens' positions: see [`Rotary`].
    Rotary(Rotary),
    /// Appends the keys and values of new tokens to a cache, and may rotate keys and queries: see [`Append`].
    Append(Append),
    /// Attention over caches, each filled to its own length: see [`CachedAttention`].
    CachedAttention(CachedAttention),
    /// Append and attention for one token: see [`AppendAttention`].
    AppendAttention(AppendAttention),
    /// A convolution along a sequence, with a state: see [`CausalConv`].
    CausalConv(CausalConv),
    /// Attention with a state instead of a cache: see [`LinearAttention`].
    LinearAttention(LinearAttention),
    /// Rows times the weights of experts that they choose: see [`ExpertProduct`].
    ExpertProduct(ExpertProduct),
    /// Finds the places of tokens in a cache in pages: see [`PagedPlaces`].
    PagedPlaces(PagedPlaces),
    /// Writes the keys and values of new tokens to a cache in pages.
    ///
    /// The inputs are places `[4, tokens]` (see [`PagedPlaces`]), keys `[tokens, heads, size]`, values
    /// `[tokens, heads, width]`, then the cache so far: keys `[blocks, block, heads, size]` and values
    /// `[blocks, block, heads, width]`. The outputs are the cache, dense, with the keys and values of each token in its
    /// slot. Tokens with a negative slot are not written. A slot past the end is an index out of range.
    ///
    /// An output may have the address of its past, as described for [`Append`].
    PagedAppend,
    /// Attention over a cache in pages: see [`PagedAttention`].
    PagedAttention(PagedAttention),
    /// Keeps the newest rows of a cache of keys and values that has become too long.
    ///
    /// The inputs are `starts [batch]`, i32 or i64, keys `[batch, heads, rows, size]`, values
    /// `[batch, heads, rows, width]`, then the cache that the result replaces: keys `[batch, heads, total, size]` and
    /// values `[batch, heads, total, width]`. The outputs have the shapes of that cache and are dense: row `r` is row
    /// `starts[batch] + r` of the first two, and zeros after their end. A start outside `0..=rows` is an index out of
    /// range.
    ///
    /// The replaced cache is not read. It is an operand because an output may have its address, as described for
    /// [`Append`].
    Retain,
}

impl Prim {
    /// The name in dumps and profiles.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Map(_) => "map",
            Self::Reduce(_) => "reduce",
            Self::ArgReduce(_) => "arg_reduce",
            Self::Softmax(_) => "softmax",
            Self::Norm(_) => "norm",
            Self::Product(product) => product.name(),
            Self::Pool(_) => "pool",
            Self::Gather => "gather",
            Self::GatherElements(_) => "gather_elements",
            Self::GatherNd(_) => "gather_nd",
            Self::ScatterElements(_) => "scatter_elements",
            Self::ScatterNd(_) => "scatter_nd",
            Self::Cumulative(_) => "cumulative",
            Self::TopK(_) => "top_k",
            Self::Resize(_) => "resize",
            Self::Recurrent(_) => "recurrent",
            Self::Lrn(_) => "lrn",
            Self::Attention(_) => "attention",
            Self::Rotary(_) => "rotary",
            Self::Append(append) if append.rotary.is_some() => "rotary_append",
            Self::Append(_) => "append",
            Self::CachedAttention(_) => "cached_attention",
            Self::AppendAttention(_) => "rotary_append_attention",
            Self::CausalConv(_) => "causal_conv",
            Self::LinearAttention(_) => "linear_attention",
            Self::ExpertProduct(_) => "expert_product",
            Self::PagedPlaces(_) => "paged_places",
            Self::PagedAppend => "paged_append",
            Self::PagedAttention(_) => "paged_attention",
            Self::Retain => "retain",
        }
    }
}

/// Elementwise work.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// The output's element, computed from those of the inputs.
    pub expr: Expr,
}

/// How a reduction combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ReduceKind {
    Sum,
    Mean,
    Prod,
    Max,
    Min,
    SumSquare,
    L1,
    L2,
    LogSum,
    LogSumExp,
}

/// A reduction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reduce {
    /// How elements are combined.
    pub kind: ReduceKind,
    /// How many of the input's last axes are reduced.
    pub axes: usize,
}

/// A search for an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgReduce {
    /// Finds the largest instead of the smallest.
    pub largest: bool,
    /// Picks the last of equal elements instead of the first.
    pub last: bool,
}

/// Softmax along the last axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Softmax {
    /// Gives the logarithm instead.
    pub log: bool,
}

/// Normalisation over the last axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Norm {
    /// How many last axes are normalised over.
    pub axes: usize,
    /// The number added to the variance.
    pub epsilon: f32,
    /// Subtracts the mean first (layer norm) or not (RMS norm).
    pub centre: bool,
    /// Whether there is a scale.
    pub scale: bool,
    /// Whether there is a bias.
    pub bias: bool,
    /// Rounds to the element type before scaling, as ONNX's RMSNormalization does.
    pub round_before_scale: bool,
}

/// Attention: the softmax of scores weights the values; neither scores nor weights are stored.
///
/// The inputs are queries `[batch, rows, size]`, keys `[batch, size, total]` and values `[batch, total, width]`, as two
/// [`MatMul`]s would read them, then the other operands of `scores`, each of `shape`. Each of the three may have two
/// batch axes, the first as long as `shape`'s: heads of several sequences side by side. The output has `shape`'s
/// leading axes, then `width`: the rows of all batches, one after the other, in another order of axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// The factor applied to the product of queries and keys.
    pub alpha: f32,
    /// The shape of the scores, as `scores` indexes it; the last extent is `total`.
    pub shape: Shape,
    /// A score: input 0 is the product of query and key, unrounded; the others follow.
    pub scores: Expr,
    /// Rows whose scores are all minus infinity give zeros instead of NaN.
    pub zero_if_hidden: bool,
}

impl Attention {
    /// Queries, keys or values with two batch axes. The first is as long as in those that have two; if none has, all
    /// batches are in the second.
    pub fn batches(&self, views: [&View; 3]) -> [View; 3] {
        let outer = views.iter().find_map(|view| (view.shape.len() == 4).then(|| view.shape[0])).unwrap_or(1);
        views.map(|view| {
            let mut view = view.clone();
            if view.shape.len() == 3 {
                let inner = view.shape[0] / outer.max(1);
                view.strides.insert(0, inner.cast_signed() * view.strides[0]);
                view.shape[0] = inner;
                view.shape.insert(0, outer);
            }
            view
        })
    }
}

/// What a pool computes from its window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PoolKind {
    /// The maximum; a second output, if present, takes its flat index as i64 (column-major if true).
    Max {
        /// Indices are column-major.
        column_major: bool,
    },
    /// The mean.
    Average {
        /// Padding counts as zeros in the mean.
        count_pad: bool,
    },
    /// The p-norm.
    Lp {
        /// The order p of the norm.
        p: f32,
    },
}

/// Pooling.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// What is computed from a window.
    pub kind: PoolKind,
    /// The window's extents.
    pub kernel: Shape,
    /// Stride along each spatial axis.
    pub strides: Shape,
    /// Padding before each spatial axis.
    pub pads: Strides,
    /// Padding after each spatial axis, as far as it counts for `count_pad`.
    pub pads_end: Strides,
    /// Dilation of the window.
    pub dilations: Shape,
}

/// An axis of the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis(pub usize);

/// Leading axes that data and indices share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchDims(pub usize);

/// What happens when several updates hit the same element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ScatterKind {
    Replace,
    Add,
    Mul,
    Max,
    Min,
}

/// A scatter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scatter {
    /// What happens when several updates hit the same element.
    pub kind: ScatterKind,
    /// The axis, for element scatters.
    pub axis: usize,
}

/// Running sums or products.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cumulative {
    /// Products instead of sums.
    pub product: bool,
    /// Excludes the current element.
    pub exclusive: bool,
    /// Runs from the end.
    pub reverse: bool,
}

/// A top-k search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopK {
    /// How many to find; the outputs' last extent.
    pub k: usize,
    /// Finds the largest instead of the smallest.
    pub largest: bool,
    /// Whether the results are sorted. Otherwise any order is allowed.
    pub sorted: bool,
}

/// How an output coordinate maps to an input coordinate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Coordinates {
    HalfPixel,
    HalfPixelSymmetric,
    PytorchHalfPixel,
    AlignCorners,
    Asymmetric,
    TfCropAndResize,
    TfHalfPixelForNn,
}

/// How a coordinate is rounded for nearest-neighbour interpolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Nearest {
    RoundPreferFloor,
    RoundPreferCeil,
    Floor,
    Ceil,
}

/// How to interpolate between input values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interpolation {
    /// Takes the nearest value.
    Nearest(Nearest),
    /// Linearly along each axis.
    Linear,
    /// Cubically along each axis, with this coefficient; `exclude_outside` drops positions outside the input.
    Cubic {
        /// The coefficient, usually -0.75.
        a: f32,
        /// Gives positions outside the input no weight.
        exclude_outside: bool,
    },
}

/// Interpolation. Axes with a scale of 1 and equal extents are copied.
#[derive(Clone, Debug, PartialEq)]
pub struct Resize {
    /// How to interpolate.
    pub interpolation: Interpolation,
    /// How coordinates map.
    pub coordinates: Coordinates,
    /// The scale along every axis.
    pub scales: Vec<f32>,
    /// Start and end of the region of interest along every axis, for `TfCropAndResize`.
    pub roi: Vec<(f32, f32)>,
    /// The value used outside the input, for `TfCropAndResize`.
    pub extrapolation: f32,
    /// Applies a low-pass filter when an axis shrinks.
    pub antialias: bool,
}

/// Local response normalisation.
#[derive(Clone, Debug, PartialEq)]
pub struct Lrn {
    /// The factor of the mean square.
    pub alpha: f32,
    /// The exponent.
    pub beta: f32,
    /// The number added to the mean square.
    pub bias: f32,
    /// The number of channels in a window.
    pub size: usize,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} = {} {:?}", self.outputs, self.prim.name(), self.inputs)?;
        if let Prim::Map(map) = &self.prim {
            write!(f, " {{ {:?} }}", map.expr)?;
        }
        if let Prim::Product(product) = &self.prim {
            if let ProductKind::QuantMatMul(kind) = &product.kind {
                write!(f, " {} bits by {}, zeros {:?}, {:?}", kind.bits, kind.block, kind.zeros, kind.layout)?;
            }
            if let Some(epilogue) = &product.epilogue {
                write!(f, " {} {{ {:?} }}", epilogue.dtype, epilogue.expr)?;
            }
            if let Some(gate) = &product.gate {
                write!(f, " {} {{ {:?} }}", gate.dtype, gate.expr)?;
            }
        }
        if let Prim::Attention(attention) = &self.prim {
            write!(f, " {:?} {{ {:?} }}", attention.shape.as_slice(), attention.scores)?;
        }
        Ok(())
    }
}
