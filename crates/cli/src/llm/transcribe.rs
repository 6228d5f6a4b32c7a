//! `amdgpu-ep transcribe`: speech to text.

use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde::Serialize;
use textgen::speech::{Segment, SpeechOptions, Task, Transcriber, Transcript};
use textgen::{Runtime, open_regular};

use crate::doctor;
use crate::failure;
use crate::ort::message;
use crate::progress::Progress;
use crate::report;
use crate::terminal::{note, write};

use super::{DeviceArguments, NO_GPU};

/// The version of the JSON document.
const SCHEMA: u32 = 1;

/// The arguments of `transcribe`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// The model folder of type whisper: genai_config.json, an encoder and a decoder (.onnx), tokenizer.json
    #[arg(value_name = "MODEL_DIR")]
    folder: PathBuf,
    /// The audio, a WAV file; - reads stdin
    #[arg(value_name = "AUDIO.wav")]
    audio: PathBuf,
    /// Code of the spoken language, such as en [default: chosen by the model]
    #[arg(long, value_name = "CODE")]
    language: Option<String>,
    /// What to write
    #[arg(long, value_name = "TASK", default_value = "transcribe")]
    task: TaskName,
    /// Print one JSON document (described in docs/cli.md) instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArguments,
}

/// The value of `--task`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum TaskName {
    /// What is said, in its language
    Transcribe,
    /// What is said, in English
    Translate,
}

impl From<TaskName> for Task {
    fn from(name: TaskName) -> Task {
        match name {
            TaskName::Transcribe => Task::Transcribe,
            TaskName::Translate => Task::Translate,
        }
    }
}

/// The complete report.
#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    model: String,
    onnxruntime: String,
    provider: String,
    notices: Vec<String>,
    language: Option<String>,
    text: String,
    seconds: f64,
    segments: Vec<SegmentReport>,
    load_seconds: f64,
    transcribe_seconds: f64,
}

#[derive(Debug, Serialize)]
struct SegmentReport {
    start: f64,
    end: f64,
    text: String,
    tokens: Vec<u32>,
    finish: &'static str,
}

/// Runs the command, and returns its exit code.
///
/// # Errors
/// When the folder, the audio or the model is invalid.
pub fn run(arguments: &Arguments) -> Result<u8> {
    let start = Instant::now();
    let device = &arguments.device;
    // A wrong path is reported at once, although the model may take minutes to load.
    let audio = open_audio(&arguments.audio)?;
    let mut config = device.config(&arguments.folder)?;
    config.search.max_length = device.max_length.unwrap_or(config.search.max_length);
    let progress = Progress::new("looking for ONNX Runtime");
    let chosen = doctor::onnxruntime_library(device.ort.as_deref())?;
    progress.say("loading ONNX Runtime");
    let runtime = Runtime::load(&chosen.path)?;
    progress.say("loading the model");
    let transcriber = Transcriber::load(&runtime, &config);
    drop(progress);
    let mut transcriber = match transcriber {
        Err(error @ textgen::Error::Provider { .. }) if device.require_gpu => {
            note("error", &failure::text(&error.into()));
            return Ok(NO_GPU);
        }
        transcriber => transcriber?,
    };
    chosen.announce();
    let notices: Vec<String> = transcriber.notices().cloned().collect();
    notices.iter().for_each(|notice| note("note", &message::plain(notice)));
    let load_seconds = start.elapsed().as_secs_f64();

    let (start, canceller) = (Instant::now(), transcriber.canceller());
    let options = SpeechOptions { language: arguments.language.clone(), task: arguments.task.into() };
    let mut written = Ok(());
    let mut is_first = true;
    let transcript = transcriber.transcribe(audio, &options, |Segment { text, .. }| {
        if !arguments.json && written.is_ok() {
            written = write(if is_first { text.trim_start() } else { text });
            is_first = false;
            if written.is_err() {
                canceller.cancel();
            }
        }
    })?;
    if arguments.json {
        let Transcript { text, language, seconds, segments } = transcript;
        let report = Report {
            schema: SCHEMA,
            model: arguments.folder.display().to_string(),
            onnxruntime: chosen.path.display().to_string(),
            provider: transcriber.attached().to_string(),
            notices,
            language,
            text,
            seconds,
            segments: segments.into_iter().map(SegmentReport::from).collect(),
            load_seconds,
            transcribe_seconds: start.elapsed().as_secs_f64(),
        };
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

impl From<Segment> for SegmentReport {
    fn from(segment: Segment) -> SegmentReport {
        let Segment { start, end, text, tokens, finish } = segment;
        SegmentReport { start, end, text, tokens, finish: finish.as_str() }
    }
}

fn open_audio(path: &Path) -> Result<Box<dyn Read>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = open_regular(path).with_context(|| format!("{} could not be read", path.display()))?;
    Ok(Box::new(file))
}
