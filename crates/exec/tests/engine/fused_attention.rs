//! Checks that attention as one step gives the same results as its parts.

use std::sync::Arc;

use exec::host::HostDevice;
use exec::{CompiledPartition, Device, ExecError, Input, Loaded, Settings};
use graph::ops::Attribute;
use graph::pass::Selection;
use graph::plan::{Capabilities, Capability};
use graph::{DType, Graph, Prim, Tensor};

use crate::build::Build;
use crate::common::run::run_partition;
use crate::common::{assert_close, numbers, random, tensor};

/// The host as a device that wants attention as one step.
struct Whole(HostDevice);

impl Device for Whole {
    fn name(&self) -> &str {
        "whole"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE.with(Capability::Attention)
    }

    fn load(&self, graph: Arc<Graph>) -> Result<Box<dyn Loaded>, ExecError> {
        self.0.load(graph)
    }
}

const BATCH: usize = 2;
const TOTAL: usize = 7;

fn floats(shape: &[usize], seed: u64) -> Tensor {
    tensor(DType::F32, shape, &random(shape.iter().product(), seed))
}

/// Runs a graph on both devices, compares the results, and returns the steps of the device with fused attention.
fn compare(graph: impl Fn() -> Graph, inputs: &[Tensor]) -> Vec<graph::Step> {
    let plain = CompiledPartition::new(graph(), &HostDevice::new()).unwrap();
    let wanted = run_partition(&plain, inputs).unwrap();
    let whole = CompiledPartition::new(graph(), &Whole(HostDevice::new())).unwrap();
    let found = run_partition(&whole, inputs).unwrap();
    for (found, wanted) in found.iter().zip(&wanted) {
        assert_close(&numbers(found), &numbers(wanted), 1e-5);
    }
    let shapes: Vec<Input<'_>> = inputs.iter().map(|input| Input { shape: input.shape(), value: None }).collect();
    whole.plan(&shapes).unwrap().plan().steps.clone()
}

fn is_attention(step: &graph::Step) -> bool {
    matches!(step.prim, Prim::Attention(_))
}

/// Attention written out, with a mask for each key and concatenated heads.
fn spelled_out() -> Graph {
    let mut build = Build::default();
    let (q, k, v, mask) = (build.input(), build.input(), build.input(), build.input());
    let turned = build.with("Transpose", &[k], &[("perm", Attribute::Ints(vec![0, 1, 3, 2]))]);
    let scores = build.node("MatMul", &[q, turned]);
    let scale = build.number(2.0);
    let scores = build.node("Div", &[scores, scale]);
    let scores = build.node("Add", &[scores, mask]);
    let weights = build.with("Softmax", &[scores], &[("axis", Attribute::Int(-1))]);
    let result = build.node("MatMul", &[weights, v]);
    let turned = build.with("Transpose", &[result], &[("perm", Attribute::Ints(vec![0, 2, 1, 3]))]);
    let to = build.constant(Tensor::from_i64s(&[0, 0, -1]));
    let joined = build.node("Reshape", &[turned, to]);
    build.outputs(&[joined])
}

fn heads(heads: usize, rows: usize, size: usize, seed: u64) -> Tensor {
    floats(&[BATCH, heads, rows, size], seed)
}

#[test]
fn written_out_attention_is_one_step() {
    let inputs = [heads(3, 5, 4, 1), heads(3, TOTAL, 4, 2), heads(3, TOTAL, 6, 3), floats(&[BATCH, 1, 1, TOTAL], 4)];
    let steps = compare(spelled_out, &inputs);
    // The step stores its result with the heads concatenated.
    assert!(steps.len() == 1 && is_attention(&steps[0]), "{steps:#?}");
}

/// An encoder layer up to the concatenation of its heads, as exporters write it, in half precision.
fn encoder() -> Graph {
    let (heads, size) = (3, 8);
    let mut build = Build::default();
    let x = build.input_of(DType::F16);
    // Small enough that scores lose almost nothing when they are stored, as they are without the fused step.
    let small = |count: usize, seed: u64| random(count, seed).into_iter().map(|value| value / 8.0).collect::<Vec<_>>();
    let halves = |shape: &[usize], seed: u64| tensor(DType::F16, shape, &small(shape.iter().product(), seed));
    let split = build.constant(Tensor::from_i64s(&[0, 0, heads as i64, size as i64]));
    let turns = [[0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]];
    let parts: Vec<_> = (0..3u64)
        .zip(turns)
        .map(|(seed, turn)| {
            let weights = build.constant(halves(&[16, heads * size], seed));
            let bias = build.constant(halves(&[heads * size], seed + 4));
            let made = build.node("MatMul", &[x, weights]);
            let made = build.node("Add", &[made, bias]);
            let made = build.node("Reshape", &[made, split]);
            build.with("Transpose", &[made], &[("perm", Attribute::Ints(turn.to_vec()))])
        })
        .collect();
    let scores = build.node("MatMul", &[parts[0], parts[1]]);
    let scale = build.constant(tensor(DType::F16, &[], &[3.0]));
    let scores = build.node("Div", &[scores, scale]);
    let weights = build.with("Softmax", &[scores], &[("axis", Attribute::Int(-1))]);
    let mixed = build.node("MatMul", &[weights, parts[2]]);
    let turned = build.with("Transpose", &[mixed], &[("perm", Attribute::Ints(vec![0, 2, 1, 3]))]);
    let to = build.constant(Tensor::from_i64s(&[0, 0, -1]));
    let joined = build.node("Reshape", &[turned, to]);
    build.outputs(&[joined])
}

#[test]
fn heads_are_read_and_stored_in_place() {
    for batch in [1, BATCH] {
        let shape = [batch, 5, 16];
        let x = tensor(DType::F16, &shape, &random(shape.iter().product(), 9));
        let plain = CompiledPartition::new(encoder(), &HostDevice::new()).unwrap();
        let whole = CompiledPartition::new(encoder(), &Whole(HostDevice::new())).unwrap();
        let made = [&plain, &whole].map(|program| run_partition(program, std::slice::from_ref(&x)).unwrap());
        assert_close(&numbers(&made[1][0]), &numbers(&made[0][0]), 4e-3);
        let plan = whole.plan(&[Input { shape: &shape, value: None }]).unwrap();
        let steps: Vec<&str> = plan.plan().steps.iter().map(|step| step.prim.name()).collect();
        assert_eq!(steps, ["fused_matmul", "attention"], "of a batch of {batch}");
    }
}

#[test]
fn operators_with_masks_and_shared_heads_are_one_step() {
    for (causal, softcap, with_mask) in [(1, 0.0, false), (0, 2.0, true), (1, 0.0, true)] {
        let graph = || {
            let mut build = Build::default();
            let mut inputs = vec![build.input(), build.input(), build.input()];
            if with_mask {
                inputs.push(build.input_of(DType::Bool));
            }
            let attributes = [("is_causal", Attribute::Int(causal)), ("softcap", Attribute::Float(softcap))];
            let made = build.with("Attention", &inputs, &attributes);
            build.outputs(&[made])
        };
        let mut inputs = vec![heads(6, 4, 8, 1), heads(2, TOTAL, 8, 2), heads(2, TOTAL, 8, 3)];
        if with_mask {
            // The first row sees no keys.
            let seen = |at: usize| at >= TOTAL && !at.is_multiple_of(3);
            let values: Vec<f64> = (0..4 * TOTAL).map(|at| f64::from(u8::from(seen(at)))).collect();
            inputs.push(tensor(DType::Bool, &[4, TOTAL], &values));
        }
        let steps = compare(graph, &inputs);
        assert_eq!(steps.iter().filter(|step| is_attention(step)).count(), 1, "{steps:#?}");
        assert!(!steps.iter().any(|step| matches!(step.prim, Prim::Softmax(_))), "{steps:#?}");
    }
}

/// Devices are most efficient if scores are plain products.
#[test]
fn products_that_are_not_stored_are_not_rounded() {
    let mut build = Build::default();
    let [q, k, v] = [(); 3].map(|()| build.input_of(DType::F16));
    let scores = build.node("MatMul", &[q, k]);
    let weights = build.with("Softmax", &[scores], &[("axis", Attribute::Int(-1))]);
    let result = build.node("MatMul", &[weights, v]);
    let program = CompiledPartition::new(build.outputs(&[result]), &Whole(HostDevice::new())).unwrap();
    let shapes = [[1, 3, 4], [1, 4, 5], [1, 5, 4]];
    let plan = program.plan(&shapes.each_ref().map(|shape| Input { shape, value: None })).unwrap();
    let Prim::Attention(attention) = &plan.plan().steps[0].prim else { panic!("{:?}", plan.plan().steps) };
    assert_eq!(format!("{:?}", attention.scores), "%0:f32 = in0");
}

#[test]
fn scores_with_other_readers_are_stored() {
    let graph = || {
        let mut build = Build::default();
        let (q, k, v) = (build.input(), build.input(), build.input());
        let scores = build.node("MatMul", &[q, k]);
        let weights = build.with("Softmax", &[scores], &[("axis", Attribute::Int(-1))]);
        let result = build.node("MatMul", &[weights, v]);
        build.outputs(&[result, weights])
    };
    let inputs = [heads(1, 3, 4, 1), heads(1, 4, 5, 2), heads(1, 5, 4, 3)];
    let steps = compare(graph, &inputs);
    assert!(!steps.iter().any(is_attention), "{steps:#?}");
}

#[test]
fn the_step_can_be_disabled() {
    let (passes, _) = Selection::without("fused-attention");
    let settings = Settings { passes, ..Settings::default() };
    let whole = CompiledPartition::with(spelled_out(), &Whole(HostDevice::new()), settings).unwrap();
    let shapes = [[BATCH, 3, 5, 4], [BATCH, 3, TOTAL, 4], [BATCH, 3, TOTAL, 6], [BATCH, 1, 1, TOTAL]];
    let inputs: Vec<Input<'_>> = shapes.iter().map(|shape| Input { shape, value: None }).collect();
    let plan = whole.plan(&inputs).unwrap();
    assert!(!plan.plan().steps.iter().any(is_attention));
}
