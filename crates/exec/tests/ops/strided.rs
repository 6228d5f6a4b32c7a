//! Checks that primitives that work along an axis read a transposed view as they read a copy.
use graph::ops::{self, Attribute, Attributes, InputInfo, NodeInfo};
use graph::{DType, Graph, Node, Tensor};
use proptest::prelude::*;

use crate::common::{Case, numbers, random, tensor};

/// Operators that work along an axis.
#[derive(Clone, Copy, Debug)]
enum Along {
    Reduce(&'static str),
    Soft(&'static str),
    Arg,
    TopK,
    CumSum,
    Layer,
}

impl Along {
    const ALL: [Self; 9] = [
        Self::Reduce("ReduceSum"),
        Self::Reduce("ReduceMax"),
        Self::Reduce("ReduceLogSumExp"),
        Self::Soft("Softmax"),
        Self::Soft("Hardmax"),
        Self::Arg,
        Self::TopK,
        Self::CumSum,
        Self::Layer,
    ];

    /// The operator on `x`, working along `axis`.
    fn case(self, x: Tensor, axis: usize) -> Case {
        let shape: Vec<usize> = x.shape().to_vec();
        let float = DType::F32;
        let named = |case: Case| case.attribute("axis", Attribute::Int(axis as i64));
        let with_second = |op_type, version, x, second, outputs: &[DType]| {
            let mut case = Case::new(op_type, version, vec![x, second], outputs);
            case.constants.push(1);
            case
        };
        match self {
            Self::Reduce(op_type) => {
                let case = Case::new(op_type, 11, vec![x], &[float]);
                case.attribute("axes", Attribute::Ints(vec![axis as i64]))
            }
            Self::Soft(op_type) => named(Case::new(op_type, 13, vec![x], &[float])),
            Self::Arg => named(Case::new("ArgMax", 13, vec![x], &[DType::I64])),
            Self::TopK => {
                let k = Tensor::from_i64s(&[shape[axis].div_ceil(2) as i64]);
                named(with_second("TopK", 11, x, k, &[float, DType::I64]))
            }
            Self::CumSum => with_second("CumSum", 14, x, Tensor::from_i64s(&[axis as i64]), &[float]),
            Self::Layer => {
                let count = shape[axis..].iter().product();
                let scale = tensor(float, &shape[axis..], &random(count, 17));
                named(with_second("LayerNormalization", 17, x, scale, &[float]))
            }
        }
    }
}

/// Runs a transpose followed by the case's node.
fn behind_transpose(x: &Tensor, order: &[usize], case: &Case) -> Vec<Tensor> {
    let mut graph = Graph::new();
    let input = graph.add_value("x", DType::F32, None);
    let moved = graph.add_value("moved", DType::F32, None);
    let parse = |op_type, version, attributes: &Attributes, second: Option<&Tensor>, outputs: &[DType]| {
        let first = InputInfo { dtype: DType::F32, rank: Some(order.len()), constant: None };
        let mut infos = vec![Some(first)];
        infos.extend(second.map(|tensor| {
            Some(InputInfo { dtype: tensor.dtype(), rank: Some(tensor.shape().len()), constant: Some(tensor) })
        }));
        let outputs: Vec<_> = outputs.iter().map(|dtype| Some(*dtype)).collect();
        let node =
            NodeInfo { domain: "", op_type, since_version: version, attributes, inputs: &infos, outputs: &outputs };
        ops::parse(&node).unwrap().into()
    };
    let perm = Attribute::Ints(order.iter().map(|&axis| axis as i64).collect());
    let transpose = parse("Transpose", 13, &Attributes([("perm".to_owned(), perm)].into()), None, &[DType::F32]);
    graph.add_node(Node { name: String::new(), op: transpose, inputs: vec![Some(input)], outputs: vec![Some(moved)] });
    let second = case.inputs.get(1).cloned().flatten();
    let attributes = Attributes::from(&*case.attributes);
    let op = parse(case.op_type, case.since_version, &attributes, second.as_ref(), &case.outputs);
    let mut inputs = vec![Some(moved)];
    inputs.extend(second.map(|tensor| Some(graph.add_value("second", tensor.dtype(), Some(tensor)))));
    let made: Vec<_> =
        case.outputs.iter().enumerate().map(|(at, dtype)| graph.add_value(format!("out{at}"), *dtype, None)).collect();
    graph.add_node(Node { name: String::new(), op, inputs, outputs: made.iter().map(|id| Some(*id)).collect() });
    graph.set_inputs(vec![input]);
    graph.set_outputs(made);
    graph.verify().unwrap();
    crate::common::device::run_once(graph, std::slice::from_ref(x)).unwrap()
}

/// The transposed tensor, element by element.
fn transposed(x: &Tensor, order: &[usize]) -> Tensor {
    let to: Vec<usize> = order.iter().map(|&axis| x.shape()[axis]).collect();
    let values = numbers(x);
    let moved: Vec<f64> = (0..values.len())
        .map(|flat| {
            let mut rest = flat;
            let mut index = vec![0; to.len()];
            for at in (0..to.len()).rev() {
                index[order[at]] = rest % to[at];
                rest /= to[at];
            }
            values[index.iter().zip(x.shape()).fold(0, |place, (&at, &extent)| place * extent + at)]
        })
        .collect();
    tensor(DType::F32, &to, &moved)
}

proptest! {
    #[test]
    fn a_transposed_view_gives_the_same_result_as_a_copy(
        shape in prop::collection::vec(1usize..6, 1..5),
        turn in 0usize..4,
        flip in any::<bool>(),
        axis in 0usize..4,
        which in 0..Along::ALL.len(),
        seed in 0u64..1000,
    ) {
        let mut order: Vec<usize> = (0..shape.len()).collect();
        order.rotate_left(turn % shape.len());
        if flip {
            order.reverse();
        }
        let x = tensor(DType::F32, &shape, &random(shape.iter().product(), seed));
        let case = Along::ALL[which].case(transposed(&x, &order), axis % shape.len());
        let wanted = case.run().unwrap();
        let found = behind_transpose(&x, &order, &case);
        for (found, wanted) in found.iter().zip(&wanted) {
            prop_assert_eq!(found.shape(), wanted.shape());
            // Sums may be computed in another order.
            for (a, b) in numbers(found).iter().zip(numbers(wanted)) {
                prop_assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{:?}: {} instead of {}", Along::ALL[which], a, b);
            }
        }
    }
}
