//! Products: matrices and convolutions, with the work that is fused into them.
use std::fmt;

use crate::expr::Expr;
use crate::prim::{Norm, Prim};
use crate::quant::QuantMatMul;
use crate::shape::Strides;
use crate::{DType, Shape};

/// A product, and the work that is done in the same step.
///
/// The parts follow each other: the prologue changes the left operand, the kind multiplies, and then either the
/// epilogue or the gate changes the result before it is stored. A product has an epilogue or a gate, never both.
///
/// The step's inputs are those of the kind, then the prologue's, then the epilogue's.
#[derive(Clone, Debug, PartialEq)]
pub struct Product {
    /// What is multiplied.
    pub kind: ProductKind,
    /// The norm of the left operand's rows that comes first, without storing them in between. Only for few rows of a
    /// [`MatMul`](ProductKind::MatMul) or [`QuantMatMul`](ProductKind::QuantMatMul).
    ///
    /// Its input is the scale `[k]`, of the left operand's type. The norm is over the last axis, with a scale, without
    /// a bias, and does not subtract the mean. Its result may be rounded to its type, or left unrounded.
    pub prologue: Option<Norm>,
    /// The work on each element of the result.
    pub epilogue: Option<Epilogue>,
    /// The work on pairs of columns. Only for few rows of a [`MatMul`](ProductKind::MatMul) or
    /// [`QuantMatMul`](ProductKind::QuantMatMul).
    pub gate: Option<Gate>,
}

/// What a product multiplies.
#[derive(Clone, Debug, PartialEq)]
pub enum ProductKind {
    /// Matrix products: `a [batch, m, k]`, `b [batch, k, n]`, output `[batch, m, n]`.
    MatMul(MatMul),
    /// A product with weights packed into a few bits: see [`QuantMatMul`].
    QuantMatMul(QuantMatMul),
    /// Matrix products of i8 or u8 operands, each minus its zero point, with 32-bit sums that wrap.
    IntegerMatMul {
        /// The operands' zero points.
        zeros: [i32; 2],
    },
    /// Convolution: x `[n, c, spatial…]`, w `[m, c/groups, kernel…]`, optional bias `[m]`.
    Conv(Conv),
    /// Transposed convolution: x `[n, c, spatial…]`, w `[c, m/groups, kernel…]`, optional bias `[m]`.
    ConvTranspose(Conv),
    /// A convolution of i8 or u8 operands, each minus its zero point, with 32-bit sums that wrap. Padding has the value
    /// of the zero point.
    IntegerConv {
        /// Without a bias, and with one group or one group per input channel.
        conv: Conv,
        /// The operands' zero points.
        zeros: [i32; 2],
    },
}

/// Matrix products. All views may be strided, so transposes cost nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct MatMul {
    /// The factor applied to the product.
    pub alpha: f32,
}

/// A convolution or transposed convolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conv {
    /// Stride along each spatial axis.
    pub strides: Shape,
    /// Zero padding before each spatial axis; the padding after it follows from the output's extent. Negative values
    /// crop.
    pub pads: Strides,
    /// Dilation of the kernel along each spatial axis.
    pub dilations: Shape,
    /// The number of independent groups of channels.
    pub groups: usize,
    /// Whether there is a bias.
    pub bias: bool,
}

/// Work that would be a [`Map`](crate::prim::Map) over a product's result, done while that is in registers or cache.
///
/// Its operands have the output's shape. The output has the product's shape and may have another type and any strides,
/// as long as the innermost is 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Epilogue {
    /// How many of the step's inputs come before the epilogue's operands.
    pub operands: usize,
    /// The type the product's result would be stored in: floats, i32 or i64.
    pub dtype: DType,
    /// The output's element: input 0 is the product's, in its compute type and unrounded; the others follow.
    pub expr: Expr,
}

/// Work on a product with twice as many columns as the output: column n of the output combines the product's columns n
/// and n + half, such as a gate and the value it gates.
///
/// The output has the product's type, and an innermost stride of 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    /// The type the product's result would be stored in.
    pub dtype: DType,
    /// The output's element: inputs 0 and 1 are the product's, in its compute type and unrounded.
    pub expr: Expr,
}

/// The names of a kind: stored as it is, with an epilogue, with a gate; each without and with a prologue.
macro_rules! names {
    ($name:literal) => {
        [
            [$name, concat!("normed_", $name)],
            [concat!("fused_", $name), concat!("fused_normed_", $name)],
            [concat!("gated_", $name), concat!("gated_normed_", $name)],
        ]
    };
}

impl Product {
    /// The name in dumps and profiles.
    pub const fn name(&self) -> &'static str {
        let names = match self.kind {
            ProductKind::MatMul(_) => names!("matmul"),
            ProductKind::QuantMatMul(_) => names!("quant_matmul"),
            ProductKind::IntegerMatMul { .. } => names!("integer_matmul"),
            ProductKind::Conv(_) => names!("conv"),
            ProductKind::ConvTranspose(_) => names!("conv_transpose"),
            ProductKind::IntegerConv { .. } => names!("integer_conv"),
        };
        let end = if self.gate.is_some() { 2 } else { self.epilogue.is_some() as usize };
        names[end][self.prologue.is_some() as usize]
    }

    /// True if nothing is fused into it.
    pub const fn is_plain(&self) -> bool {
        self.prologue.is_none() && self.epilogue.is_none() && self.gate.is_none()
    }

    /// The same product after a norm of its rows.
    #[must_use]
    pub fn with_prologue(self, norm: Norm) -> Self {
        Self { prologue: Some(norm), ..self }
    }

    /// The same product with an epilogue.
    #[must_use]
    pub fn with_epilogue(self, epilogue: Epilogue) -> Self {
        Self { epilogue: Some(epilogue), ..self }
    }

    /// The same product with a gate.
    #[must_use]
    pub fn with_gate(self, gate: Gate) -> Self {
        Self { gate: Some(gate), ..self }
    }
}

impl From<ProductKind> for Product {
    fn from(kind: ProductKind) -> Self {
        Self { kind, prologue: None, epilogue: None, gate: None }
    }
}

impl From<Product> for Prim {
    fn from(product: Product) -> Self {
        Self::Product(product)
    }
}

impl From<ProductKind> for Prim {
    fn from(kind: ProductKind) -> Self {
        Self::Product(kind.into())
    }
}

impl Prim {
    /// Matrix products with this factor.
    pub fn matmul(alpha: f32) -> Self {
        ProductKind::MatMul(MatMul { alpha }).into()
    }

    /// The product, if the step is one.
    pub const fn product(&self) -> Option<&Product> {
        if let Self::Product(product) = self { Some(product) } else { None }
    }

    /// The kind of a product with nothing fused into it.
    pub fn plain_product(&self) -> Option<&ProductKind> {
        self.product().filter(|product| product.is_plain()).map(|product| &product.kind)
    }

    /// The kind of a product that has neither a prologue nor a gate, and its epilogue. Libraries have only these.
    pub fn product_and_epilogue(&self) -> Option<(&ProductKind, Option<&Epilogue>)> {
        let product = self.product().filter(|product| product.prologue.is_none() && product.gate.is_none())?;
        Some((&product.kind, product.epilogue.as_ref()))
    }
}

/// The parameters of every part, in order.
impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(norm) = &self.prologue {
            write!(f, "{norm:?} then ")?;
        }
        match &self.kind {
            ProductKind::MatMul(kind) => write!(f, "{kind:?}")?,
            ProductKind::QuantMatMul(kind) => write!(f, "{kind:?}")?,
            ProductKind::Conv(kind) => write!(f, "{kind:?}")?,
            other => write!(f, "{other:?}")?,
        }
        if let Some(epilogue) = &self.epilogue {
            write!(f, " then {} {{ {:?} }}", epilogue.dtype, epilogue.expr)?;
        }
        if let Some(gate) = &self.gate {
            write!(f, " then halves {} {{ {:?} }}", gate.dtype, gate.expr)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_show_the_kind_and_what_is_fused() {
        let norm = Norm { axes: 1, epsilon: 0.0, centre: false, scale: true, bias: false, round_before_scale: false };
        let epilogue = Epilogue { operands: 2, dtype: DType::F32, expr: Expr::new() };
        let gate = Gate { dtype: DType::F32, expr: Expr::new() };
        let plain = Product::from(ProductKind::MatMul(MatMul { alpha: 1.0 }));
        let normed = plain.clone().with_prologue(norm);
        assert_eq!([plain.name(), normed.name()], ["matmul", "normed_matmul"]);
        assert_eq!(plain.clone().with_epilogue(epilogue.clone()).name(), "fused_matmul");
        assert_eq!(normed.clone().with_epilogue(epilogue.clone()).name(), "fused_normed_matmul");
        assert_eq!(plain.with_gate(gate.clone()).name(), "gated_matmul");
        assert_eq!(normed.with_gate(gate).name(), "gated_normed_matmul");
        let bytes = Product::from(ProductKind::IntegerMatMul { zeros: [0, 3] });
        assert_eq!(bytes.with_epilogue(epilogue).name(), "fused_integer_matmul");
    }
}
