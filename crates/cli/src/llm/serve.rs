//! `amdgpu-ep serve`: an HTTP server for model folders, compatible with OpenAI's API, and for plain ONNX models.

use std::io::{self, BufRead};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serve::{Bytes, Keys, Load, Loaded, LogFormat, ModelSettings, Server, Settings, Stopped, hashed_line};
use textgen::embed::{EmbedOptions, Embedder};
use textgen::speech::Transcriber;
use textgen::{Config, Model, Runtime, Tokenizer, open_regular, open_session};

use crate::doctor;
use crate::ffi;
use crate::ort::message;
use crate::terminal::{note, write};

use super::{DeviceArguments, print_notices};

/// The arguments of `serve`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// Model folders or .onnx files, each PATH or NAME=PATH; the name defaults to that of the folder or file
    #[arg(value_name = "MODEL_DIR")]
    models: Vec<String>,
    /// Read settings from a TOML file (described in docs/serve.md); arguments override it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Load models when a request needs them, and unload those that are not used
    #[arg(long)]
    on_demand: bool,
    /// Check the settings and the model folders, and exit
    #[arg(long)]
    check: bool,
    /// Read an API key from stdin, and print the line for the file of keys
    #[arg(long, value_name = "NAME", conflicts_with_all = ["check", "config"])]
    hash_key: Option<String>,
    #[command(flatten)]
    network: NetworkArguments,
    #[command(flatten)]
    limits: LimitArguments,
    #[command(flatten)]
    device: DeviceArguments,
}

/// Who can connect.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Network")]
struct NetworkArguments {
    /// Address to listen on [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    host: Option<IpAddr>,
    /// Port to listen on; 0 picks a free one [default: 8080]
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// File of hashed API keys; AMDGPU_EP_API_KEYS may hold more keys, separated by commas
    #[arg(long, value_name = "FILE")]
    api_keys: Option<PathBuf>,
    /// Certificate for TLS, a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// Private key of the certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Let web pages of this origin use the server
    #[arg(long = "cors-origin", value_name = "ORIGIN")]
    cors_origins: Vec<String>,
    /// Log of requests on stderr [default: text]
    #[arg(long, value_name = "FORMAT")]
    log: Option<Log>,
}

/// The value of `--log`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Log {
    /// A line for people
    Text,
    /// A JSON document per line
    Json,
    /// Only problems of the server
    Off,
}

/// How much runs at once.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Scheduling")]
struct LimitArguments {
    /// Sequences that run at once, for each model
    #[arg(long, value_name = "N")]
    slots: Option<usize>,
    /// Requests that may wait; more are answered with status 429
    #[arg(long, value_name = "N")]
    queue: Option<usize>,
    /// Memory for all models, such as 24G; those on demand are unloaded to stay within it
    #[arg(long, value_name = "BYTES")]
    memory_budget: Option<Bytes>,
    /// Run every batch size before a model is ready, so that the first requests do not wait for it [default: on a GPU]
    #[arg(long, value_name = "BOOL")]
    warm_up: Option<bool>,
    /// Seconds that running requests get when the server stops [default: 30]
    #[arg(long, value_name = "SECONDS")]
    drain: Option<u64>,
}

/// Runs the command, and returns its exit code.
///
/// # Errors
/// When a setting, a model or the address is invalid.
pub fn run(arguments: &Arguments) -> Result<u8> {
    if let Some(name) = &arguments.hash_key {
        let mut key = String::new();
        io::stdin().lock().read_line(&mut key).context("the key could not be read from stdin")?;
        write(&format!("{}\n", hashed_line(name, key.trim())?))?;
        return Ok(0);
    }
    let settings = arguments.settings()?;
    if arguments.check {
        return check(arguments, &settings);
    }
    let Some(first) = settings.models.first() else { bail!("there is no model") };
    let (name, kind) = (first.name(), Kind::of(&first.folder));
    // Wrong folders are reported before the search for ONNX Runtime, which may take seconds.
    for model in &settings.models {
        if let Kind::Text | Kind::Speech = Kind::of(&model.folder) {
            arguments.device.config(&model.folder)?;
        }
    }
    let chosen = doctor::onnxruntime_library(arguments.device.ort.as_deref())?;
    chosen.announce();
    let server = Server::bind(settings)?;
    let url = server.url()?;
    if server.is_open() {
        note("warning", "anyone who reaches this address can use the server\n  help: set --api-keys");
    }
    note("note", &format!("listening on {url}"));
    let device = arguments.device.clone();
    let loader = move |folder: &Path| Ok(load(&device, folder, &chosen.path)?);
    let ready = move || {
        note("note", &format!("ready; open {url} or try\n  {}", kind.example(&url, &name)));
    };
    let stopping = || note("note", "stopping after the running requests; press Ctrl-C again to stop at once");
    match server.run(Box::new(loader), ready, stopping)? {
        Stopped::Drained => Ok(0),
        // The exit handlers of ONNX Runtime would free what its threads still use.
        Stopped::Unfinished => ffi::exit_now(0),
        Stopped::AtOnce => ffi::exit_now(INTERRUPTED),
    }
}

/// What a model is for.
#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Text,
    /// Speech becomes text.
    Speech,
    /// Sentences become vectors.
    Encoder,
    /// Any other model: the ONNX file.
    Tensors(PathBuf),
}

impl Kind {
    /// Recognises a model by its files. Only language and speech models have settings, and only encoders a tokenizer beside
    /// their model.
    fn of(path: &Path) -> Kind {
        let model =
            ["model.onnx", "onnx/model.onnx"].map(|name| path.join(name)).into_iter().find(|file| file.exists());
        match model {
            None if path.extension().is_some_and(|extension| extension == "onnx") => Kind::Tensors(path.to_owned()),
            Some(_) if path.join("genai_config.json").exists() => Kind::Text,
            Some(_) if path.join("tokenizer.json").exists() => Kind::Encoder,
            Some(model) => Kind::Tensors(model),
            None if Config::from_folder(path).is_ok_and(|config| config.encoder.is_some()) => Kind::Speech,
            None => Kind::Text,
        }
    }

    /// An example request for users to try.
    fn example(&self, url: &str, model: &str) -> String {
        let post = |path: &str, body: &str| format!("curl {url}{path} -H 'Content-Type: application/json' -d '{body}'");
        match self {
            Kind::Text => {
                let messages = r#"[{"role":"user","content":"Hello"}]"#;
                post("/v1/chat/completions", &format!(r#"{{"model":"{model}","messages":{messages}}}"#))
            }
            Kind::Speech => format!("curl {url}/v1/audio/transcriptions -F model={model} -F file=@speech.wav"),
            Kind::Encoder => post("/v1/embeddings", &format!(r#"{{"model":"{model}","input":"Hello"}}"#)),
            Kind::Tensors(_) => format!("curl {url}/v2/models/{model}"),
        }
    }
}

fn load(device: &DeviceArguments, path: &Path, onnxruntime: &Path) -> Result<Loaded> {
    let runtime = Runtime::load(onnxruntime)?;
    let print = |notices: &[String]| notices.iter().for_each(|notice| note("note", &message::plain(notice)));
    let (loaded, attached) = match Kind::of(path) {
        Kind::Encoder => {
            let options = EmbedOptions { provider: device.request(), ..EmbedOptions::default() };
            let embedder = Embedder::load(&runtime, path, options)?;
            print(embedder.notices());
            let attached = embedder.attached().clone();
            (Loaded::Embedder(embedder), attached)
        }
        Kind::Tensors(file) => {
            let opened = open_session(&runtime, device.request().as_ref(), &file)?;
            print(&opened.notices);
            let attached = opened.attached.clone();
            (Loaded::Tensors(opened), attached)
        }
        Kind::Text => {
            let config = device.config(path)?;
            let tokenizer = Tokenizer::from_folder(&config)?;
            let model = Model::load(&runtime, &config)?;
            print_notices(&model);
            let attached = model.attached().clone();
            (Loaded::Text { model, tokenizer }, attached)
        }
        Kind::Speech => {
            let transcriber = Transcriber::load(&runtime, &device.config(path)?)?;
            print(&transcriber.notices().cloned().collect::<Vec<_>>());
            let attached = transcriber.attached().clone();
            (Loaded::Transcriber(Box::new(transcriber)), attached)
        }
    };
    note("note", &format!("{} runs on {attached}", path.display()));
    Ok(loaded)
}

/// The exit code that shells report for a command ended by Ctrl-C.
const INTERRUPTED: i32 = 130;

fn check(arguments: &Arguments, settings: &Settings) -> Result<u8> {
    let mut settings = settings.clone();
    settings.check()?;
    let keys = Keys::read(settings.api_keys.as_deref())?;
    let mut text = format!("address  {}\nkeys     {}\n", settings.address(), keys.len());
    for model in &settings.models {
        let does = match Kind::of(&model.folder) {
            Kind::Encoder => {
                Tokenizer::from_file(&model.folder.join("tokenizer.json"))?;
                "embeddings".to_owned()
            }
            Kind::Tensors(file) => {
                let problem = || format!("{} cannot be opened\n  help: name an .onnx file", file.display());
                open_regular(&file).with_context(problem)?;
                "tensors".to_owned()
            }
            Kind::Text | Kind::Speech => {
                let config = arguments.device.config(&model.folder)?;
                Tokenizer::from_folder(&config)?;
                format!("{}, {} tokens", config.kind, config.context_length)
            }
        };
        text += &format!("model    {} ({does})\n", model.name());
    }
    write(&text)?;
    Ok(0)
}

impl Arguments {
    /// The settings of the file, overridden by the arguments.
    fn settings(&self) -> Result<Settings> {
        let mut settings = match &self.config {
            Some(path) => Settings::from_file(path)?,
            None => Settings::default(),
        };
        if !self.models.is_empty() {
            settings.models = self.models.iter().map(|text| ModelSettings::parse(text)).collect();
        }
        if self.on_demand {
            settings.models.iter_mut().for_each(|model| model.load = Load::OnDemand);
        }
        let NetworkArguments { host, port, api_keys, tls_certificate, tls_key, cors_origins, log } = &self.network;
        let LimitArguments { slots, queue, memory_budget, warm_up, drain } = self.limits;
        settings.host = host.unwrap_or(settings.host);
        settings.port = port.unwrap_or(settings.port);
        settings.api_keys = api_keys.clone().or(settings.api_keys);
        settings.tls_certificate = tls_certificate.clone().or(settings.tls_certificate);
        settings.tls_key = tls_key.clone().or(settings.tls_key);
        if !cors_origins.is_empty() {
            settings.cors_origins.clone_from(cors_origins);
        }
        settings.log = match log {
            Some(Log::Text) => LogFormat::Text,
            Some(Log::Json) => LogFormat::Json,
            Some(Log::Off) => LogFormat::Off,
            None => settings.log,
        };
        settings.slots = slots.unwrap_or(settings.slots);
        settings.queue = queue.unwrap_or(settings.queue);
        settings.warm_up = warm_up.or(settings.warm_up);
        settings.memory_budget = memory_budget.or(settings.memory_budget);
        settings.drain_seconds = drain.unwrap_or(settings.drain_seconds);
        settings.max_length = self.device.max_length.or(settings.max_length);
        settings.check()?;
        Ok(settings)
    }
}
