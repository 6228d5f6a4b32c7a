//! The chunks of a streamed chat answer.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::response::sse::Event;
use serde_json::{Value, json};

use crate::chat::{ChatChoice, Running};
use crate::failure::Failure;
use crate::fields::finish_reason;
use crate::generation::{Generation, Piece};
use crate::served::ServedModel;
use crate::sse::{Events, event};
use crate::tools::Delta;

use super::chat::call;
use super::{Head, logprobs, usage};

/// An answer that is sent token by token.
pub struct ChatStream {
    head: Head,
    model: Arc<ServedModel>,
    /// `None` after the end.
    generation: Option<Generation>,
    choices: Vec<ChatChoice>,
    prompt_tokens: usize,
    wants_usage: bool,
    ready: VecDeque<Event>,
}

impl ChatStream {
    pub fn new(head: Head, running: Running, wants_usage: bool) -> ChatStream {
        let Running { model, generation, choices, prompt_tokens } = running;
        let (generation, ready) = (Some(generation), VecDeque::new());
        let count = choices.len();
        let mut stream = ChatStream { head, model, generation, choices, prompt_tokens, wants_usage, ready };
        for index in 0..count {
            stream.push(index, json!({"role": "assistant", "content": ""}), None, None);
        }
        stream
    }

    fn push(&mut self, index: usize, delta: Value, logprobs: Option<Value>, finish: Option<&str>) {
        let choice = json!({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish});
        self.push_chunk(json!([choice]), None);
    }

    fn push_chunk(&mut self, choices: Value, usage: Option<Value>) {
        let mut chunk = json!({
            "id": self.head.id,
            "object": "chat.completion.chunk",
            "created": self.head.created,
            "model": self.head.model,
            "choices": choices,
        });
        if self.wants_usage {
            chunk["usage"] = json!(usage);
        }
        self.ready.push_back(event(&chunk));
    }

    fn push_deltas(&mut self, index: usize, deltas: Vec<Delta>, mut logprobs: Option<Value>) {
        for delta in deltas {
            let document = match delta {
                Delta::Content(text) => json!({"content": text}),
                Delta::Reasoning(text) => json!({"reasoning_content": text}),
                Delta::Call { name, arguments } => {
                    let (number, id) = self.choices[index].next_call();
                    let mut call = call(&id, &name, &arguments);
                    call["index"] = json!(number);
                    json!({"tool_calls": [call]})
                }
            };
            self.push(index, document, logprobs.take(), None);
        }
        // A token may complete no text that can be shown yet.
        if logprobs.is_some() {
            self.push(index, json!({"content": ""}), logprobs, None);
        }
    }
}

impl Events for ChatStream {
    fn state(&mut self) -> (&mut Option<Generation>, &mut VecDeque<Event>) {
        (&mut self.generation, &mut self.ready)
    }

    fn piece(&mut self, index: usize, piece: Piece) {
        let Some(choice) = self.choices.get_mut(index) else { return };
        match piece {
            Piece::Finished(finish) => {
                let deltas = choice.finish();
                self.push_deltas(index, deltas, None);
                let reason = match finish_reason(finish) {
                    "stop" if self.choices[index].has_called() => "tool_calls",
                    reason => reason,
                };
                self.push(index, json!({}), None, Some(reason));
            }
            Piece::Text { text, token } => {
                let deltas = choice.push(token.as_ref().map(|(token, _)| *token), &text);
                let entry = token.and_then(|(token, found)| {
                    let entry = logprobs::chat(&self.model.tokenizer, token, &found?);
                    Some(json!({"content": [entry], "refusal": null}))
                });
                self.push_deltas(index, deltas, entry);
            }
        }
    }

    fn end(&mut self, generation: &Generation) {
        if self.wants_usage {
            let usage = usage(self.prompt_tokens, generation.usage());
            self.push_chunk(json!([]), Some(usage));
        }
        self.ready.push_back(Event::default().data("[DONE]"));
    }

    fn failed(&mut self, failure: &Failure) {
        self.ready.push_back(event(&failure.document()));
    }
}
