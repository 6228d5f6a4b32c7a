//! The formats in which model families write calls and reasoning, recognised by their chat templates.

use std::collections::HashMap;

use textgen::{ChatTemplate, Tokenizer};

/// How a model writes calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `<tool_call>{"name": ..., "arguments": ...}</tool_call>`, of Hermes, Qwen and many others.
    Hermes,
    /// `<|python_tag|>{"name": ..., "parameters": ...}`, or the same object without the tag.
    Llama,
    /// `[TOOL_CALLS]` and a list, or `[TOOL_CALLS]name[ARGS]{...}`.
    Mistral,
    /// `<|tool_call|>[...]<|/tool_call|>`, or `functools[...]`.
    Phi,
    /// gpt-oss: every part of an answer has a channel.
    Harmony,
}

impl Format {
    /// The format of a template; `None` if it does not know tools.
    pub fn of(template: &ChatTemplate) -> Option<Format> {
        let text = template.text();
        let known = [
            ("<|channel|>", Format::Harmony),
            ("[TOOL_CALLS]", Format::Mistral),
            ("<|tool_call|>", Format::Phi),
            ("functools[", Format::Phi),
            ("<tool_call>", Format::Hermes),
            ("<|python_tag|>", Format::Llama),
            ("\"parameters\"", Format::Llama),
        ];
        known.into_iter().find(|(mark, _)| text.contains(mark)).map(|(_, format)| format)
    }

    /// What begins a call.
    pub fn starts(self) -> &'static [&'static str] {
        match self {
            Format::Hermes => &["<tool_call>"],
            Format::Llama => &["<|python_tag|>"],
            Format::Mistral => &["[TOOL_CALLS]"],
            Format::Phi => &["<|tool_call|>", "functools["],
            Format::Harmony => &[],
        }
    }

    /// What ends a call; without one, the call ends where its JSON does.
    pub fn end(self) -> Option<&'static str> {
        match self {
            Format::Hermes => Some("</tool_call>"),
            Format::Phi => Some("<|/tool_call|>"),
            Format::Llama | Format::Mistral | Format::Harmony => None,
        }
    }
}

/// Tokens that carry meaning for the parser, but have no text because they are special.
#[derive(Clone, Debug, Default)]
pub struct Markers(HashMap<u32, &'static str>);

impl Markers {
    /// Every marker that the tokenizer has and leaves out of texts.
    pub fn of(tokenizer: &Tokenizer) -> Markers {
        const ALL: [&str; 16] = [
            "<tool_call>",
            "</tool_call>",
            "<|python_tag|>",
            "[TOOL_CALLS]",
            "[ARGS]",
            "[CALL_ID]",
            "<|tool_call|>",
            "<|/tool_call|>",
            "<|start|>",
            "<|channel|>",
            "<|constrain|>",
            "<|message|>",
            "<|call|>",
            "<|return|>",
            "<think>",
            "</think>",
        ];
        let hidden = |marker: &'static str| {
            let id = tokenizer.id(marker)?;
            tokenizer.decode(&[id]).is_ok_and(|text| text.is_empty()).then_some((id, marker))
        };
        let mut markers: HashMap<u32, &'static str> = ALL.into_iter().filter_map(hidden).collect();
        // Other families end answers with a token of the same name.
        if markers.values().any(|marker| *marker == "<|channel|>") {
            markers.extend(hidden("<|end|>"));
        }
        Markers(markers)
    }

    /// The tokens.
    pub fn tokens(&self) -> Vec<u32> {
        self.0.keys().copied().collect()
    }

    /// The text of a token that has none.
    pub fn text(&self, token: u32) -> &'static str {
        self.0.get(&token).copied().unwrap_or_default()
    }
}
