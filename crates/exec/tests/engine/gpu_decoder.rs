//! Replays a decoder's steps on the simulated GPU from one recording.

use std::sync::Arc;

use exec::host::HostDevice;
use exec::{Capture, CompiledPartition, Device, Input, Order, Prepared, Run, RunBy, Serial};
use graph::DType;
use graph::ops::Attribute;

use crate::common::{Case, assert_close, device, random, tensor};

const BATCH: usize = 2;
const HEADS: usize = 6;
const SHARED: usize = 2;
const SIZE: usize = 16;
/// The number of rows in the caches.
const TOTAL: usize = 600;

/// A step with one new token that updates its caches in place.
fn prepare(gpu: &dyn Device) -> Arc<dyn Prepared> {
    let width = (HEADS + 2 * SHARED) * SIZE;
    let cache = [BATCH, SHARED, TOTAL, SIZE];
    let angles = |at: u64| tensor(DType::F32, &[TOTAL, SIZE / 2], &random(TOTAL * SIZE / 2, at));
    let zeros = |shape: &[usize]| tensor(DType::F32, shape, &vec![0.0; shape.iter().product()]);
    let mut case = Case::new("GroupQueryAttention", 1, Vec::new(), &[DType::F32; 3]);
    case.domain = "com.microsoft";
    case.inputs = vec![
        Some(zeros(&[BATCH, 1, width])),
        None,
        None,
        Some(zeros(&cache)),
        Some(zeros(&cache)),
        Some(tensor(DType::I32, &[BATCH], &[0.0; BATCH])),
        Some(tensor(DType::I32, &[], &[TOTAL as f64])),
        Some(angles(1)),
        Some(angles(2)),
    ];
    case.constants = vec![6, 7, 8];
    let case = case
        .attribute("num_heads", Attribute::Int(HEADS as i64))
        .attribute("kv_num_heads", Attribute::Int(SHARED as i64))
        .attribute("do_rotary", Attribute::Int(1));
    let (graph, inputs) = case.graph().unwrap();
    let program = CompiledPartition::new(graph, gpu).unwrap();
    let shapes: Vec<Input<'_>> = inputs.iter().map(|tensor| Input { shape: tensor.shape(), value: None }).collect();
    program.plan(&shapes).unwrap()
}

/// The memory of a step, at fixed addresses. The caches start after `shift` elements.
struct Memory {
    shift: usize,
    tokens: Vec<f32>,
    caches: [Vec<f32>; 2],
    lengths: Vec<i32>,
    found: Vec<f32>,
}

impl Memory {
    fn new(shift: usize) -> Self {
        let cache = |seed: u64| {
            let numbers = random(BATCH * SHARED * TOTAL * SIZE, seed).into_iter().map(|x| x as f32);
            std::iter::repeat_n(0.0, shift).chain(numbers).collect()
        };
        Self {
            shift,
            tokens: vec![0.0; BATCH * (HEADS + 2 * SHARED) * SIZE],
            caches: [cache(3), cache(4)],
            lengths: vec![0; BATCH],
            found: vec![0.0; BATCH * HEADS * SIZE],
        }
    }

    fn set(&mut self, lengths: [i32; BATCH], seed: u64) {
        let tokens = random(self.tokens.len(), seed);
        self.tokens.iter_mut().zip(tokens).for_each(|(to, from)| *to = from as f32);
        // The operator expects the index of the last row.
        self.lengths.iter_mut().zip(lengths).for_each(|(to, length)| *to = length - 1);
    }

    fn run(&mut self, prepared: &Arc<dyn Prepared>, order: Order<'_>) {
        let shift = self.shift;
        let caches = self.caches.each_mut().map(|cache| cache[shift..].as_mut_ptr().cast::<u8>());
        let inputs =
            [self.tokens.as_ptr().cast(), caches[0].cast_const(), caches[1].cast_const(), self.lengths.as_ptr().cast()];
        let outputs = [self.found.as_mut_ptr().cast(), caches[0], caches[1]];
        let run = Run { inputs: &inputs, outputs: &outputs, parallel: &Serial, observer: None };
        // SAFETY: complete tensors of the planned shapes, which the test keeps; the caches are updated in place.
        unsafe { Arc::clone(prepared).run(run, order) }.unwrap();
    }
}

#[test]
fn one_recording_runs_every_step_of_a_generation() {
    for target in ["gfx1100", "gfx942"] {
        let gpu = device::simulated(target);
        let (prepared, on_host) = (prepare(&gpu), prepare(&HostDevice::new()));
        for at in 0..prepared.plan().steps.len() {
            assert!(!matches!(prepared.run_by(at), RunBy::Host { .. }), "{:?}", prepared.plan().steps[at]);
        }
        let (mut memory, mut wanted) = (Memory::new(0), Memory::new(0));
        let (stream, replays) = (gpu.device().stream().unwrap(), gpu.device().stream().unwrap());
        // SAFETY: the stream outlives the recording.
        let capture = unsafe { Capture::begin(gpu.device(), stream.raw()) }.unwrap();
        memory.run(&prepared, Order::Record(&capture));
        let captured = capture.end().unwrap();
        let steps = [[1, 1], [2, 2], [3, 3], [64, 65], [300, 4], [301, 5], [600, 600], [7, 599], [601, 8]];
        for (seed, lengths) in steps.into_iter().enumerate() {
            memory.set(lengths, 20 + seed as u64);
            let replayed = captured.replay(&replays);
            if lengths[0] > TOTAL as i32 {
                assert!(replayed.unwrap_err().to_string().contains("an index is out of range"));
                continue;
            }
            replayed.unwrap();
            wanted.set(lengths, 20 + seed as u64);
            wanted.run(&on_host, Order::Now);
            let numbers = |list: &[f32]| list.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
            assert_close(&numbers(&memory.found), &numbers(&wanted.found), 2e-5);
            for (found, wanted) in memory.caches.iter().zip(&wanted.caches) {
                assert_close(&numbers(found), &numbers(wanted), 2e-5);
            }
        }
    }
}

#[test]
fn unaligned_caches_are_updated_in_place() {
    let gpu = device::simulated("gfx1100");
    let (prepared, on_host) = (prepare(&gpu), prepare(&HostDevice::new()));
    let (mut memory, mut wanted) = (Memory::new(1), Memory::new(0));
    for (seed, lengths) in [[40, 600], [41, 3]].into_iter().enumerate() {
        memory.set(lengths, seed as u64);
        memory.run(&prepared, Order::Now);
        wanted.set(lengths, seed as u64);
        wanted.run(&on_host, Order::Now);
        let numbers = |list: &[f32]| list.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
        assert_close(&numbers(&memory.found), &numbers(&wanted.found), 2e-5);
        for (found, wanted) in memory.caches.iter().zip(&wanted.caches) {
            assert_close(&numbers(&found[1..]), &numbers(wanted), 2e-5);
        }
    }
}
