//! Benchmarks attention over caches on one thread: `cargo run --release -p host-ops --example attention_bench`.
//!
//! A step of one token reads the cache once, so it is measured in memory bandwidth; a prompt is measured in FLOP/s.
use std::error::Error;
use std::time::Instant;

use graph::prim::{BufferId, CachedAttention, Filled, Sinks};
use graph::shape::dense_strides;
use graph::{DType, Prim, Step, View};
use host_ops::{Context, Scratch, Serial};

/// Runs of a case; the fastest counts.
const RUNS: usize = 20;

struct Case {
    name: &'static str,
    dtype: DType,
    heads: usize,
    shared: usize,
    size: usize,
    rows: usize,
    length: usize,
}

impl Case {
    fn view(&self, buffer: u32, dtype: DType, shape: &[usize]) -> View {
        View { buffer: BufferId(buffer), dtype, shape: shape.into(), strides: dense_strides(shape), offset: 0 }
    }

    fn seconds(&self) -> Result<f64, Box<dyn Error>> {
        let query = [1, self.heads, self.rows, self.size];
        let cache = [1, self.shared, self.length, self.size];
        let step = Step {
            node: 0,
            prim: Prim::CachedAttention(CachedAttention {
                alpha: 0.125,
                filled: Filled { shift: -(self.rows as i64) },
                causal: true,
                window: None,
                softcap: None,
                bias: false,
                sinks: Sinks::None,
            }),
            inputs: vec![
                self.view(0, self.dtype, &query),
                self.view(1, self.dtype, &cache),
                self.view(2, self.dtype, &cache),
                self.view(3, DType::I32, &[1]),
            ],
            outputs: vec![self.view(4, self.dtype, &query)],
        };
        let mut buffers: Vec<Vec<u64>> = step
            .inputs
            .iter()
            .chain(&step.outputs)
            .map(|view| vec![0x3c00_3c00_3c00_3c00; (view.elems() * view.dtype.bytes()).div_ceil(8)])
            .collect();
        buffers[3] = vec![self.length as u64];
        let starts: Vec<*mut u8> = buffers.iter_mut().map(|buffer| buffer.as_mut_ptr().cast()).collect();
        let mut scratch = Scratch::default();
        let mut best = f64::INFINITY;
        for _ in 0..RUNS {
            let start = Instant::now();
            let mut cx = Context { parallel: &Serial, scratch: &mut scratch };
            // SAFETY: every buffer has the bytes of its view, and nothing else uses it.
            unsafe { host_ops::run(&step, |buffer| starts[buffer.0 as usize], &mut cx)? };
            best = best.min(start.elapsed().as_secs_f64());
        }
        Ok(best)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let case = |name, dtype, rows, length| Case { name, dtype, heads: 32, shared: 8, size: 64, rows, length };
    let cases = [
        case("token, f32", DType::F32, 1, 2048),
        case("token, f16", DType::F16, 1, 2048),
        case("token, f32", DType::F32, 1, 512),
        case("prompt, f32", DType::F32, 512, 512),
        case("prompt, f16", DType::F16, 512, 512),
    ];
    println!("{:<12} {:>6} {:>8} {:>10} {:>8} {:>8}", "case", "rows", "length", "µs", "GB/s", "GFLOP/s");
    for case in cases {
        let seconds = case.seconds()?;
        let bytes = 2 * case.shared * case.length * case.size * case.dtype.bytes();
        // A causal prompt computes half of its scores.
        let pairs = case.rows * case.length - case.rows * (case.rows - 1) / 2;
        let flops = 4 * case.heads * pairs * case.size;
        println!(
            "{:<12} {:>6} {:>8} {:>10.1} {:>8.2} {:>8.2}",
            case.name,
            case.rows,
            case.length,
            seconds * 1e6,
            bytes as f64 / seconds / 1e9,
            flops as f64 / seconds / 1e9
        );
    }
    Ok(())
}
