//! One question, answered with several settings.
//!
//! `cargo run -p textgen --example 03-sampling -- libonnxruntime.so demo/model "Tell me a story about a duck."`

mod course;

use std::error::Error;
use std::process::ExitCode;

use textgen::{ChatTemplate, Generator, GeneratorOptions, Limits, Message, Sampling, Tokenizer};

fn main() -> ExitCode {
    course::ended(sample())
}

fn sample() -> Result<(), Box<dyn Error>> {
    let model =
        course::model(&course::argument(1, "ONNX Runtime's library")?, &course::argument(2, "a model folder")?)?;
    let tokenizer = Tokenizer::from_folder(model.config())?;
    let message = Message::new("user", course::argument(3, "a question")?);
    let prompt = tokenizer.encode(&ChatTemplate::from_folder(model.config())?.render(&[message], true)?)?;

    // The most likely token each time, or a draw. A seed gives the same text again, here and in ONNX Runtime GenAI.
    let drawn = |seed| Sampling {
        do_sample: true,
        temperature: 0.9,
        top_k: 40,
        top_p: 0.95,
        seed: Some(seed),
        ..Sampling::default()
    };
    let settings = [("greedy", Sampling::default()), ("seed 1", drawn(1)), ("seed 2", drawn(2))];
    for (name, sampling) in settings {
        let options = GeneratorOptions { sampling: Some(sampling), ..GeneratorOptions::default() };
        let mut generator = Generator::new(&model, options)?;
        generator.append(&prompt)?;
        let answer = textgen::generate_text(&mut generator, &tokenizer, &Limits::default(), |_| ())?;
        println!("{name}: {}", answer.text.trim());
    }
    Ok(())
}
