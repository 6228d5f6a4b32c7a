//! What the normalisation patterns share.
use crate::expr::{Binary, Unary};
use crate::ops::Meaning;
use crate::pass::pattern::Search;
use crate::{NodeId, ValueId};

/// A value computed from a mean of squares: the sum with epsilon, its root, the inverse root, or x divided by the root.
pub(super) struct MeanSquare {
    /// The value that is squared.
    pub x: ValueId,
    /// The axes of the mean.
    pub axes: Vec<i64>,
    /// The number added to the mean.
    pub epsilon: f64,
    /// The nodes; the last one produces the result.
    pub nodes: Vec<NodeId>,
}

/// `x / √(mean(x²) + epsilon)`, or `x` times the inverse root, matched from its last node.
pub(super) fn core(search: Search<'_>, at: NodeId) -> Option<MeanSquare> {
    let (x, mut found) = match search.meaning(at) {
        Meaning::Binary(Binary::Div) => {
            let [x, root] = search.operands(at, Binary::Div)?;
            (x, mean_root(search, root)?)
        }
        Meaning::Binary(Binary::Mul) => {
            let [a, b] = search.operands(at, Binary::Mul)?;
            inverse_root(search, b)
                .map(|found| (a, found))
                .or_else(|| inverse_root(search, a).map(|found| (b, found)))?
        }
        _ => return None,
    };
    found.nodes.push(at);
    (found.x == x).then_some(found)
}

/// Matches the inverse root of a mean of squares.
pub(super) fn inverse_root(search: Search<'_>, value: ValueId) -> Option<MeanSquare> {
    if let Some((node, sum, exponent)) = search.power(value) {
        let mut found = (exponent == -0.5).then(|| mean_square(search, sum))??;
        found.nodes.push(node);
        return Some(found);
    }
    let by_one = |[one, root]: [ValueId; 2]| (search.number(one) == Some(1.0)).then_some(root);
    let (node, root) = search
        .unary(value, Unary::Recip)
        .or_else(|| search.binary(value, Binary::Div).and_then(|(node, operands)| Some((node, by_one(operands)?))))?;
    let mut found = mean_root(search, root)?;
    found.nodes.push(node);
    Some(found)
}

/// Matches the root of a mean of squares.
fn mean_root(search: Search<'_>, value: ValueId) -> Option<MeanSquare> {
    let power = || search.power(value).filter(|power| power.2 == 0.5).map(|(node, sum, _)| (node, sum));
    let (node, sum) = search.unary(value, Unary::Sqrt).or_else(power)?;
    let mut found = mean_square(search, sum)?;
    found.nodes.push(node);
    Some(found)
}

/// Matches a mean of squares with epsilon added.
fn mean_square(search: Search<'_>, sum: ValueId) -> Option<MeanSquare> {
    let (add, operands) = search.binary(sum, Binary::Add)?;
    let (mean, epsilon) = search.with_number(operands)?;
    let (reduce, square, axes) = search.mean(mean)?;
    let (node, x) = squared(search, square)?;
    Some(MeanSquare { x, axes, epsilon, nodes: vec![node, reduce, add] })
}

/// The node that squares a value to produce this one, and the squared value.
fn squared(search: Search<'_>, value: ValueId) -> Option<(NodeId, ValueId)> {
    if let Some((node, x, exponent)) = search.power(value) {
        return (exponent == 2.0).then_some((node, x));
    }
    let (node, [a, b]) = search.binary(value, Binary::Mul)?;
    (a == b).then_some((node, a))
}

/// The nodes that compute a value as `x - mean(x)` over these axes, with x and the mean.
pub(super) fn centred(search: Search<'_>, value: ValueId, axes: &[i64]) -> Option<([NodeId; 2], ValueId, ValueId)> {
    let (sub, [x, mean]) = search.binary(value, Binary::Sub)?;
    let (reduce, of, over) = search.mean(mean)?;
    (of == x && over == axes).then_some(([reduce, sub], x, mean))
}

/// The only reader of a value, if it combines it with a constant by this operation, and the constant.
pub(super) fn joined(search: Search<'_>, value: ValueId, op: Binary) -> Option<(NodeId, ValueId)> {
    let node = search.links.only_reader(value)?;
    let [a, b] = search.operands(node, op)?;
    let other = if a == value { b } else { a };
    search.constant(other).map(|_| (node, other))
}
