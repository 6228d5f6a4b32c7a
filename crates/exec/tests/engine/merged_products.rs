//! Checks that products of one value with several constant matrices become one product, quantised or not, with the same
//! results.

use exec::host::HostDevice;
use exec::{CompiledPartition, Input, Settings};
use graph::ops::Attribute;
use graph::pass::Selection;
use graph::{DType, Graph, Tensor, ValueId};

use crate::build::Build;
use crate::common::run::run_partition;
use crate::common::{assert_close, numbers, random, tensor};

const DEPTH: usize = 72;

fn without(names: &str) -> Selection {
    let (selection, unknown) = Selection::without(names);
    assert!(unknown.is_empty());
    selection
}

/// A product with 4-bit weights, with or without packed zero points.
fn quantised(build: &mut Build, a: ValueId, columns: usize, zeros: bool, seed: u64) -> ValueId {
    let blocks = DEPTH.div_ceil(32);
    let byte = |number: &f64| ((number + 2.0) * 64.0) as u8;
    let bytes = |count: usize, seed: u64| random(count, seed).iter().map(byte).collect::<Vec<u8>>();
    let weights = Tensor::from_bytes(DType::U8, &[columns, blocks, 16], &bytes(columns * blocks * 16, seed)).unwrap();
    let scales = tensor(DType::F32, &[columns, blocks], &random(columns * blocks, seed + 1));
    let mut inputs = vec![a, build.constant(weights), build.constant(scales)];
    if zeros {
        let packed = Tensor::from_bytes(DType::U8, &[columns, 2], &bytes(columns * 2, seed + 2)).unwrap();
        inputs.push(build.constant(packed));
    }
    let int = |name, value: usize| (name, Attribute::Int(value as i64));
    let attributes = [int("K", DEPTH), int("N", columns), int("bits", 4), int("block_size", 32)];
    build.contrib("MatMulNBits", &inputs, &attributes)
}

fn plain(build: &mut Build, a: ValueId, columns: usize, seed: u64) -> ValueId {
    let weights = build.constant(tensor(DType::F32, &[DEPTH, columns], &random(DEPTH * columns, seed)));
    build.node("MatMul", &[a, weights])
}

/// The names of the primitives of a plan, and the results.
fn run(graph: &Graph, passes: Selection, rows: usize) -> (Vec<&'static str>, Vec<Vec<f64>>) {
    let settings = Settings { passes, ..Settings::default() };
    let program = CompiledPartition::with(graph.clone(), &HostDevice::new(), settings).unwrap();
    let shape = [2, rows, DEPTH];
    let plan = program.plan(&[Input { shape: &shape, value: None }]).unwrap();
    let prims = plan.plan().steps.iter().map(|step| step.prim.name()).collect();
    let x = tensor(DType::F32, &shape, &random(2 * rows * DEPTH, 9));
    (prims, run_partition(&program, &[x]).unwrap().iter().map(numbers).collect())
}

#[test]
fn queries_keys_and_values_are_merged_into_one_product() {
    for kind in 0..3 {
        let mut build = Build::default();
        let x = build.input();
        let made: Vec<ValueId> = [(40, 1u64), (16, 10), (23, 20)]
            .into_iter()
            .map(|(columns, seed)| match kind {
                0 => plain(&mut build, x, columns, seed),
                1 => quantised(&mut build, x, columns, false, seed),
                _ => quantised(&mut build, x, columns, true, seed),
            })
            .collect();
        // Readers of the parts, like attention.
        let read: Vec<ValueId> = made.iter().map(|&part| build.node("Tanh", &[part])).collect();
        let graph = build.outputs(&read);
        for rows in [1, 7] {
            let (prims, merged) = run(&graph, Selection::default(), rows);
            let products = prims.iter().filter(|prim| prim.contains("matmul")).count();
            assert_eq!(products, 1, "{prims:?}");
            let (prims, apart) = run(&graph, without("merged-products"), rows);
            assert_eq!(prims.len(), 3, "each with its epilogue: {prims:?}");
            for (merged, apart) in merged.iter().zip(&apart) {
                assert_close(merged, apart, 1e-6);
            }
        }
    }
}

#[test]
fn products_with_biases_are_merged_into_one() {
    for kind in 0..2 {
        let mut build = Build::default();
        let x = build.input();
        let read: Vec<ValueId> = [(40, 1u64), (16, 10), (23, 20)]
            .into_iter()
            .map(|(columns, seed)| {
                let bias = build.constant(tensor(DType::F32, &[columns], &random(columns, seed + 5)));
                let part = match kind {
                    0 => plain(&mut build, x, columns, seed),
                    _ => quantised(&mut build, x, columns, false, seed),
                };
                let sum = build.node("Add", &[part, bias]);
                build.node("Tanh", &[sum])
            })
            .collect();
        let graph = build.outputs(&read);
        for rows in [1, 7] {
            let (prims, merged) = run(&graph, Selection::default(), rows);
            let products: Vec<_> = prims.iter().filter(|prim| prim.contains("matmul")).collect();
            assert!(products.len() == 1 && products[0].starts_with("fused"), "{prims:?}");
            let (prims, apart) = run(&graph, without("merged-products"), rows);
            assert_eq!(prims.len(), 3, "each with its epilogue: {prims:?}");
            for (merged, apart) in merged.iter().zip(&apart) {
                assert_close(merged, apart, 1e-6);
            }
        }
    }
}

#[test]
fn a_gate_and_its_value_are_one_product_and_one_map() {
    let mut build = Build::default();
    let x = build.input();
    let (gate, up) = (quantised(&mut build, x, 48, false, 1), quantised(&mut build, x, 48, false, 5));
    let sigmoid = build.node("Sigmoid", &[gate]);
    let silu = build.node("Mul", &[gate, sigmoid]);
    let gated = build.node("Mul", &[silu, up]);
    let graph = build.outputs(&[gated]);
    let (prims, merged) = run(&graph, Selection::default(), 3);
    assert_eq!(prims, ["quant_matmul", "map"]);
    let (prims, apart) = run(&graph, without("merged-products"), 3);
    assert_eq!(prims, ["quant_matmul", "fused_quant_matmul"]);
    assert_close(&merged[0], &apart[0], 1e-6);
}

#[test]
fn a_residual_is_added_before_a_quantised_product_is_stored() {
    let mut build = Build::default();
    let x = build.input();
    let product = quantised(&mut build, x, DEPTH, true, 3);
    let sum = build.node("Add", &[x, product]);
    let graph = build.outputs(&[sum]);
    for rows in [1, 9] {
        let (prims, merged) = run(&graph, Selection::default(), rows);
        assert_eq!(prims, ["fused_quant_matmul"]);
        let (prims, apart) = run(&graph, without("epilogues"), rows);
        assert_eq!(prims, ["quant_matmul", "map"]);
        assert_eq!(merged, apart, "the same bits");
    }
}
