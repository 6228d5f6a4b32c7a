//! `POST /v1/responses`, without stored responses. Requests are translated to the form of the chat endpoint.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use textgen::TextFinish;
use textgen::engine::Usage;

use crate::access_log::{Record, unix_time};
use crate::app::App;
use crate::body::Json;
use crate::chat;
use crate::failure::Failure;
use crate::sse::streamed;

use super::responses_stream::ResponseStream;

/// Fields that need stored responses, or that change the meaning of an answer and are not supported.
const UNSUPPORTED: [&str; 4] = ["previous_response_id", "conversation", "background", "prompt"];

/// Fields of the chat endpoint, and their names here.
const RENAMED: [(&str, &str); 3] =
    [("messages", "input"), ("max_tokens", "max_output_tokens"), ("response_format", "text.format")];

#[derive(Deserialize)]
struct ResponsesRequest {
    model: Option<Value>,
    input: Input,
    instructions: Option<String>,
    stream: Option<bool>,
    max_output_tokens: Option<Value>,
    temperature: Option<Value>,
    top_p: Option<Value>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    text: Option<TextOptions>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Items(Vec<Value>),
}

#[derive(Deserialize)]
struct TextOptions {
    format: Option<Value>,
}

/// Answers a conversation.
pub async fn create(
    State(app): State<App>,
    Extension(record): Extension<Arc<Record>>,
    body: Json,
) -> Result<Response, Failure> {
    body.without(&UNSUPPORTED)?;
    let request: ResponsesRequest = body.read()?;
    let is_stream = request.stream.unwrap_or(false);
    let id = record.id().to_owned();
    let started = chat::start(&app, record, Json::translated(request.translated()?)).await;
    let mut running = started.map_err(|failure| failure.renamed(&RENAMED))?;
    let head =
        Head { id, created: unix_time(), model: running.model.name.clone(), prompt_tokens: running.prompt_tokens };
    if is_stream {
        return Ok(streamed(ResponseStream::new(head, running)));
    }
    let choice = running.collect().await?.into_iter().next().unwrap_or_default();
    let mut output = Vec::new();
    if !choice.reasoning.is_empty() {
        output.push(head.reasoning(output.len(), &choice.reasoning));
    }
    if !choice.text.is_empty() || choice.calls.is_empty() {
        output.push(head.message(output.len(), &choice.text, "completed"));
    }
    for call in &choice.calls {
        output.push(head.call(output.len(), &call.id, &call.name, &call.arguments));
    }
    let answer = head.response(Some((choice.finish, running.generation.usage())), output);
    Ok(axum::Json(answer).into_response())
}

impl ResponsesRequest {
    fn translated(self) -> Result<Value, Failure> {
        let mut messages = Vec::new();
        if let Some(text) = self.instructions {
            messages.push(json!({"role": "system", "content": text}));
        }
        match self.input {
            Input::Text(text) => messages.push(json!({"role": "user", "content": text})),
            Input::Items(items) => {
                for item in items {
                    messages.extend(message(item)?);
                }
            }
        }
        let mut body = json!({
            "messages": messages,
            "model": self.model,
            "max_tokens": self.max_output_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
        });
        if let Some(tools) = self.tools {
            body["tools"] = tools.into_iter().map(|tool| json!({"type": tool["type"], "function": tool})).collect();
        }
        body["tool_choice"] = match self.tool_choice {
            Some(Value::Object(choice)) => json!({"type": "function", "function": choice}),
            choice => json!(choice),
        };
        if let Some(mut format) = self.text.and_then(|text| text.format) {
            // The chat endpoint has one more level.
            if format["type"] == "json_schema" {
                format["json_schema"] = json!({"schema": format["schema"].take()});
            }
            body["response_format"] = format;
        }
        Ok(body)
    }
}

/// An item of the input as a message. Templates leave out the reasoning of earlier answers.
fn message(mut item: Value) -> Result<Option<Value>, Failure> {
    match item["type"].as_str() {
        None | Some("message") => Ok(Some(item)),
        Some("reasoning") => Ok(None),
        Some("function_call") => {
            let function = json!({"name": item["name"].take(), "arguments": item["arguments"].take()});
            let call = json!({"id": item["call_id"].take(), "type": "function", "function": function});
            Ok(Some(json!({"role": "assistant", "content": null, "tool_calls": [call]})))
        }
        Some("function_call_output") => {
            let (id, output) = (item["call_id"].take(), item["output"].take());
            Ok(Some(json!({"role": "tool", "tool_call_id": id, "content": output})))
        }
        Some(kind) => Err(Failure::field("input", format!("items of type {kind:?} are not supported"))),
    }
}

/// What all documents of a response share.
pub struct Head {
    pub id: String,
    pub created: u64,
    pub model: String,
    pub prompt_tokens: usize,
}

impl Head {
    /// The response; without an end it is in progress.
    pub fn response(&self, end: Option<(TextFinish, &Usage)>, output: Vec<Value>) -> Value {
        let is_cut = end.is_some_and(|(finish, _)| !matches!(finish, TextFinish::EndToken | TextFinish::StopString));
        let status = match end {
            None => "in_progress",
            Some(_) if is_cut => "incomplete",
            Some(_) => "completed",
        };
        let usage = end.map(|(_, usage)| {
            json!({
                "input_tokens": self.prompt_tokens,
                "input_tokens_details": {"cached_tokens": usage.cached_tokens.min(self.prompt_tokens)},
                "output_tokens": usage.new_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": self.prompt_tokens + usage.new_tokens,
            })
        });
        json!({
            "id": format!("resp_{}", self.id),
            "object": "response",
            "created_at": self.created,
            "status": status,
            "incomplete_details": is_cut.then(|| json!({"reason": "max_output_tokens"})),
            "error": null,
            "instructions": null,
            "metadata": {},
            "model": self.model,
            "output": output,
            "parallel_tool_calls": true,
            "temperature": null,
            "tool_choice": "auto",
            "tools": [],
            "top_p": null,
            "usage": usage,
        })
    }

    pub fn message(&self, index: usize, text: &str, status: &str) -> Value {
        let content = match status {
            "completed" => vec![json!({"type": "output_text", "text": text, "annotations": []})],
            _ => Vec::new(),
        };
        let id = self.item_id("msg", index);
        json!({"type": "message", "id": id, "status": status, "role": "assistant", "content": content})
    }

    pub fn reasoning(&self, index: usize, text: &str) -> Value {
        let content = [json!({"type": "reasoning_text", "text": text})];
        json!({"type": "reasoning", "id": self.item_id("rs", index), "summary": [], "content": content})
    }

    pub fn call(&self, index: usize, call_id: &str, name: &str, arguments: &str) -> Value {
        let id = self.item_id("fc", index);
        json!({
            "type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": arguments,
            "status": "completed",
        })
    }

    pub fn item_id(&self, kind: &str, index: usize) -> String {
        format!("{kind}_{}_{index}", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_answer_can_be_sent_back() {
        let head = Head { id: "1".to_owned(), created: 0, model: "demo".to_owned(), prompt_tokens: 1 };
        let input = json!([
            {"role": "user", "content": "Hello"},
            head.reasoning(0, "Hm."),
            head.message(1, "Hi", "completed"),
            head.call(2, "call_1", "f", "{}"),
        ]);
        let request: ResponsesRequest = serde_json::from_value(json!({"input": input})).unwrap();
        let messages = request.translated().unwrap()["messages"].take();
        let roles: Vec<_> = messages.as_array().unwrap().iter().map(|message| &message["role"]).collect();
        assert_eq!(roles, ["user", "assistant", "assistant"]);
        assert_eq!(messages[2]["tool_calls"][0]["id"], "call_1");
    }
}
