//! Answers of all formats, cut at every place.

use proptest::prelude::*;

use super::format::Format;
use super::parser::{Delta, OutputParser};

/// A whole answer: text, reasoning and calls.
#[derive(Debug, Default, PartialEq)]
struct Answer {
    content: String,
    reasoning: String,
    calls: Vec<(String, String)>,
}

impl Answer {
    fn add(&mut self, deltas: Vec<Delta>) {
        for delta in deltas {
            match delta {
                Delta::Content(text) => self.content += &text,
                Delta::Reasoning(text) => self.reasoning += &text,
                Delta::Call { name, arguments } => self.calls.push((name, arguments)),
            }
        }
    }
}

fn parse(format: Option<Format>, pieces: &[&str]) -> Answer {
    let mut parser = OutputParser::new(format, false);
    let mut answer = Answer::default();
    for piece in pieces {
        answer.add(parser.push(piece));
    }
    answer.add(parser.finish());
    answer
}

fn answer(content: &str, reasoning: &str, calls: &[(&str, &str)]) -> Answer {
    let calls = calls.iter().map(|&(name, arguments)| (name.to_owned(), arguments.to_owned())).collect();
    Answer { content: content.to_owned(), reasoning: reasoning.to_owned(), calls }
}

const WEATHER: (&str, &str) = ("weather", r#"{"city":"Oslo"}"#);
const TIME: (&str, &str) = ("time", "{}");

/// Formats, answers in them, and what they mean.
fn cases() -> Vec<(Option<Format>, &'static str, Answer)> {
    let hermes = r#"Let me see. <tool_call>
{"name": "weather", "arguments": {"city": "Oslo"}}
</tool_call>
<tool_call>
{"name": "time", "arguments": {}}
</tool_call>"#;
    let harmony = "<|channel|>analysis<|message|>They want < Oslo.<|end|><|start|>assistant<|channel|>commentary \
                   to=functions.weather <|constrain|>json<|message|>{\"city\":\"Oslo\"}<|call|>";
    let answered = "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>It is \
                    cold.<|return|>";
    vec![
        (Some(Format::Hermes), hermes, answer("Let me see.", "", &[WEATHER, TIME])),
        (
            Some(Format::Hermes),
            "<think>\nThey ask.\n</think>\n\nIt < 3 <tool> is cold. ",
            answer("It < 3 <tool> is cold. ", "\nThey ask.", &[]),
        ),
        (
            Some(Format::Hermes),
            "<tool_call>{\"name\": 3}</tool_call>",
            answer("<tool_call>{\"name\": 3}</tool_call>", "", &[]),
        ),
        (
            Some(Format::Llama),
            r#"<|python_tag|>{"name": "weather", "parameters": {"city": "Oslo"}}"#,
            answer("", "", &[WEATHER]),
        ),
        (
            Some(Format::Llama),
            r#"{"name": "weather", "parameters": {"city": "Oslo"}}; {"name": "time", "parameters": {}}"#,
            answer("", "", &[WEATHER, TIME]),
        ),
        (Some(Format::Llama), r#"{"a": 1} is JSON"#, answer(r#"{"a": 1} is JSON"#, "", &[])),
        (Some(Format::Llama), "{curly} text", answer("{curly} text", "", &[])),
        (
            Some(Format::Mistral),
            r#"[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Oslo"}}, {"name": "time", "arguments": {}}]"#,
            answer("", "", &[WEATHER, TIME]),
        ),
        (
            Some(Format::Mistral),
            r#"[TOOL_CALLS]weather[ARGS]{"city": "Oslo"}[TOOL_CALLS]time[CALL_ID]a1[ARGS]{}"#,
            answer("", "", &[WEATHER, TIME]),
        ),
        (
            Some(Format::Phi),
            r#"<|tool_call|>[{"name": "weather", "arguments": {"city": "Oslo"}}]<|/tool_call|>"#,
            answer("", "", &[WEATHER]),
        ),
        (
            Some(Format::Phi),
            r#"functools[{"name": "weather", "arguments": {"city": "Oslo"}}]"#,
            answer("", "", &[WEATHER]),
        ),
        (Some(Format::Phi), "Import functools and use it", answer("Import functools and use it", "", &[])),
        (Some(Format::Harmony), harmony, answer("", "They want < Oslo.", &[WEATHER])),
        (Some(Format::Harmony), answered, answer("It is cold.", "Easy.", &[])),
        (None, " plain <tool_call> text\n", answer(" plain <tool_call> text\n", "", &[])),
    ]
}

#[test]
fn every_format_is_understood() {
    for (format, text, wanted) in cases() {
        assert_eq!(parse(format, &[text]), wanted, "{text}");
    }
}

#[test]
fn one_cut_anywhere_changes_nothing() {
    for (format, text, wanted) in cases() {
        for (at, _) in text.char_indices() {
            let (first, second) = text.split_at(at);
            assert_eq!(parse(format, &[first, second]), wanted, "{first:?} {second:?}");
        }
    }
}

#[test]
fn letter_by_letter_changes_nothing() {
    for (format, text, wanted) in cases() {
        let letters: Vec<String> = text.chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        assert_eq!(parse(format, &letters), wanted, "{text}");
    }
}

#[test]
fn half_a_json_document_without_a_marker_is_shown() {
    assert_eq!(parse(Some(Format::Llama), &[r#"{"animal": "be"#]), answer(r#"{"animal": "be"#, "", &[]));
}

#[test]
fn half_a_call_is_never_shown() {
    let is_marked_call = |(_, text, wanted): &(_, &str, Answer)| !wanted.calls.is_empty() && !text.starts_with('{');
    for (format, text, wanted) in cases().into_iter().filter(is_marked_call) {
        for (at, _) in text.char_indices() {
            let cut = parse(format, &[&text[..at]]);
            assert!(wanted.content.starts_with(cut.content.trim_end()) || !cut.content.contains(['{', '"']), "{cut:?}");
            assert!(wanted.calls.starts_with(&cut.calls), "{cut:?}");
        }
    }
}

#[test]
fn a_prompt_can_begin_the_reasoning() {
    let mut parser = OutputParser::new(Some(Format::Hermes), true);
    let mut whole = Answer::default();
    whole.add(parser.push("Hm.\n</think>\nYes"));
    whole.add(parser.finish());
    assert_eq!(whole, answer("Yes", "Hm.", &[]));
}

#[test]
fn a_forced_call_is_the_whole_answer() {
    let mut parser = OutputParser::forced();
    assert_eq!(parser.push(r#"{"name":"weather","argu"#), []);
    assert_eq!(parser.push(r#"ments":{"city":"Oslo"}}"#), []);
    let call = Delta::Call { name: "weather".into(), arguments: r#"{"city":"Oslo"}"#.into() };
    assert_eq!(parser.finish(), [call]);
}

fn words() -> impl Strategy<Value = String> {
    let words = [
        "<tool_call>",
        "</tool_call>",
        "<think>",
        "</think>",
        "<|python_tag|>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "functools[",
        "<|tool_call|>",
        "<|/tool_call|>",
        "<|channel|>",
        "<|message|>",
        "<|end|>",
        "<|call|>",
        "<|start|>",
        "final",
        "commentary to=functions.f",
        "analysis",
        " ",
        "\n",
        ";",
        "{",
        "}",
        "]",
        "text",
        "é",
        r#"{"name": "f", "arguments": {"a": "}"}}"#,
        r#"[{"name": "f", "parameters": {}}]"#,
        "<",
        "|>",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()), 0..12).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn any_split_gives_the_same_answer(
        format in prop::sample::select(vec![
            None, Some(Format::Hermes), Some(Format::Llama), Some(Format::Mistral), Some(Format::Phi), Some(Format::Harmony),
        ]),
        text in words(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| ends[cut.index(ends.len())]).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&str> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
        prop_assert_eq!(parse(format, &pieces), parse(format, &[&text]));
    }
}
