//! Epilogues that are sums, which the vendor's library for products can apply itself.
use graph::View;
use graph::expr::{Binary, Expr, Node, Ref, Unary};

/// Tolerance for numbers in a model: they were rounded to single precision or less.
const ROUNDING: f64 = 1e-3;

/// `product + added + bias`, followed by an activation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    /// The operand that is a row, counted after the product's own operands.
    pub bias: Option<usize>,
    /// The operand with the same layout as the output.
    pub added: Option<usize>,
    /// The activation applied to the sum.
    pub activation: Activation,
}

/// An epilogue that reads the product only with a row added to it.
#[derive(Debug)]
pub(super) struct Behind {
    /// The operand that is the row, counted after the product's own operands.
    pub bias: usize,
    /// The operations on the sum, which is input 0. The other operands follow.
    pub epilogue: Expr,
    /// The numbers of these operands.
    pub operands: Vec<usize>,
}

/// The activation applied to a sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Activation {
    /// Nothing.
    #[default]
    None,
    /// The larger of it and zero.
    Relu,
    /// GELU by tanh. The libraries do not have the exact one, which uses the error function.
    TanhGelu,
}

impl Sum {
    /// The epilogue as a sum, if it is one. Leaves out intermediate rounding, which only improves accuracy.
    pub fn of(expr: &Expr, operands: &[View], output: &View) -> Option<Self> {
        let mut last = expr.nodes().len().checked_sub(1)? as Ref;
        let mut sum = Self::default();
        let node = |at: Ref| expr.nodes()[usize::from(at)].0;
        let is_zero = |at: Ref| matches!(node(at), Node::Const(value) if value.as_f64() == 0.0);
        last = uncast(expr, last)?;
        if let Node::Binary(Binary::Max, a, b) = node(last) {
            last = if is_zero(b) {
                a
            } else if is_zero(a) {
                b
            } else {
                return None;
            };
            sum.activation = Activation::Relu;
        } else if let Some(x) = tanh_gelu(expr, last) {
            last = x;
            sum.activation = Activation::TanhGelu;
        }
        let mut products = 0;
        sum.add(expr, last, operands, output, &mut products)?;
        (products == 1).then_some(sum)
    }

    fn add(&mut self, expr: &Expr, at: Ref, operands: &[View], output: &View, products: &mut usize) -> Option<()> {
        let at = uncast(expr, at)?;
        match expr.nodes()[usize::from(at)].0 {
            Node::Input(0) => *products += 1,
            Node::Input(number) => {
                let (number, view) = (usize::from(number) - 1, operands.get(usize::from(number) - 1)?);
                let slot = if is_row(view) && view.dtype == output.dtype {
                    &mut self.bias
                } else if lies_as(view, output) {
                    &mut self.added
                } else {
                    return None;
                };
                // The library takes at most one of each kind.
                if slot.replace(number).is_some() {
                    return None;
                }
            }
            Node::Binary(Binary::Add, a, b) => {
                self.add(expr, a, operands, output, products)?;
                self.add(expr, b, operands, output, products)?;
            }
            _ => return None,
        }
        Some(())
    }
}

impl Behind {
    /// Splits the epilogue in two if its first part is the addition of a row. The library adds the row before it stores
    /// the product, in the type of `output`.
    pub fn of(expr: &Expr, operands: &[View], output: &View) -> Option<Self> {
        let added = |at: usize| {
            let (mut sum, mut products) = (Sum::default(), 0);
            sum.add(expr, at as Ref, operands, output, &mut products)?;
            (products == 1 && sum.added.is_none()).then_some((at as Ref, sum.bias?))
        };
        let is_sum = |at: &usize| matches!(expr.nodes()[*at].0, Node::Binary(Binary::Add, ..));
        let (at, bias) = (0..expr.nodes().len()).filter(is_sum).find_map(added)?;
        if expr.dtype(at) != output.dtype.compute() {
            return None;
        }
        let mut rest =
            Rest { from: expr, bias, dtypes: operands, made: Expr::new(), moved: Vec::new(), operands: Vec::new() };
        rest.moved.resize(expr.nodes().len(), None);
        let sum = rest.made.input(0, output.dtype);
        rest.moved[usize::from(at)] = Some(sum);
        let value = rest.take((expr.nodes().len() - 1) as Ref)?;
        rest.made.finish(value);
        Some(Self { bias, epilogue: rest.made, operands: rest.operands })
    }
}

/// The part of an expression that follows a sum.
struct Rest<'a> {
    from: &'a Expr,
    bias: usize,
    dtypes: &'a [View],
    made: Expr,
    /// The new reference of each operation.
    moved: Vec<Option<Ref>>,
    operands: Vec<usize>,
}

impl Rest<'_> {
    /// Copies an operation with everything it needs; `None` if that reads the product or the row in another way.
    fn take(&mut self, at: Ref) -> Option<Ref> {
        if let Some(known) = self.moved[usize::from(at)] {
            return Some(known);
        }
        let (node, dtype) = self.from.nodes()[usize::from(at)];
        let made = match node {
            Node::Input(number) => {
                let number = usize::from(number).checked_sub(1).filter(|number| *number != self.bias)?;
                self.operands.push(number);
                self.made.input(self.operands.len() as u16, self.dtypes.get(number)?.dtype)
            }
            Node::Const(value) => self.made.constant(value, dtype),
            Node::Index(axis) => self.made.index(axis),
            Node::Unary(op, a) => {
                let a = self.take(a)?;
                self.made.unary(op, a)
            }
            Node::Binary(op, a, b) => {
                let (a, b) = (self.take(a)?, self.take(b)?);
                self.made.binary(op, a, b)
            }
            Node::Select(c, a, b) => {
                let (c, a, b) = (self.take(c)?, self.take(a)?, self.take(b)?);
                self.made.select(c, a, b)
            }
            Node::Cast(a) => {
                let a = self.take(a)?;
                self.made.cast(a, dtype)
            }
        };
        self.moved[usize::from(at)] = Some(made);
        Some(made)
    }
}

/// The operand of `x/2 · (1 + tanh(x · (a + b · x²)))`, if a value is that.
fn tanh_gelu(expr: &Expr, at: Ref) -> Option<Ref> {
    let node = |at: Ref| uncast(expr, at).map(|at| expr.nodes()[usize::from(at)].0);
    let factors = |at: Ref, wanted: Binary| match node(at)? {
        Node::Binary(op, a, b) if op == wanted => Some((uncast(expr, a)?, uncast(expr, b)?)),
        _ => None,
    };
    let number = |at: Ref| match node(at) {
        Some(Node::Const(value)) => Some(value.as_f64()),
        _ => None,
    };
    // The other operand, if one is the wanted number up to rounding.
    let with = |at: Ref, op: Binary, wanted: f64| {
        let (a, b) = factors(at, op)?;
        let is_wanted = |at: Ref| number(at).is_some_and(|found| (found - wanted).abs() <= ROUNDING * wanted);
        if is_wanted(b) { Some(a) } else { is_wanted(a).then_some(b) }
    };
    let slope = (2.0 / std::f64::consts::PI).sqrt();
    let (one, other) = factors(at, Binary::Mul)?;
    [(one, other), (other, one)].into_iter().find_map(|(half, weight)| {
        let (x, share) = (with(half, Binary::Mul, 0.5)?, with(weight, Binary::Add, 1.0)?);
        let Node::Unary(Unary::Tanh, inner) = node(share)? else { return None };
        let (a, b) = factors(inner, Binary::Mul)?;
        let polynomial = if a == x { b } else { (b == x).then_some(a)? };
        let square = with(with(polynomial, Binary::Add, slope)?, Binary::Mul, 0.044_715 * slope)?;
        (factors(square, Binary::Mul)? == (x, x)).then_some(x)
    })
}

/// The value before casts between floats; `None` for values that are not floats.
fn uncast(expr: &Expr, mut at: Ref) -> Option<Ref> {
    loop {
        if !expr.dtype(at).is_float() {
            return None;
        }
        match expr.nodes()[usize::from(at)].0 {
            Node::Cast(from) => at = from,
            _ => return Some(at),
        }
    }
}

/// True for a vector along the last axis.
fn is_row(view: &View) -> bool {
    let Some((last, outer)) = view.strides.split_last() else { return false };
    *last == 1 && outer.iter().zip(&view.shape).all(|(&stride, &extent)| stride == 0 || extent == 1)
}

fn lies_as(view: &View, output: &View) -> bool {
    let mut strides = view.strides.iter().zip(&output.strides).zip(&output.shape);
    view.dtype == output.dtype && strides.all(|((one, other), &extent)| one == other || extent == 1)
}

#[cfg(test)]
mod tests {
    use graph::prim::BufferId;
    use graph::{DType, Scalar, shape};

    use super::*;

    fn view(strides: Option<[isize; 3]>) -> View {
        let dense = shape::dense_strides(&[2, 4, 8]);
        let strides = strides.map_or(dense, |strides| strides.into_iter().collect());
        View { buffer: BufferId(1), dtype: DType::F16, shape: [2, 4, 8].as_slice().into(), strides, offset: 0 }
    }

    #[test]
    fn bias_residual_and_relu_are_found_in_any_order() {
        let (bias, residual, output) = (view(Some([0, 0, 1])), view(None), view(None));
        let mut expr = Expr::new();
        let (product, first, second) =
            (expr.input(0, DType::F16), expr.input(1, DType::F16), expr.input(2, DType::F16));
        let inner = expr.binary(Binary::Add, second, product);
        let outer = expr.binary(Binary::Add, inner, first);
        let plain = expr.clone();
        let zero = expr.constant(Scalar::Float(0.0), DType::F16);
        expr.binary(Binary::Max, outer, zero);
        let wanted = Sum { bias: Some(1), added: Some(0), activation: Activation::Relu };
        assert_eq!(Sum::of(&expr, &[residual.clone(), bias.clone()], &output), Some(wanted));
        assert_eq!(
            Sum::of(&plain, &[residual.clone(), bias.clone()], &output),
            Some(Sum { activation: Activation::None, ..wanted })
        );
        assert_eq!(Sum::of(&plain, &[bias.clone(), bias.clone()], &output), None, "two of a kind");
        assert_eq!(Sum::of(&plain, &[view(Some([0, 1, 0])), bias], &output), None, "a column");
    }

    /// `factor · x · (1 + tanh(x · (a + b · x²)))` of a product with a bias.
    fn gelu(factor: f64) -> Expr {
        let mut expr = Expr::new();
        let number = |expr: &mut Expr, value: f64| expr.constant(Scalar::Float(value), DType::F32);
        let (product, bias) = (expr.input(0, DType::F32), expr.input(1, DType::F32));
        let x = expr.binary(Binary::Add, product, bias);
        let slope = (2.0 / std::f64::consts::PI).sqrt();
        let (half, one) = (number(&mut expr, factor), number(&mut expr, 1.0));
        let (a, b) = (number(&mut expr, slope), number(&mut expr, 0.044_715 * slope));
        let square = expr.binary(Binary::Mul, x, x);
        let cubic = expr.binary(Binary::Mul, b, square);
        let polynomial = expr.binary(Binary::Add, cubic, a);
        let inner = expr.binary(Binary::Mul, x, polynomial);
        let tanh = expr.unary(Unary::Tanh, inner);
        let weight = expr.binary(Binary::Add, tanh, one);
        let scaled = expr.binary(Binary::Mul, x, half);
        let value = expr.binary(Binary::Mul, scaled, weight);
        let stored = expr.cast(value, DType::F16);
        expr.finish(stored);
        expr
    }

    #[test]
    fn gelu_by_tanh_is_an_activation_of_the_sum() {
        let (bias, output) = (view(Some([0, 0, 1])), view(None));
        let wanted = Sum { bias: Some(0), added: None, activation: Activation::TanhGelu };
        assert_eq!(Sum::of(&gelu(0.5), std::slice::from_ref(&bias), &output), Some(wanted));
        assert_eq!(Sum::of(&gelu(0.7), &[bias], &output), None, "another factor");
    }

    /// GELU by the error function of a product with a bias, rounded as in a half-precision model, times another
    /// operand.
    fn gated(product_again: bool) -> Expr {
        let mut expr = Expr::new();
        let (product, bias, gate) = (expr.input(0, DType::F16), expr.input(1, DType::F16), expr.input(2, DType::F16));
        let sum = expr.binary(Binary::Add, product, bias);
        let rounded = expr.cast(sum, DType::F16);
        let x = expr.cast(rounded, DType::F32);
        let slope = expr.constant(Scalar::Float(std::f64::consts::FRAC_1_SQRT_2), DType::F16);
        let scaled = expr.binary(Binary::Mul, x, slope);
        let erf = expr.unary(Unary::Erf, scaled);
        let weighted = expr.binary(Binary::Mul, erf, x);
        let value = expr.binary(Binary::Mul, weighted, if product_again { product } else { gate });
        expr.finish(value);
        expr
    }

    #[test]
    fn operations_after_a_bias_apply_to_the_sum() {
        let (bias, gate, output) = (view(Some([0, 0, 1])), view(None), view(None));
        let whole = gated(false);
        let found = Behind::of(&whole, &[bias.clone(), gate.clone()], &output).unwrap();
        assert_eq!((found.bias, found.operands.as_slice()), (0, &[1][..]));
        let float = Scalar::Float;
        for (product, row) in [(0.5, 0.25), (-1.5, 0.125), (2.0, -0.5)] {
            let wanted = whole.eval(&[float(product), float(row), float(3.0)], &[]);
            assert_eq!(found.epilogue.eval(&[float(product + row), float(3.0)], &[]), wanted);
        }
        let again = gated(true);
        assert!(Behind::of(&again, &[bias, gate.clone()], &output).is_none(), "the product is read beside the sum");
        assert!(Behind::of(&whole, &[gate.clone(), gate], &output).is_none(), "nothing is a row");
    }

    #[test]
    fn repeated_or_scaled_products_are_not_sums() {
        let output = view(None);
        let mut twice = Expr::new();
        let product = twice.input(0, DType::F16);
        twice.binary(Binary::Add, product, product);
        assert_eq!(Sum::of(&twice, &[], &output), None);
        let mut scaled = Expr::new();
        let product = scaled.input(0, DType::F16);
        let half = scaled.constant(Scalar::Float(0.5), DType::F16);
        scaled.binary(Binary::Mul, product, half);
        assert_eq!(Sum::of(&scaled, &[], &output), None);
    }
}
