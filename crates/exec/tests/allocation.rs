//! Checks that a warm run allocates nothing.
#![allow(clippy::unwrap_used)]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use exec::gpu::{GpuSettings, ReplayMode};
use exec::host::HostDevice;
use exec::{CompiledPartition, Input, Ledger, Order, Run, Serial};
use graph::ops::Attribute;
use graph::{DType, Tensor};

use common::{Case, random, tensor};

struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is forwarded to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of the third run, including the plan lookup.
fn allocations(case: &Case) -> usize {
    let (graph, given) = case.graph().unwrap();
    let program = CompiledPartition::new(graph, &HostDevice::new()).unwrap();
    let inputs: Vec<_> = given
        .iter()
        .enumerate()
        .map(|(at, tensor)| Input { shape: tensor.shape(), value: program.needs_value(at).then(|| tensor.bytes()) })
        .collect();
    let sources: Vec<_> = given.iter().map(|tensor| tensor.bytes().as_ptr()).collect();
    let plan = program.plan(&inputs).unwrap();
    let bytes = |shape: &[usize], dtype: DType| shape.iter().product::<usize>() * dtype.bytes();
    let mut made: Vec<Vec<u128>> =
        plan.plan().outputs.iter().map(|out| vec![0; bytes(&out.shape, out.dtype).div_ceil(16) + 1]).collect();
    let outputs: Vec<*mut u8> = made.iter_mut().map(|words| words.as_mut_ptr().cast()).collect();
    assert!(COUNT.get() > 0, "nothing is counted");
    let mut found = 0;
    for _ in 0..3 {
        let before = COUNT.get();
        let run = Run { inputs: &sources, outputs: &outputs, parallel: &Serial, observer: None };
        // SAFETY: complete tensors of the planned shapes, and enough memory for the plan's outputs.
        unsafe { program.plan(&inputs).unwrap().run(run, Order::Now) }.unwrap();
        found = COUNT.get() - before;
    }
    found
}

fn floats(shape: &[usize], seed: u64) -> Tensor {
    tensor(DType::F32, shape, &random(shape.iter().product(), seed))
}

/// Allocations of the last of several runs on a stream of the simulated GPU: the first runs launch kernels, later ones
/// may replay a graph.
fn allocations_on_a_gpu(case: &Case, graphs: ReplayMode) -> usize {
    let gpu = common::device::simulated("gfx1100").with(GpuSettings { graphs, ..GpuSettings::default() });
    let (graph, given) = case.graph().unwrap();
    let program = CompiledPartition::new(graph, &gpu).unwrap();
    let inputs: Vec<_> = given.iter().map(|tensor| Input { shape: tensor.shape(), value: None }).collect();
    let sources: Vec<_> = given.iter().map(|tensor| tensor.bytes().as_ptr()).collect();
    let mut made = vec![0u128; 1024];
    let outputs = [made.as_mut_ptr().cast()];
    let (stream, ledger) = (gpu.device().stream().unwrap(), Arc::<Ledger>::default());
    let mut found = 0;
    for _ in 0..6 {
        let before = COUNT.get();
        let run = Run { inputs: &sources, outputs: &outputs, parallel: &Serial, observer: None };
        let order = Order::Stream { device: gpu.device(), stream: stream.raw(), ledger: &ledger };
        // SAFETY: complete tensors of the planned shapes, and enough memory for every case's output.
        unsafe { program.plan(&inputs).unwrap().run(run, order) }.unwrap();
        found = COUNT.get() - before;
        ledger.wait();
        assert_eq!(ledger.take_failure(|_| true), None);
    }
    found
}

#[test]
fn a_warm_run_on_a_gpu_allocates_nothing() {
    let table = vec![floats(&[9, 5], 5), tensor(DType::I64, &[3], &[8.0, 0.0, 4.0])];
    let cases = [
        ("Softmax", Case::new("Softmax", 13, vec![floats(&[4, 50], 8)], &[DType::F32])),
        ("Gather", Case::new("Gather", 13, table, &[DType::F32])),
    ];
    for graphs in [ReplayMode::Off, ReplayMode::On] {
        let counts: Vec<_> = cases.iter().map(|(name, case)| (*name, allocations_on_a_gpu(case, graphs))).collect();
        assert!(counts.iter().all(|(_, count)| *count == 0), "{graphs:?}: {counts:?}");
    }
}

#[test]
fn a_warm_run_allocates_nothing() {
    let f32s = &[DType::F32];
    let conv = Case::new("Conv", 11, vec![floats(&[1, 3, 9, 9], 1), floats(&[4, 3, 3, 3], 2)], f32s);
    let mut product = Case::new("MatMul", 13, vec![floats(&[5, 33], 3), floats(&[33, 7], 4)], f32s);
    product.constants.push(1);
    let axes = Attribute::Ints(vec![1]);
    let cases = [
        ("Add", Case::new("Add", 14, vec![floats(&[4, 5], 5), floats(&[5], 6)], f32s)),
        ("Transpose", Case::new("Transpose", 13, vec![floats(&[4, 5, 6], 7)], f32s)),
        ("Softmax", Case::new("Softmax", 13, vec![floats(&[4, 50], 8)], f32s)),
        ("ReduceMax", Case::new("ReduceMax", 13, vec![floats(&[4, 50], 9)], f32s).attribute("axes", axes)),
        ("MatMul", product),
        ("Conv", conv),
    ];
    let counts: Vec<_> = cases.iter().map(|(name, case)| (*name, allocations(case))).collect();
    assert!(counts.iter().all(|(_, count)| *count == 0), "{counts:?}");
}
