//! Anthropic's API: `POST /v1/messages`. Requests are translated to OpenAI's form.

mod request;
mod stream;

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use textgen::TextFinish;
use textgen::engine::Usage;

use crate::access_log::Record;
use crate::app::App;
use crate::body::Json;
use crate::chat::{self, Collected};
use crate::failure::Failure;
use crate::sse::streamed;

use request::MessagesRequest;
use stream::MessageStream;

/// Where this API is. All errors of this path have its form.
pub const PATH: &str = "/v1/messages";

/// Answers a conversation.
pub async fn create(
    State(app): State<App>,
    Extension(record): Extension<Arc<Record>>,
    body: Json,
) -> Result<Response, Failure> {
    let request: MessagesRequest = body.read()?;
    let is_stream = request.is_stream();
    let stop = request.only_stop();
    let id = format!("msg_{}", record.id());
    let mut running = chat::start(&app, record, Json::translated(request.translated()?)).await?;
    let head = message(&id, &running.model.name, running.prompt_tokens);
    if is_stream {
        return Ok(streamed(MessageStream::new(head, running, stop)));
    }
    let mut message = head;
    let choice = running.collect().await?.into_iter().next().unwrap_or_default();
    message["stop_reason"] = json!(stop_reason(choice.finish, !choice.calls.is_empty()));
    message["stop_sequence"] = json!(stop.filter(|_| choice.finish == TextFinish::StopString));
    message["content"] = json!(blocks(choice));
    message["usage"] = usage(running.prompt_tokens, running.generation.usage());
    Ok(axum::Json(message).into_response())
}

/// A message without content.
fn message(id: &str, model: &str, prompt_tokens: usize) -> Value {
    json!({
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": {"input_tokens": prompt_tokens, "output_tokens": 0},
    })
}

fn blocks(choice: Collected) -> Vec<Value> {
    let mut blocks = Vec::new();
    if !choice.reasoning.is_empty() {
        blocks.push(json!({"type": "thinking", "thinking": choice.reasoning, "signature": ""}));
    }
    if !choice.text.is_empty() || choice.calls.is_empty() {
        blocks.push(json!({"type": "text", "text": choice.text}));
    }
    for call in choice.calls {
        // Arguments were read as an object.
        let input: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
        blocks.push(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input}));
    }
    blocks
}

fn stop_reason(finish: TextFinish, has_called: bool) -> &'static str {
    match finish {
        TextFinish::EndToken if has_called => "tool_use",
        TextFinish::EndToken => "end_turn",
        TextFinish::StopString => "stop_sequence",
        _ => "max_tokens",
    }
}

/// Anthropic counts cached tokens apart from the others.
fn usage(prompt_tokens: usize, usage: &Usage) -> Value {
    let cached = usage.cached_tokens.min(prompt_tokens);
    json!({
        "input_tokens": prompt_tokens - cached,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.new_tokens,
    })
}

/// An error in Anthropic's form.
pub fn error(failure: &Failure) -> Value {
    let kind = match failure.status() {
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        status if status.is_server_error() => "api_error",
        _ => failure.kind(),
    };
    json!({"type": "error", "error": {"type": kind, "message": failure.message()}})
}
