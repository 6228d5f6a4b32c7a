//! `amdgpu-ep chat`: a conversation, line by line.

use std::io::{self, ErrorKind, IsTerminal};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use clap::Args;
use textgen::{Answer, Canceller, ChatTemplate, Conversation, TextFinish, TextStep};

use crate::failure;
use crate::terminal::{note, write};

use super::lines::{Lines, UserInput};
use super::{FolderArguments, LimitArguments, Opening, SamplingArguments, open};

const HELP: &str = "\
/reset    clear the conversation
/history  show the conversation
/stats    show token counts and the speed of the last answer
/help     show this
/quit     quit, like the end of the input
Ctrl-C    stop the answer";

const HOW_TO_END: &str = "/quit or Ctrl-D ends the conversation";

/// The arguments of `chat`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(flatten)]
    folder: FolderArguments,
    /// System message
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    #[command(flatten)]
    limits: LimitArguments,
    #[command(flatten)]
    sampling: SamplingArguments,
}

/// Runs the command, and returns its exit code.
///
/// # Errors
/// When the folder or the model cannot be loaded, or stdin or stdout fails.
pub fn run(arguments: &Arguments) -> Result<u8> {
    let opened = match open(&arguments.folder)? {
        Opening::Ready(opened) => opened,
        Opening::NoGpu(code) => return Ok(code),
    };
    let config = opened.model.config();
    let template = ChatTemplate::from_folder(config)?;
    let generator = opened.generator(arguments.folder.device.max_length, arguments.sampling.sampling(config))?;
    let turn = Turn::new(generator.canceller());
    stop_answers(turn.clone())?;
    let system = arguments.system.clone();
    let conversation = Conversation::new(generator, opened.tokenizer.clone(), template, system);
    let mut chat = Chat { conversation, limits: arguments.limits.limits(), turn, last: None };
    if io::stdin().is_terminal() {
        note("note", &format!("{}; /help lists the commands", opened.model.attached()));
    }
    match chat.talk() {
        Err(error) if is_broken_pipe(&error) => Ok(0),
        Err(error) => Err(error),
        Ok(()) => Ok(0),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// Ctrl-C stops an answer. If there is none, it prints how to quit.
fn stop_answers(turn: Turn) -> Result<()> {
    ctrlc::set_handler(move || {
        if !turn.stop() {
            note("\nnote", HOW_TO_END);
        }
    })
    .context("could not install the Ctrl-C handler")
}

/// Whether the model is answering, and a handle to stop it.
#[derive(Clone)]
struct Turn {
    canceller: Canceller,
    /// Locked while an answer is cancelled, so that a late request cannot cancel the next answer.
    answering: Arc<Mutex<bool>>,
}

impl Turn {
    fn new(canceller: Canceller) -> Turn {
        Turn { canceller, answering: Arc::default() }
    }

    fn begin(&self) {
        *self.answering() = true;
    }

    fn end(&self) {
        let mut answering = self.answering();
        *answering = false;
        // A cancellation that arrived just as the answer ended is not meant for the next one.
        self.canceller.reset();
    }

    /// Stops the answer; `false` if there is none.
    fn stop(&self) -> bool {
        let answering = self.answering();
        if *answering {
            self.canceller.cancel();
        }
        *answering
    }

    fn answering(&self) -> MutexGuard<'_, bool> {
        self.answering.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Chat {
    conversation: Conversation,
    limits: textgen::Limits,
    turn: Turn,
    last: Option<Answer>,
}

impl Chat {
    fn talk(&mut self) -> Result<()> {
        let mut lines = Lines::new()?;
        loop {
            let line = match lines.next()? {
                UserInput::Line(line) => line,
                UserInput::Interrupted => {
                    note("note", HOW_TO_END);
                    continue;
                }
                UserInput::Unreadable => {
                    note("note", "ignored input that is not valid UTF-8");
                    continue;
                }
                UserInput::End => return Ok(()),
            };
            match line.trim() {
                "" => {}
                "/quit" | "/exit" => return Ok(()),
                "/help" => note("note", &format!("commands\n{HELP}")),
                "/reset" => {
                    self.conversation.reset()?;
                    self.last = None;
                    note("note", "conversation cleared");
                }
                "/stats" => write(&self.stats())?,
                "/history" => write(&self.history())?,
                command if command.starts_with('/') => {
                    note("note", &format!("unknown command {command}; /help lists them all"))
                }
                text => self.answer(text)?,
            }
        }
    }

    fn answer(&mut self, text: &str) -> Result<()> {
        let mut written = Ok(());
        self.turn.begin();
        let answer = self.conversation.ask(text, &self.limits, |TextStep { text, .. }| {
            if written.is_ok() {
                written = write(text);
                if written.is_err() {
                    self.turn.stop();
                }
            }
        });
        self.turn.end();
        written?;
        match answer {
            Ok(answer) => {
                write("\n")?;
                if answer.finish == TextFinish::Cancelled {
                    note("note", "the answer was stopped");
                }
                self.last = Some(answer);
            }
            // The conversation can continue after an error.
            Err(error) => note("error", &failure::text(&error.into())),
        }
        Ok(())
    }

    fn history(&self) -> String {
        let said = self.conversation.messages().iter();
        said.map(|message| format!("{}: {}\n", message.role, message.content)).collect()
    }

    fn stats(&self) -> String {
        let generator = self.conversation.generator();
        let mut text = format!(
            "messages      {}\ntokens        {} ({} more fit)\nprovider      {}\n",
            self.conversation.messages().len(),
            generator.tokens(0).len(),
            generator.room(),
            generator.model().attached(),
        );
        if let Some(last) = &self.last {
            let speed = last.tokens_per_second().map_or_else(|| "-".to_owned(), |speed| format!("{speed:.1}"));
            text += &format!(
                "last answer   {} tokens, {speed} a second, ended by {}\nlast prompt   {} tokens run, first token after {:.3} s\n",
                last.tokens.len(),
                last.finish.as_str(),
                last.prompt_tokens,
                last.first_token.as_secs_f64(),
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use testkit::llm::TinyDecoder;
    use testkit::place;
    use textgen::{Config, Generator, GeneratorOptions, Model, Runtime};

    use super::*;

    #[test]
    fn a_cancel_request_never_outlives_its_answer() {
        let library = match place::onnxruntime() {
            Ok(library) => library,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let folder = tempfile::tempdir().unwrap();
        TinyDecoder::new(5).write(folder.path(), true).unwrap();
        let config = Config::from_folder(folder.path()).unwrap();
        let model = Model::load(&Runtime::load(&library).unwrap(), &config).unwrap();
        let canceller = Generator::new(&model, GeneratorOptions::default()).unwrap().canceller();
        let turn = Turn::new(canceller.clone());
        assert!(!turn.stop() && !canceller.is_cancelled(), "there is no answer yet");
        turn.begin();
        assert!(turn.stop() && canceller.is_cancelled());
        turn.end();
        let (done, tried) = (AtomicBool::new(false), AtomicUsize::new(0));
        // Waits until a pending request has been handled.
        let wait = || {
            let (start, before) = (Instant::now(), tried.load(Ordering::SeqCst));
            while tried.load(Ordering::SeqCst) < before + 2 && start.elapsed() < Duration::from_secs(60) {
                thread::yield_now();
            }
        };
        let late = thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    turn.stop();
                    tried.fetch_add(1, Ordering::SeqCst);
                }
            });
            let answers = (0..5_000).filter(|_| {
                turn.begin();
                turn.end();
                wait();
                canceller.is_cancelled()
            });
            let late = answers.count();
            done.store(true, Ordering::SeqCst);
            late
        });
        assert_eq!(late, 0, "answers that a late cancel would have ended");
    }
}
