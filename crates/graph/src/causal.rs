//! Detects causal attention: no row sees keys after its own.
//!
//! Scores are an expression, which can hide any key by scoring it minus infinity. Causal masks are common, and worth
//! detecting: devices and libraries can then skip half of the work.
use crate::expr::{Binary, Node, Ref};
use crate::prim::Attention;

impl Attention {
    /// How many keys precede that of the first row, if no row sees keys after its own. `None` if the scores do not show
    /// that.
    pub fn causal(&self) -> Option<i64> {
        let mut at = (self.scores.nodes().len() as Ref).checked_sub(1)?;
        loop {
            if let Some((past, _)) = self.hides_ahead(at) {
                return Some(past);
            }
            // Operations that keep minus infinity as it is.
            at = match self.node(at) {
                Node::Select(_, never, rest) if self.is_never(never) => rest,
                Node::Select(_, rest, never) if self.is_never(never) => rest,
                Node::Cast(a) if self.scores.dtype(at).is_float() => a,
                _ => return None,
            };
        }
    }

    /// The number of keys before the first row's own, and the score of the visible keys, if this operation hides the
    /// keys after a row's own: it gives minus infinity where `key > row + past`.
    pub fn hides_ahead(&self, at: Ref) -> Option<(i64, Ref)> {
        match self.node(at) {
            Node::Select(is_ahead, never, rest) if self.is_never(never) => Some((self.past(is_ahead)?, rest)),
            _ => None,
        }
    }

    fn past(&self, is_ahead: Ref) -> Option<i64> {
        let axes = self.shape.len() as u16;
        let is_index = |at: Ref, axis: Option<u16>| axis.is_some_and(|axis| self.node(at) == Node::Index(axis));
        let is_row = |at: Ref| is_index(at, axes.checked_sub(2));
        let Node::Binary(Binary::Gt, key, own) = self.node(is_ahead) else { return None };
        match self.node(own) {
            _ if !is_index(key, axes.checked_sub(1)) => None,
            _ if is_row(own) => Some(0),
            Node::Binary(Binary::Add, row, past) if is_row(row) => match self.node(past) {
                Node::Const(past) => Some(past.as_i64()),
                _ => None,
            },
            _ => None,
        }
    }

    fn node(&self, at: Ref) -> Node {
        self.scores.nodes()[usize::from(at)].0
    }

    fn is_never(&self, at: Ref) -> bool {
        matches!(self.node(at), Node::Const(value) if value.as_f64() == f64::NEG_INFINITY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::Expr;
    use crate::{DType, Scalar};

    /// Attention with the scores that `write` builds from the product, from whether a key is ahead of `row + past`, and
    /// from minus infinity.
    fn attention(past: Option<i64>, write: impl FnOnce(&mut Expr, [Ref; 3]) -> Ref) -> Attention {
        let mut scores = Expr::new();
        let product = scores.input(0, DType::F16);
        let (row, key) = (scores.index(1), scores.index(2));
        let own = past.map_or(row, |past| {
            let past = scores.constant(Scalar::Int(past), DType::I64);
            scores.binary(Binary::Add, row, past)
        });
        let is_ahead = scores.binary(Binary::Gt, key, own);
        let never = scores.constant(Scalar::Float(f64::NEG_INFINITY), DType::F16);
        let value = write(&mut scores, [product, is_ahead, never]);
        scores.finish(value);
        Attention { alpha: 1.0, shape: [2, 3, 4].into_iter().collect(), scores, zero_if_hidden: false }
    }

    #[test]
    fn finds_the_number_of_keys_before_the_first_row() {
        for (past, wanted) in [(None, 0), (Some(0), 0), (Some(5), 5), (Some(-2), -2)] {
            let found = attention(past, |e, [product, is_ahead, never]| e.select(is_ahead, never, product)).causal();
            assert_eq!(found, Some(wanted));
        }
    }

    #[test]
    fn other_masks_and_rounding_do_not_matter() {
        let found = attention(Some(1), |e, [product, is_ahead, never]| {
            let mask = e.input(1, DType::Bool);
            let capped = e.binary(Binary::Mul, product, product);
            let seen = e.select(is_ahead, never, capped);
            let rounded = e.cast(seen, DType::F16);
            let rounded = e.cast(rounded, DType::F32);
            let masked = e.select(mask, rounded, never);
            e.select(mask, never, masked)
        });
        assert_eq!(found.causal(), Some(1));
    }

    #[test]
    fn keys_with_a_finite_score_are_not_hidden() {
        type Write = fn(&mut Expr, [Ref; 3], Ref) -> Ref;
        let low = |e: &mut Expr| e.constant(Scalar::Float(-1e4), DType::F16);
        let others: [Write; 4] = [
            |_, [product, ..], _| product,
            |e, [product, is_ahead, _], low| e.select(is_ahead, low, product),
            // Rows see only what is ahead of them.
            |e, [product, is_ahead, never], _| e.select(is_ahead, product, never),
            // Minus infinity may turn into anything.
            |e, [product, is_ahead, never], low| {
                let seen = e.select(is_ahead, never, product);
                e.binary(Binary::Max, seen, low)
            },
        ];
        for (number, write) in others.into_iter().enumerate() {
            let found = attention(Some(1), |e, refs| {
                let low = low(e);
                write(e, refs, low)
            });
            assert_eq!(found.causal(), None, "number {number}");
        }
    }
}
