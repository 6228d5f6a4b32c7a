//! Checks products whose operands are scaled first: the scaling is part of the product where that gives the same
//! numbers, and stays a separate step elsewhere.

use exec::host::HostDevice;
use exec::{CompiledPartition, Input, Settings};
use graph::ops::Attribute;
use graph::pass::Selection;
use graph::{DType, Graph, Tensor, ValueId};

use crate::build::Build;
use crate::common::run::run_partition;
use crate::common::{assert_close, numbers, random, tensor};

const BATCH: usize = 2;
const ROWS: usize = 5;
const SIZE: usize = 12;

/// `(q · first) · (k / second)ᵀ`.
fn scores(dtype: DType, [first, second]: [f64; 2]) -> Graph {
    let mut build = Build::default();
    let (q, k) = (build.input_of(dtype), build.input_of(dtype));
    let [first, second] = [first, second].map(|number| build.constant(tensor(dtype, &[], &[number])));
    let (q, k) = (build.node("Mul", &[first, q]), build.node("Div", &[k, second]));
    let k = turned(&mut build, k);
    let scores = build.node("MatMul", &[q, k]);
    build.outputs(&[scores])
}

fn turned(build: &mut Build, value: ValueId) -> ValueId {
    build.with("Transpose", &[value], &[("perm", Attribute::Ints(vec![0, 2, 1]))])
}

/// The result of a graph, and its steps.
fn run(graph: &Graph, off: &str, inputs: &[Tensor]) -> (Vec<f64>, Vec<&'static str>) {
    let (passes, unknown) = Selection::without(off);
    assert!(unknown.is_empty());
    let settings = Settings { passes, ..Settings::default() };
    let partition = CompiledPartition::with(graph.clone(), &HostDevice::new(), settings).unwrap();
    let shapes: Vec<Input<'_>> = inputs.iter().map(|input| Input { shape: input.shape(), value: None }).collect();
    let steps = partition.plan(&shapes).unwrap().plan().steps.iter().map(|step| step.prim.name()).collect();
    (numbers(&run_partition(&partition, inputs).unwrap()[0]), steps)
}

fn operands(dtype: DType) -> [Tensor; 2] {
    [1, 2].map(|seed| tensor(dtype, &[BATCH, ROWS, SIZE], &random(BATCH * ROWS * SIZE, seed)))
}

/// The product of every row of the first operand with every row of the second, times a factor.
fn expected([q, k]: &[Tensor; 2], factor: f64) -> Vec<f64> {
    let (q, k) = (numbers(q), numbers(k));
    let rows = (0..BATCH * ROWS).flat_map(|row| (0..ROWS).map(move |column| (row, row / ROWS * ROWS + column)));
    rows.map(|(row, other)| (0..SIZE).map(|at| q[row * SIZE + at] * k[other * SIZE + at]).sum::<f64>() * factor)
        .collect()
}

#[test]
fn scaled_operands_are_part_of_the_product() {
    for (dtype, [first, second], tolerance) in [
        (DType::F32, [0.3, 7.0], 1e-5),
        (DType::F64, [0.375, 4.0], 1e-12),
        (DType::F16, [0.25, 2.0], 2e-3),
        (DType::Bf16, [0.5, 8.0], 1e-2),
    ] {
        let (graph, inputs) = (scores(dtype, [first, second]), operands(dtype));
        let wanted = expected(&inputs, first / second);
        let (found, steps) = run(&graph, "", &inputs);
        assert_eq!(steps, ["matmul"], "{dtype}");
        assert_close(&found, &wanted, tolerance);
        let (found, steps) = run(&graph, "scaled-products", &inputs);
        assert_eq!(steps, ["map", "map", "matmul"], "{dtype}");
        assert_close(&found, &wanted, tolerance);
    }
}

#[test]
fn scaling_that_the_model_rounds_stays_a_step() {
    let inputs = operands(DType::F16);
    let (found, steps) = run(&scores(DType::F16, [0.3, 2.0]), "", &inputs);
    assert_eq!(steps, ["map", "matmul"]);
    assert_close(&found, &expected(&inputs, 0.15), 4e-3);
}

#[test]
fn a_scaled_value_with_other_readers_is_kept() {
    let mut build = Build::default();
    let x = build.input();
    let half = build.number(0.5);
    let scaled = build.node("Mul", &[x, half]);
    let other = turned(&mut build, scaled);
    let product = build.node("MatMul", &[scaled, other]);
    let inputs = operands(DType::F32);
    let wanted = expected(&[inputs[0].clone(), inputs[0].clone()], 0.25);
    // Both operands of the product read the scaled value.
    let (found, steps) = run(&build.outputs(&[product]), "", &inputs[..1]);
    assert_eq!(steps, ["map", "matmul"]);
    assert_close(&found, &wanted, 1e-5);

    let mut build = Build::default();
    let (x, y) = (build.input(), build.input());
    let half = build.number(0.5);
    let scaled = build.node("Mul", &[x, half]);
    let other = turned(&mut build, y);
    let product = build.node("MatMul", &[scaled, other]);
    // It is an output as well.
    let (found, steps) = run(&build.outputs(&[product, scaled]), "", &inputs);
    assert_eq!(steps, ["map", "matmul"]);
    assert_close(&found, &expected(&inputs, 0.5), 1e-5);
}

#[test]
fn part_of_a_wider_tensor_is_scaled_in_place() {
    let mut build = Build::default();
    let (wide, k) = (build.input(), build.input());
    let [starts, ends, axes] =
        [SIZE as i64, 2 * SIZE as i64, 2].map(|number| build.constant(Tensor::from_i64s(&[number])));
    let q = build.node("Slice", &[wide, starts, ends, axes]);
    let third = build.number(1.0 / 3.0);
    let q = build.node("Mul", &[q, third]);
    let k = turned(&mut build, k);
    let product = build.node("MatMul", &[q, k]);
    let graph = build.outputs(&[product]);
    let values = random(BATCH * ROWS * 3 * SIZE, 3);
    let middle: Vec<f64> = values.chunks(3 * SIZE).flat_map(|row| row[SIZE..2 * SIZE].to_vec()).collect();
    let [_, k] = operands(DType::F32);
    let inputs = [tensor(DType::F32, &[BATCH, ROWS, 3 * SIZE], &values), k.clone()];
    let wanted = expected(&[tensor(DType::F32, &[BATCH, ROWS, SIZE], &middle), k], 1.0 / 3.0);
    let (found, steps) = run(&graph, "", &inputs);
    assert_eq!(steps, ["matmul"]);
    assert_close(&found, &wanted, 1e-5);
}
