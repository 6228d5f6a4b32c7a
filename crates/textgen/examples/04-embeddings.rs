//! Compares sentences by their vectors.
//!
//! `cargo run -p textgen --example 04-embeddings -- libonnxruntime.so FOLDER "A cat sits." "There is a cat." "It rains."`
//!
//! The folder holds an encoder: `model.onnx` beside a `tokenizer.json`.

mod course;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use textgen::Runtime;
use textgen::embed::{EmbedOptions, Embedder};

fn main() -> ExitCode {
    course::ended(compare())
}

fn compare() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::load(Path::new(&course::argument(1, "ONNX Runtime's library")?))?;
    let folder = course::argument(2, "a model folder")?;
    let mut embedder = Embedder::load(&runtime, Path::new(&folder), EmbedOptions::default())?;

    // One call runs all sentences together.
    let sentences: Vec<String> = std::env::args().skip(3).collect();
    let texts: Vec<&str> = sentences.iter().map(String::as_str).collect();
    let vectors = embedder.embed(&texts)?;
    // The vectors have length 1, so their product is the cosine of the angle between them.
    for (text, vector) in texts.iter().zip(&vectors) {
        let likeness: f32 = vector.iter().zip(&vectors[0]).map(|(a, b)| a * b).sum();
        println!("{likeness:.3} {text}");
    }
    Ok(())
}
