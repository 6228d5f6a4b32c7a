//! Shared by `generate`, `chat`, `transcribe`, `bench-llm` and `serve`: the model folder, the provider, and the choice of tokens.

pub mod bench;
pub mod chat;
pub mod generate;
mod lines;
pub mod serve;
pub mod transcribe;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use textgen::{
    Config, Form, Generator, GeneratorOptions, Model, PromptShape, ProviderRequest, Runtime, Sampling, Tokenizer,
    normalise,
};

use crate::doctor;
use crate::failure;
use crate::ort::message;
use crate::progress::Progress;
use crate::target::option;
use crate::terminal::note;

/// A GPU was required and cannot be used.
const NO_GPU: u8 = 1;

/// The model folder and what it runs on.
#[derive(Args, Clone, Debug)]
pub struct FolderArguments {
    /// The model folder: genai_config.json, a decoder (.onnx), tokenizer.json
    #[arg(value_name = "MODEL_DIR")]
    folder: PathBuf,
    #[command(flatten)]
    device: DeviceArguments,
    /// How prompts are padded
    #[arg(long, value_name = "SHAPE", default_value = "auto")]
    prompt_shape: Shape,
}

/// What models run on.
#[derive(Args, Clone, Debug)]
pub struct DeviceArguments {
    /// ONNX Runtime library [default: ORT_DYLIB_PATH, or the first that `doctor` finds]
    #[arg(long, value_name = "PATH")]
    ort: Option<PathBuf>,
    /// Provider library [default: AMDGPU_EP_PATH, or libamdgpu-ep beside this command or in ../lib]
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
    /// amdgpu or cpu
    #[arg(long, value_name = "NAME", default_value = "amdgpu", value_parser = provider)]
    provider: String,
    /// Fail if no AMD GPU is usable, instead of using the CPU
    #[arg(long)]
    require_gpu: bool,
    /// Which backend to use: auto, hip, migraphx, hipgpu, directx, eager or optimize
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// A provider option; a key with a dot is a session-config entry, such as session.disable_prepacking
    #[arg(long = "option", value_name = "KEY=VALUE", value_parser = option)]
    options: Vec<(String, String)>,
    /// Threads inside an operator [default: the folder's value, or chosen by ONNX Runtime]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Maximum tokens of a sequence, prompt included [default: the folder's value]
    #[arg(long, value_name = "N")]
    max_length: Option<usize>,
}

/// The value of `--prompt-shape`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shape {
    /// `max` on MIGraphX, which compiles every new shape; otherwise `exact`
    Auto,
    /// No padding
    Exact,
    /// Padded to the maximum length, so that one program serves all prompts
    Max,
}

impl From<Shape> for PromptShape {
    fn from(shape: Shape) -> PromptShape {
        match shape {
            Shape::Auto => PromptShape::Auto,
            Shape::Exact => PromptShape::Exact,
            Shape::Max => PromptShape::MaxLength,
        }
    }
}

fn provider(text: &str) -> Result<String, String> {
    match normalise(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err(format!("expected amdgpu or cpu, found {text:?}")),
    }
}

/// How tokens are chosen. Defaults come from the model folder.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArguments {
    /// Always take the best token, overriding the folder's settings
    #[arg(long, conflicts_with_all = ["temperature", "top_k", "top_p", "min_p", "seed"])]
    greedy: bool,
    /// Sampling temperature; 0 takes the best token
    #[arg(long, value_name = "T")]
    temperature: Option<f32>,
    /// Sample from the K best tokens; 0 means all
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Sample from the best tokens with this total probability
    #[arg(long, value_name = "P")]
    top_p: Option<f32>,
    /// Sample only tokens with at least this fraction of the best token's probability
    #[arg(long, value_name = "P")]
    min_p: Option<f32>,
    /// Sample with this seed; the same seed gives the same text
    #[arg(long, value_name = "N")]
    seed: Option<u32>,
    /// Divide the scores of tokens already in the sequence by this
    #[arg(long, value_name = "X")]
    repetition_penalty: Option<f32>,
    /// Subtract this from the scores of generated tokens
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    presence_penalty: Option<f32>,
    /// Subtract this from a token's score for each time it was generated
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    frequency_penalty: Option<f32>,
    /// Never repeat an n-gram of this length
    #[arg(long, value_name = "N")]
    no_repeat_ngram: Option<usize>,
    /// Add a bias to a token's score
    #[arg(long, value_name = "TOKEN=X", value_parser = bias)]
    logit_bias: Vec<(u32, f32)>,
}

fn bias(text: &str) -> Result<(u32, f32), String> {
    let parsed = text.split_once('=').and_then(|(token, bias)| Some((token.parse().ok()?, bias.parse().ok()?)));
    parsed.ok_or_else(|| format!("expected TOKEN=X, a token id and a number, found {text:?}"))
}

/// When an answer ends.
#[derive(Args, Clone, Debug)]
pub struct LimitArguments {
    /// Maximum number of tokens to generate
    #[arg(long, value_name = "N", default_value_t = 256)]
    max_new_tokens: usize,
    /// Stop at this text, which is not shown
    #[arg(long = "stop", value_name = "TEXT")]
    stops: Vec<String>,
}

/// The form of an answer.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Answer format")]
pub struct FormArguments {
    /// Constrain the answer to a JSON schema: inline JSON or a file
    #[arg(long, value_name = "JSON|FILE", group = "form")]
    json_schema: Option<String>,
    /// Constrain the answer to a regular expression
    #[arg(long, value_name = "REGEX", group = "form")]
    regex: Option<String>,
    /// Constrain the answer to a Lark grammar file
    #[arg(long, value_name = "FILE", group = "form")]
    grammar: Option<PathBuf>,
}

impl FormArguments {
    fn form(&self) -> Result<Option<Form>> {
        let read = |path: &Path| {
            std::fs::read_to_string(path).with_context(|| format!("{} could not be read", path.display()))
        };
        Ok(match (&self.json_schema, &self.regex, &self.grammar) {
            (Some(schema), ..) if schema.trim_start().starts_with('{') => Some(Form::JsonSchema(schema.clone())),
            (Some(file), ..) => Some(Form::JsonSchema(read(file.as_ref())?)),
            (_, Some(regex), _) => Some(Form::Regex(regex.clone())),
            (.., Some(file)) => Some(Form::Lark(read(file)?)),
            _ => None,
        })
    }
}

impl LimitArguments {
    fn limits(&self) -> textgen::Limits {
        textgen::Limits { max_new_tokens: Some(self.max_new_tokens), stops: self.stops.clone() }
    }
}

impl SamplingArguments {
    fn sampling(&self, config: &Config) -> Sampling {
        let mut sampling = Sampling::from(&config.search);
        let draws = self.temperature.is_some() || self.top_k.is_some() || self.top_p.is_some();
        sampling.do_sample |= draws || self.min_p.is_some() || self.seed.is_some();
        sampling.do_sample &= !self.greedy;
        sampling.temperature = self.temperature.unwrap_or(sampling.temperature);
        sampling.top_k = self.top_k.unwrap_or(sampling.top_k);
        sampling.top_p = self.top_p.unwrap_or(sampling.top_p);
        sampling.min_p = self.min_p.unwrap_or(sampling.min_p);
        sampling.seed = self.seed.or(sampling.seed);
        sampling.repetition_penalty = self.repetition_penalty.unwrap_or(sampling.repetition_penalty);
        sampling.presence_penalty = self.presence_penalty.unwrap_or(sampling.presence_penalty);
        sampling.frequency_penalty = self.frequency_penalty.unwrap_or(sampling.frequency_penalty);
        sampling.no_repeat_ngram_size = self.no_repeat_ngram.unwrap_or(sampling.no_repeat_ngram_size);
        sampling.logit_bias.clone_from(&self.logit_bias);
        sampling
    }
}

/// An opened model folder.
struct Opened {
    model: Model,
    tokenizer: Tokenizer,
    /// The ONNX Runtime library in use.
    onnxruntime: PathBuf,
    prompt_shape: PromptShape,
}

/// The result of opening.
enum Opening {
    Ready(Box<Opened>),
    /// A GPU was required and is not available; the exit code.
    NoGpu(u8),
}

/// Opens the model folder. Notices go to stderr.
fn open(arguments: &FolderArguments) -> Result<Opening> {
    let FolderArguments { folder, device, prompt_shape } = arguments;
    let config = device.config(folder)?;
    // Load the tokenizer first: it is fast, and the model may take minutes.
    let tokenizer = Tokenizer::from_folder(&config)?;
    let progress = Progress::new("looking for ONNX Runtime");
    let chosen = doctor::onnxruntime_library(device.ort.as_deref())?;
    progress.say("loading ONNX Runtime");
    let runtime = Runtime::load(&chosen.path)?;
    progress.say("loading the model");
    let model = Model::load(&runtime, &config);
    drop(progress);
    let model = match model {
        Err(error @ textgen::Error::Provider { .. }) if device.require_gpu => {
            note("error", &failure::text(&error.into()));
            return Ok(Opening::NoGpu(NO_GPU));
        }
        model => model?,
    };
    chosen.announce();
    print_notices(&model);
    let prompt_shape = (*prompt_shape).into();
    Ok(Opening::Ready(Box::new(Opened { model, tokenizer, onnxruntime: chosen.path, prompt_shape })))
}

fn print_notices(model: &Model) {
    for notice in model.config().notices.iter().chain(model.notices()) {
        note("note", &message::plain(notice));
    }
}

impl DeviceArguments {
    /// The folder's configuration with these arguments applied.
    fn config(&self, folder: &Path) -> Result<Config> {
        let mut config = Config::from_folder(folder)?;
        if let Some(length) = self.max_length
            && !(1..=config.context_length).contains(&length)
        {
            let most = config.context_length;
            bail!(
                "--max-length is {length}, but the model supports 1 to {most} tokens\n  help: use --max-length {most} or less"
            );
        }
        let (entries, options) = self.entries_and_options();
        config.session_entries.extend(entries);
        config.session.intra_threads = self.threads.map(usize::from).or(config.session.intra_threads);
        config.append_provider(&self.provider, options)?;
        if let Some(request) = &mut config.provider {
            request.library = self.plugin();
            request.require_gpu = self.require_gpu;
        } else if self.require_gpu {
            bail!("--require-gpu and --provider cpu contradict each other\n  help: omit one of them");
        }
        Ok(config)
    }

    /// The provider for a folder without such a configuration: an encoder. Session-config entries do not apply to it.
    fn request(&self) -> Option<ProviderRequest> {
        (normalise(&self.provider) != normalise("cpu")).then(|| ProviderRequest {
            options: self.entries_and_options().1,
            library: self.plugin(),
            require_gpu: self.require_gpu,
            ..ProviderRequest::default()
        })
    }

    /// Session-config entries, whose keys have a dot, and options of the provider.
    fn entries_and_options(&self) -> (Pairs, Pairs) {
        let profile = self.profile.iter().map(|profile| ("profile".to_owned(), profile.clone()));
        profile.chain(self.options.iter().cloned()).partition(|(key, _)| key.contains('.'))
    }

    /// The plugin library. If there is none, a notice says what is missing.
    fn plugin(&self) -> Option<PathBuf> {
        self.library.clone().or_else(|| doctor::plugin_library().ok())
    }
}

/// Keys and values.
type Pairs = Vec<(String, String)>;

impl Opened {
    fn generator(&self, max_length: Option<usize>, sampling: Sampling) -> Result<Generator> {
        let options = GeneratorOptions {
            max_length,
            sampling: Some(sampling),
            prompt_shape: self.prompt_shape,
            ..GeneratorOptions::default()
        };
        Ok(Generator::new(&self.model, options)?)
    }
}
