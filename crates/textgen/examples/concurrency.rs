//! Measures how many tokens a second the engine generates for concurrent requests, and a generator for one request after
//! the other: `cargo run --release -p textgen --example concurrency MODEL_DIR [TOKENS]`.
//!
//! ONNX Runtime is `ORT_DYLIB_PATH`, or the one from `cargo xtask setup`; the provider's library is `AMDGPU_EP_PATH`, or
//! none. `tests/tiny_models.py --to MODEL_DIR --size 100m --precision int4` makes a model.

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use testkit::place;
use textgen::engine::{Engine, EngineOptions, Event, Request};
use textgen::{Config, Generator, GeneratorOptions, Model, Runtime, Sampling, Tokenizer};

/// Requests of one measurement.
const REQUESTS: usize = 8;

/// Tokens of a prompt.
const PROMPT: usize = 32;

/// Measurements, of which the fastest is shown, because the machine may be busy.
const REPEATS: usize = 3;

/// How many run at once.
const CONCURRENT: [usize; 3] = [1, 4, 8];

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().context("name a model folder")?);
    let tokens = arguments.next().map_or(Ok(64), |tokens| tokens.parse()).context("TOKENS is not a number")?;
    let runtime = Runtime::load(&place::onnxruntime()?)?;
    println!("{REQUESTS} requests of {PROMPT} + {tokens} tokens; generated tokens per second, prompts included");
    println!("| provider | one after the other | {CONCURRENT:?} at once | ratios |\n|---|---|---|---|");
    let device = std::env::var_os("AMDGPU_EP_PATH").map(|_| "amdgpu");
    for provider in std::iter::once("cpu").chain(device) {
        let mut config = Config::from_folder(&folder)?;
        config.append_provider(provider, std::iter::empty::<(String, String)>())?;
        let model = Model::load(&runtime, &config)?;
        let tokenizer = Tokenizer::from_folder(&config)?;
        let speed = |time: Duration| (REQUESTS * tokens) as f64 / time.as_secs_f64();
        let alone = speed(one_by_one(&model, tokens)?);
        let mut speeds = Vec::new();
        for count in CONCURRENT {
            speeds.push(speed(at_once(&model, &tokenizer, tokens, count)?));
        }
        let ratios: Vec<String> = speeds.iter().map(|speed| format!("{:.2}", speed / alone)).collect();
        let speeds: Vec<String> = speeds.iter().map(|speed| format!("{speed:.1}")).collect();
        println!("| {} | {alone:.1} | {} | {} |", model.attached(), speeds.join(", "), ratios.join(", "));
    }
    Ok(())
}

fn prompt(model: &Model, request: usize) -> Vec<u32> {
    let words = model.config().vocab_size;
    (0..PROMPT).map(|at| ((at * 7919 + request * 104_729) % words) as u32).collect()
}

/// Greedy, without end tokens, so that all texts have the same length.
fn sampling() -> Sampling {
    Sampling { min_length: usize::MAX, ..Sampling::default() }
}

fn one_by_one(model: &Model, tokens: usize) -> Result<Duration> {
    let options = GeneratorOptions {
        sampling: Some(sampling()),
        max_length: Some(PROMPT + tokens),
        ..GeneratorOptions::default()
    };
    let mut generator = Generator::new(model, options)?;
    fastest(|| {
        for request in 0..REQUESTS {
            generator.rewind(0)?;
            generator.append(&prompt(model, request))?;
            while generator.step()?.is_some() {}
        }
        Ok(())
    })
}

fn at_once(model: &Model, tokenizer: &Tokenizer, tokens: usize, slots: usize) -> Result<Duration> {
    let options = EngineOptions {
        slots,
        max_length: Some(PROMPT + tokens),
        queue: REQUESTS,
        prefix_cache: false,
        ..EngineOptions::default()
    };
    let engine = Engine::start(model, tokenizer, options)?;
    fastest(|| {
        let (sender, events) = mpsc::channel();
        for request in 0..REQUESTS {
            let sender = sender.clone();
            let request = Request { sampling: sampling(), ..Request::new(prompt(model, request)) };
            engine.submit(request, move |event| drop(sender.send(event)))?.detach();
        }
        drop(sender);
        for event in events {
            if let Event::Failed(error) = event {
                bail!(error);
            }
        }
        Ok(())
    })
}

/// The least time of several runs. The first one is not counted: it makes the provider's plans.
fn fastest(mut run: impl FnMut() -> Result<()>) -> Result<Duration> {
    run()?;
    let mut least = Duration::MAX;
    for _ in 0..REPEATS {
        let start = Instant::now();
        run()?;
        least = least.min(start.elapsed());
    }
    Ok(least)
}
