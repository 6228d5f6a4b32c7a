//! Plans that need too much are rejected during planning: no test here may take much time or memory.
#![allow(clippy::unwrap_used, clippy::panic)]
use graph::lower::InputSpec;
use graph::ops::{self, Attributes, InputInfo, NodeInfo};
use graph::pass::Selection;
use graph::plan::Budget;
use graph::{DType, Graph, LowerError, Node, Plan, Scalar, Tensor, ValueId};

/// A device of 64 GiB.
const BUDGET: Budget = Budget { held: 64 << 30, arena: 48 << 30, walked: 256 << 30 };

#[derive(Default)]
struct Build {
    graph: Graph,
    inputs: Vec<ValueId>,
}

impl Build {
    fn input(&mut self, dtype: DType) -> ValueId {
        let id = self.graph.add_value(format!("in{}", self.inputs.len()), dtype, None);
        self.inputs.push(id);
        id
    }

    fn ints(&mut self, values: &[i64]) -> ValueId {
        self.graph.add_value("ints", DType::I64, Some(Tensor::from_i64s(values)))
    }

    fn one(&mut self) -> ValueId {
        let one = Tensor::scalar(DType::F32, Scalar::Float(1.0)).reshaped(&[1, 1]);
        self.graph.add_value("one", DType::F32, one)
    }

    fn node(&mut self, op_type: &str, inputs: &[ValueId]) -> ValueId {
        let infos = inputs.iter().map(|&id| {
            let value = self.graph.value(id);
            let rank = value.constant.as_ref().map(|constant| constant.shape().len());
            Some(InputInfo { dtype: value.dtype, rank, constant: value.constant.as_ref() })
        });
        let infos: Vec<_> = infos.collect();
        let dtype = infos[0].as_ref().unwrap().dtype;
        let info = NodeInfo {
            domain: "",
            op_type,
            since_version: 13,
            attributes: &Attributes::default(),
            inputs: &infos,
            outputs: &[Some(dtype)],
        };
        let op = ops::parse(&info).unwrap().into();
        let made = self.graph.add_value("made", dtype, None);
        let inputs = inputs.iter().map(|&id| Some(id)).collect();
        self.graph.add_node(Node { name: "node".into(), op, inputs, outputs: vec![Some(made)] });
        made
    }

    /// The plan for inputs of these shapes. Nothing is evaluated during planning: all constant work here is too large.
    fn plan(mut self, output: ValueId, shapes: &[&[usize]]) -> Result<Plan, LowerError> {
        self.graph.set_inputs(self.inputs);
        self.graph.set_outputs(vec![output]);
        let inputs: Vec<_> = shapes.iter().map(|&shape| InputSpec { shape: shape.into(), known: None }).collect();
        let mut evaluate = |prologue: &Plan| panic!("{:?} was evaluated", prologue.steps);
        Plan::watched(&self.graph, &inputs, &Selection::default(), &BUDGET, &mut evaluate, &mut |_, _| {})
    }
}

#[test]
fn a_huge_expand_into_a_reduction_is_rejected() {
    let mut build = Build::default();
    let (x, to) = (build.input(DType::F32), build.ints(&[1 << 40]));
    let big = build.node("Expand", &[x, to]);
    let most = build.node("ReduceMax", &[big]);
    let error = build.plan(most, &[&[1]]).unwrap_err();
    let LowerError::TooMuchWork { node, shape, bytes, limit } = error else { panic!("{error}") };
    assert_eq!((node.as_str(), shape.iter().product::<usize>()), ("ReduceMax \"node\"", 1 << 40));
    assert_eq!((bytes, limit), (4 << 40, 256 << 30));
}

#[test]
fn a_broadcast_of_a_few_times_the_memory_into_a_reduction_is_accepted() {
    let mut build = Build::default();
    let (x, to) = (build.input(DType::F32), build.ints(&[60 << 30]));
    let big = build.node("Expand", &[x, to]);
    let most = build.node("ReduceMax", &[big]);
    assert_eq!(build.plan(most, &[&[1]]).unwrap().steps.len(), 1);
}

#[test]
fn huge_work_on_constants_is_not_done_while_planning() {
    let mut build = Build::default();
    let (one, to, x) = (build.one(), build.ints(&[1 << 20, 1 << 20]), build.input(DType::F32));
    let big = build.node("Expand", &[one, to]);
    let most = build.node("ReduceMax", &[big]);
    let sum = build.node("Add", &[x, most]);
    let error = build.plan(sum, &[&[3]]).unwrap_err();
    assert!(matches!(error, LowerError::TooMuchWork { .. }), "{error}");
}

#[test]
fn plans_that_exceed_the_memory_are_rejected_with_the_bytes() {
    let mut build = Build::default();
    let (x, to) = (build.input(DType::F32), build.ints(&[1 << 35]));
    let big = build.node("Expand", &[x, to]);
    let sum = build.node("Softmax", &[big]);
    let error = build.plan(sum, &[&[1]]).unwrap_err();
    let LowerError::NoRoom { node, largest, bytes, available } = &error else { panic!("{error}") };
    assert_eq!((node.as_str(), *largest, *bytes, *available), ("Softmax \"node\"", 128 << 30, 128 << 30, 64 << 30));
}

#[test]
fn arenas_must_fit_in_the_free_memory() {
    let mut build = Build::default();
    let (x, to) = (build.input(DType::F32), build.ints(&[13 << 30]));
    let big = build.node("Expand", &[x, to]);
    let shares = build.node("Softmax", &[big]);
    let most = build.node("ReduceMax", &[shares]);
    let error = build.plan(most, &[&[1]]).unwrap_err();
    let LowerError::NoRoom { bytes, available, .. } = &error else { panic!("{error}") };
    assert_eq!((*bytes, *available), (52 << 30, 48 << 30));
}

#[test]
fn a_weight_that_is_repeated_for_each_batch_counts_once() {
    let mut build = Build::default();
    let (x, weight) = (build.input(DType::F32), build.input(DType::F32));
    let product = build.node("MatMul", &[x, weight]);
    // Sixteen times the memory, if the weight were stored for each batch.
    build.plan(product, &[&[1 << 18, 1, 1 << 10], &[1, 1 << 10, 1 << 10]]).unwrap();
}

#[test]
fn overflowing_sizes_are_reported() {
    let cases: [(&str, [i64; 2]); 4] = [
        ("Expand", [1 << 40, 1 << 40]),
        ("Expand", [1 << 31, 1 << 32]),
        ("Tile", [1 << 40, 1 << 40]),
        ("Tile", [1, i64::MAX]),
    ];
    for (op_type, numbers) in cases {
        let mut build = Build::default();
        let (x, to) = (build.input(DType::F32), build.ints(&numbers));
        let big = build.node(op_type, &[x, to]);
        let error = build.plan(big, &[&[1, 1]]).unwrap_err();
        assert!(matches!(error, LowerError::Overflow { .. }), "{op_type} {numbers:?}: {error}");
        assert!(error.to_string().contains("would have more than 2^63 bytes"), "{error}");
    }
    // Neither operand is large.
    let mut build = Build::default();
    let (x, to) = (build.input(DType::F32), build.ints(&[1 << 40, 1]));
    let tall = build.node("Expand", &[x, to]);
    let to = build.ints(&[1, 1 << 40]);
    let wide = build.node("Expand", &[x, to]);
    let sum = build.node("Add", &[tall, wide]);
    let error = build.plan(sum, &[&[1, 1]]).unwrap_err();
    assert!(matches!(&error, LowerError::Overflow { node, .. } if node == "Add \"node\""), "{error}");
}

#[test]
fn a_huge_broadcast_that_determines_a_shape_is_not_materialised() {
    let mut build = Build::default();
    let (x, seven, to) = (build.input(DType::F32), build.ints(&[7]), build.ints(&[1 << 40]));
    let extents = build.node("Expand", &[seven, to]);
    let made = build.node("Reshape", &[x, extents]);
    let error = build.plan(made, &[&[7]]).unwrap_err();
    assert!(error.to_string().contains("1099511627776 elements"), "{error}");
}
