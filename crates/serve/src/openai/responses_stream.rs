//! The events of a streamed response.

use std::collections::VecDeque;

use axum::response::sse::Event;
use serde_json::{Value, json};
use textgen::TextFinish;

use crate::chat::{ChatChoice, Running};
use crate::failure::Failure;
use crate::generation::{Generation, Piece};
use crate::sse::{Events, named};
use crate::tools::Delta;

use super::responses::Head;

/// A response that is sent event by event.
pub struct ResponseStream {
    head: Head,
    /// `None` after the end.
    generation: Option<Generation>,
    choices: Vec<ChatChoice>,
    finish: TextFinish,
    /// Reasoning so far.
    reasoning: String,
    /// The text of the message that is open.
    text: Option<String>,
    output: Vec<Value>,
    events: u64,
    ready: VecDeque<Event>,
}

impl ResponseStream {
    pub fn new(head: Head, running: Running) -> ResponseStream {
        let mut stream = ResponseStream {
            head,
            generation: Some(running.generation),
            choices: running.choices,
            finish: TextFinish::Cancelled,
            reasoning: String::new(),
            text: None,
            output: Vec::new(),
            events: 0,
            ready: VecDeque::new(),
        };
        for name in ["response.created", "response.in_progress"] {
            let response = stream.head.response(None, Vec::new());
            stream.push(name, json!({"response": response}));
        }
        stream
    }

    fn push(&mut self, name: &'static str, mut document: Value) {
        document["type"] = json!(name);
        document["sequence_number"] = json!(self.events);
        self.events += 1;
        self.ready.push_back(named(name, &document));
    }

    /// Adds an item that is complete.
    fn item(&mut self, item: Value) {
        let index = self.output.len();
        self.push("response.output_item.added", json!({"output_index": index, "item": item}));
        self.push("response.output_item.done", json!({"output_index": index, "item": item}));
        self.output.push(item);
    }

    fn end_reasoning(&mut self) {
        if !self.reasoning.is_empty() {
            let item = self.head.reasoning(self.output.len(), &std::mem::take(&mut self.reasoning));
            self.item(item);
        }
    }

    fn text(&mut self, text: &str) {
        self.end_reasoning();
        let index = self.output.len();
        let item_id = self.head.item_id("msg", index);
        if self.text.is_none() {
            let item = self.head.message(index, "", "in_progress");
            self.push("response.output_item.added", json!({"output_index": index, "item": item}));
            let part = json!({"type": "output_text", "text": "", "annotations": []});
            let place = json!({"item_id": item_id, "output_index": index, "content_index": 0, "part": part});
            self.push("response.content_part.added", place);
        }
        self.text.get_or_insert_default().push_str(text);
        let delta = json!({
            "item_id": item_id, "output_index": index, "content_index": 0, "delta": text, "logprobs": [],
        });
        self.push("response.output_text.delta", delta);
    }

    fn end_text(&mut self) {
        let Some(text) = self.text.take() else { return };
        let index = self.output.len();
        let item_id = self.head.item_id("msg", index);
        let done = json!({"item_id": item_id, "output_index": index, "content_index": 0, "text": text, "logprobs": []});
        self.push("response.output_text.done", done);
        let part = json!({"type": "output_text", "text": text, "annotations": []});
        let place = json!({"item_id": item_id, "output_index": index, "content_index": 0, "part": part});
        self.push("response.content_part.done", place);
        let item = self.head.message(index, &text, "completed");
        self.push("response.output_item.done", json!({"output_index": index, "item": item}));
        self.output.push(item);
    }

    fn delta(&mut self, delta: Delta) {
        match delta {
            Delta::Content(text) => self.text(&text),
            Delta::Reasoning(text) => {
                // An open message has the index that the reasoning would get.
                self.end_text();
                self.reasoning += &text;
            }
            Delta::Call { name, arguments } => {
                self.end_reasoning();
                self.end_text();
                let id = self.choices.first_mut().map(|choice| choice.next_call().1).unwrap_or_default();
                let item = self.head.call(self.output.len(), &id, &name, &arguments);
                self.item(item);
            }
        }
    }
}

impl Events for ResponseStream {
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
        deltas.into_iter().for_each(|delta| self.delta(delta));
    }

    fn end(&mut self, generation: &Generation) {
        self.end_reasoning();
        self.end_text();
        let output = std::mem::take(&mut self.output);
        let response = self.head.response(Some((self.finish, generation.usage())), output);
        let name = if response["status"] == "completed" { "response.completed" } else { "response.incomplete" };
        self.push(name, json!({"response": response}));
    }

    fn failed(&mut self, failure: &Failure) {
        let mut response = self.head.response(None, Vec::new());
        response["status"] = json!("failed");
        response["error"] = json!({"code": "server_error", "message": failure.message()});
        self.push("response.failed", json!({"response": response}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasoning_after_text_is_an_item_of_its_own() {
        let mut stream = ResponseStream {
            head: Head { id: "1".to_owned(), created: 0, model: "demo".to_owned(), prompt_tokens: 1 },
            generation: None,
            choices: Vec::new(),
            finish: TextFinish::EndToken,
            reasoning: String::new(),
            text: None,
            output: Vec::new(),
            events: 0,
            ready: VecDeque::new(),
        };
        stream.delta(Delta::Content("a".to_owned()));
        stream.delta(Delta::Reasoning("b".to_owned()));
        stream.delta(Delta::Content("c".to_owned()));
        stream.end_text();
        let items: Vec<_> = stream.output.iter().map(|item| (&item["type"], &item["content"][0]["text"])).collect();
        let (message, reasoning) = (&json!("message"), &json!("reasoning"));
        assert_eq!(items, [(message, &json!("a")), (reasoning, &json!("b")), (message, &json!("c"))]);
    }
}
