//! Constrained answers, whatever the model would prefer.
#![cfg(feature = "constrained")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

mod common;

use testkit::llm::{END, TinyDecoder};
use textgen::engine::{Engine, EngineOptions, Request};
use textgen::{Constraint, Form, Generator, GeneratorOptions, Limits, Sampling, TextFinish, Tokenizer, generate_text};

use common::served::submit;
use common::tiny::Tiny;
use common::{On, config, load};

/// Constrained answers, sampled with several seeds.
fn answers(form: &Form) -> Vec<String> {
    if let Err(reason) = testkit::place::onnxruntime() {
        println!("skipped: {reason}");
        return Vec::new();
    }
    let folder = tempfile::tempdir().unwrap();
    TinyDecoder::new(5).write(folder.path(), true).unwrap();
    let model = load(&config(folder.path(), On::Cpu).unwrap()).unwrap();
    let tokenizer = Tokenizer::from_folder(model.config()).unwrap();
    let answer = |seed: u32| {
        let sampling = Sampling { do_sample: true, temperature: 3.0, seed: Some(seed), ..Sampling::default() };
        let options = GeneratorOptions { sampling: Some(sampling), ..GeneratorOptions::default() };
        let mut generator = Generator::new(&model, options).unwrap();
        generator.append(&[72, 105]).unwrap();
        let constraint = Constraint::new(model.config(), &tokenizer, form).unwrap();
        generator.constrain(Box::new(constraint)).unwrap();
        let answer = generate_text(&mut generator, &tokenizer, &Limits::default(), |_| {}).unwrap();
        assert_eq!(answer.finish, TextFinish::EndToken, "{:?}", answer.text);
        assert_eq!(answer.tokens.last(), Some(&END[0]));
        answer.text
    };
    (0..8).map(answer).collect()
}

#[test]
fn the_text_matches_a_regular_expression() {
    for text in answers(&Form::Regex("(red|green|blue) [0-9]{1,4}!".to_owned())) {
        let (colour, number) = text.split_once(' ').unwrap();
        assert!(["red", "green", "blue"].contains(&colour), "{text:?}");
        assert!(number.strip_suffix('!').unwrap().parse::<u16>().is_ok(), "{text:?}");
    }
}

#[test]
fn every_choice_of_a_request_is_constrained() {
    let wanted = answers(&Form::Regex("(red|green|blue) [0-9]{1,4}!".to_owned()));
    let Some(tiny) = Tiny::new(true) else { return };
    let engine = Engine::start(&tiny.model, &tiny.tokenizer, EngineOptions::default()).unwrap();
    let form = Form::Regex("(red|green|blue) [0-9]{1,4}!".to_owned());
    let constraint = Constraint::new(tiny.model.config(), &tiny.tokenizer, &form).unwrap();
    let request = Request {
        sampling: Sampling { do_sample: true, temperature: 3.0, seed: Some(0), ..Sampling::default() },
        filter: Some(Box::new(constraint)),
        choices: 8,
        ..Request::new(vec![72, 105])
    };
    let reply = submit(&engine, request).reply();
    // Choice i has seed i, so these are the answers of generators.
    assert_eq!(reply.choices.iter().map(|choice| choice.text.as_str()).collect::<Vec<_>>(), wanted);
}

#[test]
fn the_text_matches_a_schema() {
    let schema = r##"{
        "type": "object", "required": ["name", "tags"], "additionalProperties": false,
        "properties": {
            "name": {"type": "string", "maxLength": 6},
            "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "minItems": 1, "maxItems": 3}
        },
        "$defs": {"tag": {"enum": ["a", "bc", 7]}}
    }"##;
    for text in answers(&Form::JsonSchema(schema.to_owned())) {
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(document["name"].as_str().unwrap().chars().count() <= 6, "{text}");
        let tags = document["tags"].as_array().unwrap();
        assert!((1..=3).contains(&tags.len()), "{text}");
        assert!(tags.iter().all(|tag| *tag == "a" || *tag == "bc" || *tag == 7), "{text}");
        assert_eq!(document.as_object().unwrap().len(), 2, "{text}");
    }
}

#[test]
fn the_text_matches_a_grammar() {
    let form = Form::Lark("start: sum\nsum: NUMBER (\"+\" NUMBER){1,3}\nNUMBER: /[1-9]/\n".to_owned());
    for text in answers(&form) {
        let numbers: Vec<&str> = text.split('+').collect();
        assert!((2..=4).contains(&numbers.len()), "{text}");
        assert!(numbers.iter().all(|number| (1..=9).contains(&number.parse::<u8>().unwrap())), "{text}");
    }
}

#[test]
fn an_invalid_constraint_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    TinyDecoder::new(5).write(folder.path(), true).unwrap();
    let config = config(folder.path(), On::Cpu).unwrap();
    let tokenizer = Tokenizer::from_folder(&config).unwrap();
    for form in [
        Form::Regex("(".to_owned()),
        Form::JsonSchema("{".to_owned()),
        Form::JsonSchema(r#"{"type": "nonsense"}"#.to_owned()),
        Form::Lark("start: nothing".to_owned()),
    ] {
        let error = Constraint::new(&config, &tokenizer, &form).unwrap_err().to_string();
        assert!(error.contains("\n  help: "), "{form:?}: {error}");
    }
}
