//! Scaled dot-product attention as exporters write it out: `softmax(q · k · scale + mask) · v`.
use crate::expr::Binary;
use crate::ops::Meaning;
use crate::ops::fused::Whole;
use crate::pass::pattern::{Found, Search, rewrite};
use crate::{Graph, NodeId, ValueId};

pub(super) fn run(graph: &mut Graph) -> usize {
    rewrite(graph, find)
}

/// Matches starting from the softmax.
fn find(search: Search<'_>, at: NodeId) -> Option<Found> {
    let Meaning::Softmax { axis } = search.meaning(at) else { return None };
    let weights = search.output(at)?;
    let last = search.links.only_reader(weights)?;
    let [left, v] = product(search, last)?;
    if left != weights || v == weights || !search.graph.value(weights).dtype.is_float() {
        return None;
    }
    let masked = search.input(at, 0)?;
    let plain = || Some((unmasked(search, masked)?, None));
    let (scores, mask) = plain().or_else(|| {
        let (add, [a, b]) = search.binary(masked, Binary::Add)?;
        let with = |scores: ValueId, mask: ValueId| {
            let mut found = unmasked(search, scores)?;
            found.nodes.push(add);
            Some((found, Some(mask)))
        };
        with(a, b).or_else(|| with(b, a))
    })?;
    let Scores { q, k, scale, mut nodes } = scores;
    nodes.extend([at, last]);
    let inputs = [Some(q), Some(k), Some(v), mask].into_iter().flatten().collect();
    Some(Found { whole: Whole::Attention { scale: scale as f32, axis, mask: mask.is_some() }, nodes, inputs })
}

/// A product of queries and transposed keys, times a scale.
struct Scores {
    q: ValueId,
    k: ValueId,
    scale: f64,
    nodes: Vec<NodeId>,
}

fn unmasked(search: Search<'_>, mut value: ValueId) -> Option<Scores> {
    let (mut scale, mut nodes) = (1.0, Vec::new());
    peel(search, &mut value, &mut scale, &mut nodes);
    let node = search.links.maker(value)?;
    let [mut q, mut k] = product(search, node)?;
    nodes.push(node);
    // Some exporters multiply each operand by the root of the scale.
    for operand in [&mut q, &mut k] {
        if search.links.only_reader(*operand).is_some() {
            peel(search, operand, &mut scale, &mut nodes);
        }
    }
    Some(Scores { q, k, scale, nodes })
}

/// Removes constant factors from a value.
fn peel(search: Search<'_>, value: &mut ValueId, scale: &mut f64, nodes: &mut Vec<NodeId>) {
    while let Some((node, other, factor)) = search.scaled(*value) {
        nodes.push(node);
        *scale *= factor;
        *value = other;
        if search.links.only_reader(other).is_none() {
            break;
        }
    }
}

fn product(search: Search<'_>, node: NodeId) -> Option<[ValueId; 2]> {
    let is_product = search.meaning(node) == Meaning::MatMul;
    if is_product { Some([search.input(node, 0)?, search.input(node, 1)?]) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::ops::Attribute;
    use crate::pass::testing::{Build, names};

    fn softmax(build: &mut Build, x: ValueId) -> ValueId {
        build.with("Softmax", &[x], &[("axis", Attribute::Int(-1))])
    }

    #[test]
    fn products_scale_mask_and_softmax_are_one_node() {
        let mut build = Build::new();
        let [q, k, v, mask] = ["q", "k", "v", "mask"].map(|name| build.input(name, DType::F32));
        let eight = build.number(8.0);
        let scores = build.node("MatMul", &[q, k]);
        let scaled = build.node("Div", &[scores, eight]);
        let masked = build.node("Add", &[mask, scaled]);
        let weights = softmax(&mut build, masked);
        let out = build.node("MatMul", &[weights, v]);
        let mut graph = build.outputs(&[out]);
        assert_eq!(run(&mut graph), 1);
        graph.verify().unwrap();
        assert_eq!(names(&graph), ["Attention"]);
        let found = format!("{:?}", graph.nodes()[0].op);
        assert_eq!(found, "Attention { scale: 0.125, axis: -1, mask: true } of 5 nodes");
        assert_eq!(run(&mut build.outputs(&[out, weights])), 0, "the probabilities are an output");
        assert_eq!(run(&mut build.outputs(&[out, scores])), 0, "the scores are an output");
    }

    #[test]
    fn a_root_of_the_scale_on_each_operand_is_recognised() {
        let mut build = Build::new();
        let [q, k, v] = ["q", "k", "v"].map(|name| build.input(name, DType::F32));
        let root = build.number(0.5);
        let (q, k) = (build.node("Mul", &[q, root]), build.node("Mul", &[root, k]));
        let scores = build.node("MatMul", &[q, k]);
        let weights = softmax(&mut build, scores);
        let out = build.node("MatMul", &[weights, v]);
        let mut graph = build.outputs(&[out]);
        assert_eq!(run(&mut graph), 1);
        assert_eq!(format!("{:?}", graph.nodes()[0].op), "Attention { scale: 0.25, axis: -1, mask: false } of 5 nodes");
        let mut shared = build.outputs(&[out, q]);
        assert_eq!(run(&mut shared), 1);
        assert_eq!(names(&shared), ["Mul", "Attention"]);
    }

    #[test]
    fn one_value_may_be_queries_keys_and_values() {
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let scores = build.node("MatMul", &[x, x]);
        let weights = softmax(&mut build, scores);
        let out = build.node("MatMul", &[weights, x]);
        let mut graph = build.outputs(&[out]);
        assert_eq!(run(&mut graph), 1);
        graph.verify().unwrap();
        assert_eq!(graph.nodes()[0].inputs, [Some(graph.inputs()[0]); 3]);
    }

    #[test]
    fn near_misses_are_not_fused() {
        let mut build = Build::new();
        let [q, k, v, mask] = ["q", "k", "v", "mask"].map(|name| build.input(name, DType::F32));
        let scores = build.node("MatMul", &[q, k]);
        let weights = softmax(&mut build, scores);
        let right = build.node("MatMul", &[v, weights]);
        assert_eq!(run(&mut build.outputs(&[right])), 0, "probabilities on the right of the product");
        let eight = build.number(8.0);
        let masked = build.node("Add", &[scores, mask]);
        let scaled = build.node("Mul", &[masked, eight]);
        let weights = softmax(&mut build, scaled);
        let out = build.node("MatMul", &[weights, v]);
        assert_eq!(run(&mut build.outputs(&[out])), 0, "the mask is scaled too");
    }
}
