//! What every example does first and last.
#![allow(dead_code, reason = "every example uses a part of it")]

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use textgen::{Config, Model, Runtime};

/// A command-line argument; the error names a missing one.
pub fn argument(index: usize, name: &str) -> Result<String, Box<dyn Error>> {
    Ok(std::env::args().nth(index).ok_or_else(|| format!("{name} is missing on the command line"))?)
}

/// Loads ONNX Runtime and the model of a folder, and prints what runs it.
pub fn model(onnxruntime: &str, folder: &str) -> Result<Model, Box<dyn Error>> {
    let runtime = Runtime::load(Path::new(onnxruntime))?;
    let config = Config::from_folder(Path::new(folder))?;
    let model = Model::load(&runtime, &config)?;
    for notice in model.notices() {
        eprintln!("note: {notice}");
    }
    eprintln!("runs on: {}", model.attached());
    Ok(model)
}

/// Reports an error and returns the exit code.
pub fn ended(outcome: Result<(), Box<dyn Error>>) -> ExitCode {
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    eprintln!("error: {error}");
    ExitCode::FAILURE
}
