//! LayerNormalization as exporters write it out.
//!
//! PyTorch subtracts the mean from x, divides by the root, then scales and shifts. TensorFlow multiplies x and its mean
//! by the scaled inverse of the root.
use crate::expr::Binary;
use crate::ops::fused::Whole;
use crate::pass::norm::{self, MeanSquare};
use crate::pass::pattern::{Found, Search, rewrite};
use crate::{Graph, NodeId, ValueId};

pub(super) fn run(graph: &mut Graph) -> usize {
    rewrite(graph, |search, at| divided(search, at).or_else(|| multiplied(search, at)))
}

/// `(x - mean) / √(…) · scale + bias`, matched from the division.
fn divided(search: Search<'_>, at: NodeId) -> Option<Found> {
    let MeanSquare { x: centred, axes, epsilon, mut nodes } = norm::core(search, at)?;
    let (around, x, _) = norm::centred(search, centred, &axes)?;
    nodes.splice(0..0, around);
    let mut inputs = vec![x];
    let mut result = search.output(at)?;
    let mut join = |op: Binary| {
        let Some((node, constant)) = norm::joined(search, result, op) else { return false };
        let Some(output) = search.output(node) else { return false };
        nodes.push(node);
        inputs.push(constant);
        result = output;
        true
    };
    let (scale, bias) = (join(Binary::Mul), join(Binary::Add));
    Some(Found { whole: Whole::LayerNorm { axes, epsilon: epsilon as f32, scale, bias }, nodes, inputs })
}

/// `x · m + (bias - mean · m)` with `m = scale / √(…)`, matched from the sum.
fn multiplied(search: Search<'_>, at: NodeId) -> Option<Found> {
    let [a, b] = search.operands(at, Binary::Add)?;
    let ordered = |product, rest| {
        let (outer, [first, second]) = search.binary(product, Binary::Mul)?;
        let (shift, [bias, taken]) = search.binary(rest, Binary::Sub)?;
        search.constant(bias)?;
        let (inner, factors) = search.binary(taken, Binary::Mul)?;
        let with = |x: ValueId, factor: ValueId| {
            let other = factors.into_iter().find(|&value| value != factor)?;
            factors.contains(&factor).then_some(())?;
            let (scaling, root, scale) = match search.binary(factor, Binary::Mul) {
                Some((node, [a, b])) if search.constant(b).is_some() => (Some(node), a, Some(b)),
                Some((node, [a, b])) if search.constant(a).is_some() => (Some(node), b, Some(a)),
                _ => (None, factor, None),
            };
            let MeanSquare { x: centred, axes, epsilon, mut nodes } = norm::inverse_root(search, root)?;
            let (around, of, mean) = norm::centred(search, centred, &axes)?;
            (of == x && mean == other).then_some(())?;
            nodes.splice(0..0, around);
            nodes.extend(scaling);
            nodes.extend([outer, inner, shift, at]);
            let whole = Whole::LayerNorm { axes, epsilon: epsilon as f32, scale: scale.is_some(), bias: true };
            let inputs = [Some(x), scale, Some(bias)].into_iter().flatten().collect();
            Some(Found { whole, nodes, inputs })
        };
        with(first, second).or_else(|| with(second, first))
    };
    ordered(a, b).or_else(|| ordered(b, a))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::ops::Attribute;
    use crate::pass::testing::{Build, names, row};

    fn mean(build: &mut Build, x: ValueId, axis: i64) -> ValueId {
        build.with("ReduceMean", &[x], &[("axes", Attribute::Ints(vec![axis]))])
    }

    /// The division, and the result with scale and bias.
    fn torch(build: &mut Build, x: ValueId, axes: [i64; 2]) -> (ValueId, ValueId) {
        let centre = mean(build, x, axes[0]);
        let centred = build.node("Sub", &[x, centre]);
        let (two, epsilon) = (build.number(2.0), build.number(1e-5));
        let square = build.node("Pow", &[centred, two]);
        let variance = mean(build, square, axes[1]);
        let sum = build.node("Add", &[variance, epsilon]);
        let root = build.node("Sqrt", &[sum]);
        let part = build.node("Div", &[centred, root]);
        let (scale, bias) = (build.constant("scale", row(&[1.0, 2.0])), build.constant("bias", row(&[3.0, 4.0])));
        let scaled = build.node("Mul", &[part, scale]);
        (part, build.node("Add", &[bias, scaled]))
    }

    #[test]
    fn the_form_of_pytorch_is_one_node() {
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let (_, out) = torch(&mut build, x, [-1, -1]);
        let mut graph = build.outputs(&[out]);
        assert_eq!(run(&mut graph), 1);
        graph.verify().unwrap();
        assert_eq!(names(&graph), ["LayerNormalization"]);
        assert_eq!(
            format!("{:?}", graph.nodes()[0].op),
            "LayerNorm { axes: [-1], epsilon: 1e-5, scale: true, bias: true } of 9 nodes"
        );
    }

    #[test]
    fn a_quotient_that_is_an_output_keeps_scale_and_bias_separate() {
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let (part, out) = torch(&mut build, x, [-1, -1]);
        let mut graph = build.outputs(&[out, part]);
        assert_eq!(run(&mut graph), 1);
        graph.verify().unwrap();
        assert_eq!(names(&graph), ["LayerNormalization", "Mul", "Add"]);
    }

    #[test]
    fn means_over_different_axes_are_not_a_layer_norm() {
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let (_, out) = torch(&mut build, x, [-1, -2]);
        assert_eq!(run(&mut build.outputs(&[out])), 0);
    }

    #[test]
    fn the_form_of_tensorflow_is_one_node() {
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let centre = mean(&mut build, x, 2);
        let centred = build.node("Sub", &[x, centre]);
        let square = build.node("Mul", &[centred, centred]);
        let variance = mean(&mut build, square, 2);
        let epsilon = build.number(1e-3);
        let sum = build.node("Add", &[variance, epsilon]);
        let root = build.node("Sqrt", &[sum]);
        let inverse = build.node("Reciprocal", &[root]);
        let (scale, bias) = (build.constant("scale", row(&[1.0, 2.0])), build.constant("bias", row(&[3.0, 4.0])));
        let factor = build.node("Mul", &[inverse, scale]);
        let outer = build.node("Mul", &[x, factor]);
        let inner = build.node("Mul", &[centre, factor]);
        let shift = build.node("Sub", &[bias, inner]);
        let out = build.node("Add", &[outer, shift]);
        let mut graph = build.outputs(&[out]);
        assert_eq!(run(&mut graph), 1);
        graph.verify().unwrap();
        assert_eq!(names(&graph), ["LayerNormalization"]);
        assert_eq!(run(&mut build.outputs(&[out, centre])), 0, "the mean is an output");
    }
}
