//! Checks that a decoder's nodes become few steps, with the same results as the separate steps.

use std::sync::{Arc, Mutex};

use exec::host::HostDevice;
use exec::{CompiledPartition, Device, Input, Prepared, RunBy, Settings};
use graph::ops::Attribute;
use graph::pass::Selection;
use graph::{DType, Graph, Tensor, ValueId};
use kernels::Arch;

use crate::build::Build;
use crate::common::run::run_partition;
use crate::common::{assert_close, device, numbers, random, tensor};

/// Serialises simulation: the wave width is a process-wide setting.
static SIMULATOR: Mutex<()> = Mutex::new(());

const CONTRIB: &str = "com.microsoft";
const BATCH: usize = 2;
const HEADS: usize = 6;
const SHARED: usize = 2;
const SIZE: usize = 16;
const TOTAL: usize = 40;
/// The width of a token.
const DEPTH: usize = HEADS * SIZE;

fn without(names: &str) -> Selection {
    let (selection, unknown) = Selection::without(names);
    assert!(unknown.is_empty());
    selection
}

fn int(name: &'static str, value: usize) -> (&'static str, Attribute) {
    (name, Attribute::Int(value as i64))
}

fn floats(shape: &[usize], seed: u64) -> Tensor {
    tensor(DType::F32, shape, &random(shape.iter().product(), seed))
}

/// The inputs of all graphs here: caches, the last index of each row, and positions. Tokens follow.
struct Decoder {
    build: Build,
    caches: [ValueId; 2],
    lengths: ValueId,
    positions: ValueId,
    angles: [ValueId; 2],
}

impl Decoder {
    fn new() -> Self {
        let mut build = Build::default();
        let caches = [build.input(), build.input()];
        let (lengths, positions) = (build.input_of(DType::I32), build.input_of(DType::I64));
        let angles = [1, 2].map(|seed| build.constant(floats(&[TOTAL, SIZE / 2], seed)));
        Self { build, caches, lengths, positions, angles }
    }

    /// Attention over queries, keys and values, or over a tensor that packs all three, with or without rotary
    /// embedding.
    fn attention(&mut self, tokens: [Option<ValueId>; 3], turns: bool) -> Vec<ValueId> {
        let total = self.build.constant(tensor(DType::I32, &[], &[TOTAL as f64]));
        let mut inputs = tokens.to_vec();
        inputs.extend([self.caches[0], self.caches[1], self.lengths, total].map(Some));
        inputs.extend(self.angles.iter().filter(|_| turns).map(|&id| Some(id)));
        let attributes = [int("num_heads", HEADS), int("kv_num_heads", SHARED), int("do_rotary", usize::from(turns))];
        self.build.outputs_of(CONTRIB, "GroupQueryAttention", &inputs, &attributes, &[Some(DType::F32); 3])
    }

    fn rotary(&mut self, x: ValueId, heads: usize) -> ValueId {
        let inputs = [x, self.positions, self.angles[0], self.angles[1]];
        let attributes = [int("num_heads", heads), int("rotary_embedding_dim", SIZE)];
        self.build.contrib("RotaryEmbedding", &inputs, &attributes)
    }
}

/// The names of the steps on the host, and the bytes of the results, for tokens of these widths.
fn run(graph: &Graph, passes: Selection, rows: usize, widths: &[usize]) -> (Vec<&'static str>, Vec<Vec<u8>>) {
    let (steps, made) = run_on(&HostDevice::new(), graph, passes, rows, widths);
    (steps, made.iter().map(|made| made.bytes().to_vec()).collect())
}

/// A compiled partition for a device, its plan for tokens of these widths, and its inputs.
fn plan_on(
    device: &dyn Device,
    graph: &Graph,
    passes: Selection,
    rows: usize,
    widths: &[usize],
) -> (CompiledPartition, Arc<dyn Prepared>, Vec<Tensor>) {
    let settings = Settings { passes, ..Settings::default() };
    let program = CompiledPartition::with(graph.clone(), device, settings).unwrap();
    let cache = [BATCH, SHARED, TOTAL, SIZE];
    let places: Vec<f64> = (0..BATCH * rows).map(|at| (at * 7 % TOTAL) as f64).collect();
    let mut inputs = vec![
        floats(&cache, 3),
        floats(&cache, 4),
        tensor(DType::I32, &[BATCH], &[30.0, 9.0]),
        tensor(DType::I64, &[BATCH, rows], &places),
    ];
    inputs.extend(widths.iter().enumerate().map(|(at, &width)| floats(&[BATCH, rows, width], 5 + at as u64)));
    let shapes: Vec<Input<'_>> = inputs.iter().map(|tensor| Input { shape: tensor.shape(), value: None }).collect();
    let plan = program.plan(&shapes).unwrap();
    (program, plan, inputs)
}

/// Like `run`, on a device that runs all steps itself.
fn run_on(
    device: &dyn Device,
    graph: &Graph,
    passes: Selection,
    rows: usize,
    widths: &[usize],
) -> (Vec<&'static str>, Vec<Tensor>) {
    let (program, plan, inputs) = plan_on(device, graph, passes, rows, widths);
    let steps: Vec<&str> = plan.plan().steps.iter().map(|step| step.prim.name()).collect();
    for (at, step) in steps.iter().enumerate().filter(|_| device.name() != "host") {
        assert!(!matches!(plan.run_by(at), RunBy::Host { .. }), "{step}: {:?}", plan.run_by(at));
    }
    (steps, run_partition(&program, &inputs).unwrap())
}

const KEYS: usize = SHARED * SIZE;

/// Attention whose tokens are packed in one tensor, in three tensors, or rotated by separate nodes, and their widths.
fn attention_of(kind: usize) -> (Graph, &'static [usize]) {
    let mut decoder = Decoder::new();
    let widths: &[usize] = if kind == 0 { &[DEPTH + 2 * KEYS] } else { &[DEPTH, KEYS, KEYS] };
    let mut tokens = [None; 3];
    tokens.iter_mut().zip(widths).for_each(|(token, _)| *token = Some(decoder.build.input()));
    if kind == 2 {
        tokens[0] = tokens[0].map(|x| decoder.rotary(x, HEADS));
        tokens[1] = tokens[1].map(|x| decoder.rotary(x, SHARED));
    }
    let made = decoder.attention(tokens, kind < 2);
    (decoder.build.outputs(&made), widths)
}

#[test]
fn rotations_and_the_cache_update_are_one_step() {
    for kind in 0..3 {
        let (graph, widths) = attention_of(kind);
        for rows in [1, 5] {
            let (steps, joined) = run(&graph, Selection::default(), rows, widths);
            assert_eq!(steps, ["rotary_append", "cached_attention"], "kind {kind}");
            let (steps, apart) = run(&graph, without("rotary-append"), rows, widths);
            let first = if kind == 0 { &["rotary"][..] } else { &["rotary", "rotary"] };
            assert_eq!(steps, [first, &["append", "cached_attention"]].concat());
            assert_eq!(joined, apart, "kind {kind}: the same bits");
        }
    }
}

#[test]
fn a_gpu_appends_and_attends_to_a_token_in_one_step() {
    let _turn = SIMULATOR.lock().unwrap();
    for (kind, target) in [0, 1, 2].into_iter().flat_map(|kind| ["gfx1100", "gfx942"].map(|target| (kind, target))) {
        let (graph, widths) = attention_of(kind);
        let gpu = device::simulated(target);
        let two = ["rotary_append", "cached_attention"];
        let (steps, joined) = run_on(&gpu, &graph, Selection::default(), 1, widths);
        assert_eq!(steps, ["rotary_append_attention"], "kind {kind}");
        let (steps, apart) = run_on(&gpu, &graph, without("append-attention"), 1, widths);
        assert_eq!(steps, two);
        assert_close(&numbers(&joined[0]), &numbers(&apart[0]), 1e-5);
        for (joined, apart) in joined[1..].iter().zip(&apart[1..]) {
            assert_eq!(joined.bytes(), apart.bytes(), "kind {kind}: the same bits in caches");
        }
        assert_eq!(run_on(&gpu, &graph, Selection::default(), 2, widths).0, two, "of two tokens");
    }
}

#[test]
fn a_layer_is_five_launches_for_a_token() {
    let _turn = SIMULATOR.lock().unwrap();
    for (graph, target) in [layer(product), layer(plain_product)].iter().zip(["gfx1100", "gfx942"]) {
        let gpu = device::simulated(target);
        let (_, plan, _) = plan_on(&gpu, graph, Selection::default(), 1, &[DEPTH]);
        let work = plan.plan().steps.iter().map(|step| kernels::work(step, &Arch::new(target, 4)).unwrap());
        let launches: Vec<&str> = work.flat_map(|work| work.launches).map(|launch| launch.kernel.name).collect();
        // The last launch is the norm after the layer.
        assert_eq!(launches.len(), 5 + 1, "{target}: {launches:?}");
    }
}

#[test]
fn rotated_keys_with_other_readers_stay_a_step() {
    // Read as values, as an output, and in place of the queries.
    for kind in 0..3 {
        let mut decoder = Decoder::new();
        let [q, k, v] = [(); 3].map(|()| decoder.build.input());
        let keys = decoder.rotary(k, SHARED);
        let queries = if kind == 2 { q } else { decoder.rotary(q, HEADS) };
        let values = if kind == 0 { keys } else { v };
        let mut made = decoder.attention([Some(queries), Some(keys), Some(values)], false);
        made.extend((kind == 1).then_some(keys));
        made.extend((kind == 0).then_some(v).map(|v| decoder.build.node("Neg", &[v])));
        let graph = decoder.build.outputs(&made);
        let widths = [DEPTH, KEYS, KEYS];
        let (steps, joined) = run(&graph, Selection::default(), 3, &widths);
        assert!(steps.contains(&"append") && steps.contains(&"rotary"), "kind {kind}: {steps:?}");
        assert_eq!(joined, run(&graph, without("rotary-append"), 3, &widths).1);
    }
}

/// A product with 4-bit weights.
fn product(build: &mut Build, x: ValueId, depth: usize, columns: usize, seed: u64) -> ValueId {
    let blocks = depth.div_ceil(32);
    let byte = |number: &f64| ((number + 2.0) * 64.0) as u8;
    let bytes: Vec<u8> = random(columns * blocks * 16, seed).iter().map(byte).collect();
    let weights = build.constant(Tensor::from_bytes(DType::U8, &[columns, blocks, 16], &bytes).unwrap());
    let scales = build.constant(floats(&[columns, blocks], seed + 1));
    let attributes = [int("K", depth), int("N", columns), int("bits", 4), int("block_size", 32)];
    build.contrib("MatMulNBits", &[x, weights, scales], &attributes)
}

/// A product with single-precision weights.
fn plain_product(build: &mut Build, x: ValueId, depth: usize, columns: usize, seed: u64) -> ValueId {
    let numbers: Vec<f64> = random(depth * columns, seed).iter().map(|number| number / 16.0).collect();
    let weights = build.constant(tensor(DType::F32, &[depth, columns], &numbers));
    build.node("MatMul", &[x, weights])
}

/// A layer with the given kind of product, and the norm after it.
fn layer(product: fn(&mut Build, ValueId, usize, usize, u64) -> ValueId) -> Graph {
    let mut decoder = Decoder::new();
    let x = decoder.build.input();
    let norm = |build: &mut Build, x: ValueId, skip: Option<ValueId>, seed: u64| {
        let weights = build.constant(floats(&[DEPTH], seed));
        let epsilon = [("epsilon", Attribute::Float(1e-5))];
        match skip {
            None => [build.with("SimplifiedLayerNormalization", &[x, weights], &epsilon), x],
            Some(skip) => {
                let inputs = [Some(x), Some(skip), Some(weights)];
                let name = "SkipSimplifiedLayerNormalization";
                // The sum is the fourth output; the ones between are for training.
                let made = build.outputs_of(
                    CONTRIB,
                    name,
                    &inputs,
                    &epsilon,
                    &[Some(DType::F32), None, None, Some(DType::F32)],
                );
                [made[0], made[1]]
            }
        }
    };
    let [normed, sum] = norm(&mut decoder.build, x, None, 10);
    let tokens = [(DEPTH, 11), (KEYS, 13), (KEYS, 15)]
        .map(|(columns, seed)| Some(product(&mut decoder.build, normed, DEPTH, columns, seed)));
    let made = decoder.attention(tokens, true);
    let build = &mut decoder.build;
    let attended = product(build, made[0], DEPTH, DEPTH, 17);
    let [normed, sum] = norm(build, sum, Some(attended), 19);
    let (gate, up) = (product(build, normed, DEPTH, 128, 20), product(build, normed, DEPTH, 128, 22));
    let sigmoid = build.node("Sigmoid", &[gate]);
    let silu = build.node("Mul", &[gate, sigmoid]);
    let gated = build.node("Mul", &[silu, up]);
    let down = product(build, gated, 128, DEPTH, 24);
    let [last, sum] = norm(build, sum, Some(down), 26);
    build.outputs(&[last, sum, made[1], made[2]])
}

#[test]
fn a_quantised_layer_is_nine_steps_and_five_on_a_gpu() {
    check_gated(&layer(product), &str::to_owned);
}

#[test]
fn a_layer_with_float_weights_has_as_many_steps() {
    check_gated(&layer(plain_product), &|name| name.replace("quant_", ""));
}

/// `named` maps the name of a step in a quantised layer.
fn check_gated(graph: &Graph, named: &dyn Fn(&str) -> String) {
    check_layer(graph, "gated-products", named);
    let (_, wanted) = run_on(&HostDevice::new(), graph, Selection::default(), 1, &[DEPTH]);
    let _turn = SIMULATOR.lock().unwrap();
    for target in ["gfx1100", "gfx942"] {
        let gpu = device::simulated(target);
        for (off, gate) in [("", "gated_normed_quant_matmul"), ("normed-products", "gated_quant_matmul")] {
            let (steps, found) = run_on(&gpu, graph, without(off), 1, &[DEPTH]);
            let gate = named(gate);
            assert!(steps.contains(&gate.as_str()) && !steps.contains(&"map"), "{steps:?}");
            // Five steps of the layer and the norm after it.
            assert_eq!(steps.len(), if off.is_empty() { 6 } else { 8 }, "{steps:?}");
            for (found, wanted) in found.iter().zip(&wanted) {
                assert_close(&numbers(found), &numbers(wanted), 1e-4);
            }
        }
    }
}

/// `off` names the stages to leave out; `named` maps the name of a step in a quantised layer.
fn check_layer(graph: &Graph, off: &str, named: &dyn Fn(&str) -> String) {
    let (steps, wanted) = run_on(&HostDevice::new(), graph, Selection::default(), 1, &[DEPTH]);
    let expected = [
        "norm",
        "quant_matmul",
        "rotary_append",
        "cached_attention",
        "fused_quant_matmul",
        "norm",
        "quant_matmul",
        "map",
        "fused_quant_matmul",
    ];
    let expected: Vec<String> = expected.into_iter().chain(["norm"]).map(named).collect();
    assert_eq!(steps, expected);
    let _turn = SIMULATOR.lock().unwrap();
    for target in ["gfx1100", "gfx942"] {
        let gpu = device::simulated(target);
        let (steps, found) = run_on(&gpu, graph, without(off), 1, &[DEPTH]);
        let fewer = [
            "normed_quant_matmul",
            "rotary_append_attention",
            "fused_quant_matmul",
            "normed_quant_matmul",
            "map",
            "fused_quant_matmul",
            "norm",
        ];
        assert_eq!(steps, fewer.map(named));
        let (steps, apart) =
            run_on(&gpu, graph, without(&format!("normed-products,append-attention,{off}")), 1, &[DEPTH]);
        assert_eq!(steps, expected);
        for ((found, apart), wanted) in found.iter().zip(&apart).zip(&wanted) {
            assert_close(&numbers(found), &numbers(wanted), 1e-4);
            assert_close(&numbers(apart), &numbers(wanted), 1e-4);
        }
    }
}

#[test]
fn norms_with_many_rows_or_several_readers_stay_steps() {
    let _turn = SIMULATOR.lock().unwrap();
    let gpu = device::simulated("gfx1100");
    for (graph, rows) in [(layer(product), 9), (layer(plain_product), 2)] {
        let (steps, _) = run_on(&gpu, &graph, Selection::default(), rows, &[DEPTH]);
        assert_eq!(steps.iter().filter(|step| **step == "norm").count(), 3, "{steps:?}");
        assert!(steps.contains(&"map"), "{steps:?}");
    }
    let mut decoder = Decoder::new();
    let x = decoder.build.input();
    let weights = decoder.build.constant(floats(&[DEPTH], 1));
    let normed = decoder.build.with("SimplifiedLayerNormalization", &[x, weights], &[]);
    let made = product(&mut decoder.build, normed, DEPTH, 32, 2);
    let graph = decoder.build.outputs(&[made, normed]);
    let (steps, _) = run_on(&gpu, &graph, Selection::default(), 1, &[DEPTH]);
    assert_eq!(steps, ["norm", "quant_matmul"]);
}
