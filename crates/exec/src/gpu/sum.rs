//! Epilogues that are sums: what the vendor's library for products does itself.
use graph::{
    View,
    expr::{Binary, Expr, Node, Ref},
};

/// `product + added + bias`, and the larger of that and zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    /// The operand, counted behind the product's own, that is a row.
    pub bias: Option<usize>,
    /// The operand that lies as the output does.
    pub added: Option<usize>,
    /// Negative results are zero.
    pub relu: bool,
}

impl Sum {
    /// The epilogue as a sum, if it is one. Rounding in between is left out, which only comes nearer.
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
            sum.relu = true;
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
                // Two of a kind can't be had.
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

/// What a value was before it was cast between floats; `None` for values that are no floats.
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
    use graph::{DType, Scalar, prim::BufferId, shape};

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
        let wanted = Sum { bias: Some(1), added: Some(0), relu: true };
        assert_eq!(Sum::of(&expr, &[residual.clone(), bias.clone()], &output), Some(wanted));
        assert_eq!(Sum::of(&plain, &[residual.clone(), bias.clone()], &output), Some(Sum { relu: false, ..wanted }));
        assert_eq!(Sum::of(&plain, &[bias.clone(), bias.clone()], &output), None, "two of a kind");
        assert_eq!(Sum::of(&plain, &[view(Some([0, 1, 0])), bias], &output), None, "a column");
    }

    #[test]
    fn a_product_that_occurs_twice_or_is_scaled_is_no_sum() {
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
