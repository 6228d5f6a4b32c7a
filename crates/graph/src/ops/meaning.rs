//! What passes may know of an operator.
use crate::{
    DType,
    expr::{Binary, Unary},
    ops::QuantProduct,
    prim::ReduceKind,
};

/// An operator as far as passes recognise it; everything else is [`Opaque`](Self::Opaque) to them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Meaning<'a> {
    /// Nothing that a pass makes use of.
    Opaque,
    /// The first output is the first input as it is.
    Same,
    /// One operation on one operand.
    Unary(Unary),
    /// One operation on two operands of one type, broadcast to each other.
    Binary(Binary),
    /// The first input to the power of the second.
    Power,
    /// The input in this type, as ONNX's Cast.
    Cast(DType),
    /// Axes in this order, or in reverse order.
    Transpose(Option<&'a [i64]>),
    /// The first input's elements under another shape, which the other inputs and the first one's shape decide.
    Reshaped,
    /// As `Reshaped`, to the shape in the second input.
    Reshape {
        /// An extent of 0 stands for the one the input has there.
        copies_zeros: bool,
    },
    /// A reduction over the axes of the second input or, where there is none, these.
    Reduce {
        /// What is put together.
        kind: ReduceKind,
        /// The axes that an attribute names.
        axes: &'a [i64],
        /// Reduced axes stay with extent 1.
        keepdims: bool,
    },
    /// Softmax along one axis, or in older opsets along it and all behind it.
    Softmax {
        /// The axis, which may be counted from the end.
        axis: i64,
    },
    /// A plain matrix product.
    MatMul,
    /// A product with quantised weights.
    QuantMatMul(&'a QuantProduct),
    /// Attention of new tokens, the first input `[batch, tokens, …]`, over a cache.
    CachedAttention {
        /// The input that has the index of each sequence's last token.
        lengths: usize,
    },
}

/// Whether an operator works on each row by itself: a result's row, along the last axis, is made of the same row of the
/// inputs, and of inputs that are the same for all rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowWise {
    /// It does not, or it depends on more than the operator.
    No,
    /// It works on elements: inputs are broadcast to each other.
    Elements,
    /// It normalises rows: the sum of so many inputs. The others are broadcast to it.
    Norm(usize),
    /// It multiplies the first input by the others: a matrix, or quantised weights and what belongs to them.
    Product,
}
