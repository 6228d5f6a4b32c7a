//! How fast products with packed weights are, beside plain ones: `cargo run --release -p host-ops --example quant_bench --
//! [threads]`.
use std::time::Instant;

use graph::{
    DType, Prim, Step, Tensor, View,
    prim::{BufferId, MatMul, QuantMatMul, WeightLayout, Zeros},
    quant::QuantWeights,
    shape::dense_strides,
};
use host_ops::{Context, Pool, Scratch};

fn view(buffer: u32, dtype: DType, shape: &[usize]) -> View {
    View { buffer: BufferId(buffer), dtype, shape: shape.into(), strides: dense_strides(shape), offset: 0 }
}

/// Seconds of a step, of which nine in ten runs took longer: other work on the machine shows in these.
fn fast(step: &Step, addresses: &[*mut u8], pool: &Pool) -> f64 {
    let mut scratch = Scratch::default();
    let mut cx = Context { parallel: pool, scratch: &mut scratch };
    let mut times = Vec::new();
    let start = Instant::now();
    while times.len() < 5 || start.elapsed().as_millis() < 400 {
        let begin = Instant::now();
        // SAFETY: each buffer holds its view.
        let done = unsafe { host_ops::run(step, |buffer| addresses[buffer.0 as usize], &mut cx) };
        times.push(begin.elapsed().as_secs_f64());
        if let Err(error) = done {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
    times.sort_by(f64::total_cmp);
    times[times.len() / 10]
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
    Some(fast(&Step { node: 0, prim: Prim::QuantMatMul(weights.product), inputs, outputs }, &addresses, pool))
}

fn plain(rows: usize, depth: usize, columns: usize, pool: &Pool) -> f64 {
    let mut a = vec![0.5f32; rows * depth];
    let mut b = vec![0.25f32; depth * columns];
    let mut out = vec![0f32; rows * columns];
    let shapes = [&[1, rows, depth][..], &[1, depth, columns], &[1, rows, columns]];
    let mut inputs: Vec<View> = (0..).zip(shapes).map(|(at, shape)| view(at, DType::F32, shape)).collect();
    let outputs: Vec<View> = inputs.pop().into_iter().collect();
    let addresses = [a.as_mut_ptr().cast(), b.as_mut_ptr().cast(), out.as_mut_ptr().cast()];
    fast(&Step { node: 0, prim: Prim::MatMul(MatMul { alpha: 1.0 }), inputs, outputs }, &addresses, pool)
}

fn main() {
    let threads = std::env::args().nth(1).and_then(|argument| argument.parse().ok()).unwrap_or(1);
    let pool = Pool::with_threads(threads);
    println!("{:>5} {:>5} {:>6}  {:>28} {:>9} {:>9}", "rows", "depth", "cols", "weights", "ms", "GB/s or GFLOP/s");
    for (rows, depth, columns) in [(1, 768, 768), (1, 768, 2304), (1, 2048, 8192), (16, 768, 2304), (512, 768, 2304)] {
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
