//! Checks that a head tied to an embedding takes no extra memory on a GPU, and that both give unchanged results.

use std::sync::{Mutex, MutexGuard, PoisonError};

use exec::host::HostDevice;
use exec::memory::Purpose;
use exec::{CompiledPartition, Input, RunBy, Settings};
use graph::ops::Attribute;
use graph::pass::Selection;
use graph::{DType, Graph, Tensor};

use crate::build::Build;
use crate::common::run::run_partition;
use crate::common::{assert_close, device, numbers, random, tensor};

/// The number of words in the vocabulary, and the width of each embedding.
const WORDS: usize = 1100;
const WIDTH: usize = 512;
/// Everything else a decoder of these tests holds: a scale, and constants that planning creates.
const SMALL: usize = 8 << 10;

/// Serialises the tests: byte counts are process-wide.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn weights() -> usize {
    Purpose::Weights.usage().now
}

/// How a head tied to an embedding is stored.
#[derive(Clone, Copy, Debug)]
enum Tie {
    /// As the transposed table, which is a separate constant with its own name and bytes.
    Turned,
    /// As a copy of the table.
    Copied,
}

fn table() -> Vec<f64> {
    random(WORDS * WIDTH, 3).iter().map(|number| number / 16.0).collect()
}

/// Looks up words, normalises them and multiplies them by the head.
fn decoder(dtype: DType, tie: Tie) -> Graph {
    let (mut build, table) = (Build::default(), table());
    let ids = build.input_of(DType::I64);
    let rows = build.constant(tensor(dtype, &[WORDS, WIDTH], &table));
    let scale = build.constant(tensor(dtype, &[WIDTH], &random(WIDTH, 5)));
    let gathered = build.node("Gather", &[rows, ids]);
    let normed = build.with("SimplifiedLayerNormalization", &[gathered, scale], &[("axis", Attribute::Int(-1))]);
    let logits = match tie {
        Tie::Turned => {
            let turned: Vec<f64> = (0..WORDS * WIDTH).map(|at| table[at % WORDS * WIDTH + at / WORDS]).collect();
            let head = build.constant(tensor(dtype, &[WIDTH, WORDS], &turned));
            build.node("MatMul", &[normed, head])
        }
        Tie::Copied => {
            let head = build.constant(tensor(dtype, &[WORDS, WIDTH], &table));
            build.with("Gemm", &[normed, head], &[("transB", Attribute::Int(1))])
        }
    };
    build.outputs(&[gathered, logits])
}

/// Like `decoder`, with 4-bit numbers: the head uses the bytes and scales of the table, with other shapes.
fn packed_decoder() -> Graph {
    const BLOCK: usize = 32;
    let mut build = Build::default();
    let ids = build.input_of(DType::I64);
    let bytes: Vec<u8> = random(WORDS * WIDTH / 2, 7).iter().map(|number| ((number + 2.0) * 64.0) as u8).collect();
    let scales: Vec<f64> = random(WORDS * WIDTH / BLOCK, 8).iter().map(|number| number / 32.0).collect();
    let packed = |shape: &[usize]| Tensor::from_bytes(DType::U8, shape, &bytes).unwrap();
    let scaled = |shape: &[usize]| tensor(DType::F32, shape, &scales);
    let (rows, row_scales) = (packed(&[WORDS, WIDTH / 2]), scaled(&[WORDS, WIDTH / BLOCK]));
    let inputs = [build.constant(rows), ids, build.constant(row_scales)].map(Some);
    let int = |name, value: usize| (name, Attribute::Int(value as i64));
    let gather = [int("bits", 4), int("block_size", BLOCK)];
    let gathered = build.outputs_of("com.microsoft", "GatherBlockQuantized", &inputs, &gather, &[Some(DType::F32)])[0];
    let head = packed(&[WORDS, WIDTH / BLOCK, BLOCK / 2]);
    let inputs = [gathered, build.constant(head), build.constant(scaled(&[WORDS * WIDTH / BLOCK]))];
    let attributes = [int("K", WIDTH), int("N", WORDS), int("bits", 4), int("block_size", BLOCK)];
    let logits = build.contrib("MatMulNBits", &inputs, &attributes);
    build.outputs(&[gathered, logits])
}

/// Runs a decoder on the simulated GPU for several numbers of tokens and compares it with the host device without any
/// pass. Returns the bytes of weights on the GPU and the names of the steps for one token.
fn run(graph: &Graph, passes: Selection, relative: f64) -> (usize, Vec<&'static str>) {
    let (gpu, before) = (device::simulated("gfx1100"), weights());
    let program = CompiledPartition::with(graph.clone(), &gpu, Settings { passes, ..Settings::default() }).unwrap();
    let plain = Settings { passes: Selection::none(), ..Settings::default() };
    let reference = CompiledPartition::with(graph.clone(), &HostDevice::new(), plain).unwrap();
    let mut prims = Vec::new();
    for ids in [&[WORDS as i64 - 1][..], &[0, 7, -1, 7, 1000, 31, 32, 33, 512, 513]] {
        let given = [Tensor::from_i64s(ids)];
        let (found, wanted) = (run_partition(&program, &given).unwrap(), run_partition(&reference, &given).unwrap());
        assert_eq!(found[0], wanted[0], "rows are copies, or dequantised in the same way");
        assert_close(&numbers(&found[1]), &numbers(&wanted[1]), relative);
        let prepared = program.plan(&[Input { shape: &[ids.len()], value: None }]).unwrap();
        let steps = &prepared.plan().steps;
        assert!((0..steps.len()).all(|step| matches!(prepared.run_by(step), RunBy::Own { .. })));
        if ids.len() == 1 {
            prims = steps.iter().map(|step| step.prim.name()).collect();
        }
    }
    (weights() - before, prims)
}

fn without_the_pass() -> Selection {
    let (selection, unknown) = Selection::without("tied-weights");
    assert!(unknown.is_empty());
    selection
}

#[test]
fn a_tied_float_head_is_held_once_with_the_same_results() {
    let _turn = turn();
    for (dtype, tie, relative) in [
        (DType::F16, Tie::Turned, 4e-3),
        (DType::F16, Tie::Copied, 4e-3),
        (DType::Bf16, Tie::Turned, 3e-2),
        (DType::F32, Tie::Turned, 1e-4),
    ] {
        let (graph, table) = (decoder(dtype, tie), WORDS * WIDTH * dtype.bytes());
        let (apart, steps) = run(&graph, without_the_pass(), relative);
        assert!((2 * table..2 * table + SMALL).contains(&apart), "{dtype} {tie:?}: {apart} bytes");
        let (tied, tied_steps) = run(&graph, Selection::default(), relative);
        assert!((table..table + SMALL).contains(&tied), "{dtype} {tie:?}: {tied} bytes for a table of {table}");
        assert_eq!(tied_steps, steps);
    }
}

#[test]
fn tied_packed_rows_and_scales_are_held_once() {
    let _turn = turn();
    let held = WORDS * WIDTH / 2 + WORDS * WIDTH / 32 * 4;
    let (apart, steps) = run(&packed_decoder(), without_the_pass(), 1e-4);
    assert!((2 * held..2 * held + SMALL).contains(&apart), "{apart} bytes");
    let (tied, tied_steps) = run(&packed_decoder(), Selection::default(), 1e-4);
    assert!((held..held + SMALL).contains(&tied), "{tied} bytes for {held}");
    assert_eq!(tied_steps, steps);
}
