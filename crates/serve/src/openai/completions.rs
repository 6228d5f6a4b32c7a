//! `POST /v1/completions`.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use textgen::engine::Request;

use crate::access_log::{Record, unix_time};
use crate::app::App;
use crate::body::Json;
use crate::chat::blocking;
use crate::failure::Failure;
use crate::fields::{LimitFields, MOST_LOGPROBS, ResponseFormat, SamplingFields, constrain, finish_reason};
use crate::generation::{Admission, Generation, Piece};
use crate::served::ServedModel;
use crate::sse::{Events, event, streamed};

use super::chat::Sending;
use super::logprobs::Legacy;
use super::{Head, usage};

const UNSUPPORTED: [&str; 2] = ["suffix", "echo"];

#[derive(Deserialize)]
struct CompletionRequest {
    model: Option<String>,
    prompt: Prompt,
    logprobs: Option<usize>,
    best_of: Option<usize>,
    response_format: Option<ResponseFormat>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
    Texts(Vec<String>),
    TokenLists(Vec<Vec<u32>>),
}

impl Prompt {
    fn token_lists(self, model: &ServedModel) -> Result<Vec<Vec<u32>>, Failure> {
        let lists = match self {
            Prompt::Text(text) => vec![model.encode(&text)?],
            Prompt::Texts(texts) => texts.iter().map(|text| model.encode(text)).collect::<Result<_, _>>()?,
            Prompt::Tokens(tokens) => vec![tokens],
            Prompt::TokenLists(lists) => lists,
        };
        let vocabulary = model.config.vocab_size;
        match lists.iter().flatten().find(|&&token| token as usize >= vocabulary) {
            Some(token) => Err(Failure::field("prompt", format!("{token} is not a token id below {vocabulary}"))),
            None if lists.is_empty() || lists.iter().any(Vec::is_empty) => {
                Err(Failure::field("prompt", "it must not be empty"))
            }
            None => Ok(lists),
        }
    }
}

/// A request that is ready to run.
struct Prepared {
    model: Arc<ServedModel>,
    requests: Vec<Request>,
    choices: usize,
    prompt_tokens: usize,
}

/// Continues one or more prompts.
pub async fn complete(
    State(app): State<App>,
    Extension(record): Extension<Arc<Record>>,
    body: Json,
) -> Result<Response, Failure> {
    body.without(&UNSUPPORTED)?;
    let request: CompletionRequest = body.read()?;
    let model = app.models().find(request.model.as_deref()).await?;
    let sending: Sending = body.read()?;
    let admission = Admission::of(&app, record)?;
    let prepared = blocking(move || prepare(&app, model, request, &body)).await?;
    let Prepared { model, requests, choices, prompt_tokens } = prepared;
    let record = admission.record();
    record.set_model(&model.name);
    let head = Head { id: format!("cmpl-{}", record.id()), created: unix_time(), model: model.name.clone() };
    let generation = Generation::start(admission, &model.engine, requests, "prompt")?;
    let answer = Answer { head, model, prompt_tokens };
    if sending.is_stream() {
        let (offsets, ready, wants_usage) = (vec![0; choices], VecDeque::new(), sending.wants_usage());
        return Ok(streamed(CompletionStream { answer, generation: Some(generation), offsets, wants_usage, ready }));
    }
    answer.collected(generation, choices).await
}

fn prepare(app: &App, model: Arc<ServedModel>, request: CompletionRequest, body: &Json) -> Result<Prepared, Failure> {
    let settings = app.settings();
    let each = body.read::<LimitFields>()?.choices(settings)?;
    if request.best_of.is_some_and(|best| best != each) {
        return Err(Failure::field("best_of", "this server does not support it"));
    }
    let top_logprobs = match request.logprobs {
        Some(top) if top > MOST_LOGPROBS => {
            return Err(Failure::field("logprobs", format!("it is {top}, but must be at most {MOST_LOGPROBS}")));
        }
        top => top,
    };
    let prompts = request.prompt.token_lists(&model)?;
    let choices = prompts.len().saturating_mul(each);
    if choices > settings.max_choices {
        let problem = format!("{choices} choices are too many; at most {} are possible", settings.max_choices);
        return Err(Failure::field("prompt", problem));
    }
    let sampling = body.read::<SamplingFields>()?.sampling(&model.config)?;
    let prompt_tokens = prompts.iter().map(Vec::len).sum();
    let mut requests = Vec::new();
    for prompt in prompts {
        let mut one = body.read::<LimitFields>()?.request(prompt, sampling.clone(), settings)?;
        one.top_logprobs = top_logprobs;
        constrain(&model, request.response_format.as_ref(), &mut one)?;
        requests.push(one);
    }
    Ok(Prepared { model, requests, choices, prompt_tokens })
}

/// What all parts of an answer share.
struct Answer {
    head: Head,
    model: Arc<ServedModel>,
    prompt_tokens: usize,
}

#[derive(Default)]
struct Collected {
    text: String,
    logprobs: Option<Legacy>,
    finish: &'static str,
}

impl Answer {
    fn document(&self, choices: &Value) -> Value {
        let Head { id, created, model } = &self.head;
        json!({"id": id, "object": "text_completion", "created": created, "model": model, "choices": choices})
    }

    async fn collected(&self, mut generation: Generation, choices: usize) -> Result<Response, Failure> {
        let mut collected: Vec<Collected> = (0..choices).map(|_| Collected::default()).collect();
        while let Some((index, piece)) = generation.next().await? {
            let Some(choice) = collected.get_mut(index) else { continue };
            match piece {
                Piece::Finished(finish) => choice.finish = finish_reason(finish),
                Piece::Text { text, token } => {
                    if let Some((token, Some(found))) = token {
                        let offset = choice.text.chars().count();
                        choice.logprobs.get_or_insert_default().push(&self.model.tokenizer, token, &found, offset);
                    }
                    choice.text += &text;
                }
            }
        }
        let choice = |(index, choice): (usize, &Collected)| {
            let logprobs = choice.logprobs.as_ref().map(Legacy::document);
            json!({"index": index, "text": choice.text, "logprobs": logprobs, "finish_reason": choice.finish})
        };
        let mut answer = self.document(&collected.iter().enumerate().map(choice).collect());
        answer["usage"] = usage(self.prompt_tokens, generation.usage());
        Ok(axum::Json(answer).into_response())
    }
}

struct CompletionStream {
    answer: Answer,
    /// `None` after the end.
    generation: Option<Generation>,
    /// Characters sent so far, by choice.
    offsets: Vec<usize>,
    wants_usage: bool,
    ready: VecDeque<Event>,
}

impl CompletionStream {
    fn push(&mut self, choices: &Value, usage: Option<Value>) {
        let mut chunk = self.answer.document(choices);
        if self.wants_usage {
            chunk["usage"] = json!(usage);
        }
        self.ready.push_back(event(&chunk));
    }
}

impl Events for CompletionStream {
    fn state(&mut self) -> (&mut Option<Generation>, &mut VecDeque<Event>) {
        (&mut self.generation, &mut self.ready)
    }

    fn piece(&mut self, index: usize, piece: Piece) {
        let (text, logprobs, finish) = match piece {
            Piece::Finished(finish) => (String::new(), None, Some(finish_reason(finish))),
            Piece::Text { text, token } => {
                let offset = self.offsets.get(index).copied().unwrap_or(0);
                let logprobs = token.and_then(|(token, found)| {
                    let mut legacy = Legacy::default();
                    legacy.push(&self.answer.model.tokenizer, token, &found?, offset);
                    Some(legacy.document())
                });
                if let Some(offset) = self.offsets.get_mut(index) {
                    *offset += text.chars().count();
                }
                (text, logprobs, None)
            }
        };
        if !text.is_empty() || logprobs.is_some() || finish.is_some() {
            let choice = json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish});
            self.push(&json!([choice]), None);
        }
    }

    fn end(&mut self, generation: &Generation) {
        if self.wants_usage {
            let usage = usage(self.answer.prompt_tokens, generation.usage());
            self.push(&json!([]), Some(usage));
        }
        self.ready.push_back(Event::default().data("[DONE]"));
    }

    fn failed(&mut self, failure: &Failure) {
        self.ready.push_back(event(&failure.document()));
    }
}
