//! Splits an answer into text, reasoning and calls while it is generated. Nothing that may still become part of a call
//! or of a marker is passed on as text.

use serde_json::{Map, Value};

use super::format::Format;
use super::harmony::Harmony;

/// A call is not collected beyond this many bytes.
const LONGEST_CALL: usize = 1 << 20;

const THINK: &str = "<think>";
const END_THINK: &str = "</think>";

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// Text for the user.
    Content(String),
    /// What the model thinks.
    Reasoning(String),
    /// A complete call; the arguments are JSON.
    Call { name: String, arguments: String },
}

/// The parser of one answer.
pub struct OutputParser(Parser);

enum Parser {
    Marked(Marked),
    Harmony(Harmony),
    /// An answer that is nothing but one call.
    Forced(String),
}

impl OutputParser {
    /// A parser for a format; without one only reasoning is split off. `thinks` says that the prompt has already begun
    /// the reasoning.
    pub fn new(format: Option<Format>, thinks: bool) -> OutputParser {
        OutputParser(match format {
            Some(Format::Harmony) => Parser::Harmony(Harmony::default()),
            format => Parser::Marked(Marked::new(format, thinks)),
        })
    }

    /// A parser for an answer that is restricted to a call.
    pub fn forced() -> OutputParser {
        OutputParser(Parser::Forced(String::new()))
    }

    /// Adds text.
    pub fn push(&mut self, text: &str) -> Vec<Delta> {
        match &mut self.0 {
            Parser::Marked(parser) => parser.push(text),
            Parser::Harmony(parser) => parser.push(text),
            Parser::Forced(whole) => {
                whole.push_str(text);
                Vec::new()
            }
        }
    }

    /// Ends the answer. A call with a marker that was not completed is dropped.
    pub fn finish(&mut self) -> Vec<Delta> {
        match &mut self.0 {
            Parser::Marked(parser) => parser.finish(),
            Parser::Harmony(parser) => parser.finish(),
            Parser::Forced(whole) => calls_in(whole).unwrap_or_default(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Only white space so far.
    Start,
    Content,
    Thinking,
    /// Inside a call.
    Call,
    /// After reasoning or a call, where white space means nothing.
    Between,
}

/// Formats whose calls stand between markers in ordinary text.
struct Marked {
    format: Option<Format>,
    state: State,
    /// Text that has not been passed on.
    held: String,
    /// The marker that began the call.
    start: &'static str,
}

impl Marked {
    fn new(format: Option<Format>, thinks: bool) -> Marked {
        let state = if thinks { State::Thinking } else { State::Start };
        Marked { format, state, held: String::new(), start: "" }
    }

    fn push(&mut self, text: &str) -> Vec<Delta> {
        self.held.push_str(text);
        let mut found = Vec::new();
        while self.step(&mut found) {}
        found
    }

    /// Does one thing with the held text; `false` when more text is needed.
    fn step(&mut self, found: &mut Vec<Delta>) -> bool {
        match self.state {
            State::Start => self.start(),
            State::Content => self.content(found),
            State::Thinking => self.thinking(found),
            State::Call => self.call(found),
            State::Between => self.between(),
        }
    }

    fn start(&mut self) -> bool {
        let text = self.held.trim_start();
        if text.is_empty() {
            return false;
        }
        if let Some(rest) = text.strip_prefix(THINK) {
            self.held = rest.to_owned();
            self.state = State::Thinking;
            return true;
        }
        if THINK.starts_with(text) {
            return false;
        }
        // Llama 3 may write a call without its marker.
        let is_bare_call = self.format == Some(Format::Llama) && text.starts_with('{');
        (self.state, self.start) = if is_bare_call { (State::Call, "") } else { (State::Content, "") };
        true
    }

    fn content(&mut self, found: &mut Vec<Delta>) -> bool {
        let starts = self.format.map_or(&[][..], Format::starts);
        if starts.is_empty() {
            push_text(found, Delta::Content, &std::mem::take(&mut self.held));
            return false;
        }
        let first = starts.iter().filter_map(|start| Some((self.held.find(start)?, *start))).min();
        if let Some((at, start)) = first {
            // The bracket of `functools[` belongs to the list of calls.
            let start = start.trim_end_matches('[');
            let rest = self.held.split_off(at + start.len());
            self.held.truncate(at);
            let before = std::mem::replace(&mut self.held, rest);
            // White space before a call only separates it.
            push_text(found, Delta::Content, before.trim_end());
            (self.state, self.start) = (State::Call, start);
            return true;
        }
        let keep = held_back(&self.held, starts);
        let keep = self.held[..keep].trim_end().len();
        let rest = self.held.split_off(keep);
        push_text(found, Delta::Content, &std::mem::replace(&mut self.held, rest));
        false
    }

    fn thinking(&mut self, found: &mut Vec<Delta>) -> bool {
        if let Some(at) = self.held.find(END_THINK) {
            let rest = self.held.split_off(at + END_THINK.len());
            self.held.truncate(at);
            let before = std::mem::replace(&mut self.held, rest);
            push_text(found, Delta::Reasoning, before.trim_end());
            self.state = State::Between;
            return true;
        }
        let keep = held_back(&self.held, &[END_THINK]);
        let keep = self.held[..keep].trim_end().len();
        let rest = self.held.split_off(keep);
        push_text(found, Delta::Reasoning, &std::mem::replace(&mut self.held, rest));
        false
    }

    fn call(&mut self, found: &mut Vec<Delta>) -> bool {
        // A call after `functools` has no end marker, and one without a start marker has none either.
        let end = self.format.and_then(Format::end).filter(|_| self.start.ends_with('>'));
        let (calls, used) = match end {
            Some(end) => match self.held.find(end) {
                Some(at) => (calls_in(&self.held[..at]), at + end.len()),
                None => return self.too_long(found),
            },
            None => match read_calls(&self.held) {
                Read::Complete(calls, used) => (calls, used),
                Read::Incomplete => return self.too_long(found),
                // The text after the marker may contain another one.
                Read::Wrong => (None, 0),
            },
        };
        let rest = self.held.split_off(used);
        let raw = std::mem::replace(&mut self.held, rest);
        match calls {
            Some(calls) => {
                found.extend(calls);
                self.state = State::Between;
            }
            // It is not a call, so the user should see it.
            None => {
                push_text(found, Delta::Content, &format!("{}{raw}", self.start));
                self.state = State::Content;
            }
        }
        true
    }

    fn too_long(&mut self, found: &mut Vec<Delta>) -> bool {
        if self.held.len() > LONGEST_CALL {
            let raw = std::mem::take(&mut self.held);
            push_text(found, Delta::Content, &format!("{}{raw}", self.start));
            self.state = State::Content;
        }
        false
    }

    fn between(&mut self) -> bool {
        // Llama 3 separates calls with semicolons.
        let separates = |letter: char| letter.is_whitespace() || self.format == Some(Format::Llama) && letter == ';';
        let text = self.held.trim_start_matches(separates);
        if text.is_empty() {
            self.held.clear();
            return false;
        }
        self.held = text.to_owned();
        self.state = State::Start;
        true
    }

    fn finish(&mut self) -> Vec<Delta> {
        let mut found = Vec::new();
        let held = std::mem::take(&mut self.held);
        match self.state {
            State::Thinking => push_text(&mut found, Delta::Reasoning, held.trim_end()),
            State::Content => push_text(&mut found, Delta::Content, &held),
            State::Start if !held.trim().is_empty() => push_text(&mut found, Delta::Content, held.trim_start()),
            // The end of the answer ends a call whose end marker is missing. Half a call after a marker is dropped;
            // without a marker it may as well be a JSON document for the user.
            State::Call => match read_calls(&held) {
                Read::Complete(Some(calls), _) => found.extend(calls),
                Read::Incomplete if !self.start.is_empty() => {}
                Read::Complete(None, _) | Read::Wrong | Read::Incomplete => {
                    push_text(&mut found, Delta::Content, &format!("{}{held}", self.start));
                }
            },
            State::Start | State::Between => {}
        }
        found
    }
}

fn push_text(found: &mut Vec<Delta>, kind: impl FnOnce(String) -> Delta, text: &str) {
    if !text.is_empty() {
        found.push(kind(text.to_owned()));
    }
}

/// Where the longest suffix begins that may become one of the markers.
pub fn held_back(text: &str, markers: &[&str]) -> usize {
    let begins = |&(at, _): &(usize, char)| markers.iter().any(|marker| marker.starts_with(&text[at..]));
    text.char_indices().find(begins).map_or(text.len(), |(at, _)| at)
}

enum Read {
    /// The calls, if it is one, and the bytes they took.
    Complete(Option<Vec<Delta>>, usize),
    Incomplete,
    Wrong,
}

/// Reads calls that end where their JSON does.
fn read_calls(text: &str) -> Read {
    // Newer Mistral models write the name before the arguments.
    let start = text.trim_start();
    if !start.starts_with(['{', '[']) {
        let is_name = |text: &str| text.chars().all(|letter| letter.is_alphanumeric() || "_-.[]".contains(letter));
        let (name, rest) = start.split_once("[ARGS]").map_or((start, None), |(name, rest)| (name, Some(rest)));
        let rest = match rest {
            _ if !is_name(name) => return Read::Wrong,
            None => return Read::Incomplete,
            Some(rest) => rest,
        };
        let name = name.split("[CALL_ID]").next().unwrap_or_default().trim();
        let before = text.len() - rest.len();
        return match one_value(rest) {
            Json::Value(value, used) => Read::Complete(named_call(name, &value).map(|call| vec![call]), before + used),
            Json::Incomplete => Read::Incomplete,
            Json::Wrong => Read::Wrong,
        };
    }
    match one_value(text) {
        Json::Value(value, used) => Read::Complete(calls_of(&value), used),
        Json::Incomplete => Read::Incomplete,
        Json::Wrong => Read::Wrong,
    }
}

enum Json {
    Value(Value, usize),
    Incomplete,
    Wrong,
}

fn one_value(text: &str) -> Json {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    match values.next() {
        Some(Ok(value)) => Json::Value(value, values.byte_offset()),
        Some(Err(error)) if error.is_eof() => Json::Incomplete,
        None => Json::Incomplete,
        Some(Err(_)) => Json::Wrong,
    }
}

/// The calls in a text between two markers.
fn calls_in(text: &str) -> Option<Vec<Delta>> {
    calls_of(&serde_json::from_str(text.trim()).ok()?)
}

/// The calls of an object or a list of objects.
pub fn calls_of(value: &Value) -> Option<Vec<Delta>> {
    match value {
        Value::Array(values) if !values.is_empty() => values.iter().map(call_of).collect(),
        value => Some(vec![call_of(value)?]),
    }
}

fn call_of(value: &Value) -> Option<Delta> {
    // Some models repeat the form in which tools are described.
    let object: &Map<String, Value> =
        value.get("function").filter(|inner| inner.is_object()).unwrap_or(value).as_object()?;
    let arguments = object.get("arguments").or_else(|| object.get("parameters"));
    named_call(object.get("name")?.as_str()?, arguments.unwrap_or(&Value::Object(Map::new())))
}

fn named_call(name: &str, arguments: &Value) -> Option<Delta> {
    let arguments = match arguments {
        Value::Object(_) => arguments.to_string(),
        // Some models write the arguments as a string of JSON.
        Value::String(text) if serde_json::from_str::<Map<String, Value>>(text).is_ok() => text.clone(),
        _ => return None,
    };
    (!name.is_empty()).then(|| Delta::Call { name: name.to_owned(), arguments })
}
