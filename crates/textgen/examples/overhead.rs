//! What a token costs besides the session's run: `cargo run --release -p textgen --example overhead [MODEL_DIR]`.
//!
//! Without a folder, a tiny model is made. The ONNX Runtime is `ORT_DYLIB_PATH`, or the one of `cargo xtask setup`; the
//! provider's library `AMDGPU_EP_PATH`, or none.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use testkit::llm::TinyDecoder;
use testkit::place;
use textgen::{Config, Generator, GeneratorOptions, Model, Runtime, Sampling};

/// Tokens of a measurement; the median of each is shown.
const TOKENS: usize = 100;

fn main() -> Result<()> {
    let made = tempfile::tempdir()?;
    let folder = match std::env::args_os().nth(1) {
        Some(folder) => PathBuf::from(folder),
        None => {
            TinyDecoder::new(5).write(made.path(), true)?;
            made.path().to_path_buf()
        }
    };
    let runtime = Runtime::load(&place::onnxruntime()?)?;
    let device = std::env::var_os("AMDGPU_EP_PATH").map(|_| "amdgpu");
    println!("{:<44} {:>12} {:>12} {:>12}", "microseconds a token (median)", "session run", "whole step", "difference");
    for provider in std::iter::once("cpu").chain(device) {
        measure(&runtime, &folder, provider)?;
    }
    Ok(())
}

fn measure(runtime: &Runtime, folder: &Path, provider: &str) -> Result<()> {
    let mut config = Config::from_folder(folder)?;
    config.append_provider(provider, std::iter::empty::<(String, String)>())?;
    let model = Model::load(runtime, &config)?;
    let drawn = Sampling { do_sample: true, seed: Some(1), ..Sampling::default() };
    let ways = [
        ("greedy", Sampling::default()),
        ("repetition penalty", Sampling { repetition_penalty: 1.1, ..Sampling::default() }),
        ("top-k 50, top-p 0.9", Sampling { top_k: 50, top_p: 0.9, ..drawn.clone() }),
        ("top-p 0.9", Sampling { top_p: 0.9, ..drawn }),
    ];
    for (name, mut sampling) in ways {
        // Sequences of one length: they do not end by themselves.
        sampling.logit_bias = config.eos_tokens.iter().map(|&token| (token, -1e6)).collect();
        let (run, step) = tokens(&model, sampling)?;
        let name = format!("{}, {name}", model.attached());
        println!("{name:<44} {run:>12.1} {step:>12.1} {:>12.1}", step - run);
    }
    Ok(())
}

/// Microseconds of a run and of a whole step, at the median.
fn tokens(model: &Model, sampling: Sampling) -> Result<(f64, f64)> {
    let mut generator =
        Generator::new(model, GeneratorOptions { sampling: Some(sampling), ..GeneratorOptions::default() })?;
    let (mut runs, mut steps) = (Vec::new(), Vec::new());
    generator.append(&[1, 2, 3])?;
    while steps.len() < TOKENS {
        let (before, start) = (generator.time_in_runs(), Instant::now());
        let stepped = generator.step()?.is_some();
        let (step, run) = (start.elapsed(), generator.time_in_runs() - before);
        // The first step of a sequence runs the prompt.
        if stepped && generator.tokens(0).len() > 5 {
            steps.push(step);
            runs.push(run);
        }
        if !stepped || generator.finish(0).is_some() {
            generator.rewind(0)?;
            generator.append(&[1, 2, 3])?;
        }
    }
    Ok((median(&mut runs), median(&mut steps)))
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}
