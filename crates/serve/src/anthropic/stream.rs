//! The events of a streamed message.

use std::collections::VecDeque;

use axum::response::sse::Event;
use serde_json::{Value, json};
use textgen::TextFinish;

use crate::chat::{ChatChoice, Running};
use crate::failure::Failure;
use crate::generation::{Generation, Piece};
use crate::sse::{Events, named};
use crate::tools::Delta;

use super::{error, stop_reason, usage};

/// A message that is sent block by block.
pub struct MessageStream {
    /// `None` after the end.
    generation: Option<Generation>,
    choices: Vec<ChatChoice>,
    prompt_tokens: usize,
    stop: Option<String>,
    finish: TextFinish,
    /// The type of the block that is open.
    open: Option<&'static str>,
    blocks: usize,
    ready: VecDeque<Event>,
}

impl MessageStream {
    pub fn new(head: Value, running: Running, stop: Option<String>) -> MessageStream {
        let Running { generation, choices, prompt_tokens, .. } = running;
        let mut stream = MessageStream {
            generation: Some(generation),
            choices,
            prompt_tokens,
            stop,
            finish: TextFinish::Cancelled,
            open: None,
            blocks: 0,
            ready: VecDeque::new(),
        };
        stream.push("message_start", json!({"message": head}));
        stream
    }

    fn push(&mut self, name: &'static str, mut document: Value) {
        document["type"] = json!(name);
        self.ready.push_back(named(name, &document));
    }

    fn close(&mut self) {
        if self.open.take().is_some() {
            self.push("content_block_stop", json!({"index": self.blocks}));
            self.blocks += 1;
        }
    }

    fn open(&mut self, kind: &'static str, block: Value) {
        self.close();
        self.open = Some(kind);
        self.push("content_block_start", json!({"index": self.blocks, "content_block": block}));
    }

    fn add(&mut self, delta: Value) {
        self.push("content_block_delta", json!({"index": self.blocks, "delta": delta}));
    }

    fn deltas(&mut self, deltas: Vec<Delta>) {
        for delta in deltas {
            match delta {
                Delta::Content(text) => {
                    if self.open != Some("text") {
                        self.open("text", json!({"type": "text", "text": ""}));
                    }
                    self.add(json!({"type": "text_delta", "text": text}));
                }
                Delta::Reasoning(text) => {
                    if self.open != Some("thinking") {
                        self.open("thinking", json!({"type": "thinking", "thinking": "", "signature": ""}));
                    }
                    self.add(json!({"type": "thinking_delta", "thinking": text}));
                }
                Delta::Call { name, arguments } => {
                    let id = self.choices.first_mut().map(|choice| choice.next_call().1);
                    self.open("tool_use", json!({"type": "tool_use", "id": id, "name": name, "input": {}}));
                    self.add(json!({"type": "input_json_delta", "partial_json": arguments}));
                    self.close();
                }
            }
        }
    }
}

impl Events for MessageStream {
    fn state(&mut self) -> (&mut Option<Generation>, &mut VecDeque<Event>) {
        (&mut self.generation, &mut self.ready)
    }

    fn piece(&mut self, _index: usize, piece: Piece) {
        let Some(choice) = self.choices.first_mut() else { return };
        let deltas = match piece {
            Piece::Text { text, token } => choice.push(token.map(|(token, _)| token), &text),
            Piece::Finished(finish) => {
                self.finish = finish;
                choice.finish()
            }
        };
        self.deltas(deltas);
    }

    fn end(&mut self, generation: &Generation) {
        self.close();
        let has_called = self.choices.first().is_some_and(ChatChoice::has_called);
        let sequence = self.stop.take().filter(|_| self.finish == TextFinish::StopString);
        let delta = json!({"stop_reason": stop_reason(self.finish, has_called), "stop_sequence": sequence});
        let usage = usage(self.prompt_tokens, generation.usage());
        self.push("message_delta", json!({"delta": delta, "usage": usage}));
        self.push("message_stop", json!({}));
    }

    fn failed(&mut self, failure: &Failure) {
        self.ready.push_back(named("error", &error(failure)));
    }
}
