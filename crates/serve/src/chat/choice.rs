//! One choice of a chat answer: its text, reasoning and calls, as far as they are known.

use std::sync::Arc;

use crate::served::ServedModel;
use crate::tools::{Delta, Format, OutputParser};

/// How the answers of a request are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// How calls are written.
    pub format: Option<Format>,
    /// The prompt has begun the reasoning.
    pub thinks: bool,
    /// The answer is nothing but a call.
    pub is_forced: bool,
}

/// A choice that is being generated.
pub struct ChatChoice {
    model: Arc<ServedModel>,
    parser: OutputParser,
    /// The beginning of its calls' ids.
    id: String,
    calls: usize,
}

impl ChatChoice {
    pub fn new(model: Arc<ServedModel>, reading: Reading, id: String) -> ChatChoice {
        let parser = match reading {
            Reading { is_forced: true, .. } => OutputParser::forced(),
            Reading { format, thinks, .. } => OutputParser::new(format, thinks),
        };
        ChatChoice { model, parser, id, calls: 0 }
    }

    /// Adds text and the token that completed it.
    pub fn push(&mut self, token: Option<u32>, text: &str) -> Vec<Delta> {
        let marker = token.map_or("", |token| self.model.markers.text(token));
        pushed(&mut self.parser, text, marker)
    }

    /// Ends the choice.
    pub fn finish(&mut self) -> Vec<Delta> {
        self.parser.finish()
    }

    /// The number and the id of the next call.
    pub fn next_call(&mut self) -> (usize, String) {
        let index = self.calls;
        self.calls += 1;
        (index, format!("call_{}_{index}", self.id))
    }

    /// Whether there was a call.
    pub fn has_called(&self) -> bool {
        self.calls > 0
    }
}

/// Adds text and the marker that came with it. A marker has no text of its own, so the text was held back, and belongs
/// before the marker.
fn pushed(parser: &mut OutputParser, text: &str, marker: &str) -> Vec<Delta> {
    let mut deltas = parser.push(text);
    deltas.extend(parser.push(marker));
    deltas
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_was_held_back_for_a_stop_string_is_not_part_of_the_call() {
        let mut parser = OutputParser::new(Some(Format::Hermes), false);
        let pieces =
            [("See", ""), (": E", "<tool_call>"), (r#"{"name": "time", "arguments": {}}"#, ""), ("", "</tool_call>")];
        let deltas: Vec<Delta> =
            pieces.into_iter().flat_map(|(text, marker)| pushed(&mut parser, text, marker)).collect();
        let call = Delta::Call { name: "time".to_owned(), arguments: "{}".to_owned() };
        assert_eq!(deltas, [Delta::Content("See".to_owned()), Delta::Content(": E".to_owned()), call]);
    }
}
