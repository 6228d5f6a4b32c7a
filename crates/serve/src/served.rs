//! Loaded models, by what they do.

use std::sync::Arc;

use textgen::embed::Embedder;
use textgen::engine::Engine;
use textgen::speech::Transcriber;
use textgen::{ChatTemplate, Config, Constraint, Form, Model, Opened, Tokenizer};

use crate::Settings;
use crate::access_log::unix_time;
use crate::failure::Failure;
use crate::footprint::Footprint;
use crate::inference::TensorModel;
use crate::pool::Resident;
use crate::queue::Queued;
use crate::tools::Markers;

/// A model, loaded.
pub enum Loaded {
    /// A language model.
    Text {
        /// The model.
        model: Model,
        /// Its tokenizer.
        tokenizer: Tokenizer,
    },
    /// An encoder that turns sentences into vectors.
    Embedder(Embedder),
    /// A model that writes down speech.
    Transcriber(Box<Transcriber>),
    /// A plain ONNX model.
    Tensors(Opened),
}

/// A model that answers requests.
pub struct ServedModel {
    pub name: String,
    pub engine: Engine,
    pub tokenizer: Tokenizer,
    pub config: Config,
    /// Special tokens that structure answers.
    pub markers: Markers,
    /// What it runs on.
    pub provider: String,
    /// Seconds since 1970 when it was loaded.
    pub created: u64,
    /// The memory that it takes.
    bytes: u64,
    /// The template, or why there is none.
    template: Result<ChatTemplate, String>,
}

impl ServedModel {
    fn start(
        name: &str,
        model: &Model,
        tokenizer: &Tokenizer,
        settings: &Settings,
        footprint: Footprint,
    ) -> textgen::Result<ServedModel> {
        let config = model.config();
        let template = ChatTemplate::from_folder(config).map_err(|error| match error {
            textgen::Error::Text { problem, .. } => problem,
            other => other.to_string(),
        });
        let engine = Engine::start(model, tokenizer, settings.engine())?;
        Ok(ServedModel {
            name: name.to_owned(),
            bytes: footprint.with_cache(engine.stats().cache_bytes),
            engine,
            tokenizer: tokenizer.clone(),
            markers: Markers::of(tokenizer),
            config: config.clone(),
            provider: model.attached().to_string(),
            created: unix_time(),
            template,
        })
    }

    pub fn template(&self) -> Result<&ChatTemplate, Failure> {
        self.template.as_ref().map_err(|problem| {
            Failure::unprocessable(format!("{problem}; /v1/completions needs no chat template")).about("messages")
        })
    }

    /// The token ids of a text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Failure> {
        // Every token stands for at least one byte of a byte-level text, so this only rejects hopeless prompts early.
        let limit = self.engine.max_length().saturating_mul(LONGEST_TOKEN);
        if text.len() > limit {
            let message = format!("the prompt has {} bytes, too many for {limit}", text.len());
            return Err(Failure::invalid(message));
        }
        let mut tokens = self.tokenizer.encode(text)?;
        // A model needs at least one token to continue from.
        if tokens.is_empty() {
            tokens.extend(self.config.bos_token);
        }
        Ok(tokens)
    }

    /// A filter for answers of this form.
    pub fn constraint(&self, form: &Form) -> Result<Constraint, Failure> {
        Constraint::new(&self.config, &self.tokenizer, form).map_err(|error| match error {
            textgen::Error::Request { problem, help } => {
                Failure::unprocessable(format!("{problem}; {help}")).about("response_format")
            }
            error => error.into(),
        })
    }
}

/// No known vocabulary has a longer token, in bytes.
const LONGEST_TOKEN: usize = 1024;

/// What a model does.
#[derive(Clone)]
pub enum Served {
    Text(Arc<ServedModel>),
    Embedder(Arc<Queued<Embedder>>),
    Transcriber(Arc<Queued<Transcriber>>),
    Tensors(Arc<TensorModel>),
}

impl Served {
    /// Makes a loaded model answer requests.
    ///
    /// # Errors
    /// When it is not suitable.
    pub fn start(
        name: &str,
        loaded: Loaded,
        settings: &Settings,
        footprint: Footprint,
    ) -> Result<Served, Box<dyn std::error::Error + Send + Sync>> {
        Ok(match loaded {
            Loaded::Text { model, tokenizer } => {
                Served::Text(Arc::new(ServedModel::start(name, &model, &tokenizer, settings, footprint)?))
            }
            Loaded::Embedder(embedder) => Served::Embedder(Arc::new(Queued::new(embedder))),
            Loaded::Transcriber(transcriber) => Served::Transcriber(Arc::new(Queued::new(*transcriber))),
            Loaded::Tensors(Opened { session, attached, .. }) => {
                Served::Tensors(Arc::new(TensorModel::new(session, attached.to_string())?))
            }
        })
    }

    /// A request needs another kind of model.
    pub fn wrong_kind(&self, needed: &str) -> Failure {
        let makes = match self {
            Served::Text(_) => "text",
            Served::Embedder(_) => "embeddings",
            Served::Transcriber(_) => "transcripts",
            Served::Tensors(_) => "tensors",
        };
        Failure::field("model", format!("this model makes {makes}, not {needed}"))
    }

    /// Waits until nothing runs. Engines are shut down instead.
    pub async fn idle(&self) {
        match self {
            Served::Text(_) => {}
            Served::Embedder(embedder) => embedder.idle().await,
            Served::Transcriber(transcriber) => transcriber.idle().await,
            Served::Tensors(model) => model.idle().await,
        }
    }
}

impl Resident for Served {
    fn is_in_use(&self) -> bool {
        // Requests hold a clone for as long as they run.
        match self {
            Served::Text(model) => Arc::strong_count(model) > 1,
            Served::Embedder(embedder) => Arc::strong_count(embedder) > 1 || embedder.is_running(),
            Served::Transcriber(transcriber) => Arc::strong_count(transcriber) > 1 || transcriber.is_running(),
            Served::Tensors(model) => Arc::strong_count(model) > 1 || model.is_running(),
        }
    }

    fn has_stopped(&self) -> bool {
        matches!(self, Served::Text(model) if !model.engine.is_running())
    }

    fn bytes(&self) -> Option<u64> {
        match self {
            Served::Text(model) => Some(model.bytes),
            Served::Embedder(_) | Served::Tensors(_) | Served::Transcriber(_) => None,
        }
    }
}
