//! `amdgpu-ep generate`: continues a prompt.

use std::io::{self, ErrorKind, Read};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use textgen::{Answer, ChatTemplate, Constraint, Message, TextStep, generate_text};

use crate::report;
use crate::terminal::write;

use super::{FolderArguments, FormArguments, LimitArguments, Opening, SamplingArguments, open};

/// The version of the JSON document.
const SCHEMA: u32 = 1;

/// The arguments of `generate`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(flatten)]
    folder: FolderArguments,
    /// Prompt; read from stdin if omitted or -
    prompt: Option<String>,
    /// Wrap the prompt as a user message in the folder's chat template
    #[arg(long)]
    chat: bool,
    /// System message
    #[arg(long, value_name = "TEXT", requires = "chat")]
    system: Option<String>,
    /// Print one JSON document (described in docs/cli.md) instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    limits: LimitArguments,
    #[command(flatten)]
    sampling: SamplingArguments,
    #[command(flatten)]
    form: FormArguments,
}

/// The complete report.
#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    model: String,
    onnxruntime: String,
    provider: String,
    notices: Vec<String>,
    prompt_tokens: Vec<u32>,
    tokens: Vec<u32>,
    text: String,
    finish: &'static str,
    load_seconds: f64,
    first_token_seconds: f64,
    tokens_per_second: Option<f64>,
}

/// Runs the command, and returns its exit code.
///
/// # Errors
/// When the folder, the prompt or the model is invalid.
pub fn run(arguments: &Arguments) -> Result<u8> {
    let start = Instant::now();
    let form = arguments.form.form()?;
    let opened = match open(&arguments.folder)? {
        Opening::Ready(opened) => opened,
        Opening::NoGpu(code) => return Ok(code),
    };
    let load_seconds = start.elapsed().as_secs_f64();
    let config = opened.model.config();
    let prompt = prompt(arguments)?;
    let prompt = if arguments.chat {
        let system = arguments.system.iter().map(|system| Message::new("system", system));
        let messages: Vec<Message> = system.chain([Message::new("user", prompt)]).collect();
        ChatTemplate::from_folder(config)?.render(&messages, true)?
    } else {
        prompt
    };
    let mut prompt_tokens = opened.tokenizer.encode(&prompt)?;
    // A model needs at least one token to continue from.
    if prompt_tokens.is_empty() {
        prompt_tokens.extend(config.bos_token);
    }
    let mut max_length = arguments.folder.device.max_length.unwrap_or(config.search.max_length);
    if !opened.model.has_static_shapes(opened.prompt_shape) {
        // Do not allocate more cache than this text can need.
        max_length = max_length.min((prompt_tokens.len() + arguments.limits.max_new_tokens).max(1));
    }
    let mut generator = opened.generator(Some(max_length), arguments.sampling.sampling(config))?;
    generator.append(&prompt_tokens)?;
    if let Some(form) = &form {
        generator.constrain(Box::new(Constraint::new(config, &opened.tokenizer, form)?))?;
    }
    let canceller = generator.canceller();
    let mut written = Ok(());
    let answer =
        generate_text(&mut generator, &opened.tokenizer, &arguments.limits.limits(), |TextStep { text, .. }| {
            if !arguments.json && written.is_ok() {
                written = write(text);
                if written.is_err() {
                    canceller.cancel();
                }
            }
        })?;
    if arguments.json {
        let report = report(&opened, arguments, prompt_tokens, answer, load_seconds);
        written = write(&report::document(&report)?);
    } else if written.is_ok() {
        written = write("\n");
    }
    match written {
        // A closed pipe is not an error: the reader has seen what it wanted.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("stdout could not be written"),
        _ => Ok(0),
    }
}

fn report(
    opened: &super::Opened,
    arguments: &Arguments,
    prompt_tokens: Vec<u32>,
    answer: Answer,
    load_seconds: f64,
) -> Report {
    Report {
        schema: SCHEMA,
        model: arguments.folder.folder.display().to_string(),
        onnxruntime: opened.onnxruntime.display().to_string(),
        provider: opened.model.attached().to_string(),
        notices: opened.model.config().notices.iter().chain(opened.model.notices()).cloned().collect(),
        prompt_tokens,
        tokens_per_second: answer.tokens_per_second(),
        tokens: answer.tokens,
        text: answer.text,
        finish: answer.finish.as_str(),
        load_seconds,
        first_token_seconds: answer.first_token.as_secs_f64(),
    }
}

fn prompt(arguments: &Arguments) -> Result<String> {
    match arguments.prompt.as_deref() {
        Some(prompt) if prompt != "-" => Ok(prompt.to_owned()),
        _ => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).context("the prompt could not be read from stdin")?;
            // The final newline comes from the shell.
            if text.ends_with('\n') {
                text.pop();
            }
            Ok(text)
        }
    }
}
