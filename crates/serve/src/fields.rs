//! Fields that the endpoints share: how tokens are chosen, when an answer ends, and its form.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Deserialize;
use serde_json::Value;
use textgen::engine::Request;
use textgen::{Config, Form, Sampling, TextFinish};

use crate::Settings;
use crate::failure::Failure;
use crate::served::ServedModel;

/// The most stop strings of a request, and their longest length in bytes.
const MOST_STOPS: usize = 16;
const LONGEST_STOP: usize = 1024;

/// The most alternatives for which a client can ask.
pub const MOST_LOGPROBS: usize = 20;

/// The most tokens with a bias.
const MOST_BIASES: usize = 1024;

/// How tokens are chosen. The model folder sets the defaults.
#[derive(Debug, Default, Deserialize)]
pub struct SamplingFields {
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<i64>,
    min_p: Option<f32>,
    seed: Option<i64>,
    repetition_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    #[serde(default)]
    logit_bias: Option<BTreeMap<String, f32>>,
}

impl SamplingFields {
    /// The settings for one model.
    pub fn sampling(&self, config: &Config) -> Result<Sampling, Failure> {
        let mut sampling = Sampling::from(&config.search);
        let draws = self.temperature.is_some() || self.top_k.is_some() || self.top_p.is_some();
        sampling.do_sample |= draws || self.min_p.is_some() || self.seed.is_some();
        let within = |name: &str, value: Option<f32>, least: f32, most: f32, fallback: f32| match value {
            Some(value) if !(least..=most).contains(&value) => {
                Err(Failure::field(name, format!("it is {value}, but must be between {least} and {most}")))
            }
            value => Ok(value.unwrap_or(fallback)),
        };
        sampling.temperature = within("temperature", self.temperature, 0.0, 100.0, sampling.temperature)?;
        sampling.top_p = within("top_p", self.top_p, 0.0, 1.0, sampling.top_p)?;
        sampling.min_p = within("min_p", self.min_p, 0.0, 1.0, sampling.min_p)?;
        sampling.repetition_penalty =
            within("repetition_penalty", self.repetition_penalty, 0.01, 100.0, sampling.repetition_penalty)?;
        sampling.presence_penalty = within("presence_penalty", self.presence_penalty, -100.0, 100.0, 0.0)?;
        sampling.frequency_penalty = within("frequency_penalty", self.frequency_penalty, -100.0, 100.0, 0.0)?;
        if let Some(top_k) = self.top_k {
            // Other servers write "all" as -1.
            let top_k = usize::try_from(top_k.max(0)).unwrap_or(usize::MAX);
            sampling.top_k = if top_k >= config.vocab_size { 0 } else { top_k };
        }
        // The generator has seeds of 32 bits.
        sampling.seed = self.seed.map(|seed| (seed ^ (seed >> 32)) as u32).or(sampling.seed);
        if self.logit_bias.as_ref().is_some_and(|biases| biases.len() > MOST_BIASES) {
            return Err(Failure::field("logit_bias", format!("at most {MOST_BIASES} tokens are possible")));
        }
        for (token, &bias) in self.logit_bias.iter().flatten() {
            let id = match token.parse::<u32>() {
                // Two spellings of a number would be two biases of one token.
                Ok(id) if (id as usize) < config.vocab_size && id.to_string() == *token => id,
                _ => {
                    let problem = format!("{token:?} is not a token id below {}", config.vocab_size);
                    return Err(Failure::field("logit_bias", problem));
                }
            };
            sampling.logit_bias.push((id, within("logit_bias", Some(bias), -1e4, 1e4, 0.0)?));
        }
        Ok(sampling)
    }
}

/// When an answer ends, and how many there are.
#[derive(Debug, Default, Deserialize)]
pub struct LimitFields {
    max_tokens: Option<usize>,
    max_completion_tokens: Option<usize>,
    stop: Option<OneOrMany>,
    n: Option<usize>,
    /// Generates all tokens, whatever the model says; vLLM and llama.cpp have the same field.
    #[serde(default)]
    ignore_eos: Option<bool>,
    /// Requests with a larger number run earlier.
    #[serde(default)]
    priority: Option<i32>,
}

/// A string, or a list of them.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    pub fn into_vec(self) -> Vec<String> {
        match self {
            OneOrMany::One(one) => vec![one],
            OneOrMany::Many(many) => many,
        }
    }
}

impl LimitFields {
    /// The number of choices for each prompt.
    pub fn choices(&self, settings: &Settings) -> Result<usize, Failure> {
        match self.n.unwrap_or(1) {
            n if (1..=settings.max_choices).contains(&n) => Ok(n),
            n => Err(Failure::field("n", format!("it is {n}, but must be 1 to {}", settings.max_choices))),
        }
    }

    /// A request to the engine.
    pub fn request(self, prompt: Vec<u32>, sampling: Sampling, settings: &Settings) -> Result<Request, Failure> {
        let choices = self.choices(settings)?;
        let stops = self.stop.map(OneOrMany::into_vec).unwrap_or_default();
        if stops.len() > MOST_STOPS || stops.iter().any(|stop| stop.len() > LONGEST_STOP) {
            let problem = format!("at most {MOST_STOPS} strings of {LONGEST_STOP} bytes are possible");
            return Err(Failure::field("stop", problem));
        }
        let wanted = self.max_completion_tokens.or(self.max_tokens);
        if wanted == Some(0) {
            return Err(Failure::field("max_tokens", "it must be at least 1"));
        }
        Ok(Request {
            max_new_tokens: wanted.or(settings.default_max_tokens),
            sampling,
            stops,
            choices,
            ignore_end: self.ignore_eos.unwrap_or(false),
            priority: self.priority.unwrap_or(0),
            deadline: Some(Instant::now() + settings.request_time()),
            ..Request::new(prompt)
        })
    }
}

/// `response_format`.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ResponseFormat {
    Text,
    JsonObject,
    JsonSchema { json_schema: NamedSchema },
}

/// A schema and OpenAI's fields around it.
#[derive(Debug, Deserialize)]
pub struct NamedSchema {
    schema: Value,
}

impl ResponseFormat {
    pub fn form(&self) -> Option<Form> {
        match self {
            ResponseFormat::Text => None,
            ResponseFormat::JsonObject => Some(Form::JsonSchema(r#"{"type":"object"}"#.to_owned())),
            ResponseFormat::JsonSchema { json_schema } => Some(Form::JsonSchema(json_schema.schema.to_string())),
        }
    }
}

/// Restricts an answer to a form.
pub fn constrain(model: &ServedModel, format: Option<&ResponseFormat>, request: &mut Request) -> Result<(), Failure> {
    if let Some(form) = format.and_then(ResponseFormat::form) {
        request.filter = Some(Box::new(model.constraint(&form)?));
    }
    Ok(())
}

/// OpenAI's word for the end of an answer.
pub fn finish_reason(finish: TextFinish) -> &'static str {
    match finish {
        TextFinish::EndToken | TextFinish::StopString => "stop",
        _ => "length",
    }
}
