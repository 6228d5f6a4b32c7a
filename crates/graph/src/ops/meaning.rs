//! What passes know about an operator.
use crate::DType;
use crate::expr::{Binary, Unary};
use crate::ops::QuantProduct;
use crate::prim::ReduceKind;

/// An operator as passes see it; those they do not recognise are [`Opaque`](Self::Opaque).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Meaning<'a> {
    /// Nothing that a pass uses.
    Opaque,
    /// The first output is the first input, unchanged.
    Same,
    /// One operation on one operand.
    Unary(Unary),
    /// One operation on two operands of the same type, broadcast to each other.
    Binary(Binary),
    /// The first input to the power of the second.
    Power,
    /// The input converted to this type, as ONNX's Cast does.
    Cast(DType),
    /// Permutes the axes in this order, or reverses them.
    Transpose(Option<&'a [i64]>),
    /// The first input's elements with another shape, which follows from the other inputs and the first one's shape.
    Reshaped,
    /// Like `Reshaped`, to the shape in the second input.
    Reshape {
        /// An extent of 0 means the input's extent at that axis.
        copies_zeros: bool,
    },
    /// A reduction over the axes in the second input or, without one, over these.
    Reduce {
        /// How elements are combined.
        kind: ReduceKind,
        /// The axes given by an attribute.
        axes: &'a [i64],
        /// Keeps reduced axes with extent 1.
        keepdims: bool,
    },
    /// Softmax along one axis, or in older opsets along it and all later ones.
    Softmax {
        /// The axis; negative counts from the end.
        axis: i64,
    },
    /// A plain matrix product.
    MatMul,
    /// A product with quantised weights.
    QuantMatMul(&'a QuantProduct),
    /// Attention of new tokens, the first input `[batch, tokens, …]`, over a cache.
    CachedAttention {
        /// The input with the index of each sequence's last token.
        lengths: usize,
        /// The input with the total length.
        total: usize,
        /// The inputs with the cosines and the sines of positions.
        tables: [usize; 2],
        /// The input with the positions of the tokens, which is optional.
        positions: usize,
    },
    /// A choice by the first input between two lists of this many results, which follow it.
    Choice {
        /// The number of results.
        results: usize,
    },
}

/// Whether an operator works row by row: a row of the result, along the last axis, depends only on the same row of the
/// inputs, and on inputs that are the same for all rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowWise {
    /// Not row by row, or the operator alone does not decide it.
    No,
    /// Elementwise: the inputs are broadcast to each other.
    Elements,
    /// Normalises rows: the sum of this many inputs. The others are broadcast to it.
    Norm(usize),
    /// Multiplies the first input by the others: a matrix, or quantised weights with their parameters.
    Product,
}
