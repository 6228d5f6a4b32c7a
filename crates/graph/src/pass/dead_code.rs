//! Removes nodes whose results are never used.
use crate::{Graph, NodeId};

pub(super) fn run(graph: &mut Graph) -> usize {
    let mut wanted = vec![false; graph.values().len()];
    graph.outputs().iter().for_each(|output| wanted[output.0 as usize] = true);
    let mut alive = vec![false; graph.nodes().len()];
    for (at, node) in graph.nodes().iter().enumerate().rev() {
        alive[at] = node.outputs.iter().flatten().any(|output| wanted[output.0 as usize]);
        if alive[at] {
            node.inputs.iter().flatten().for_each(|input| wanted[input.0 as usize] = true);
        }
    }
    let dead = alive.iter().filter(|alive| !**alive).count();
    if dead > 0 {
        graph.keep_nodes(|NodeId(at)| alive[at as usize]);
    }
    dead
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::ops::Attribute;
    use crate::pass::testing::{Build, scalar};

    #[test]
    fn unused_nodes_are_removed_with_their_constants() {
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let unused = build.input("unused", DType::F32);
        let two = build.constant("two", scalar(2.0));
        let dead = build.node("Mul", &[unused, two]);
        build.node("Exp", &[dead]);
        let alive = build.node("Exp", &[x]);
        let mut graph = build.outputs(&[alive]);
        assert_eq!(run(&mut graph), 2);
        graph.verify().unwrap();
        assert_eq!(
            graph.to_string(),
            "in x:f32, unused:f32\nexp2:f32 = UnaryOp { name: \"Exp\", op: Exp } x:f32\nout exp2:f32\n"
        );
        assert_eq!(run(&mut graph), 0);
    }

    #[test]
    fn a_node_with_one_used_output_stays() {
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let k = [("k", Attribute::Int(1))];
        let made = build.add("TopK", 1, &[x], &[DType::F32, DType::I64], &k);
        let mut graph = build.outputs(&made[1..]);
        assert_eq!(run(&mut graph), 0);
    }
}
