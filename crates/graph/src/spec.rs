//! The rules that every stage relies on.
use std::collections::{HashMap, HashSet};

use crate::expr::Unary;
use crate::ops::Meaning;
use crate::{DType, Graph, Node, ValueId};

impl Graph {
    /// Checks that references exist, that each value has a unique name and is produced once and before its use, that
    /// constants have their value's type, and that nodes have the inputs and types that their operators need.
    ///
    /// # Errors
    /// The first broken rule, with the names involved.
    pub fn verify(&self) -> Result<(), String> {
        let made = self.verify_sources()?;
        self.verify_nodes(made)
    }

    /// Checks the values alone, and returns those that exist before the first node.
    fn verify_sources(&self) -> Result<HashMap<ValueId, String>, String> {
        let mut made: HashMap<ValueId, String> = HashMap::new();
        for &input in self.inputs() {
            if !self.has(input) {
                return Err(format!("input {input:?} does not exist"));
            }
            if made.insert(input, "an input".to_owned()).is_some() {
                return Err(format!("{:?} is listed as an input twice", self.value(input).name));
            }
        }
        let mut names = HashSet::new();
        for (at, value) in self.values().iter().enumerate() {
            if !names.insert(&value.name) {
                return Err(format!("two values are named {:?}", value.name));
            }
            if let Some(constant) = &value.constant {
                if constant.dtype() != value.dtype {
                    return Err(format!("{:?} is {} but its constant is {constant:?}", value.name, value.dtype));
                }
                made.entry(ValueId(at as u32)).or_insert_with(|| "a constant".to_owned());
            }
        }
        Ok(made)
    }

    fn verify_nodes(&self, mut made: HashMap<ValueId, String>) -> Result<(), String> {
        for node in self.nodes() {
            for &input in node.inputs.iter().flatten() {
                if !self.has(input) || !made.contains_key(&input) {
                    return Err(format!("{} uses {input:?} before it is produced", node.label()));
                }
            }
            for &output in node.outputs.iter().flatten() {
                if !self.has(output) {
                    return Err(format!("{} produces {output:?}, which does not exist", node.label()));
                }
                if let Some(maker) = made.insert(output, node.label()) {
                    return Err(format!(
                        "{:?} is produced by {maker} and by {}",
                        self.value(output).name,
                        node.label()
                    ));
                }
            }
            self.verify_signature(node).map_err(|reason| format!("{} {reason}", node.label()))?;
        }
        match self.outputs().iter().find(|output| !made.contains_key(output)) {
            Some(output) => Err(format!("output {output:?} is never produced")),
            None => Ok(()),
        }
    }

    fn has(&self, id: ValueId) -> bool {
        (id.0 as usize) < self.values().len()
    }

    /// Checks the number and types of a node's inputs and outputs against its operator's meaning.
    fn verify_signature(&self, node: &Node) -> Result<(), String> {
        let meaning = node.op.meaning();
        let (least, most) = match meaning {
            Meaning::Opaque | Meaning::CachedAttention { .. } | Meaning::Choice { .. } => return Ok(()),
            Meaning::Same | Meaning::Reshaped | Meaning::Cast(_) => (1, usize::MAX),
            Meaning::Unary(_) | Meaning::Transpose(_) | Meaning::Softmax { .. } => (1, 1),
            Meaning::Reduce { .. } => (1, 2),
            Meaning::QuantMatMul(_) => (3, 6),
            Meaning::Binary(_) | Meaning::Power | Meaning::Reshape { .. } | Meaning::MatMul => (2, 2),
        };
        let given = node.inputs.iter().take_while(|input| input.is_some()).count();
        if given < least || node.inputs.len() > most {
            return Err(format!(
                "has {} inputs, the first {given} of them present: too few or too many",
                node.inputs.len()
            ));
        }
        let dtype = |id: &Option<ValueId>| id.map(|id| self.value(id).dtype);
        let (first, second) = (node.inputs.first().and_then(dtype), node.inputs.get(1).and_then(dtype));
        if matches!(meaning, Meaning::Binary(_) | Meaning::MatMul) && first != second {
            return Err("has operands of different types".to_owned());
        }
        let wanted = match meaning {
            Meaning::Cast(to) => Some(to),
            Meaning::Unary(Unary::IsNan | Unary::IsInf) => Some(DType::Bool),
            Meaning::Binary(op) if op.is_comparison() => Some(DType::Bool),
            _ => first,
        };
        match node.outputs.first().and_then(dtype) {
            Some(found) if Some(found) != wanted => Err(format!("produces {found}, which does not match its inputs")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tensor;
    use crate::pass::testing::{Build, scalar};

    #[test]
    fn a_valid_graph_passes() {
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let sum = build.node("Add", &[x, x]);
        build.outputs(&[sum]).verify().unwrap();
    }

    #[test]
    fn values_have_unique_names() {
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        build.constant("x", scalar(1.0));
        assert_eq!(build.outputs(&[x]).verify(), Err("two values are named \"x\"".to_owned()));
    }

    #[test]
    fn a_constant_has_its_values_type() {
        let mut graph = Graph::new();
        let x = graph.add_value("x", DType::F32, Some(Tensor::from_i64s(&[1])));
        graph.set_outputs(vec![x]);
        assert_eq!(graph.verify(), Err("\"x\" is f32 but its constant is i64[1]".to_owned()));
    }

    #[test]
    fn nodes_follow_their_inputs_and_produce_each_value_once() {
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let exp = build.node("Exp", &[x]);
        let graph = build.outputs(&[exp]);
        let node = graph.nodes()[0].clone();
        let mut twice = graph.clone();
        twice.add_node(node.clone());
        assert!(twice.verify().unwrap_err().contains("is produced by"));
        let mut early = graph.clone();
        let late = early.add_value("late", DType::F32, None);
        early.set_node(crate::NodeId(0), Node { inputs: vec![Some(late)], ..node });
        assert!(early.verify().unwrap_err().contains("before it is produced"));
    }

    #[test]
    fn every_output_has_a_producer() {
        let mut graph = Graph::new();
        let x = graph.add_value("x", DType::F32, None);
        graph.set_outputs(vec![x]);
        assert_eq!(graph.verify(), Err("output ValueId(0) is never produced".to_owned()));
    }

    #[test]
    fn inputs_and_types_follow_from_the_operator() {
        let mut build = Build::new();
        let (x, n) = (build.input("x", DType::F32), build.input("n", DType::I64));
        let sum = build.node("Add", &[x, x]);
        let graph = build.outputs(&[sum]);
        let node = graph.nodes()[0].clone();
        let broken = |inputs: Vec<Option<ValueId>>, outputs: Vec<Option<ValueId>>| {
            let mut broken = graph.clone();
            broken.add_value("other", DType::I64, None);
            broken.set_node(crate::NodeId(0), Node { inputs, outputs, ..node.clone() });
            broken.verify().unwrap_err()
        };
        assert!(broken(vec![Some(x)], node.outputs.clone()).contains("too few"));
        assert!(broken(vec![Some(x), None], node.outputs.clone()).contains("too few"));
        assert!(broken(vec![Some(x), Some(n)], node.outputs.clone()).contains("different types"));
        assert!(broken(node.inputs.clone(), vec![Some(ValueId(3))]).contains("does not match"));
    }
}
