//! RMSNormalization as exporters write it out: `x / √(mean(x²) + epsilon) · scale`.
use crate::expr::Binary;
use crate::ops::fused::Whole;
use crate::pass::norm::{self, MeanSquare};
use crate::pass::pattern::{Found, Search, rewrite};
use crate::{Graph, NodeId};

pub(super) fn run(graph: &mut Graph) -> usize {
    rewrite(graph, find)
}

fn find(search: Search<'_>, at: NodeId) -> Option<Found> {
    let MeanSquare { x, axes, epsilon, mut nodes } = norm::core(search, at)?;
    let mut inputs = vec![x];
    let scale = norm::joined(search, search.output(at)?, Binary::Mul);
    if let Some((node, scale)) = scale {
        nodes.push(node);
        inputs.push(scale);
    }
    let whole = Whole::RmsNorm { axes, epsilon: epsilon as f32, scale: scale.is_some() };
    Some(Found { whole, nodes, inputs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Attribute;
    use crate::pass::testing::{Build, names, row};
    use crate::{DType, ValueId};

    struct Form {
        exponent: f64,
        inverse: &'static str,
        keepdims: i64,
    }

    const USUAL: Form = Form { exponent: 2.0, inverse: "Div", keepdims: 1 };

    fn build(form: &Form) -> (Build, ValueId, ValueId) {
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let (two, epsilon, one) = (build.number(form.exponent), build.number(1e-6), build.number(1.0));
        let square = build.node("Pow", &[x, two]);
        let axes = [("axes", Attribute::Ints(vec![-1])), ("keepdims", Attribute::Int(form.keepdims))];
        let mean = build.with("ReduceMean", &[square], &axes);
        let sum = build.node("Add", &[mean, epsilon]);
        let root = build.node("Sqrt", &[sum]);
        let part = match form.inverse {
            "Div" => build.node("Div", &[x, root]),
            "Reciprocal" => {
                let inverse = build.node("Reciprocal", &[root]);
                build.node("Mul", &[x, inverse])
            }
            _ => {
                let inverse = build.node("Div", &[one, root]);
                build.node("Mul", &[inverse, x])
            }
        };
        let scale = build.constant("scale", row(&[1.0, 2.0]));
        let out = build.node("Mul", &[scale, part]);
        (build, out, root)
    }

    #[test]
    fn every_spelling_becomes_one_node() {
        for inverse in ["Div", "Reciprocal", "one by"] {
            let (build, out, _) = build(&Form { inverse, ..USUAL });
            let mut graph = build.outputs(&[out]);
            assert_eq!(run(&mut graph), 1, "{inverse}");
            graph.verify().unwrap();
            assert_eq!(names(&graph), ["RMSNormalization"]);
            assert_eq!(graph.values().len(), 3, "x, scale and the result are left");
        }
    }

    #[test]
    fn near_misses_are_not_fused() {
        for form in [Form { exponent: 3.0, ..USUAL }, Form { keepdims: 0, ..USUAL }] {
            let (build, out, _) = build(&form);
            assert_eq!(run(&mut build.outputs(&[out])), 0);
        }
        let (build, out, root) = build(&USUAL);
        assert_eq!(run(&mut build.outputs(&[out, root])), 0, "the root is an output");
    }
}
