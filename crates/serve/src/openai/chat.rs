//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use textgen::Tokenizer;

use crate::access_log::{Record, unix_time};
use crate::app::App;
use crate::body::Json;
use crate::chat::{self, Collected};
use crate::failure::Failure;
use crate::fields::finish_reason;
use crate::sse::streamed;

use super::chat_stream::ChatStream;
use super::{Head, logprobs, usage};

/// Fields that change the meaning of an answer and are not supported.
const UNSUPPORTED: [&str; 4] = ["functions", "function_call", "audio", "web_search_options"];

/// How the answer is sent.
#[derive(Clone, Copy, Default, Deserialize)]
pub struct Sending {
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
}

#[derive(Clone, Copy, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

impl Sending {
    /// Whether the answer is sent piece by piece.
    pub fn is_stream(self) -> bool {
        self.stream.unwrap_or(false)
    }

    /// Whether the last piece has the token counts.
    pub fn wants_usage(self) -> bool {
        self.stream_options.is_some_and(|options| options.include_usage)
    }
}

/// Answers a conversation.
pub async fn complete(
    State(app): State<App>,
    Extension(record): Extension<Arc<Record>>,
    body: Json,
) -> Result<Response, Failure> {
    body.without(&UNSUPPORTED)?;
    let sending: Sending = body.read()?;
    let id = format!("chatcmpl-{}", record.id());
    let mut running = chat::start(&app, record, body).await?;
    let head = Head { id, created: unix_time(), model: running.model.name.clone() };
    if sending.is_stream() {
        return Ok(streamed(ChatStream::new(head, running, sending.wants_usage())));
    }
    let choices = running.collect().await?;
    let document = |(index, choice)| document(&running.model.tokenizer, index, choice);
    let answer = json!({
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": choices.into_iter().enumerate().map(document).collect::<Vec<_>>(),
        "usage": usage(running.prompt_tokens, running.generation.usage()),
    });
    Ok(axum::Json(answer).into_response())
}

fn document(tokenizer: &Tokenizer, index: usize, choice: Collected) -> Value {
    let mut message = json!({"role": "assistant", "content": choice.text, "refusal": null});
    if !choice.reasoning.is_empty() {
        message["reasoning_content"] = json!(choice.reasoning);
    }
    let reason = match finish_reason(choice.finish) {
        "stop" if !choice.calls.is_empty() => "tool_calls",
        reason => reason,
    };
    if !choice.calls.is_empty() {
        let calls = choice.calls.iter().map(|found| call(&found.id, &found.name, &found.arguments));
        message["tool_calls"] = calls.collect();
        if choice.text.is_empty() {
            message["content"] = Value::Null;
        }
    }
    let logprobs = choice.logprobs.map(|found| {
        let entries = found.iter().map(|(token, found)| logprobs::chat(tokenizer, *token, found));
        json!({"content": entries.collect::<Vec<_>>(), "refusal": null})
    });
    json!({"index": index, "message": message, "logprobs": logprobs, "finish_reason": reason})
}

/// A call in OpenAI's form.
pub fn call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}
