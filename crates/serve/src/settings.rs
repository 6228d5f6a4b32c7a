//! The settings of the server. The command line overrides the file.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::HeaderValue;
use serde::Deserialize;
use textgen::engine::EngineOptions;

use crate::files::read_text;
use crate::footprint::Footprint;
use crate::{Bytes, Error, tls};

/// Everything that can be set, in a TOML file of the same shape.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The address to listen on.
    pub host: IpAddr,
    /// The port; 0 lets the system choose.
    pub port: u16,
    /// The models.
    pub models: Vec<ModelSettings>,
    /// Sequences that run at once, for each model.
    pub slots: usize,
    /// Requests that may wait for a slot; more are answered with status 429.
    pub queue: usize,
    /// The longest sequence, prompt included; by default the folder's.
    pub max_length: Option<usize>,
    /// Prompt tokens that run between two decoding steps.
    pub prompt_chunk: usize,
    /// Whether a prompt starts from the longest prefix that is still cached.
    pub prefix_cache: bool,
    /// Blocks of the cache, for models with PagedAttention; by default as many as the folder says, or all slots can need.
    pub cache_blocks: Option<usize>,
    /// Draft tokens that are verified in one step; 0 turns this off.
    pub speculation: usize,
    /// Whether a language model runs every batch size before it is ready; by default on a GPU.
    pub warm_up: Option<bool>,
    /// New tokens of a request that does not say how many; by default as many as fit.
    pub default_max_tokens: Option<usize>,
    /// The most choices of one request (`n`, and prompts of `/v1/completions`).
    pub max_choices: usize,
    /// The largest body of a request in bytes.
    pub max_body_bytes: usize,
    /// Connections that may be open at once.
    pub max_connections: usize,
    /// Models that may be loaded on demand at once; by default all.
    pub max_loaded: Option<usize>,
    /// Memory that all models may take together; by default any.
    pub memory_budget: Option<Bytes>,
    /// Seconds until a model that was loaded on demand and is not used is unloaded.
    pub idle_seconds: u64,
    /// Seconds until a request is ended, waiting included.
    pub request_seconds: u64,
    /// Seconds until a client that does not read its answer is disconnected.
    pub write_seconds: u64,
    /// Seconds that running requests get when the server stops.
    pub drain_seconds: u64,
    /// Requests that a key may send in a minute. Clients without keys share one limit.
    pub requests_per_minute: Option<u32>,
    /// Tokens that a key may use in a minute: those of prompts and of answers.
    pub tokens_per_minute: Option<u32>,
    /// The file of hashed API keys.
    pub api_keys: Option<PathBuf>,
    /// The certificate for TLS, in a PEM file.
    pub tls_certificate: Option<PathBuf>,
    /// The key of the certificate, in a PEM file.
    pub tls_key: Option<PathBuf>,
    /// Names besides localhost in `Host` headers, for a proxy in front of a server on a loopback address.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may use the server.
    pub cors_origins: Vec<String>,
    /// Whether the chat page is served at `/`.
    pub page: bool,
    /// The form of the log.
    pub log: LogFormat,
}

/// A model and its name.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ModelSettings {
    /// The name for clients; by default that of the folder or file.
    pub name: Option<String>,
    /// The model folder, or an ONNX file.
    pub folder: PathBuf,
    /// When it is loaded.
    #[serde(default)]
    pub load: Load,
    /// The memory that it takes; by default an estimate.
    #[serde(default)]
    pub memory: Option<Bytes>,
}

/// When a model is loaded.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// When the server starts; it stays loaded.
    #[default]
    Start,
    /// When a request needs it.
    OnDemand,
}

/// The form of the log on stderr.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// A JSON document per line.
    Json,
    /// Only problems of the server.
    Off,
}

impl Default for Settings {
    fn default() -> Self {
        let engine = EngineOptions::default();
        Settings {
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 8080,
            models: Vec::new(),
            slots: engine.slots,
            queue: engine.queue,
            max_length: None,
            prompt_chunk: engine.prompt_chunk,
            prefix_cache: engine.prefix_cache,
            cache_blocks: engine.blocks,
            speculation: engine.speculation,
            warm_up: engine.warm_up,
            default_max_tokens: None,
            max_choices: 16,
            max_body_bytes: 4 << 20,
            max_connections: 1024,
            max_loaded: None,
            memory_budget: None,
            idle_seconds: 600,
            request_seconds: 600,
            write_seconds: 60,
            drain_seconds: 30,
            requests_per_minute: None,
            tokens_per_minute: None,
            api_keys: None,
            tls_certificate: None,
            tls_key: None,
            allowed_hosts: Vec::new(),
            cors_origins: Vec::new(),
            page: true,
            log: LogFormat::Text,
        }
    }
}

impl Settings {
    /// Reads a TOML file. Relative paths in it start at its folder.
    ///
    /// # Errors
    /// When the file cannot be read, or a setting is unknown or has the wrong type.
    pub fn from_file(path: &Path) -> Result<Settings, Error> {
        let help = "name a readable TOML file; docs/serve.md lists the settings";
        let wrong = |problem: String| Error::Setting {
            origin: path.display().to_string(),
            problem,
            help: "docs/serve.md lists the settings".to_owned(),
        };
        let text = read_text(path, help)?;
        let mut settings: Settings = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        for model in &mut settings.models {
            model.folder = folder.join(&model.folder);
        }
        for file in [&mut settings.api_keys, &mut settings.tls_certificate, &mut settings.tls_key] {
            *file = file.take().map(|file| folder.join(file));
        }
        Ok(settings)
    }

    /// Checks the values, and gives every model its name.
    ///
    /// # Errors
    /// When a value is out of range, there is no model, two have the same name, an origin is malformed, or the
    /// certificate or its key cannot be used.
    pub fn check(&mut self) -> Result<(), Error> {
        let wrong = |origin: &str, problem: String, help: &str| Error::Setting {
            origin: origin.to_owned(),
            problem,
            help: help.to_owned(),
        };
        let ranges = [
            ("slots", self.slots, 1, 1024),
            ("queue", self.queue, 0, 1 << 20),
            ("prompt_chunk", self.prompt_chunk, 1, 1 << 20),
            ("cache_blocks", self.cache_blocks.unwrap_or(1), 1, 1 << 20),
            ("speculation", self.speculation, 0, 64),
            ("max_choices", self.max_choices, 1, 128),
            ("max_body_bytes", self.max_body_bytes, 1 << 10, 1 << 30),
            ("max_connections", self.max_connections, 1, 1 << 20),
            ("max_length", self.max_length.unwrap_or(1), 1, usize::MAX),
            ("default_max_tokens", self.default_max_tokens.unwrap_or(1), 1, usize::MAX),
            ("max_loaded", self.max_loaded.unwrap_or(1), 1, 1 << 20),
            ("idle_seconds", self.idle_seconds as usize, 1, 31_536_000),
            ("request_seconds", self.request_seconds as usize, 1, 86_400),
            ("write_seconds", self.write_seconds as usize, 1, 86_400),
            ("requests_per_minute", self.requests_per_minute.unwrap_or(1) as usize, 1, u32::MAX as usize),
            ("tokens_per_minute", self.tokens_per_minute.unwrap_or(1) as usize, 1, u32::MAX as usize),
            ("drain_seconds", self.drain_seconds as usize, 0, 86_400),
        ];
        for (name, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                let problem = format!("it is {value}, out of range");
                return Err(wrong(name, problem, &format!("use {least} to {most}")));
            }
        }
        if self.models.is_empty() {
            return Err(wrong("models", "there is no model".to_owned(), "name at least one model folder"));
        }
        for at in 0..self.models.len() {
            let name = self.models[at].name();
            if self.models[..at].iter().any(|earlier| earlier.name() == name) {
                let help = "write NAME=FOLDER, or set its name in the file";
                return Err(wrong("models", format!("two models have the name {name}"), help));
            }
            self.models[at].name = Some(name);
        }
        self.check_memory()?;
        self.origins()?;
        tls::acceptor(self).map(drop)
    }

    /// Whether the memory budget suffices for the models that stay loaded, and for each of the others beside them.
    fn check_memory(&self) -> Result<(), Error> {
        let Some(Bytes(budget)) = self.memory_budget else { return Ok(()) };
        let mut left = budget;
        let (start, on_demand): (Vec<_>, Vec<_>) = self.models.iter().partition(|model| model.load == Load::Start);
        for model in start.into_iter().chain(on_demand) {
            let bytes = Footprint::of(model, self).bytes();
            let Some(rest) = left.checked_sub(bytes) else {
                return Err(Error::Setting {
                    origin: "memory_budget".to_owned(),
                    problem: format!(
                        "the model {} takes about {}, but only {} of {} are left for it",
                        model.name(),
                        Bytes(bytes),
                        Bytes(left),
                        Bytes(budget)
                    ),
                    help: "raise it, lower slots or max_length, or set the model's memory if it takes less".to_owned(),
                });
            };
            if model.load == Load::Start {
                left = rest;
            }
        }
        Ok(())
    }

    /// The origins of web pages that may use the server.
    pub(crate) fn origins(&self) -> Result<Vec<HeaderValue>, Error> {
        let parsed = |origin: &String| {
            let (scheme, host) = origin.split_once("://")?;
            let is_origin = !scheme.is_empty() && !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ', ',']);
            HeaderValue::from_str(origin).ok().filter(|_| is_origin)
        };
        let wrong = |origin: &String| Error::Setting {
            origin: "cors_origins".to_owned(),
            problem: format!("{origin:?} is not an origin"),
            help: "write a scheme and a host, such as https://chat.example.org".to_owned(),
        };
        self.cors_origins.iter().map(|origin| parsed(origin).ok_or_else(|| wrong(origin))).collect()
    }

    /// The address to listen on.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.host, self.port)
    }

    pub(crate) fn engine(&self) -> EngineOptions {
        EngineOptions {
            slots: self.slots,
            max_length: self.max_length,
            queue: self.queue,
            prompt_chunk: self.prompt_chunk,
            prefix_cache: self.prefix_cache,
            speculation: self.speculation,
            warm_up: self.warm_up,
            blocks: self.cache_blocks,
        }
    }

    pub(crate) fn idle_time(&self) -> Duration {
        Duration::from_secs(self.idle_seconds)
    }

    pub(crate) fn request_time(&self) -> Duration {
        Duration::from_secs(self.request_seconds)
    }

    pub(crate) fn write_time(&self) -> Duration {
        Duration::from_secs(self.write_seconds)
    }
}

impl ModelSettings {
    /// Parses `FOLDER` or `NAME=FOLDER`.
    pub fn parse(text: &str) -> ModelSettings {
        let (name, folder) = match text.split_once('=') {
            Some((name, folder)) if !name.is_empty() && !name.contains('/') => (Some(name.to_owned()), folder),
            _ => (None, text),
        };
        ModelSettings { name, folder: folder.into(), load: Load::default(), memory: None }
    }

    /// The name for clients.
    pub fn name(&self) -> String {
        if let Some(name) = &self.name {
            return name.clone();
        }
        // The last component of `.` and of `models/..` is not a name.
        let folder = std::fs::canonicalize(&self.folder).unwrap_or_else(|_| self.folder.clone());
        let is_file = folder.extension().is_some_and(|extension| extension == "onnx");
        let name = if is_file { folder.file_stem() } else { folder.file_name() };
        name.map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_text(text: &str) -> Result<Settings, Error> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("serve.toml");
        std::fs::write(&file, text).unwrap();
        Settings::from_file(&file)
    }

    #[test]
    fn the_server_is_private_by_default() {
        let settings = Settings::default();
        assert!(settings.host.is_loopback() && settings.cors_origins.is_empty());
    }

    #[test]
    fn paths_start_at_the_folder_of_the_file() {
        let settings = from_text("api_keys = 'keys'\n[[models]]\nfolder = 'small'\nname = 's'\n").unwrap();
        let (keys, folder) = (settings.api_keys.unwrap(), &settings.models[0].folder);
        assert!(keys.is_absolute() && keys.ends_with("keys"), "{keys:?}");
        assert!(folder.is_absolute() && folder.ends_with("small"), "{folder:?}");
    }

    #[test]
    fn unknown_settings_and_wrong_types_are_named() {
        for (text, wanted) in
            [("slot = 1", "slot"), ("port = 'x'", "port"), ("port = 70000", "port"), ("warm_up = 1", "warm_up")]
        {
            let error = from_text(text).unwrap_err().to_string();
            assert!(error.contains(wanted) && error.contains("help:"), "{error}");
        }
    }

    #[test]
    fn values_out_of_range_and_equal_names_are_rejected() {
        let model = |text: &str| ModelSettings::parse(text);
        let settings = |models: &[&str]| Settings {
            models: models.iter().map(|text| model(text)).collect(),
            ..Settings::default()
        };
        assert!(settings(&["a=x", "b=y"]).check().is_ok());
        assert!(settings(&["a=x", "a=y"]).check().unwrap_err().to_string().contains("two models"));
        assert!(settings(&[]).check().is_err());
        let none = Settings { slots: 0, ..settings(&["a=x"]) }.check().unwrap_err().to_string();
        assert!(none.contains("slots: it is 0"), "{none}");
    }

    #[test]
    fn a_budget_must_suffice_for_each_model() {
        let model = |name: &str, load: Load, bytes: u64| ModelSettings {
            load,
            memory: Some(Bytes(bytes)),
            ..ModelSettings::parse(&format!("{name}=x"))
        };
        let settings = |budget: u64| Settings {
            models: vec![model("a", Load::OnDemand, 40), model("b", Load::Start, 50), model("c", Load::OnDemand, 30)],
            memory_budget: Some(Bytes(budget)),
            ..Settings::default()
        };
        assert!(settings(90).check().is_ok(), "a and c need not be loaded at once");
        let error = settings(89).check().unwrap_err().to_string();
        assert!(error.contains("memory_budget: the model a takes about 40 bytes, but only 39 bytes"), "{error}");
        let error = settings(49).check().unwrap_err().to_string();
        assert!(error.contains("the model b"), "{error}");
    }

    #[test]
    fn origins_are_checked() {
        let settings = |origin: &str| Settings {
            models: vec![ModelSettings::parse("a=x")],
            cors_origins: vec![origin.to_owned()],
            ..Settings::default()
        };
        for origin in ["https://chat.example.org", "http://localhost:3000", "http://[::1]:3000"] {
            assert!(settings(origin).check().is_ok(), "{origin}");
        }
        for origin in ["", "*", "null", "chat.example.org", "https://", "https://a/", "https://a/b", "https://a b"] {
            let error = settings(origin).check().unwrap_err().to_string();
            assert!(error.contains("cors_origins"), "{error}");
        }
    }

    #[test]
    fn a_model_is_named_after_its_folder() {
        assert_eq!(ModelSettings::parse("demo/small").name(), "small");
        assert_eq!(ModelSettings::parse("tiny=demo/small").name(), "tiny");
        assert_eq!(ModelSettings::parse("demo/small.onnx").name(), "small");
        assert_eq!(ModelSettings::parse("a/b=c").folder, Path::new("a/b=c"));
    }
}
