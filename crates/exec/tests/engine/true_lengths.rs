//! Tests attention that rotates by one of two tables: with a padded mask, the true lengths choose the table, as the total
//! length does without padding.

use exec::host::HostDevice;
use exec::{CompiledPartition, Device, Settings};
use graph::ops::Attribute;
use graph::pass::Selection;
use graph::{DType, Graph, Tensor, ValueId};

use crate::build::Build;
use crate::common::run::run_partition;
use crate::common::{assert_close, device, numbers, random, tensor};

const BATCH: usize = 2;
const HEADS: usize = 2;
const SIZE: usize = 16;
/// Sequences of more tokens are long.
const THRESHOLD: usize = 12;
const CONTEXT: usize = 24;

fn floats(shape: &[usize], seed: u64) -> Tensor {
    tensor(DType::F32, shape, &random(shape.iter().product(), seed))
}

/// Attention whose inputs are the caches, the index of each row's last token, a mask, and tokens.
fn attention() -> Graph {
    layers(1)
}

/// Layers of such attention on the same inputs, each with a choice of its own.
fn layers(count: u64) -> Graph {
    let mut build = Build::default();
    let caches = [build.input(), build.input()];
    let (lengths, mask, x) = (build.input_of(DType::I32), build.input_of(DType::I64), build.input());
    let made: Vec<_> =
        (0..count).flat_map(|layer| attend(&mut build, caches, (lengths, mask, x), layer * 10)).collect();
    build.outputs(&made)
}

fn attend(
    build: &mut Build,
    caches: [ValueId; 2],
    (lengths, mask, x): (ValueId, ValueId, ValueId),
    seed: u64,
) -> Vec<ValueId> {
    let shape = build.typed("Shape", &[mask], &[], DType::I64);
    let index = build.constant(tensor(DType::I64, &[], &[1.0]));
    let width = build.node("Gather", &[shape, index]);
    let total = build.typed("Cast", &[width], &[("to", Attribute::Int(6))], DType::I32);
    let threshold = build.constant(tensor(DType::I64, &[], &[THRESHOLD as f64]));
    let is_long = build.typed("Greater", &[width, threshold], &[], DType::Bool);
    let tables: Vec<_> = [(CONTEXT, 1), (CONTEXT, 2), (THRESHOLD, 3), (THRESHOLD, 4)]
        .map(|(rows, table)| Some(build.constant(floats(&[rows, SIZE / 2], seed + table))))
        .into();
    let inputs: Vec<_> = [Some(is_long)].into_iter().chain(tables).collect();
    let chosen = build.outputs_of("", "If", &inputs, &[], &[Some(DType::F32); 2]);
    let inputs = [Some(x), None, None, Some(caches[0]), Some(caches[1]), Some(lengths), Some(total)];
    let inputs: Vec<_> = inputs.into_iter().chain(chosen.into_iter().map(Some)).collect();
    let attributes = [("num_heads", HEADS), ("kv_num_heads", 1), ("do_rotary", 1)];
    let attributes = attributes.map(|(name, value)| (name, Attribute::Int(value as i64)));
    build.outputs_of("com.microsoft", "GroupQueryAttention", &inputs, &attributes, &[Some(DType::F32); 3])
}

fn run(graph: Graph, device: &dyn Device, tokens: usize, lengths: [usize; BATCH], width: usize) -> Vec<Tensor> {
    let partition = CompiledPartition::new(graph, device).unwrap();
    let inputs = [
        floats(&[BATCH, 1, CONTEXT, SIZE], 5),
        floats(&[BATCH, 1, CONTEXT, SIZE], 6),
        tensor(DType::I32, &[BATCH], &lengths.map(|length| length as f64 - 1.0)),
        tensor(DType::I64, &[BATCH, width], &vec![1.0; BATCH * width]),
        floats(&[BATCH, tokens, (HEADS + 2) * SIZE], 7),
    ];
    run_partition(&partition, &inputs).unwrap()
}

/// The outputs with a mask as wide as the cache are those with a mask as wide as the longest sequence.
fn check(device: &dyn Device) {
    let mut padded = attention();
    padded.set_padded_masks();
    let fired = CompiledPartition::new(padded.clone(), device).unwrap().fired().to_vec();
    assert!(fired.iter().any(|fired| fired.pass == "true-lengths"), "{fired:?}");
    for (tokens, lengths) in [
        (1, [7, 5]),
        (1, [THRESHOLD, 3]),
        (1, [THRESHOLD + 1, 3]),
        (1, [CONTEXT, CONTEXT]),
        (5, [5, 5]),
        (4, [THRESHOLD, THRESHOLD]),
        (4, [THRESHOLD + 1, THRESHOLD]),
        (THRESHOLD + 1, [THRESHOLD + 1, THRESHOLD + 1]),
    ] {
        let longest = *lengths.iter().max().unwrap();
        let wanted = run(attention(), &HostDevice::new(), tokens, lengths, longest);
        let found = run(padded.clone(), device, tokens, lengths, CONTEXT);
        for (found, wanted) in found.iter().zip(&wanted) {
            assert_close(&numbers(found), &numbers(wanted), 1e-5);
        }
    }
}

#[test]
fn a_padded_mask_does_not_change_the_table() {
    check(device::get());
}

#[test]
fn every_layer_keeps_its_own_tables() {
    let mut padded = layers(3);
    padded.set_padded_masks();
    let partition = CompiledPartition::new(padded.clone(), &HostDevice::new()).unwrap();
    let count = partition.fired().iter().find(|fired| fired.pass == "true-lengths").map(|fired| fired.count);
    assert_eq!(count, Some(3));
    let wanted = run(layers(3), &HostDevice::new(), 1, [7, 5], 7);
    let found = run(padded, &HostDevice::new(), 1, [7, 5], CONTEXT);
    assert_ne!(numbers(&wanted[0]), numbers(&wanted[3]), "the layers have different tables");
    for (found, wanted) in found.iter().zip(&wanted) {
        assert_close(&numbers(found), &numbers(wanted), 1e-5);
    }
}

#[test]
fn a_choice_that_cannot_be_corrected_is_an_error() {
    let mut padded = attention();
    padded.set_padded_masks();
    let (passes, _) = Selection::without("true-lengths");
    let settings = Settings { passes, ..Settings::default() };
    let error = CompiledPartition::with(padded, &HostDevice::new(), settings).map(drop).unwrap_err();
    assert!(error.to_string().contains("it chooses by the width of an attention mask"), "{error}");
}

#[test]
fn without_padding_the_width_chooses() {
    let fired = CompiledPartition::new(attention(), &HostDevice::new()).unwrap().fired().to_vec();
    assert!(fired.iter().all(|fired| fired.pass != "true-lengths"), "{fired:?}");
    let short = run(attention(), &HostDevice::new(), 1, [7, 7], THRESHOLD);
    let long = run(attention(), &HostDevice::new(), 1, [7, 7], THRESHOLD + 1);
    assert_ne!(numbers(&short[0]), numbers(&long[0]));
}
