//! A product's epilogue as pointwise operations.
//!
//! Activations that hipDNN has a mode for (ReLU and its bounds, Swish, GELU) are recognised, because engines fuse
//! those. The rest is written operation by operation, and the backend decides whether it runs such a graph.
use graph::expr::{Binary, Expr, Node, Ref, Unary};
use graph::{DType, Declined};
use hipdnn::sys::PointwiseMode as M;
use hipdnn::{Pointwise, TensorId};

use super::sketch::Sketch;

/// Tolerance for constants that were written in single precision.
const CLOSE: f64 = 1e-6;

/// Writes an expression into a graph.
pub(super) struct Epilogue<'a> {
    pub expr: &'a Expr,
    /// Returns the operand with this number: 0 is the product's result.
    pub input: &'a mut dyn FnMut(&mut Sketch, usize) -> Result<TensorId, Declined>,
    /// The tensor that each operation became.
    pub made: Vec<Option<TensorId>>,
    /// Set where indices and selects are allowed: in the scores of attention. For other products, our own map does that
    /// in one pass.
    pub counts: Option<Counts>,
}

/// How an expression's axes map to the axes of a graph's tensors.
#[derive(Clone, Copy)]
pub(super) struct Counts {
    /// The number of axes in the expression; the last two are rows and keys.
    pub axes: usize,
    /// The number of axes of the tensors; the last two are the same.
    pub rank: usize,
}

impl Epilogue<'_> {
    /// The expression's result.
    pub fn write(&mut self, sketch: &mut Sketch) -> Result<TensorId, Declined> {
        let Some(last) = self.expr.nodes().len().checked_sub(1) else {
            return Err(Declined::new("its epilogue is empty"));
        };
        self.made = vec![None; last + 1];
        self.tensor(sketch, last as Ref)
    }

    fn node(&self, at: Ref) -> Node {
        self.expr.nodes()[usize::from(at)].0
    }

    fn number(&self, at: Ref) -> Option<f64> {
        match self.node(at) {
            Node::Const(value) => Some(value.as_f64()),
            _ => None,
        }
    }

    fn tensor(&mut self, sketch: &mut Sketch, at: Ref) -> Result<TensorId, Declined> {
        if let Some(made) = self.made[usize::from(at)] {
            return Ok(made);
        }
        let dtype = self.expr.dtype(at);
        let made = match dtype {
            DType::Bool | DType::I64 if self.counts.is_some() => self.whole(sketch, at)?,
            _ if !dtype.is_float() || (dtype == DType::F64 && !sketch.is_double()) => {
                return Err(Declined::new(format!("its epilogue computes in {dtype}")));
            }
            _ => match self.activation(sketch, at)? {
                Some(made) => made,
                None => self.plain(sketch, at)?,
            },
        };
        self.made[usize::from(at)] = Some(made);
        Ok(made)
    }

    fn plain(&mut self, sketch: &mut Sketch, at: Ref) -> Result<TensorId, Declined> {
        match self.node(at) {
            Node::Input(number) => (self.input)(sketch, usize::from(number)),
            Node::Const(value) => Ok(sketch.number(value.as_f64())),
            // A graph does not round to half types between its operations, which only improves accuracy.
            Node::Cast(a) => self.tensor(sketch, a),
            Node::Unary(op, a) => {
                let mode = unary(op)
                    .ok_or_else(|| Declined::new(format!("its epilogue uses {op:?}, which hipDNN does not support")))?;
                let a = self.tensor(sketch, a)?;
                Ok(sketch.pointwise(mode, &[a]))
            }
            Node::Binary(op, a, b) => {
                let mode = binary(op)
                    .ok_or_else(|| Declined::new(format!("its epilogue uses {op:?}, which hipDNN does not support")))?;
                // Engines look for a bias or a number on the right.
                let commutes = !matches!(op, Binary::Sub | Binary::Div);
                let (a, b) = if commutes && self.is_outer(a) && !self.is_outer(b) { (b, a) } else { (a, b) };
                let operands = [self.tensor(sketch, a)?, self.tensor(sketch, b)?];
                Ok(sketch.pointwise(mode, &operands))
            }
            Node::Select(condition, a, b) if self.counts.is_some() => {
                let operands = [self.tensor(sketch, a)?, self.tensor(sketch, b)?, self.tensor(sketch, condition)?];
                Ok(sketch.pointwise(M::BINARY_SELECT, &operands))
            }
            Node::Select(..) => Err(Declined::new("its epilogue uses Select, which hipDNN does not support")),
            Node::Index(_) => Err(Declined::new("its epilogue uses element positions, which hipDNN does not support")),
        }
    }

    /// An index or a boolean, as a number of the compute type. This is exact, because no tensor has 2²⁴ rows or keys.
    fn whole(&mut self, sketch: &mut Sketch, at: Ref) -> Result<TensorId, Declined> {
        let is_truth = self.expr.dtype(at) == DType::Bool;
        let other = || Declined::new("its scores depend on integers other than positions");
        match self.node(at) {
            Node::Const(value) => Ok(sketch.number(value.as_f64())),
            Node::Index(axis) => {
                let Some(Counts { axes, rank }) = self.counts else { return Err(other()) };
                let behind = axes.saturating_sub(usize::from(axis));
                if !(1..=2).contains(&behind) {
                    return Err(Declined::new("its scores depend on their head or batch"));
                }
                let product = (self.input)(sketch, 0)?;
                let axis = Some((rank - behind) as i64);
                Ok(sketch.pointwise(Pointwise { axis, ..M::GEN_INDEX.into() }, &[product]))
            }
            Node::Binary(op, a, b) => {
                let mode = if is_truth { truth(op) } else { counting(op) }.ok_or_else(other)?;
                let operands = [self.tensor(sketch, a)?, self.tensor(sketch, b)?];
                Ok(sketch.pointwise(mode, &operands))
            }
            Node::Unary(Unary::Not, a) if is_truth => {
                let a = self.tensor(sketch, a)?;
                Ok(sketch.pointwise(M::LOGICAL_NOT, &[a]))
            }
            _ => Err(other()),
        }
    }

    /// True for numbers and operands, which do not come from the product.
    fn is_outer(&self, at: Ref) -> bool {
        match self.node(at) {
            Node::Const(_) => true,
            Node::Input(number) => number > 0,
            Node::Cast(a) => self.is_outer(a),
            _ => false,
        }
    }

    /// The activation, if hipDNN has a mode for it.
    fn activation(&mut self, sketch: &mut Sketch, at: Ref) -> Result<Option<TensorId>, Declined> {
        let found = self.relu(at).or_else(|| self.leaky(at)).or_else(|| self.swish(at)).or_else(|| self.gelu(at));
        let Some((what, x)) = found else { return Ok(None) };
        let x = self.tensor(sketch, x)?;
        Ok(Some(sketch.pointwise(what, &[x])))
    }

    /// `max(x, low)`, or with an upper bound too.
    fn relu(&self, at: Ref) -> Option<(Pointwise, Ref)> {
        let (x, low, high) = match self.with_number(at, Binary::Min) {
            Some((raised, high)) => {
                let (x, low) = self.with_number(raised, Binary::Max)?;
                (x, low, Some(high))
            }
            None => {
                let (cut, low) = self.with_number(at, Binary::Max)?;
                match self.with_number(cut, Binary::Min) {
                    Some((x, high)) => (x, low, Some(high)),
                    None => (cut, low, None),
                }
            }
        };
        // If the lower bound is above the upper one, the result depends on the order.
        if high.is_some_and(|high| high < low || !high.is_finite()) || !low.is_finite() {
            return None;
        }
        let relu_lower_clip = (low != 0.0).then_some(low as f32);
        let relu_upper_clip = high.map(|high| high as f32);
        Some((Pointwise { relu_lower_clip, relu_upper_clip, ..M::RELU_FWD.into() }, x))
    }

    /// `x < 0 ? slope · x : x`.
    fn leaky(&self, at: Ref) -> Option<(Pointwise, Ref)> {
        let Node::Select(condition, below, x) = self.node(at) else { return None };
        let Node::Binary(Binary::Lt, compared, zero) = self.node(condition) else { return None };
        let (scaled, slope) = self.with_number(below, Binary::Mul)?;
        if compared != x || scaled != x || self.number(zero) != Some(0.0) {
            return None;
        }
        Some((Pointwise { relu_lower_clip_slope: Some(slope as f32), ..M::RELU_FWD.into() }, x))
    }

    /// `x · sigmoid(β · x)`.
    fn swish(&self, at: Ref) -> Option<(Pointwise, Ref)> {
        let Node::Binary(Binary::Mul, a, b) = self.node(at) else { return None };
        [(a, b), (b, a)].into_iter().find_map(|(x, gate)| {
            let Node::Unary(Unary::Sigmoid, inner) = self.node(gate) else { return None };
            let beta = match self.with_number(inner, Binary::Mul) {
                _ if inner == x => 1.0,
                Some((scaled, beta)) if scaled == x => beta,
                _ => return None,
            };
            Some((Pointwise { swish_beta: Some(beta as f32), ..M::SWISH_FWD.into() }, x))
        })
    }

    /// `x/2 · (1 + erf(x/√2))`, or by tanh `x/2 · (1 + tanh(x · (a + b · x²)))`.
    fn gelu(&self, at: Ref) -> Option<(Pointwise, Ref)> {
        let Node::Binary(Binary::Mul, half, weight) = self.node(at) else { return None };
        let (x, factor) = self.with_number(half, Binary::Mul)?;
        let (share, one) = self.with_number(weight, Binary::Add)?;
        if !is_close(factor, 0.5) || !is_close(one, 1.0) {
            return None;
        }
        match self.node(share) {
            Node::Unary(Unary::Erf, inner) => {
                let (scaled, root) = self.with_number(inner, Binary::Mul)?;
                (scaled == x && is_close(root, std::f64::consts::FRAC_1_SQRT_2)).then(|| (M::GELU_FWD.into(), x))
            }
            Node::Unary(Unary::Tanh, inner) => {
                let Node::Binary(Binary::Mul, same, polynomial) = self.node(inner) else { return None };
                let (square, slope) = self.with_number(polynomial, Binary::Add)?;
                let (square, cubic) = self.with_number(square, Binary::Mul)?;
                let wanted = (2.0 / std::f64::consts::PI).sqrt();
                let fits = same == x
                    && matches!(self.node(square), Node::Binary(Binary::Mul, a, b) if a == x && b == x)
                    && is_close(slope, wanted)
                    && is_close(cubic, 0.044_715 * wanted);
                fits.then(|| (M::GELU_APPROX_TANH_FWD.into(), x))
            }
            _ => None,
        }
    }

    /// The other operand and the number, if one operand of this operation is a number.
    fn with_number(&self, at: Ref, wanted: Binary) -> Option<(Ref, f64)> {
        match self.node(at) {
            Node::Binary(op, a, b) if op == wanted => match (self.number(a), self.number(b)) {
                (None, Some(number)) => Some((a, number)),
                (Some(number), None) => Some((b, number)),
                _ => None,
            },
            _ => None,
        }
    }
}

fn is_close(found: f64, wanted: f64) -> bool {
    (found - wanted).abs() <= CLOSE * wanted.abs()
}

fn unary(op: Unary) -> Option<M> {
    Some(match op {
        Unary::Neg => M::NEG,
        Unary::Abs => M::ABS,
        Unary::Recip => M::RECIPROCAL,
        Unary::Sqrt => M::SQRT,
        Unary::Rsqrt => M::RSQRT,
        Unary::Exp => M::EXP,
        Unary::Log => M::LOG,
        Unary::Erf => M::ERF,
        Unary::Sin => M::SIN,
        Unary::Tan => M::TAN,
        Unary::Tanh => M::TANH_FWD,
        Unary::Sigmoid => M::SIGMOID_FWD,
        Unary::Ceil => M::CEIL,
        Unary::Floor => M::FLOOR,
        _ => return None,
    })
}

fn binary(op: Binary) -> Option<M> {
    Some(match op {
        Binary::Add => M::ADD,
        Binary::Sub => M::SUB,
        Binary::Mul => M::MUL,
        Binary::Div => M::DIV,
        Binary::Max => M::MAX,
        Binary::Min => M::MIN,
        _ => return None,
    })
}

/// The mode of an operation with a boolean result.
fn truth(op: Binary) -> Option<M> {
    Some(match op {
        Binary::Eq => M::CMP_EQ,
        Binary::Ne => M::CMP_NEQ,
        Binary::Lt => M::CMP_LT,
        Binary::Le => M::CMP_LE,
        Binary::Gt => M::CMP_GT,
        Binary::Ge => M::CMP_GE,
        Binary::And => M::LOGICAL_AND,
        Binary::Or => M::LOGICAL_OR,
        _ => return None,
    })
}

/// The mode of an operation that gives the same integer when computed in floats.
fn counting(op: Binary) -> Option<M> {
    binary(op).filter(|_| op != Binary::Div)
}
