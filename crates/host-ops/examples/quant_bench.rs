//! Benchmarks products with packed weights against plain ones, on one thread: `cargo run --release -p host-ops
//! --example quant_bench`.
use std::time::Instant;

use graph::prim::{BufferId, ProductKind, QuantMatMul, WeightLayout, Zeros};
use graph::quant::QuantWeights;
use graph::shape::dense_strides;
use graph::{DType, Prim, Step, Tensor, View};
use host_ops::{Context, Pool, Scratch};

fn view(buffer: u32, dtype: DType, shape: &[usize]) -> View {
    View { buffer: BufferId(buffer), dtype, shape: shape.into(), strides: dense_strides(shape), offset: 0 }
}

/// CPU seconds of this thread so far: other work on the machine does not count.
fn thread_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<f64>().ok()? / 1e9)
}

/// Mean seconds of a step, in CPU time of this thread if the system reports it.
fn mean(step: &Step, addresses: &[*mut u8], pool: &Pool) -> f64 {
    let mut scratch = Scratch::default();
    let mut cx = Context { parallel: pool, scratch: &mut scratch };
    let start = Instant::now();
    let now = || thread_seconds().unwrap_or_else(|| start.elapsed().as_secs_f64());
    let mut begin = 0.0;
    for run in 0.. {
        if run == 1 {
            begin = now();
        }
        // Reading the clock takes as long as a small step.
        if run % 16 == 1 && now() - begin > 0.2 {
            return (now() - begin) / f64::from(run - 1);
        }
        // SAFETY: each buffer holds its view.
        if let Err(error) = unsafe { host_ops::run(step, |buffer| addresses[buffer.0 as usize], &mut cx) } {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
    0.0
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 7 % 251) as u8).collect()
}

fn quantised(rows: usize, depth: usize, columns: usize, bits: usize, rounds: bool, pool: &Pool) -> Option<f64> {
    let block = 32;
    let layout = WeightLayout::Onnx;
    let product = QuantMatMul { bits, block, zeros: Zeros::Middle, rounds_activations: rounds, layout };
    let (blocks, size) = (product.blocks(depth), product.block_bytes());
    let scales: Vec<u8> = (0..columns * blocks).flat_map(|at| (0.001 + at as f32 * 1e-9).to_ne_bytes()).collect();
    let tensors = vec![
        Tensor::from_bytes(DType::U8, &[columns, blocks, size], &bytes(columns * blocks * size))?,
        Tensor::from_bytes(DType::F32, &[columns, blocks], &scales)?,
    ];
    let weights = host_ops::interleaved(&QuantWeights { product, columns, depth, tensors })?;
    let mut a: Vec<f32> = (0..rows * depth).map(|at| (at % 17) as f32 / 8.0 - 1.0).collect();
    let mut out = vec![0f32; rows * columns];
    let mut inputs = vec![view(0, DType::F32, &[1, rows, depth])];
    inputs.extend((2..).zip(&weights.tensors).map(|(at, tensor)| view(at, tensor.dtype(), tensor.shape())));
    let outputs = vec![view(1, DType::F32, &[1, rows, columns])];
    let mut addresses: Vec<*mut u8> = vec![a.as_mut_ptr().cast(), out.as_mut_ptr().cast()];
    addresses.extend(weights.tensors.iter().map(|tensor| tensor.bytes().as_ptr().cast_mut()));
    Some(mean(
        &Step { node: 0, prim: ProductKind::QuantMatMul(weights.product).into(), inputs, outputs },
        &addresses,
        pool,
    ))
}

fn plain(rows: usize, depth: usize, columns: usize, pool: &Pool) -> f64 {
    let mut a = vec![0.5f32; rows * depth];
    let mut b = vec![0.25f32; depth * columns];
    let mut out = vec![0f32; rows * columns];
    let shapes = [&[1, rows, depth][..], &[1, depth, columns], &[1, rows, columns]];
    let mut inputs: Vec<View> = (0..).zip(shapes).map(|(at, shape)| view(at, DType::F32, shape)).collect();
    let outputs: Vec<View> = inputs.pop().into_iter().collect();
    let addresses = [a.as_mut_ptr().cast(), b.as_mut_ptr().cast(), out.as_mut_ptr().cast()];
    mean(&Step { node: 0, prim: Prim::matmul(1.0), inputs, outputs }, &addresses, pool)
}

fn main() {
    let pool = Pool::with_threads(1);
    println!("{:>5} {:>5} {:>6}  {:>28} {:>9} {:>9}", "rows", "depth", "cols", "weights", "ms", "GB/s or GFLOP/s");
    for (rows, depth, columns) in [
        (1, 768, 2304),
        (1, 2048, 768),
        (1, 768, 16384),
        (16, 768, 4096),
        (32, 768, 4096),
        (64, 768, 4096),
        (256, 768, 4096),
    ] {
        let flops = 2.0 * (rows * depth * columns) as f64;
        let row = |name: &str, seconds: f64, size: f64| {
            let speed = if rows == 1 { size / 1e9 } else { flops / 1e9 } / seconds;
            println!("{rows:>5} {depth:>5} {columns:>6}  {name:>28} {:>9.4} {speed:>9.1}", seconds * 1e3);
        };
        for bits in [2, 4, 8] {
            let size = (depth * columns) as f64 * (bits as f64 / 8.0 + 0.125);
            for (name, rounds) in [("floats", false), ("bytes", true)] {
                if let Some(seconds) = quantised(rows, depth, columns, bits, rounds, &pool) {
                    row(&format!("{bits} bits, activations {name}"), seconds, size);
                }
            }
        }
        row("single precision", plain(rows, depth, columns, &pool), (4 * depth * columns) as f64);
    }
}
