//! Activations: functions of one operand with parameters.
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, SQRT_2};

use crate::expr::{Binary, Expr, Ref, Unary};
use crate::lower::Lower;
use crate::ops::{Entry, NodeInfo, Op, RowWise};
use crate::{DType, Declined, LowerError, Scalar, Val};

/// A function of one operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Activation {
    Relu,
    LeakyRelu {
        alpha: f32,
    },
    Elu {
        alpha: f32,
    },
    Selu {
        alpha: f32,
        gamma: f32,
    },
    Celu {
        alpha: f32,
    },
    ThresholdedRelu {
        alpha: f32,
    },
    HardSigmoid {
        alpha: f32,
        beta: f32,
    },
    Mish,
    Softplus {
        alpha: f32,
        beta: f32,
    },
    Softsign,
    ScaledTanh {
        alpha: f32,
        beta: f32,
    },
    Shrink {
        bias: f32,
        lambd: f32,
    },
    /// x · sigmoid(alpha · x)
    Swish {
        alpha: f32,
    },
    HardSwish,
    Gelu,
    /// The tanh approximation.
    TanhGelu,
    Affine {
        alpha: f32,
        beta: f32,
    },
}

/// Builds an expression in one type.
struct Formula<'e> {
    expr: &'e mut Expr,
    dtype: DType,
}

impl Formula<'_> {
    fn number(&mut self, value: impl Into<f64>) -> Ref {
        self.expr.constant(Scalar::Float(value.into()), self.dtype)
    }

    fn apply(&mut self, op: Unary, a: Ref) -> Ref {
        self.expr.unary(op, a)
    }

    fn join(&mut self, op: Binary, a: Ref, b: Ref) -> Ref {
        self.expr.binary(op, a, b)
    }

    fn scaled(&mut self, a: Ref, factor: impl Into<f64>) -> Ref {
        let factor: f64 = factor.into();
        if factor == 1.0 {
            return a;
        }
        let factor = self.number(factor);
        self.join(Binary::Mul, a, factor)
    }

    fn shifted(&mut self, a: Ref, by: impl Into<f64>) -> Ref {
        let by: f64 = by.into();
        if by == 0.0 {
            return a;
        }
        let by = self.number(by);
        self.join(Binary::Add, a, by)
    }

    fn bounded(&mut self, a: Ref, low: f64, high: f64) -> Ref {
        let (low, high) = (self.number(low), self.number(high));
        let raised = self.join(Binary::Max, a, low);
        self.join(Binary::Min, raised, high)
    }

    /// `yes` where `a op bound`, else `no`.
    fn choose(&mut self, a: Ref, op: Binary, bound: impl Into<f64>, yes: Ref, no: Ref) -> Ref {
        let bound = self.number(bound);
        let condition = self.join(op, a, bound);
        self.expr.select(condition, yes, no)
    }

    /// ln(1 + exp(a)) without overflow.
    fn softplus(&mut self, a: Ref) -> Ref {
        let zero = self.number(0.0);
        let positive = self.join(Binary::Max, a, zero);
        let size = self.apply(Unary::Abs, a);
        let size = self.apply(Unary::Neg, size);
        let rest = self.apply(Unary::Exp, size);
        let rest = self.apply(Unary::Log1p, rest);
        self.join(Binary::Add, positive, rest)
    }

    /// (x / 2) · (1 + share)
    fn half_weighted(&mut self, x: Ref, share: Ref) -> Ref {
        let half = self.scaled(x, 0.5);
        let weight = self.shifted(share, 1.0);
        self.join(Binary::Mul, half, weight)
    }
}

impl Activation {
    /// Appends the function of `x` to an expression; the result has the type of `x`.
    pub fn build(self, expr: &mut Expr, x: Ref) -> Ref {
        let dtype = expr.dtype(x);
        if !dtype.is_float() {
            return self.build_integer(expr, x, dtype);
        }
        let mut f = Formula { expr, dtype };
        match self {
            Self::Relu => {
                let zero = f.number(0.0);
                f.join(Binary::Max, x, zero)
            }
            Self::LeakyRelu { alpha } => {
                let leak = f.scaled(x, alpha);
                f.choose(x, Binary::Lt, 0.0, leak, x)
            }
            Self::Elu { alpha } => {
                let curve = f.apply(Unary::Expm1, x);
                let curve = f.scaled(curve, alpha);
                f.choose(x, Binary::Lt, 0.0, curve, x)
            }
            Self::Selu { alpha, gamma } => {
                let curve = f.apply(Unary::Expm1, x);
                let curve = f.scaled(curve, alpha);
                let chosen = f.choose(x, Binary::Gt, 0.0, x, curve);
                f.scaled(chosen, gamma)
            }
            Self::Celu { alpha } => {
                let bound = f.number(alpha);
                let curve = f.join(Binary::Div, x, bound);
                let curve = f.apply(Unary::Expm1, curve);
                let curve = f.scaled(curve, alpha);
                f.choose(x, Binary::Gt, 0.0, x, curve)
            }
            Self::ThresholdedRelu { alpha } => {
                let zero = f.number(0.0);
                f.choose(x, Binary::Gt, alpha, x, zero)
            }
            Self::HardSigmoid { alpha, beta } => {
                let line = f.scaled(x, alpha);
                let line = f.shifted(line, beta);
                f.bounded(line, 0.0, 1.0)
            }
            Self::HardSwish => {
                let gate = f.scaled(x, 1.0 / 6.0);
                let gate = f.shifted(gate, 0.5);
                let gate = f.bounded(gate, 0.0, 1.0);
                f.join(Binary::Mul, x, gate)
            }
            Self::Mish => {
                let gate = f.softplus(x);
                let gate = f.apply(Unary::Tanh, gate);
                f.join(Binary::Mul, x, gate)
            }
            Self::Softplus { alpha, beta } => {
                let inner = f.scaled(x, beta);
                let curve = f.softplus(inner);
                f.scaled(curve, alpha)
            }
            Self::Softsign => {
                let size = f.apply(Unary::Abs, x);
                let size = f.shifted(size, 1.0);
                f.join(Binary::Div, x, size)
            }
            Self::ScaledTanh { alpha, beta } => {
                let inner = f.scaled(x, beta);
                let curve = f.apply(Unary::Tanh, inner);
                f.scaled(curve, alpha)
            }
            Self::Shrink { bias, lambd } => {
                let (lower, upper) = (f.shifted(x, bias), f.shifted(x, -bias));
                let zero = f.number(0.0);
                let right = f.choose(x, Binary::Gt, lambd, upper, zero);
                f.choose(x, Binary::Lt, -lambd, lower, right)
            }
            Self::Swish { alpha } => {
                let gate = f.scaled(x, alpha);
                let gate = f.apply(Unary::Sigmoid, gate);
                f.join(Binary::Mul, x, gate)
            }
            Self::Gelu => {
                let share = f.scaled(x, FRAC_1_SQRT_2);
                let share = f.apply(Unary::Erf, share);
                f.half_weighted(x, share)
            }
            Self::TanhGelu => {
                // √(2/π) · (x + 0.044715 x³), factored so that it takes few operations.
                let square = f.join(Binary::Mul, x, x);
                let slope = FRAC_2_SQRT_PI / SQRT_2;
                let factor = f.scaled(square, 0.044_715 * slope);
                let factor = f.shifted(factor, slope);
                let inner = f.join(Binary::Mul, x, factor);
                let share = f.apply(Unary::Tanh, inner);
                f.half_weighted(x, share)
            }
            Self::Affine { alpha, beta } => {
                let line = f.scaled(x, alpha);
                f.shifted(line, beta)
            }
        }
    }

    /// For integers: exact if the parameters allow, otherwise in double precision and truncated, as a cast does.
    fn build_integer(self, expr: &mut Expr, x: Ref, dtype: DType) -> Ref {
        if self == Self::Relu {
            let zero = expr.constant(Scalar::zero(dtype), dtype);
            return expr.binary(Binary::Max, x, zero);
        }
        let wide = expr.cast(x, DType::F64);
        let result = self.build(expr, wide);
        expr.cast(result, dtype)
    }

    /// Reads an operator's activation; `None` if no activation has this name.
    fn read(node: &NodeInfo<'_>) -> Result<Option<Self>, Declined> {
        let parameter = |name: &str, default: f32| node.attributes.float(name, default);
        let needed = |name: &str| match node.attributes.get(name) {
            None => Err(Declined::new(format!("attribute {name} is missing"))),
            Some(_) => node.attributes.float(name, 0.0),
        };
        Ok(Some(match (node.domain, node.op_type) {
            ("com.microsoft", "Gelu" | "BiasGelu") => Self::Gelu,
            ("com.microsoft", "FastGelu") => Self::TanhGelu,
            ("com.microsoft", "QuickGelu") => Self::Swish { alpha: parameter("alpha", 1.702)? },
            ("com.microsoft", _) => return Ok(None),
            (_, "Relu") => Self::Relu,
            (_, "LeakyRelu") => Self::LeakyRelu { alpha: parameter("alpha", 0.01)? },
            (_, "Elu") => Self::Elu { alpha: parameter("alpha", 1.0)? },
            (_, "Selu") => {
                Self::Selu { alpha: parameter("alpha", 1.673_263_2)?, gamma: parameter("gamma", 1.050_701)? }
            }
            (_, "Celu") => Self::Celu { alpha: parameter("alpha", 1.0)? },
            (_, "ThresholdedRelu") => Self::ThresholdedRelu { alpha: parameter("alpha", 1.0)? },
            (_, "HardSigmoid") => Self::HardSigmoid { alpha: parameter("alpha", 0.2)?, beta: parameter("beta", 0.5)? },
            (_, "HardSwish") => Self::HardSwish,
            (_, "Mish") => Self::Mish,
            (_, "Softplus") => Self::Softplus { alpha: 1.0, beta: 1.0 },
            (_, "ParametricSoftplus") => Self::Softplus { alpha: needed("alpha")?, beta: needed("beta")? },
            (_, "Softsign") => Self::Softsign,
            (_, "ScaledTanh") => Self::ScaledTanh { alpha: needed("alpha")?, beta: needed("beta")? },
            (_, "Shrink") => Self::Shrink { bias: parameter("bias", 0.0)?, lambd: parameter("lambd", 0.5)? },
            (_, "Swish") => Self::Swish { alpha: parameter("alpha", 1.0)? },
            (_, "Affine") => Self::Affine { alpha: parameter("alpha", 1.0)?, beta: parameter("beta", 0.0)? },
            (_, "Gelu") => match node.attributes.text("approximate", "none")? {
                "none" => Self::Gelu,
                "tanh" => Self::TanhGelu,
                other => return Err(Declined::new(format!("unsupported approximate {other:?}"))),
            },
            _ => return Ok(None),
        }))
    }

    /// The types for which an operator has this activation.
    fn accepts(self, dtype: DType) -> bool {
        let integers = matches!(self, Self::Relu | Self::Shrink { .. }) && dtype.is_int();
        dtype.is_float() || integers
    }
}

/// An operator that is a single activation, applied to the sum with an optional bias.
#[derive(Debug)]
struct ActivationOp {
    name: &'static str,
    activation: Activation,
}

impl Op for ActivationOp {
    fn name(&self) -> &'static str {
        self.name
    }

    fn row_wise(&self) -> RowWise {
        RowWise::Elements
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let x = cx.required(inputs, 0)?;
        let activation = self.activation;
        let result = match inputs.get(1).and_then(Option::as_ref) {
            None => cx.map(&[x], x.dtype(), |expr, arguments| activation.build(expr, arguments[0]))?,
            Some(bias) => cx.map_to(&[x, bias], x.dtype(), x.shape(), |expr, arguments| {
                let sum = expr.binary(Binary::Add, arguments[0], arguments[1]);
                activation.build(expr, sum)
            })?,
        };
        Ok(vec![result])
    }
}

/// An activation with a tensor as the slope for negative elements.
#[derive(Debug)]
struct PRelu;

impl Op for PRelu {
    fn name(&self) -> &'static str {
        "PRelu"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (x, slope) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        let result = cx.map_to(&[x, slope], x.dtype(), x.shape(), |expr, arguments| {
            let (x, slope) = (arguments[0], arguments[1]);
            let zero = expr.constant(Scalar::zero(expr.dtype(x)), expr.dtype(x));
            let negative = expr.binary(Binary::Lt, x, zero);
            let leak = expr.binary(Binary::Mul, x, slope);
            expr.select(negative, leak, x)
        })?;
        Ok(vec![result])
    }
}

fn parse_prelu(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let dtype = node.accept(0, |dtype| dtype != DType::Bool)?;
    if node.input(1)?.dtype != dtype {
        return Err(Declined::new(format!("a slope of unsupported type {}", node.input(1)?.dtype)));
    }
    Ok(Box::new(PRelu))
}

fn parse_activation(node: &NodeInfo<'_>, name: &'static str) -> Result<Box<dyn Op>, Declined> {
    let activation = Activation::read(node)?.ok_or_else(|| Declined::new("the operator is not supported"))?;
    let dtype = node.input(0)?.dtype;
    if !activation.accepts(dtype) {
        return Err(Declined::new(format!("input 0 has unsupported type {dtype}")));
    }
    if node.optional(1).is_some_and(|bias| bias.dtype != dtype) {
        return Err(Declined::new("the bias has another type than the input"));
    }
    Ok(Box::new(ActivationOp { name, activation }))
}

macro_rules! activations {
    ($($domain:literal $op_type:literal),* $(,)?) => {
        &[
            $(Entry { domain: $domain, op_type: $op_type, parse: |node| parse_activation(node, $op_type) },)*
            Entry { domain: "", op_type: "PRelu", parse: parse_prelu },
        ]
    };
}

pub(super) const OPS: &[Entry] = activations! {
    "" "Relu",
    "" "LeakyRelu",
    "" "Elu",
    "" "Selu",
    "" "Celu",
    "" "ThresholdedRelu",
    "" "HardSigmoid",
    "" "HardSwish",
    "" "Mish",
    "" "Softplus",
    "" "ParametricSoftplus",
    "" "Softsign",
    "" "ScaledTanh",
    "" "Shrink",
    "" "Swish",
    "" "Gelu",
    "" "Affine",
    "com.microsoft" "Gelu",
    "com.microsoft" "BiasGelu",
    "com.microsoft" "FastGelu",
    "com.microsoft" "QuickGelu",
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::expr::erf;
    use crate::ops::Attribute;
    use crate::ops::case::{Case, assert_close, tensor, vector};

    const XS: [f64; 9] = [-100.0, -3.0, -1.0, -0.25, 0.0, 0.25, 1.0, 3.0, 100.0];

    fn case(op_type: &'static str, dtype: DType) -> Case {
        Case::new(op_type, 20).input(vector(dtype, &XS)).output(dtype)
    }

    fn check(case: Case, wanted: impl Fn(f64) -> f64) {
        assert_close(&case.floats(), &XS.map(wanted), 2e-7);
    }

    fn f(name: &str, value: f32) -> (&str, Attribute) {
        (name, Attribute::Float(value))
    }

    /// A node with float attributes on the sample points.
    fn with(op_type: &'static str, attributes: &[(&str, Attribute)]) -> Case {
        attributes.iter().fold(case(op_type, DType::F32), |case, (name, value)| case.with(name, value.clone()))
    }

    #[test]
    fn piecewise_activations_follow_their_definitions() {
        check(with("Relu", &[]), |x| x.max(0.0));
        check(with("LeakyRelu", &[f("alpha", 0.5)]), |x| if x < 0.0 { 0.5 * x } else { x });
        check(with("ThresholdedRelu", &[]), |x| if x > 1.0 { x } else { 0.0 });
        check(with("HardSigmoid", &[f("alpha", 0.5), f("beta", 0.25)]), |x| (0.5 * x + 0.25).clamp(0.0, 1.0));
        check(with("HardSwish", &[]), |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0));
        check(with("Softsign", &[]), |x| x / (1.0 + x.abs()));
        check(with("Affine", &[f("alpha", 2.0), f("beta", 1.0)]), |x| 2.0 * x + 1.0);
        check(with("Shrink", &[f("bias", 0.5), f("lambd", 0.75)]), |x| match x {
            _ if x < -0.75 => x + 0.5,
            _ if x > 0.75 => x - 0.5,
            _ => 0.0,
        });
    }

    #[test]
    fn curved_activations_follow_their_definitions_and_never_overflow() {
        check(with("Elu", &[f("alpha", 2.0)]), |x| if x < 0.0 { 2.0 * (x.exp() - 1.0) } else { x });
        check(with("Selu", &[f("alpha", 2.0), f("gamma", 3.0)]), |x| {
            3.0 * if x > 0.0 { x } else { 2.0 * (x.exp() - 1.0) }
        });
        check(with("Celu", &[f("alpha", 2.0)]), |x| x.max(0.0) + (2.0 * ((x / 2.0).exp() - 1.0)).min(0.0));
        check(with("Softplus", &[]), |x| x.exp().ln_1p());
        check(with("ParametricSoftplus", &[f("alpha", 2.0), f("beta", 0.5)]), |x| 2.0 * (0.5 * x).exp().ln_1p());
        check(with("ScaledTanh", &[f("alpha", 2.0), f("beta", 0.5)]), |x| 2.0 * (0.5 * x).tanh());
        check(with("Mish", &[]), |x| x * x.exp().ln_1p().tanh());
        check(with("Swish", &[f("alpha", 0.5)]), |x| x / (1.0 + (-0.5 * x).exp()));
    }

    fn tanh_gelu(x: f64) -> f64 {
        0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
    }

    #[test]
    fn every_gelu_follows_its_definition() {
        let exact = |x: f64| 0.5 * x * (1.0 + erf(x / SQRT_2));
        check(with("Gelu", &[]), exact);
        check(with("Gelu", &[("approximate", Attribute::Text("tanh".into()))]), tanh_gelu);
        check(with("Gelu", &[]).domain("com.microsoft"), exact);
        check(with("FastGelu", &[]).domain("com.microsoft"), tanh_gelu);
        check(with("QuickGelu", &[]).domain("com.microsoft"), |x| x / (1.0 + (f64::from(-1.702f32) * x).exp()));
        let bias = |name| with(name, &[]).domain("com.microsoft").input(vector(DType::F32, &[0.5; 9]));
        check(bias("BiasGelu"), |x| exact(x + 0.5));
        check(bias("FastGelu"), |x| tanh_gelu(x + 0.5));
        let unknown = with("Gelu", &[("approximate", Attribute::Text("cubic".into()))]);
        assert_eq!(unknown.parse().unwrap_err(), "unsupported approximate \"cubic\"");
    }

    #[test]
    fn a_slope_is_broadcast_to_the_input_but_never_widens_it() {
        let x = tensor(DType::F32, &[2, 2], &[-1.0, 2.0, -3.0, -4.0]);
        let prelu = |slope| Case::new("PRelu", 16).input(x.clone()).input(slope).output(DType::F32);
        let per_column = prelu(vector(DType::F32, &[10.0, 100.0]));
        assert_eq!(per_column.floats(), [-10.0, 2.0, -30.0, -400.0]);
        let wide = prelu(tensor(DType::F32, &[3, 1, 1], &[1.0; 3]));
        assert_eq!(wide.run().unwrap_err(), "PRelu: shape [3, 1, 1] cannot be broadcast to [2, 2]");
    }

    #[test]
    fn integers_are_rectified_exactly() {
        let large = [i64::MIN, -1, 0, i64::MAX];
        let relu = Case::new("Relu", 14).input(crate::Tensor::from_i64s(&large)).output(DType::I64);
        assert_eq!(relu.run().unwrap()[0].to_i64s(), [0, 0, 0, i64::MAX]);
        assert_eq!(
            Case::new("Elu", 6).input(vector(DType::I32, &[1.0])).output(DType::I32).parse().unwrap_err(),
            "input 0 has unsupported type i32"
        );
        let shrink = Case::new("Shrink", 9).input(vector(DType::I8, &[-3.0, 0.0, 3.0])).output(DType::I8);
        assert_eq!(shrink.with("bias", Attribute::Float(1.5)).floats(), [-1.0, 0.0, 1.0]);
    }

    #[test]
    fn parameters_without_a_default_are_required() {
        assert_eq!(with("ScaledTanh", &[f("alpha", 1.0)]).parse().unwrap_err(), "attribute beta is missing");
    }

    proptest! {
        #[test]
        fn half_precision_is_computed_in_single_precision(x in -8.0f64..8.0) {
            let x = half::f16::from_f64(x);
            let gelu = Case::new("FastGelu", 1).domain("com.microsoft");
            let found = gelu.input(vector(DType::F16, &[x.to_f64()])).output(DType::F16).floats()[0];
            let wanted = half::f16::from_f64(tanh_gelu(x.to_f64())).to_f64();
            prop_assert!((found - wanted).abs() <= wanted.abs() * 1e-3 + 1e-6, "{} {}", found, wanted);
        }
    }
}
