//! What the normalisations have in common.
use crate::{
    NodeId, ValueId,
    expr::{Binary, Unary},
    ops::Meaning,
    pass::pattern::Search,
};

/// What is made of a mean of squares: its sum with epsilon, the root of that, one by the root, or x by the root.
pub(super) struct MeanSquare {
    /// The value that is squared.
    pub x: ValueId,
    /// Over which axes the mean is taken.
    pub axes: Vec<i64>,
    /// What is added to the mean.
    pub epsilon: f64,
    /// The nodes, the one that makes the result last.
    pub nodes: Vec<NodeId>,
}

/// `x / √(mean(x²) + epsilon)`, or `x` times one by the root, seen from its last node.
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

/// A value that is one by the root of a mean of squares.
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

/// The root of a mean of squares.
fn mean_root(search: Search<'_>, value: ValueId) -> Option<MeanSquare> {
    let power = || search.power(value).filter(|power| power.2 == 0.5).map(|(node, sum, _)| (node, sum));
    let (node, sum) = search.unary(value, Unary::Sqrt).or_else(power)?;
    let mut found = mean_square(search, sum)?;
    found.nodes.push(node);
    Some(found)
}

/// A mean of squares with epsilon added.
fn mean_square(search: Search<'_>, sum: ValueId) -> Option<MeanSquare> {
    let (add, operands) = search.binary(sum, Binary::Add)?;
    let (mean, epsilon) = search.with_number(operands)?;
    let (reduce, square, axes) = search.mean(mean)?;
    let (node, x) = squared(search, square)?;
    Some(MeanSquare { x, axes, epsilon, nodes: vec![node, reduce, add] })
}

/// The node that makes a value as the square of another, with this.
fn squared(search: Search<'_>, value: ValueId) -> Option<(NodeId, ValueId)> {
    if let Some((node, x, exponent)) = search.power(value) {
        return (exponent == 2.0).then_some((node, x));
    }
    let (node, [a, b]) = search.binary(value, Binary::Mul)?;
    (a == b).then_some((node, a))
}

/// The nodes `x - mean(x)` over these axes that make a value, with x and the mean.
pub(super) fn centred(search: Search<'_>, value: ValueId, axes: &[i64]) -> Option<([NodeId; 2], ValueId, ValueId)> {
    let (sub, [x, mean]) = search.binary(value, Binary::Sub)?;
    let (reduce, of, over) = search.mean(mean)?;
    (of == x && over == axes).then_some(([reduce, sub], x, mean))
}

/// The one node that reads a value and joins it with a constant by an operation, with this.
pub(super) fn joined(search: Search<'_>, value: ValueId, op: Binary) -> Option<(NodeId, ValueId)> {
    let node = search.links.only_reader(value)?;
    let [a, b] = search.operands(node, op)?;
    let other = if a == value { b } else { a };
    search.constant(other).map(|_| (node, other))
}
