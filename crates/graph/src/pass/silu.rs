//! SiLU and its relatives, `x · sigmoid(alpha · x)`.
use crate::expr::{Binary, Unary};
use crate::ops::fused::Whole;
use crate::pass::pattern::{Found, Search, rewrite};
use crate::{DType, Graph, NodeId, ValueId};

pub(super) fn run(graph: &mut Graph) -> usize {
    rewrite(graph, find)
}

fn find(search: Search<'_>, at: NodeId) -> Option<Found> {
    let [a, b] = search.operands(at, Binary::Mul)?;
    // In half precision the model rounds the gate, but a single node would not. A language model trained with that
    // rounding would then choose other words. The stage `fused` makes one step of these nodes anyway, and keeps
    // the rounding.
    if !matches!(search.graph.value(a).dtype, DType::F32 | DType::F64) {
        return None;
    }
    gated(search, at, a, b).or_else(|| gated(search, at, b, a))
}

fn gated(search: Search<'_>, at: NodeId, x: ValueId, gate: ValueId) -> Option<Found> {
    let (sigmoid, inner) = search.unary(gate, Unary::Sigmoid)?;
    if inner == x {
        return Some(Found { whole: Whole::Swish { alpha: 1.0 }, nodes: vec![sigmoid, at], inputs: vec![x] });
    }
    let (scale, of, alpha) = search.scaled(inner)?;
    let whole = Whole::Swish { alpha: alpha as f32 };
    (of == x).then(|| Found { whole, nodes: vec![scale, sigmoid, at], inputs: vec![x] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::testing::{Build, names};

    #[test]
    fn silu_with_and_without_a_factor_is_one_node() {
        for factor in [None, Some(1.702)] {
            let mut build = Build::new();
            let x = build.input("x", DType::F32);
            let inner = factor.map_or(x, |factor| {
                let factor = build.number(factor);
                build.node("Mul", &[factor, x])
            });
            let gate = build.node("Sigmoid", &[inner]);
            let out = build.node("Mul", &[gate, x]);
            let mut graph = build.outputs(&[out]);
            assert_eq!(run(&mut graph), 1);
            graph.verify().unwrap();
            assert_eq!(names(&graph), ["Swish"]);
        }
    }

    #[test]
    fn half_precision_keeps_the_rounding_of_the_gate() {
        for dtype in [DType::F16, DType::Bf16] {
            let mut build = Build::new();
            let x = build.input("x", dtype);
            let gate = build.node("Sigmoid", &[x]);
            let out = build.node("Mul", &[x, gate]);
            assert_eq!(run(&mut build.outputs(&[out])), 0);
        }
    }

    #[test]
    fn another_value_or_reader_of_the_gate_prevents_fusion() {
        let mut build = Build::new();
        let (x, y) = (build.input("x", DType::F32), build.input("y", DType::F32));
        let gate = build.node("Sigmoid", &[x]);
        let (other, own) = (build.node("Mul", &[gate, y]), build.node("Mul", &[gate, x]));
        assert_eq!(run(&mut build.outputs(&[other])), 0);
        assert_eq!(run(&mut build.outputs(&[own, gate])), 0);
        assert_eq!(run(&mut build.outputs(&[own, other])), 0);
    }
}
