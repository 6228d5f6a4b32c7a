//! Tests a decoder whose logits are read only for the last tokens: these logits are the same as among all logits, and
//! the others are zero.

use std::sync::Mutex;

use exec::host::HostDevice;
use exec::{CompiledPartition, Device, Input, RunBy, Settings};
use graph::ops::Attribute;
use graph::pass::Selection;
use graph::{DType, Graph, Tensor, Unread, ValueId};
use proptest::prelude::*;

use crate::build::Build;
use crate::common::run::run_partition;
use crate::common::{assert_close, device, numbers, random, tensor};

/// Serialises simulation: the wave width is a process-wide setting.
static SIMULATOR: Mutex<()> = Mutex::new(());

const CONTRIB: &str = "com.microsoft";
const BATCH: usize = 2;
const HEADS: usize = 4;
const SHARED: usize = 2;
const SIZE: usize = 16;
const DEPTH: usize = HEADS * SIZE;
const TOTAL: usize = 40;
const WORDS: usize = 80;

/// The end of a decoder.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Head {
    /// A product.
    Plain,
    /// A product with 4-bit weights, like the rest of the layer.
    FourBits,
    /// A product, a bias, a cap, and a cast to another type.
    Capped,
}

fn int(name: &'static str, value: usize) -> (&'static str, Attribute) {
    (name, Attribute::Int(value as i64))
}

fn floats(shape: &[usize], seed: u64) -> Tensor {
    tensor(DType::F32, shape, &random(shape.iter().product(), seed))
}

fn product(build: &mut Build, head: Head, x: ValueId, depth: usize, columns: usize, seed: u64) -> ValueId {
    if head != Head::FourBits {
        let weights = build.constant(floats(&[depth, columns], seed));
        return build.node("MatMul", &[x, weights]);
    }
    let byte = |number: &f64| ((number + 2.0) * 64.0) as u8;
    let bytes: Vec<u8> = random(columns * depth / 2, seed).iter().map(byte).collect();
    let weights = build.constant(Tensor::from_bytes(DType::U8, &[columns, depth / 32, 16], &bytes).unwrap());
    let scales = build.constant(floats(&[columns, depth / 32], seed + 1));
    let attributes = [int("K", depth), int("N", columns), int("bits", 4), int("block_size", 32)];
    build.contrib("MatMulNBits", &[x, weights, scales], &attributes)
}

fn skip_norm(build: &mut Build, x: ValueId, skip: ValueId, seed: u64) -> [ValueId; 2] {
    let weights = build.constant(floats(&[DEPTH], seed));
    let dtypes = [Some(DType::F32), None, None, Some(DType::F32)];
    let inputs = [Some(x), Some(skip), Some(weights)];
    let epsilon = [("epsilon", Attribute::Float(1e-5))];
    let made = build.outputs_of(CONTRIB, "SkipSimplifiedLayerNormalization", &inputs, &epsilon, &dtypes);
    [made[0], made[1]]
}

/// A decoder of one layer. Its inputs are the caches, the index of each row's last token, and tokens. The logits come
/// last.
fn decoder(head: Head, total: usize) -> Graph {
    let mut build = Build::default();
    let caches = [build.input(), build.input()];
    let (lengths, x) = (build.input_of(DType::I32), build.input());
    let weights = build.constant(floats(&[DEPTH], 10));
    let normed = build.with("SimplifiedLayerNormalization", &[x, weights], &[]);
    let qkv = product(&mut build, head, normed, DEPTH, (HEADS + 2 * SHARED) * SIZE, 11);
    let total = build.constant(tensor(DType::I32, &[], &[total as f64]));
    let inputs = [Some(qkv), None, None, Some(caches[0]), Some(caches[1]), Some(lengths), Some(total)];
    let attributes = [int("num_heads", HEADS), int("kv_num_heads", SHARED)];
    let attention = build.outputs_of(CONTRIB, "GroupQueryAttention", &inputs, &attributes, &[Some(DType::F32); 3]);
    let attended = product(&mut build, head, attention[0], DEPTH, DEPTH, 13);
    let [normed, sum] = skip_norm(&mut build, x, attended, 15);
    let (gate, up) =
        (product(&mut build, head, normed, DEPTH, 128, 16), product(&mut build, head, normed, DEPTH, 128, 18));
    let sigmoid = build.node("Sigmoid", &[gate]);
    let silu = build.node("Mul", &[gate, sigmoid]);
    let gated = build.node("Mul", &[silu, up]);
    let down = product(&mut build, head, gated, 128, DEPTH, 20);
    let [last, _] = skip_norm(&mut build, sum, down, 22);
    let mut logits = product(&mut build, head, last, DEPTH, WORDS, 24);
    if head == Head::Capped {
        let (bias, cap) = (build.constant(floats(&[WORDS], 26)), build.number(5.0));
        let biased = build.node("Add", &[bias, logits]);
        let scaled = build.node("Div", &[biased, cap]);
        let bent = build.node("Tanh", &[scaled]);
        let capped = build.node("Mul", &[bent, cap]);
        logits = build.typed("Cast", &[capped], &[int("to", 10)], DType::F16);
    }
    build.outputs(&[attention[1], attention[2], logits])
}

fn inputs(tokens: usize, lengths: [i64; BATCH], total: usize) -> Vec<Tensor> {
    let cache = [BATCH, SHARED, total, SIZE];
    let lengths = lengths.map(|length| length as f64 - 1.0);
    vec![
        floats(&cache, 3),
        floats(&cache, 4),
        tensor(DType::I32, &[BATCH], &lengths),
        floats(&[BATCH, tokens, DEPTH], 5),
    ]
}

/// A decoder on a device, with the steps of its plan for such inputs: their names and how many elements they produce.
fn ready(device: &dyn Device, graph: Graph, inputs: &[Tensor]) -> (CompiledPartition, Vec<(&'static str, usize)>) {
    let program = CompiledPartition::with(graph, device, Settings::default()).unwrap();
    let shapes: Vec<Input<'_>> = inputs.iter().map(|tensor| Input { shape: tensor.shape(), value: None }).collect();
    let prepared = program.plan(&shapes).unwrap();
    let steps = &prepared.plan().steps;
    for at in (0..steps.len()).filter(|_| device.name() != "host") {
        assert!(!matches!(prepared.run_by(at), RunBy::Host { .. }), "{:?}: {:?}", steps[at], prepared.run_by(at));
    }
    let steps = steps.iter().map(|step| (step.prim.name(), step.outputs[0].elems())).collect();
    (program, steps)
}

fn marked(mut graph: Graph, unread: Unread) -> Graph {
    graph.set_last_rows(vec![0, 1, 2], unread);
    graph
}

/// Runs decoders with and without unread rows, and compares.
fn check(device: &dyn Device, total: usize, tokens: usize, lengths: &[[i64; BATCH]]) {
    for head in [Head::Plain, Head::FourBits, Head::Capped] {
        let graph = decoder(head, total);
        let shapes = inputs(tokens, lengths[0], total);
        let (whole, _) = ready(&HostDevice::new(), graph.clone(), &shapes);
        let (program, steps) = ready(device, marked(graph.clone(), Unread::Zeros), &shapes);
        assert_eq!(program.fired().iter().filter(|fired| fired.pass == "last-rows").count(), 1);
        // All tokens produce keys and values; after that, only the rows that are read are multiplied.
        let behind = steps.iter().skip_while(|(name, _)| *name != "cached_attention");
        let mut products = behind.filter(|(name, _)| name.contains("matmul"));
        assert!(products.all(|(_, elems)| *elems <= BATCH * 256), "{head:?}: {steps:?}");
        let (alone, _) = ready(device, marked(graph, Unread::LeftOut), &shapes);
        for &lengths in lengths {
            let inputs = inputs(tokens, lengths, total);
            let (wanted, found) = (run_partition(&whole, &inputs).unwrap(), run_partition(&program, &inputs).unwrap());
            for cache in 0..2 {
                assert_close(&numbers(&found[cache]), &numbers(&wanted[cache]), 1e-4);
            }
            assert_eq!((found[2].shape(), found[2].dtype()), (wanted[2].shape(), wanted[2].dtype()));
            let alone = run_partition(&alone, &inputs).unwrap();
            assert_eq!(alone[2].shape(), [BATCH, 1, WORDS]);
            let (found, wanted, alone) = (numbers(&found[2]), numbers(&wanted[2]), numbers(&alone[2]));
            for row in 0..BATCH * tokens {
                let past = if tokens == total { 0 } else { (lengths[row / tokens] - tokens as i64).max(0) };
                let is_last = row as i64 % tokens as i64 == lengths[row / tokens] - 1 - past;
                let of = |list: &[f64]| list[row * WORDS..][..WORDS].to_vec();
                if is_last {
                    let close = if head == Head::Capped { 2e-3 } else { 1e-3 };
                    assert_close(&of(&found), &of(&wanted), close);
                    assert_eq!(of(&found), alone[row / tokens * WORDS..][..WORDS]);
                } else {
                    assert!(of(&found).iter().all(|number| *number == 0.0), "{head:?}: row {row} of {lengths:?}");
                }
            }
        }
    }
}

/// After a cached past, first prompts of equal and of different lengths, and one of a single token.
const LENGTHS: [[i64; BATCH]; 4] = [[30, 9], [6, 6], [3, 6], [1, 2]];

#[test]
fn rows_of_last_tokens_are_right_and_others_are_zeros() {
    check(&HostDevice::new(), TOTAL, 6, &LENGTHS);
    // A prompt that is as long as the cache starts with an empty cache.
    check(&HostDevice::new(), 6, 6, &[[6, 6], [2, 5]]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn rows_of_last_tokens_are_right_for_any_lengths(tokens in 2usize..12, lengths in [1..=TOTAL as i64, 1..=TOTAL as i64]) {
        check(&HostDevice::new(), TOTAL, tokens, &[lengths]);
    }
}

#[test]
fn rows_of_last_tokens_are_right_on_a_gpu() {
    let _turn = SIMULATOR.lock().unwrap();
    for target in ["gfx1100", "gfx942"] {
        check(&device::simulated(target), TOTAL, 6, &LENGTHS);
    }
}

#[test]
fn one_new_token_or_no_mark_changes_nothing() {
    let one = inputs(1, [30, 9], TOTAL);
    let host = HostDevice::new();
    for head in [Head::Plain, Head::FourBits, Head::Capped] {
        let (plain, steps) = ready(&host, decoder(head, TOTAL), &one);
        let (program, same) = ready(&host, marked(decoder(head, TOTAL), Unread::Zeros), &one);
        assert_eq!(steps, same);
        let bytes = |program: &CompiledPartition| {
            run_partition(program, &one).unwrap().iter().map(|tensor| tensor.bytes().to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(bytes(&plain), bytes(&program), "the same bits");
    }
    let (program, _) = ready(&host, decoder(Head::Plain, TOTAL), &inputs(6, [30, 9], TOTAL));
    assert!(program.fired().iter().all(|fired| fired.pass != "last-rows"));
    let (passes, unknown) = Selection::without("last-rows");
    assert!(unknown.is_empty());
    let settings = Settings { passes, ..Settings::default() };
    let program = CompiledPartition::with(marked(decoder(Head::Plain, TOTAL), Unread::Zeros), &host, settings).unwrap();
    assert!(program.fired().iter().all(|fired| fired.pass != "last-rows"));
}

#[test]
fn prompts_of_all_lengths_have_the_same_expressions() {
    let expressions = |tokens: usize| {
        let inputs = inputs(tokens, [30, 9], TOTAL);
        let (program, _) = ready(&HostDevice::new(), marked(decoder(Head::Capped, TOTAL), Unread::Zeros), &inputs);
        let shapes: Vec<Input<'_>> = inputs.iter().map(|tensor| Input { shape: tensor.shape(), value: None }).collect();
        let prepared = program.plan(&shapes).unwrap();
        prepared
            .plan()
            .steps
            .iter()
            .map(|step| format!("{:?}", step.prim))
            .filter(|text| text.starts_with("Map"))
            .collect()
    };
    let few: Vec<String> = expressions(6);
    assert!(!few.is_empty());
    assert_eq!(few, expressions(9));
}
