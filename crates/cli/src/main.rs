//! The `amdgpu-ep` command. Results go to stdout, everything else to stderr.

#![deny(unsafe_code)]

mod bench;
mod bench_serve;
mod cache;
mod child;
mod compare;
mod compile;
mod doctor;
mod explain;
mod failure;
#[allow(unsafe_code)]
mod ffi;
mod inputs;
mod interrupt;
mod llm;
#[cfg(target_os = "linux")]
mod loader_path;
mod memory;
mod npy;
mod npz;
mod ort;
mod plot;
mod profile;
mod progress;
mod random;
mod record;
mod replace;
mod report;
mod run;
mod table;
mod target;
mod terminal;
mod times;
mod tune;

use std::io::ErrorKind;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::doctor::Question;

/// Wrong usage, or the command itself failed.
const FAILED: u8 = 2;

const EXPLAIN_EXIT_CODES: &str = "\
Exit codes:
  0  the model was loaded, wherever its nodes run
  2  wrong usage, or the command itself failed";

const RUN_EXIT_CODES: &str = "\
Exit codes:
  0  the model ran, and with --compare the outputs agree
  1  the outputs do not agree
  2  wrong usage, or the command itself failed";

const BENCH_EXIT_CODES: &str = "\
Exit codes:
  0  the model was measured
  2  wrong usage, or the command itself failed";

const LLM_EXIT_CODES: &str = "\
Exit codes:
  0  text was generated
  1  a GPU is required, but none is usable
  2  wrong usage, or the command itself failed";

const TRANSCRIBE_EXIT_CODES: &str = "\
Exit codes:
  0  the audio was transcribed
  1  a GPU is required, but none is usable
  2  wrong usage, or the command itself failed";

const LLM_BENCH_EXIT_CODES: &str = "\
Exit codes:
  0  the model was measured
  1  a GPU is required, but none is usable
  2  wrong usage, or the command itself failed";

const COMPILE_EXIT_CODES: &str = "\
Exit codes:
  0  the model was compiled, and a session loads it
  2  wrong usage, or the command itself failed";

const TUNE_EXIT_CODES: &str = "\
Exit codes:
  0  the steps were measured
  2  wrong usage, or the command itself failed";

const BENCH_SERVE_EXIT_CODES: &str = "\
Exit codes:
  0  the server was measured; some requests may have failed
  1  all requests failed
  2  wrong usage, or the command itself failed";

const SERVE_EXIT_CODES: &str = "\
Exit codes:
  0  the server was stopped, or --check found nothing wrong
  2  wrong usage, or the command itself failed";

const CACHE_EXIT_CODES: &str = "\
Exit codes:
  0  done; there may have been nothing to remove
  1  clear: not confirmed, or a file could not be removed
  2  wrong usage, or the command itself failed";

const EXIT_CODES: &str = "\
Exit codes:
  0  an AMD GPU can be used by a supported ONNX Runtime
  1  it cannot; the verdict says why, and whether the host device can
  2  wrong usage, or the command itself failed";

#[derive(Parser)]
#[command(name = "amdgpu-ep", version, about = "AMD GPUs for ONNX Runtime", max_term_width = 100)]
#[command(arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show drivers, devices and ONNX Runtime libraries, why no GPU is usable, and what to do next
    #[command(after_help = EXIT_CODES)]
    Doctor {
        /// Print one JSON document (described in docs/doctor.md) instead of text
        #[arg(long)]
        json: bool,
        /// Timeout for each library
        #[arg(long, value_name = "SECONDS", default_value_t = 20)]
        #[arg(value_parser = clap::value_parser!(u64).range(1..=600))]
        timeout: u64,
    },
    /// Show which nodes of a model run on the device, and why the others do not
    #[command(after_help = EXPLAIN_EXIT_CODES)]
    Explain(explain::Arguments),
    /// Run a model once on random or given inputs, and compare with ONNX Runtime's CPU provider
    #[command(after_help = RUN_EXIT_CODES)]
    Run(run::Arguments),
    /// Benchmark a model against ONNX Runtime's CPU provider, alternating in one process
    #[command(after_help = BENCH_EXIT_CODES)]
    Bench(bench::Arguments),
    /// Generate text with an ONNX Runtime GenAI model folder
    #[command(after_help = LLM_EXIT_CODES)]
    Generate(llm::generate::Arguments),
    /// Chat with an ONNX Runtime GenAI model folder
    #[command(after_help = LLM_EXIT_CODES)]
    Chat(llm::chat::Arguments),
    /// Transcribe speech with an ONNX Runtime GenAI model folder of type whisper
    #[command(after_help = TRANSCRIBE_EXIT_CODES)]
    Transcribe(llm::transcribe::Arguments),
    /// Benchmark prompts and text generation of an ONNX Runtime GenAI model folder
    #[command(after_help = LLM_BENCH_EXIT_CODES)]
    BenchLlm(llm::bench::Arguments),
    /// Serve model folders over HTTP, compatible with OpenAI's API
    #[command(after_help = SERVE_EXIT_CODES)]
    Serve(llm::serve::Arguments),
    /// Benchmark a server that is compatible with OpenAI's API, under load
    #[command(after_help = BENCH_SERVE_EXIT_CODES)]
    BenchServe(bench_serve::Arguments),
    /// Show the caches of compiled kernels, measurements, programs and plans, or clear them
    #[command(after_help = CACHE_EXIT_CODES)]
    Cache(cache::Arguments),
    /// Print a shell completion script
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Measure the alternatives for each step of a model on the device, and save the fastest for later sessions
    #[command(after_help = TUNE_EXIT_CODES)]
    Tune(tune::Arguments),
    /// Compile a model ahead of time; the result loads without its source
    #[command(after_help = COMPILE_EXIT_CODES)]
    Compile(compile::Arguments),
    /// Answer one question in a separate process, because opening a library may crash it
    #[command(hide = true)]
    Probe {
        #[command(subcommand)]
        question: Question,
    },
}

fn main() -> ExitCode {
    ffi::disable_telemetry();
    match execute(arguments().command) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            terminal::note("error", &failure::text(&error));
            ExitCode::from(FAILED)
        }
    }
}

fn arguments() -> Arguments {
    let found = Arguments::from_arg_matches(&command_line().get_matches());
    found.unwrap_or_else(|error| error.exit())
}

/// The command line. Every option accepts values like `-1`, so that one that needs a value of 0 or more can report it.
/// Otherwise clap would advise to write `-- -1`.
fn command_line() -> clap::Command {
    Arguments::command().mut_subcommands(|command| {
        command.mut_args(|argument| {
            let takes_value = argument.get_action().takes_values();
            argument.allow_negative_numbers(takes_value)
        })
    })
}

fn execute(command: Command) -> Result<u8> {
    #[cfg(target_os = "linux")]
    loader_path::leave_out_current_folder()?;
    let (code, text) = match command {
        Command::Explain(arguments) => explain::run(&arguments)?,
        Command::Run(arguments) => run::run(&arguments)?,
        Command::Bench(arguments) => bench::run(&arguments)?,
        Command::BenchLlm(arguments) => llm::bench::run(&arguments)?,
        Command::BenchServe(arguments) => bench_serve::run(&arguments)?,
        Command::Tune(arguments) => tune::run(&arguments)?,
        Command::Compile(arguments) => compile::run(&arguments)?,
        Command::Cache(arguments) => cache::run(&arguments)?,
        Command::Doctor { json, timeout } => {
            let report = doctor::examine(Duration::from_secs(timeout))?;
            let text = report::written(&report, json, doctor::render::text)?;
            (report.verdict.exit_code, text)
        }
        // These print their output as it is generated.
        Command::Generate(arguments) => return llm::generate::run(&arguments),
        Command::Chat(arguments) => return llm::chat::run(&arguments),
        Command::Transcribe(arguments) => return llm::transcribe::run(&arguments),
        Command::Serve(arguments) => return llm::serve::run(&arguments),
        Command::Completions { shell } => (0, completions(shell)),
        Command::Probe { question } => (0, doctor::answer(&question)?),
    };
    print(&text)?;
    Ok(code)
}

fn completions(shell: clap_complete::Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "amdgpu-ep", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Writes results. A closed pipe is not an error: the reader has seen what it wanted.
fn print(text: &str) -> Result<()> {
    match terminal::write(text) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("stdout could not be written"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_consistent() {
        command_line().debug_assert();
    }

    #[test]
    fn completions_know_the_commands() {
        for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
            let script = completions(shell);
            assert!(
                ["generate", "chat", "transcribe", "doctor"].iter().all(|command| script.contains(command)),
                "{script}"
            );
        }
    }
}
