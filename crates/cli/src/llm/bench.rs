//! `amdgpu-ep bench-llm`: measures how fast a model folder processes prompts and generates text.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;
use textgen::{Config, Generator, GeneratorOptions, Sampling};

use super::{FolderArguments, Opened, Opening, note, open};
use crate::memory::{self, Memory};
use crate::plot::{Line, Plot};
use crate::progress::Progress;
use crate::record::Record;
use crate::replace;
use crate::report;
use crate::table;
use crate::times::Times;

/// The version of the JSON document.
const SCHEMA: u32 = 1;

/// The arguments of `bench-llm`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(flatten)]
    folder: FolderArguments,
    /// Prompt lengths in tokens, one measurement each
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [128, 512])]
    prompts: Vec<usize>,
    /// Batch sizes, one measurement each
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1])]
    batches: Vec<usize>,
    /// Tokens to generate after each prompt
    #[arg(long, value_name = "N", default_value_t = 64)]
    new_tokens: usize,
    /// Rounds per measurement, after one warm-up round
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// Also measure ONNX Runtime's CPU provider, alternating
    #[arg(long)]
    cpu: bool,
    /// Peak memory bandwidth of the device in GB/s; also prints the share that steps reach
    #[arg(long, value_name = "GB/S")]
    bandwidth: Option<f64>,
    /// Write a plot of speed over prompt length
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print one JSON document (described in docs/cli.md) instead of text
    #[arg(long)]
    json: bool,
}

/// The complete report.
#[derive(Clone, Debug, Serialize)]
struct Report {
    schema: u32,
    model: String,
    onnxruntime: String,
    /// Load time of each model in seconds.
    load_seconds: Vec<(String, f64)>,
    /// Size of the decoder's files in bytes: the maximum that a step reads of them.
    weight_bytes: u64,
    bandwidth_gb_s: Option<f64>,
    measurements: Vec<Measurement>,
    /// Size of the largest key/value cache in bytes.
    cache_bytes: u64,
    /// Peak memory of the device's allocator, caches included; absent if the caches are in host memory.
    allocator_bytes: Option<u64>,
    /// The backend's memory statistics; absent unless it is the hip backend.
    memory: Option<Memory>,
}

/// A prompt length and batch size on one provider.
#[derive(Clone, Debug, Serialize)]
struct Measurement {
    provider: String,
    batch: usize,
    prompt: usize,
    new_tokens: usize,
    /// Time to the first token.
    first_token: Times,
    prompt_tokens_per_second: f64,
    /// Time per step, for all rows together.
    step: Times,
    tokens_per_second: f64,
    /// The weights, plus the keys and values at the middle step.
    step_bytes_at_most: u64,
    /// The share of bandwidth that this takes at the median step time.
    bandwidth_share_at_most: Option<f64>,
}

/// Runs the command, and returns the exit code and the output.
///
/// # Errors
/// When the folder, a length or the model is invalid, or the plot cannot be written.
pub fn run(arguments: &Arguments) -> Result<(u8, String)> {
    check(arguments)?;
    let mut sides = Vec::new();
    let mut load_seconds = Vec::new();
    let record = Record::new()?;
    let mut requests = vec![arguments.folder.clone()];
    // Inserted first, so that an entry from the user overrides it.
    let (key, path) = record.entry()?;
    requests[0].device.options.insert(0, (key.to_owned(), path.to_owned()));
    if arguments.cpu {
        let mut cpu = arguments.folder.clone();
        (cpu.device.provider, cpu.device.require_gpu) = ("cpu".to_owned(), false);
        requests.push(cpu);
    }
    for request in requests {
        let start = Instant::now();
        match open(&request)? {
            Opening::Ready(opened) => {
                load_seconds.push((opened.model.attached().to_string(), start.elapsed().as_secs_f64()));
                sides.push(opened);
            }
            Opening::NoGpu(code) => return Ok((code, String::new())),
        }
    }
    let [first, ..] = &sides[..] else { bail!("no provider to measure") };
    let mut report = Report {
        schema: SCHEMA,
        model: arguments.folder.folder.display().to_string(),
        onnxruntime: first.onnxruntime.display().to_string(),
        load_seconds,
        weight_bytes: decoder_bytes(first.model.config())?,
        bandwidth_gb_s: arguments.bandwidth,
        measurements: Vec::new(),
        cache_bytes: arguments.cache_tokens() as u64 * first.model.cache_bytes_per_token() as u64,
        allocator_bytes: None,
        memory: None,
    };
    let progress = Progress::new("warming up ...");
    for &batch in &arguments.batches {
        for &prompt in &arguments.prompts {
            progress.say(format!("measuring prompts of {prompt} tokens, batch {batch} ..."));
            let case = Case { batch, prompt, new_tokens: arguments.new_tokens, rounds: arguments.rounds };
            report.measurements.extend(case.measure(&sides, &report)?);
        }
    }
    drop(progress);
    report.allocator_bytes = first.model.device_bytes_at_most();
    // Memory is counted until the session ends.
    drop(sides);
    report.memory = memory::last(record.read()?);
    if let Some(path) = &arguments.plot {
        replace::write(path, plot(&report).as_bytes())?;
        note("note", &format!("the plot is in {}", path.display()));
    }
    let text = report::written(&report, arguments.json, text)?;
    Ok((0, text))
}

impl Arguments {
    /// Capacity of the largest cache in tokens.
    fn cache_tokens(&self) -> usize {
        let longest = self.prompts.iter().max().map_or(0, |prompt| prompt + self.new_tokens);
        longest * self.batches.iter().max().unwrap_or(&0)
    }
}

fn check(arguments: &Arguments) -> Result<()> {
    if arguments.prompts.contains(&0) || arguments.batches.contains(&0) {
        bail!("prompt lengths and batch sizes must be at least 1");
    }
    if arguments.new_tokens < 2 || arguments.rounds == 0 {
        bail!("nothing to measure\n  help: --new-tokens must be at least 2, and --rounds at least 1");
    }
    Ok(())
}

/// A case to measure.
#[derive(Clone, Copy)]
struct Case {
    batch: usize,
    prompt: usize,
    new_tokens: usize,
    rounds: usize,
}

impl Case {
    /// Measures all sides.
    fn measure(self, sides: &[Box<Opened>], report: &Report) -> Result<Vec<Measurement>> {
        let mut runs = sides.iter().map(|side| Run::new(side, self)).collect::<Result<Vec<_>>>()?;
        for round in 0..=self.rounds {
            // Alternate between the sides, so that other load on the machine affects all of them equally.
            for run in &mut runs {
                run.round(self, round > 0)?;
            }
        }
        Ok(runs.into_iter().map(|run| run.finish(self, report)).collect())
    }

    /// Any tokens will do: the time of a step does not depend on them.
    fn rows(self, config: &Config) -> Vec<Vec<u32>> {
        let ends = &config.eos_tokens;
        let usable: Vec<u32> = (0..config.vocab_size as u32).filter(|token| !ends.contains(token)).take(997).collect();
        let token = |row: usize, column: usize| usable[(row * 31 + column * 17) % usable.len().max(1)];
        (0..self.batch).map(|row| (0..self.prompt).map(|column| token(row, column)).collect()).collect()
    }
}

/// A side of a measurement.
struct Run {
    generator: Generator,
    rows: Vec<Vec<u32>>,
    first_tokens: Vec<Duration>,
    steps: Vec<Duration>,
}

impl Run {
    fn new(side: &Opened, case: Case) -> Result<Run> {
        let config = side.model.config();
        let rows = case.rows(config);
        let options = GeneratorOptions {
            batch: case.batch,
            max_length: Some(case.prompt + case.new_tokens),
            // Prevents a round from ending early.
            sampling: Some(Sampling { min_length: case.prompt + case.new_tokens, ..Sampling::default() }),
            prompt_shape: side.prompt_shape,
            ..GeneratorOptions::default()
        };
        let generator = Generator::new(&side.model, options)?;
        Ok(Run { generator, rows, first_tokens: Vec::new(), steps: Vec::new() })
    }

    fn round(&mut self, case: Case, counts: bool) -> Result<()> {
        self.generator.rewind(0)?;
        let rows: Vec<&[u32]> = self.rows.iter().map(Vec::as_slice).collect();
        self.generator.append_rows(&rows)?;
        for step in 0..case.new_tokens {
            let start = Instant::now();
            self.generator.step()?;
            let times = if step == 0 { &mut self.first_tokens } else { &mut self.steps };
            if counts {
                times.push(start.elapsed());
            }
        }
        Ok(())
    }

    fn finish(self, case: Case, report: &Report) -> Measurement {
        let Case { batch, prompt, new_tokens, .. } = case;
        let model = self.generator.model();
        let (first_token, step) = (Times::of(self.first_tokens), Times::of(self.steps));
        let cached = batch * (prompt + new_tokens / 2) * model.cache_bytes_per_token();
        let step_bytes = report.weight_bytes + cached as u64;
        let share = |bandwidth: f64| step_bytes as f64 / (bandwidth * 1e9) / (step.median_ms / 1e3);
        Measurement {
            provider: model.attached().to_string(),
            batch,
            prompt,
            new_tokens,
            prompt_tokens_per_second: (batch * prompt) as f64 / first_token.median_ms * 1e3,
            tokens_per_second: batch as f64 / step.median_ms * 1e3,
            step_bytes_at_most: step_bytes,
            bandwidth_share_at_most: report.bandwidth_gb_s.map(share),
            first_token,
            step,
        }
    }
}

/// Size of the decoder and of the weights file beside it, which has its name plus `.data`.
fn decoder_bytes(config: &Config) -> Result<u64> {
    let decoder = &config.decoder;
    let size = |path: &Path| -> Result<u64> {
        Ok(std::fs::metadata(path).with_context(|| format!("{} could not be read", path.display()))?.len())
    };
    let mut bytes = size(decoder)?;
    let beside = format!("{}.data", decoder.display());
    if Path::new(&beside).exists() {
        bytes += size(Path::new(&beside))?;
    }
    Ok(bytes)
}

fn text(report: &Report) -> String {
    let mut out = format!("{}\nONNX Runtime: {}\n", report.model, report.onnxruntime);
    for (provider, seconds) in &report.load_seconds {
        out += &format!("ready on {provider} after {seconds:.2} s\n");
    }
    out += &format!("files of the decoder: {:.1} MB\n\n", report.weight_bytes as f64 / 1e6);
    let rows = report.measurements.iter().map(|measured| {
        [
            measured.provider.clone(),
            measured.batch.to_string(),
            measured.prompt.to_string(),
            format!("{:.2} ms", measured.first_token.median_ms),
            format!("{:.0} tokens/s", measured.prompt_tokens_per_second),
            format!("{:.3} ms", measured.step.median_ms),
            format!("{:.3} ms", measured.step.p95_ms),
            format!("{:.1} tokens/s", measured.tokens_per_second),
            measured.bandwidth_share_at_most.map_or("-".to_owned(), |share| format!("<= {:.0} %", share * 100.0)),
        ]
    });
    let head = ["provider", "batch", "prompt", "first token", "reading", "step", "p95", "writing", "of bandwidth"];
    out += &table::text(head, rows.collect());
    if let Some(memory) = &report.memory {
        let allocator = report.allocator_bytes.unwrap_or(0);
        let more = [
            ("cache", report.cache_bytes, "key-value cache of the largest measurement"),
            ("allocator", allocator, "most that the device's allocator held at once: caches, inputs and outputs"),
        ];
        out += &format!("\n{}", memory::text(memory, &more));
    }
    out
}

fn plot(report: &Report) -> String {
    let mut lines: Vec<Line> = Vec::new();
    for measured in &report.measurements {
        let label = format!("{}, batch {}", measured.provider, measured.batch);
        let at = lines.iter().position(|line| line.label == label).unwrap_or_else(|| {
            lines.push(Line { label, points: Vec::new() });
            lines.len() - 1
        });
        lines[at].points.push((measured.prompt as f64, measured.tokens_per_second));
    }
    let title = format!("{}: tokens written per second", report.model);
    Plot { title: &title, across: "tokens of the prompt", lines: &lines }.svg()
}
