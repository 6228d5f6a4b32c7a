//! Benchmarks matrix products and convolutions: `cargo run --release -p host-ops --example gemm_bench -- [threads]`.
use std::time::Instant;

use graph::prim::{BufferId, Conv, ProductKind};
use graph::shape::dense_strides;
use graph::{DType, Prim, Step, View};
use host_ops::{Context, Parallel, Scratch};

/// Threads that live for one call; the cost of starting them is part of the times.
struct Threads(usize);

impl Parallel for Threads {
    fn threads(&self) -> usize {
        self.0
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        let next = std::sync::atomic::AtomicUsize::new(0);
        let work = || {
            loop {
                let task = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if task >= tasks {
                    return;
                }
                body(task);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.0.min(tasks) {
                scope.spawn(work);
            }
            work();
        });
    }
}

fn view(buffer: u32, shape: &[usize]) -> View {
    View {
        buffer: BufferId(buffer),
        dtype: DType::F32,
        shape: shape.iter().copied().collect(),
        strides: dense_strides(shape),
        offset: 0,
    }
}

/// Prints the median time and speed of one step.
fn bench(name: &str, prim: Prim, inputs: &[&[usize]], output: &[usize], flops: f64, parallel: &dyn Parallel) {
    let shapes: Vec<&[usize]> = inputs.iter().copied().chain([output]).collect();
    let mut memory: Vec<Vec<f32>> = shapes
        .iter()
        .map(|shape| (0..shape.iter().product()).map(|i: usize| (i % 17) as f32 / 16.0 - 0.5).collect())
        .collect();
    let mut views: Vec<View> = shapes.iter().enumerate().map(|(at, shape)| view(at as u32, shape)).collect();
    let out = views.pop().into_iter().collect();
    let step = Step { node: 0, prim, inputs: views, outputs: out };
    let addresses: Vec<*mut u8> = memory.iter_mut().map(|memory| memory.as_mut_ptr().cast()).collect();
    let mut scratch = Scratch::default();
    let mut cx = Context { parallel, scratch: &mut scratch };
    let mut times = Vec::new();
    let begin = Instant::now();
    while times.len() < 5 || begin.elapsed().as_secs_f64() < 0.3 {
        let start = Instant::now();
        // SAFETY: every vector holds its view.
        if let Err(error) = unsafe { host_ops::run(&step, |buffer| addresses[buffer.0 as usize], &mut cx) } {
            println!("{name:<44} {error}");
            return;
        }
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2];
    println!("{name:<44} {:>10.3} ms {:>8.1} GFLOP/s", median * 1e3, flops / median / 1e9);
}

fn matmul(m: usize, n: usize, k: usize, parallel: &dyn Parallel) {
    let flops = 2.0 * (m * n * k) as f64;
    let prim = Prim::matmul(1.0);
    bench(&format!("matmul {m}x{k} · {k}x{n}"), prim, &[&[1, m, k], &[1, k, n]], &[1, m, n], flops, parallel);
}

/// Input and output channels, extent, kernel, stride, groups.
fn conv([c, m, extent, kernel, stride, groups]: [usize; 6], parallel: &dyn Parallel) {
    let pad = (kernel / 2) as isize;
    let out = (extent + 2 * pad as usize - kernel) / stride + 1;
    let prim = Conv {
        strides: [stride; 2].into_iter().collect(),
        pads: [pad; 2].into_iter().collect(),
        dilations: [1; 2].into_iter().collect(),
        groups,
        bias: true,
    };
    let name = format!("conv {c}→{m} {extent}² kernel {kernel} stride {stride} groups {groups}");
    let flops = 2.0 * (m * out * out * c / groups * kernel * kernel) as f64;
    let w = [m, c / groups, kernel, kernel];
    bench(
        &name,
        ProductKind::Conv(prim).into(),
        &[&[1, c, extent, extent], &w, &[m]],
        &[1, m, out, out],
        flops,
        parallel,
    );
}

fn main() {
    let threads = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(1);
    let parallel = Threads(threads);
    println!("{threads} threads");
    for [m, n, k] in [
        [1024, 1024, 1024],
        [128, 768, 768],
        [128, 3072, 768],
        [128, 768, 3072],
        [1, 4096, 4096],
        [16, 1024, 1024],
        [197, 197, 64],
        [3136, 64, 64],
    ] {
        matmul(m, n, k, &parallel);
    }
    for shape in [
        [3, 64, 224, 7, 2, 1],
        [64, 64, 56, 3, 1, 1],
        [128, 128, 28, 3, 1, 1],
        [256, 256, 14, 3, 1, 1],
        [512, 512, 7, 3, 1, 1],
        [64, 256, 56, 1, 1, 1],
        [256, 128, 56, 3, 2, 1],
        [256, 512, 28, 1, 2, 1],
        [32, 32, 112, 3, 1, 32],
        [144, 144, 56, 3, 2, 144],
        [576, 576, 14, 3, 1, 576],
        [96, 576, 14, 1, 1, 1],
        [320, 1280, 7, 1, 1, 1],
    ] {
        conv(shape, &parallel);
    }
}
