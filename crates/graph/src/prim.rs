//! The primitives: all that a device has to implement.
//!
//! A [`Step`] is one primitive with the views it reads and writes. Views have strides, so movement (transpose, slice,
//! broadcast, concatenation) is a [`Map`] that copies, or nothing at all.
use std::fmt;

use crate::{
    DType, Shape,
    expr::Expr,
    shape::{self, Strides},
};

pub use crate::cache::{Append, AppendAttention, CachedAttention, Filled, Positions, Rotary, Sinks};
pub use crate::quant::{QuantMatMul, WeightLayout, Zeros};
pub use crate::recurrent::{Activation, ActivationKind, Cell, Recurrent, RecurrentInputs};

/// A buffer of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// Part of a buffer, as a tensor.
#[derive(Clone, PartialEq, Eq)]
pub struct View {
    /// The buffer.
    pub buffer: BufferId,
    /// The element type; the buffer's, or another as wide (BitCast).
    pub dtype: DType,
    /// The extents.
    pub shape: Shape,
    /// Elements between neighbours along each axis.
    pub strides: Strides,
    /// Elements before the first one.
    pub offset: isize,
}

impl View {
    /// How many elements it shows.
    pub fn elems(&self) -> usize {
        shape::elems(&self.shape).unwrap_or(0)
    }

    /// True if its elements lie one after the other in row-major order.
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

/// One unit of work.
#[derive(Clone, PartialEq)]
pub struct Step {
    /// The node it came from, for profiles and errors.
    pub node: u32,
    /// What is done.
    pub prim: Prim,
    /// What is read.
    pub inputs: Vec<View>,
    /// What is written.
    pub outputs: Vec<View>,
}

/// What is done. Views are in the order each primitive names.
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
    /// Normalisation over the last axes: inputs x, then scale and bias where there are any, of shape `[normalised…]`.
    Norm(Norm),
    /// Matrix products: `a [batch, m, k]`, `b [batch, k, n]`, output `[batch, m, n]`.
    MatMul(MatMul),
    /// A product with weights that stay packed in a few bits: see [`QuantMatMul`].
    QuantMatMul(QuantMatMul),
    /// Convolution: x `[n, c, spatial…]`, w `[m, c/groups, kernel…]`, bias `[m]` if there is one.
    Conv(Conv),
    /// Transposed convolution: x `[n, c, spatial…]`, w `[c, m/groups, kernel…]`, bias `[m]` if there is one.
    ConvTranspose(Conv),
    /// Pooling over the spatial axes of `[n, c, spatial…]`.
    Pool(Pool),
    /// Slices of data along one axis: data `[outer, axis, inner]`, indices `[count]`, output `[outer, count, inner]`.
    ///
    /// Indices, here and in the four below, are i32 or i64 and may count from the end; the device adds the extent to
    /// negative ones and checks that all are in range.
    Gather,
    /// Elements by index: data and indices of one rank; the output has the indices' shape. The element at an index of the
    /// output is data's at that index with the coordinate of the axis replaced by the one in `indices`, so off the axis
    /// no extent of the indices is above data's.
    GatherElements(Axis),
    /// Slices by index tuples: data, indices `[batch…, …, depth]`, with `batch_dims` leading axes in common; the output
    /// has the indices' shape without `depth`, then data's extents behind the first `batch_dims + depth`.
    GatherNd(BatchDims),
    /// Copies data to the output, then puts each update where [`GatherElements`](Self::GatherElements) would read: data,
    /// indices, updates of the indices' shape. Of updates to one place, the last in row-major order wins or all are
    /// put together in that order.
    ScatterElements(Scatter),
    /// Copies data to the output, then writes slices: data, indices `[…, depth]`, updates with the indices' shape without
    /// `depth`, then data's extents behind the first `depth`. Updates to one place meet as in
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
    /// A product of bytes less their zero points, summed in 32 bits: see [`Integer`].
    Integer(Integer),
    /// A product whose result goes through an expression before it is stored: see [`Fused`].
    Fused(Fused),
    /// A product of few rows, which are normalised on their way: see [`Normed`].
    Normed(Normed),
    /// A product of few rows, whose columns are put together in pairs before they are stored: see [`Gated`].
    Gated(Gated),
    /// Values weighted by the softmax of a product, which is never stored: see [`Attention`].
    Attention(Attention),
    /// Turns pairs of elements by angles that follow from the tokens' positions: see [`Rotary`].
    Rotary(Rotary),
    /// Puts the keys and values of new tokens behind those of a cache, and may turn keys and queries: see [`Append`].
    Append(Append),
    /// Attention over caches that are filled to lengths of their own: see [`CachedAttention`].
    CachedAttention(CachedAttention),
    /// Both of one token: see [`AppendAttention`].
    AppendAttention(AppendAttention),
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
            Self::MatMul(_) => "matmul",
            Self::QuantMatMul(_) => "quant_matmul",
            Self::Conv(_) => "conv",
            Self::ConvTranspose(_) => "conv_transpose",
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
            Self::Integer(integer) => match &*integer.product {
                Self::Conv(_) => "integer_conv",
                _ => "integer_matmul",
            },
            Self::Fused(fused) => match &*fused.product {
                Self::Conv(_) => "fused_conv",
                Self::ConvTranspose(_) => "fused_conv_transpose",
                Self::Integer(integer) => match &*integer.product {
                    Self::Conv(_) => "fused_integer_conv",
                    _ => "fused_integer_matmul",
                },
                Self::QuantMatMul(_) => "fused_quant_matmul",
                Self::Normed(normed) if matches!(*normed.product, Self::QuantMatMul(_)) => "fused_normed_quant_matmul",
                Self::Normed(_) => "fused_normed_matmul",
                _ => "fused_matmul",
            },
            Self::Normed(normed) if matches!(*normed.product, Self::QuantMatMul(_)) => "normed_quant_matmul",
            Self::Normed(_) => "normed_matmul",
            Self::Gated(gated) => match &*gated.product {
                Self::Normed(normed) if matches!(*normed.product, Self::QuantMatMul(_)) => "gated_normed_quant_matmul",
                Self::Normed(_) => "gated_normed_matmul",
                Self::QuantMatMul(_) => "gated_quant_matmul",
                _ => "gated_matmul",
            },
            Self::Attention(_) => "attention",
            Self::Rotary(_) => "rotary",
            Self::Append(append) if append.rotary.is_some() => "rotary_append",
            Self::Append(_) => "append",
            Self::CachedAttention(_) => "cached_attention",
            Self::AppendAttention(_) => "rotary_append_attention",
        }
    }
}

/// Elementwise work.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// The output's element, from those of the inputs.
    pub expr: Expr,
}

/// How elements are put together.
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
    /// How.
    pub kind: ReduceKind,
    /// How many of the input's last axes go.
    pub axes: usize,
}

/// A search for an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgReduce {
    /// The largest instead of the smallest.
    pub largest: bool,
    /// Of equal elements the last instead of the first.
    pub last: bool,
}

/// Softmax along the last axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Softmax {
    /// Its logarithm instead.
    pub log: bool,
}

/// Normalisation over the last axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Norm {
    /// How many last axes are normalised over.
    pub axes: usize,
    /// Added to the variance.
    pub epsilon: f32,
    /// Subtract the mean first (layer norm) or not (RMS norm).
    pub centre: bool,
    /// A scale is there.
    pub scale: bool,
    /// A bias is there.
    pub bias: bool,
    /// Round to the element type before scaling, as ONNX's RMSNormalization does.
    pub round_before_scale: bool,
}

/// Matrix products. All views may be strided, so transposes cost nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct MatMul {
    /// Factor of the product.
    pub alpha: f32,
}

/// A convolution or transposed convolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conv {
    /// Step along each spatial axis.
    pub strides: Shape,
    /// Zeros before each spatial axis; those behind follow from the output's extent. Negative ones crop.
    pub pads: Strides,
    /// Spread of the kernel along each spatial axis.
    pub dilations: Shape,
    /// Independent groups of channels.
    pub groups: usize,
    /// A bias is there.
    pub bias: bool,
}

/// A product of i8 or u8 operands, each less its zero point, with sums of 32 bits that wrap. Padding is what the zero
/// point stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct Integer {
    /// A [`MatMul`](Prim::MatMul) with a factor of 1, or a [`Conv`](Prim::Conv) without a bias whose groups are one, or as
    /// many as the input's channels.
    pub product: Box<Prim>,
    /// The operands' zero points.
    pub zeros: [i32; 2],
}

/// A product with an epilogue: what would be a [`Map`] over its result is done while that is in registers or cache.
///
/// The step's inputs are the product's own, then the epilogue's further operands, each of the output's shape. The output
/// has the product's shape and may have another type and any strides, its innermost one 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Fused {
    /// A [`MatMul`](Prim::MatMul), [`QuantMatMul`](Prim::QuantMatMul), [`Conv`](Prim::Conv),
    /// [`ConvTranspose`](Prim::ConvTranspose), [`Integer`](Prim::Integer) or [`Normed`](Prim::Normed).
    pub product: Box<Prim>,
    /// How many of the inputs are the product's own.
    pub operands: usize,
    /// The type that the product's result would be stored in: floats, i32 or i64.
    pub dtype: DType,
    /// The output's element: input 0 is the product's, in its compute type and not rounded yet; the others follow.
    pub epilogue: Expr,
}

/// A product of few rows, whose left operand goes through a norm and is not stored in between.
///
/// The inputs are the product's own, of which the first is what the norm reads, then the norm's scale `[k]`, of one type. The
/// norm is over the last axis, with a scale, without a bias, and does not centre. What it makes may be rounded to its type, or
/// stay as it is computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Normed {
    /// What is done to a row first.
    pub norm: Norm,
    /// What rows are multiplied with: [`MatMul`](Prim::MatMul) or [`QuantMatMul`](Prim::QuantMatMul).
    pub product: Box<Prim>,
}

/// A product of few rows that has twice as many columns as the output: column n of the output is made of the product's
/// columns n and n + half of them, such as a gate and what it gates.
///
/// The inputs are the product's own. The output has its type, and strides of which the innermost is 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Gated {
    /// A [`MatMul`](Prim::MatMul) or [`QuantMatMul`](Prim::QuantMatMul), or a [`Normed`](Prim::Normed) one.
    pub product: Box<Prim>,
    /// The type that the product's result would be stored in.
    pub dtype: DType,
    /// The output's element: inputs 0 and 1 are the product's, in its compute type and not rounded yet.
    pub epilogue: Expr,
}

/// Attention: the softmax of scores weights values, and neither scores nor weights are stored.
///
/// The inputs are queries `[batch, rows, size]`, keys `[batch, size, total]` and values `[batch, total, width]`, as two
/// [`MatMul`]s would read them, then the further operands of `scores`, each of `shape`. The batches of each of the three may be
/// two axes, the first as long as `shape`'s: heads of several sequences that lie side by side. The output has `shape`'s leading
/// axes, then `width`: the rows of all batches, one after the other, in another order of axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Factor of queries and keys.
    pub alpha: f32,
    /// The scores' shape, as `scores` counts it; the last extent is `total`.
    pub shape: Shape,
    /// A score: input 0 is the product of query and key, not rounded; the others follow.
    pub scores: Expr,
    /// Rows that may look nowhere, with minus infinity for all scores, give zeros instead of NaN.
    pub zero_if_hidden: bool,
}

impl Attention {
    /// Queries, keys or values with two axes of batches, the first as long as that of the others that have two; all are in the
    /// second if none has.
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

/// What a pool makes of its window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PoolKind {
    /// The largest; a second output, where there is one, takes its flat index as i64 (column-major if true).
    Max {
        /// Indices count column-major.
        column_major: bool,
    },
    /// The mean.
    Average {
        /// Padding counts as zeros.
        count_pad: bool,
    },
    /// The p-norm.
    Lp {
        /// The p.
        p: f32,
    },
}

/// Pooling.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// What is made of a window.
    pub kind: PoolKind,
    /// The window.
    pub kernel: Shape,
    /// Step along each spatial axis.
    pub strides: Shape,
    /// Padding before each spatial axis.
    pub pads: Strides,
    /// Padding behind each spatial axis, as far as it counts for `count_pad`.
    pub pads_end: Strides,
    /// Spread of the window.
    pub dilations: Shape,
}

/// An axis of the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis(pub usize);

/// Leading axes that data and indices share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchDims(pub usize);

/// What happens where updates meet.
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
    /// What happens where updates meet.
    pub kind: ScatterKind,
    /// The axis, for element scatters.
    pub axis: usize,
}

/// Running sums or products.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cumulative {
    /// Products instead of sums.
    pub product: bool,
    /// Leaves the current element out.
    pub exclusive: bool,
    /// From the end.
    pub reverse: bool,
}

/// A search for the best k.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopK {
    /// How many; the outputs' last extent.
    pub k: usize,
    /// The largest instead of the smallest.
    pub largest: bool,
    /// In order. Otherwise any order will do.
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

/// How values between the input's are found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interpolation {
    /// The nearest one's.
    Nearest(Nearest),
    /// Linearly along each axis.
    Linear,
    /// Cubically along each axis, with this coefficient; `exclude_outside` drops what lies outside.
    Cubic {
        /// The coefficient, usually -0.75.
        a: f32,
        /// Leaves positions outside the input out of the weights.
        exclude_outside: bool,
    },
}

/// Interpolation. Axes whose scale is 1 and whose extents agree are copied.
#[derive(Clone, Debug, PartialEq)]
pub struct Resize {
    /// How values are found.
    pub interpolation: Interpolation,
    /// How coordinates map.
    pub coordinates: Coordinates,
    /// The scale along every axis.
    pub scales: Vec<f32>,
    /// Start and end of the region of interest along every axis, for `TfCropAndResize`.
    pub roi: Vec<(f32, f32)>,
    /// The value outside the input, for `TfCropAndResize`.
    pub extrapolation: f32,
    /// Low-pass filters when an axis shrinks.
    pub antialias: bool,
}

/// Local response normalisation.
#[derive(Clone, Debug, PartialEq)]
pub struct Lrn {
    /// Factor of the mean square.
    pub alpha: f32,
    /// Exponent.
    pub beta: f32,
    /// Added to the mean square.
    pub bias: f32,
    /// Channels in a window.
    pub size: usize,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} = {} {:?}", self.outputs, self.prim.name(), self.inputs)?;
        if let Prim::Map(map) = &self.prim {
            write!(f, " {{ {:?} }}", map.expr)?;
        }
        let product = match &self.prim {
            Prim::Fused(fused) => &*fused.product,
            Prim::Gated(gated) => &*gated.product,
            other => other,
        };
        let product = if let Prim::Normed(normed) = product { &*normed.product } else { product };
        if let Prim::QuantMatMul(product) = product {
            write!(f, " {} bits by {}, zeros {:?}, {:?}", product.bits, product.block, product.zeros, product.layout)?;
        }
        if let Prim::Fused(fused) = &self.prim {
            write!(f, " {} {{ {:?} }}", fused.dtype, fused.epilogue)?;
        }
        if let Prim::Gated(gated) = &self.prim {
            write!(f, " {} {{ {:?} }}", gated.dtype, gated.epilogue)?;
        }
        if let Prim::Attention(attention) = &self.prim {
            write!(f, " {:?} {{ {:?} }}", attention.shape.as_slice(), attention.scores)?;
        }
        Ok(())
    }
}
