//! Answers several questions at once.
//!
//! `cargo run -p textgen --example 05-batching -- libonnxruntime.so demo/model "What does a cow say?" "What does a cat say?"`

mod course;

use std::error::Error;
use std::process::ExitCode;
use std::sync::mpsc;

use textgen::engine::{Engine, EngineOptions, Event, Request};
use textgen::{ChatTemplate, Message, Tokenizer};

fn main() -> ExitCode {
    course::ended(answer())
}

fn answer() -> Result<(), Box<dyn Error>> {
    let model =
        course::model(&course::argument(1, "ONNX Runtime's library")?, &course::argument(2, "a model folder")?)?;
    let tokenizer = Tokenizer::from_folder(model.config())?;
    let template = ChatTemplate::from_folder(model.config())?;

    // Four sequences share each step of the model. More requests wait until one of them ends.
    let engine = Engine::start(&model, &tokenizer, EngineOptions { slots: 4, ..EngineOptions::default() })?;
    let mut answers = Vec::new();
    for question in std::env::args().skip(3) {
        let prompt = tokenizer.encode(&template.render(&[Message::new("user", question)], true)?)?;
        let (sender, events) = mpsc::channel();
        // Events come from the engine's thread. Dropping the ticket would cancel the request.
        let ticket = engine.submit(Request::new(prompt), move |event| drop(sender.send(event)))?;
        answers.push((ticket, events));
    }
    for (_ticket, events) in answers {
        let mut answer = String::new();
        for event in events {
            match event {
                Event::Token { text, .. } | Event::Text { text, .. } => answer += &text,
                Event::Failed(error) => return Err(error.into()),
                _ => {}
            }
        }
        println!("{}", answer.trim());
    }
    let stats = engine.stats();
    eprintln!("{} tokens in {} steps, {} from the cache", stats.new_tokens, stats.steps, stats.cached_tokens);
    Ok(())
}
