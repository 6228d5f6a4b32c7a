//! Measures the cost of a token outside the session's run: `cargo run --release -p textgen --example overhead
//! [MODEL_DIR]`.
//!
//! Without a folder, it creates tiny models with several vocabularies. Their scores are close together (flat), spread
//! like those of language models, or spread wider (steep). ONNX Runtime is `ORT_DYLIB_PATH`, or the one from `cargo
//! xtask setup`; the provider's library is `AMDGPU_EP_PATH`, or none.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use testkit::llm::TinyDecoder;
use testkit::place;
use textgen::{Config, Generator, GeneratorOptions, Model, Runtime, Sampling};

/// Tokens per measurement, of which the median is taken.
const TOKENS: usize = 100;

/// Number of measurements, of which the fastest is shown, because the machine may be busy.
const REPEATS: usize = 7;

/// Name, vocabulary size, spread of the scores, and whether they are 16-bit floats.
const MADE: [(&str, usize, f32, bool); 6] = [
    ("512", 512, 1.0, false),
    ("32000", 32_000, 1.0, false),
    ("128256", 128_256, 1.0, false),
    ("128256, float16", 128_256, 1.0, true),
    ("128256, flat", 128_256, 0.05, false),
    ("128256, steep", 128_256, 3.0, false),
];

fn main() -> Result<()> {
    let runtime = Runtime::load(&place::onnxruntime()?)?;
    println!("microseconds per token: the lowest of {REPEATS} medians over {TOKENS} tokens");
    println!("| vocabulary | provider | sampling | session run | whole step | difference |\n|---|---|---|---|---|---|");
    if let Some(folder) = std::env::args_os().nth(1) {
        return measure(&runtime, &PathBuf::from(folder), None);
    }
    for (name, vocabulary, spread, half) in MADE {
        let made = tempfile::tempdir()?;
        let decoder = TinyDecoder::with_vocabulary(5, vocabulary, spread);
        let decoder = if half { decoder.half_logits() } else { decoder };
        decoder.write(made.path(), true)?;
        measure(&runtime, made.path(), Some(name))?;
    }
    Ok(())
}

fn measure(runtime: &Runtime, folder: &Path, name: Option<&str>) -> Result<()> {
    let device = std::env::var_os("AMDGPU_EP_PATH").map(|_| "amdgpu");
    for provider in std::iter::once("cpu").chain(device) {
        let mut config = Config::from_folder(folder)?;
        config.append_provider(provider, std::iter::empty::<(String, String)>())?;
        let model = Model::load(runtime, &config)?;
        for (way, mut sampling) in ways() {
            // Suppress end tokens, so that all sequences have the same length.
            sampling.logit_bias = config.eos_tokens.iter().map(|&token| (token, -1e6)).collect();
            let (mut run, mut rest) = (f64::INFINITY, f64::INFINITY);
            for _ in 0..REPEATS {
                let times = tokens(&model, &sampling)?;
                (run, rest) = (run.min(times.0), rest.min(times.1));
            }
            let vocabulary = name.map_or_else(|| config.vocab_size.to_string(), str::to_owned);
            println!("| {vocabulary} | {} | {way} | {run:.1} | {:.1} | {rest:.1} |", model.attached(), run + rest);
        }
    }
    Ok(())
}

fn ways() -> [(&'static str, Sampling); 6] {
    let drawn = Sampling { do_sample: true, temperature: 0.8, seed: Some(1), ..Sampling::default() };
    [
        ("greedy", Sampling::default()),
        ("repetition penalty", Sampling { repetition_penalty: 1.1, ..Sampling::default() }),
        ("top-k 50, top-p 0.9", Sampling { top_k: 50, top_p: 0.9, ..drawn.clone() }),
        ("min-p 0.05", Sampling { min_p: 0.05, ..drawn.clone() }),
        ("top-p 0.9", Sampling { top_p: 0.9, ..drawn.clone() }),
        ("temperature alone", drawn),
    ]
}

/// Median time of a run and of the rest of a step, in microseconds.
fn tokens(model: &Model, sampling: &Sampling) -> Result<(f64, f64)> {
    let options = GeneratorOptions { sampling: Some(sampling.clone()), ..GeneratorOptions::default() };
    let mut generator = Generator::new(model, options)?;
    let (mut runs, mut rests) = (Vec::new(), Vec::new());
    generator.append(&[1, 2, 3])?;
    while runs.len() < TOKENS {
        let (before, start) = (generator.time_in_runs(), Instant::now());
        let stepped = generator.step()?.is_some();
        let (step, run) = (start.elapsed(), generator.time_in_runs() - before);
        // The first step of a sequence runs the prompt.
        if stepped && generator.tokens(0).len() > 5 {
            rests.push(step.saturating_sub(run));
            runs.push(run);
        }
        if !stepped || generator.finish(0).is_some() {
            generator.rewind(0)?;
            generator.append(&[1, 2, 3])?;
        }
    }
    Ok((median(&mut runs), median(&mut rests)))
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}
