//! A conversation: one question per line of standard input, until it ends.
//!
//! `cargo run -p textgen --example 02-chat -- libonnxruntime.so demo/model`

mod course;

use std::error::Error;
use std::io::{BufRead as _, stdin};
use std::process::ExitCode;

use textgen::{ChatTemplate, Conversation, Generator, GeneratorOptions, Limits, Tokenizer};

fn main() -> ExitCode {
    course::ended(chat())
}

fn chat() -> Result<(), Box<dyn Error>> {
    let model =
        course::model(&course::argument(1, "ONNX Runtime's library")?, &course::argument(2, "a model folder")?)?;
    let generator = Generator::new(&model, GeneratorOptions::default())?;
    let tokenizer = Tokenizer::from_folder(model.config())?;
    // The template turns messages into the prompt that the model was trained with.
    let template = ChatTemplate::from_folder(model.config())?;

    // A conversation appends only what is new, so earlier messages are not computed again.
    let mut conversation = Conversation::new(generator, tokenizer, template, None);
    let limits = Limits { max_new_tokens: Some(128), ..Limits::default() };
    for question in stdin().lock().lines() {
        let answer = conversation.ask(&question?, &limits, |_| ())?;
        println!("{}", answer.text.trim());
    }
    Ok(())
}
