//! Continues a prompt, and prints the text as it is generated.
//!
//! `cargo run -p textgen --example 01-generate -- libonnxruntime.so demo/model "Once there was"`
//!
//! The folder is one of ONNX Runtime GenAI's; `demo/model` of the repository is a small one.

mod course;

use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;

use textgen::{Generator, GeneratorOptions, Limits, Tokenizer};

fn main() -> ExitCode {
    course::ended(generate())
}

fn generate() -> Result<(), Box<dyn Error>> {
    let model =
        course::model(&course::argument(1, "ONNX Runtime's library")?, &course::argument(2, "a model folder")?)?;
    let tokenizer = Tokenizer::from_folder(model.config())?;

    // The generator holds the sequence and its key/value cache. More tokens can be appended later.
    let mut generator = Generator::new(&model, GeneratorOptions::default())?;
    generator.append(&tokenizer.encode(&course::argument(3, "a prompt")?)?)?;

    // A step may have no text: some characters need several tokens.
    let limits = Limits { max_new_tokens: Some(64), ..Limits::default() };
    let answer = textgen::generate_text(&mut generator, &tokenizer, &limits, |step| {
        print!("{}", step.text);
        let _ = std::io::stdout().flush();
    })?;
    println!();
    eprintln!("{} tokens, ended by {}", answer.tokens.len(), answer.finish.as_str());
    Ok(())
}
