//! gpt-oss' format: `<|channel|>NAME to=TOOL <|message|>TEXT<|end|>`, part after part.

use serde_json::{Map, Value};

use super::parser::{Delta, held_back};

const MARKERS: [&str; 7] =
    ["<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"];

/// The parser. An answer begins where the prompt's `<|start|>assistant` ends.
#[derive(Default)]
pub struct Harmony {
    held: String,
    part: Part,
}

#[derive(Default)]
enum Part {
    /// Between the parts, or inside a header with this text.
    #[default]
    Outside,
    Header(String),
    /// A text for the user or of the reasoning.
    Text(fn(String) -> Delta),
    /// The arguments of a call.
    Call {
        name: String,
        arguments: String,
    },
}

impl Harmony {
    pub fn push(&mut self, text: &str) -> Vec<Delta> {
        self.held.push_str(text);
        let mut found = Vec::new();
        loop {
            let first = MARKERS.iter().filter_map(|marker| Some((self.held.find(marker)?, *marker))).min();
            let end = first.map_or_else(|| held_back(&self.held, &MARKERS), |(at, _)| at);
            let rest = self.held.split_off(end);
            let text = std::mem::replace(&mut self.held, rest);
            self.text(text, &mut found);
            let Some((_, marker)) = first else { return found };
            self.held.drain(..marker.len());
            self.marker(marker, &mut found);
        }
    }

    pub fn finish(&mut self) -> Vec<Delta> {
        let mut found = Vec::new();
        let held = std::mem::take(&mut self.held);
        self.text(held, &mut found);
        // `<|call|>` is an end token, which may have been left out.
        self.end(&mut found);
        found
    }

    fn text(&mut self, text: String, found: &mut Vec<Delta>) {
        if text.is_empty() {
            return;
        }
        match &mut self.part {
            // The role between `<|start|>` and `<|channel|>`.
            Part::Outside => {}
            Part::Header(header) => header.push_str(&text),
            Part::Text(kind) => found.push(kind(text)),
            Part::Call { arguments, .. } => arguments.push_str(&text),
        }
    }

    fn marker(&mut self, marker: &str, found: &mut Vec<Delta>) {
        match marker {
            "<|channel|>" => self.part = Part::Header(String::new()),
            // The form of the arguments follows, which is always JSON.
            "<|constrain|>" => {}
            "<|message|>" => {
                if let Part::Header(header) = &self.part {
                    self.part = part_of(header);
                }
            }
            _ => self.end(found),
        }
    }

    fn end(&mut self, found: &mut Vec<Delta>) {
        if let Part::Call { name, arguments } = std::mem::take(&mut self.part) {
            let is_complete = serde_json::from_str::<Map<String, Value>>(&arguments).is_ok();
            if is_complete {
                found.push(Delta::Call { name, arguments: arguments.trim().to_owned() });
            }
        }
    }
}

/// What a header announces, such as `commentary to=functions.weather json`.
fn part_of(header: &str) -> Part {
    let mut words = header.split_whitespace();
    let channel = words.next().unwrap_or_default();
    match words.find_map(|word| word.strip_prefix("to=")) {
        Some(tool) => {
            let name = tool.strip_prefix("functions.").unwrap_or(tool).to_owned();
            Part::Call { name, arguments: String::new() }
        }
        None if channel == "analysis" => Part::Text(Delta::Reasoning),
        None => Part::Text(Delta::Content),
    }
}
