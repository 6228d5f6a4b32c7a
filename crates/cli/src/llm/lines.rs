//! What is typed into a conversation, line by line: with editing and a history on a terminal, as it comes elsewhere.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Context, Result};
use rustyline::config::Behavior;
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Config, Editor};

const PROMPT: &str = "> ";

/// Terminals that can't move a cursor.
const PLAIN_TERMINALS: [&str; 3] = ["dumb", "cons25", "emacs"];

/// Where lines come from.
pub enum Lines {
    /// A terminal whose lines can be edited.
    Edited(Box<Editor<(), MemHistory>>),
    /// Anything else; the prompt is shown where somebody types.
    Plain { prompts: bool },
}

/// What was typed.
#[derive(Debug, PartialEq, Eq)]
pub enum Entered {
    Line(String),
    /// Ctrl-C, and nothing was sent.
    Interrupted,
    /// Bytes that are no UTF-8; nothing was sent.
    Unreadable,
    /// Ctrl-D, or there is no more.
    End,
}

impl Lines {
    /// Lines of the standard input.
    ///
    /// # Errors
    /// When the terminal refuses.
    pub fn new() -> Result<Self> {
        let prompts = io::stdin().is_terminal();
        let is_plain = std::env::var("TERM").is_ok_and(|term| PLAIN_TERMINALS.contains(&term.as_str()));
        if !prompts || is_plain {
            return Ok(Self::Plain { prompts });
        }
        // The terminal itself is written to: stdout may be a file that is to hold answers only. Nothing that was said is
        // kept when the program ends.
        let config = Config::builder().behavior(Behavior::PreferTerm).auto_add_history(true).build();
        let editor = Editor::with_history(config.clone(), MemHistory::with_config(&config));
        Ok(Self::Edited(Box::new(editor.context("the terminal could not be set up")?)))
    }

    /// The next line.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn next(&mut self) -> Result<Entered> {
        const FAILED: &str = "stdin could not be read";
        match self {
            Self::Edited(editor) => match editor.readline(PROMPT) {
                Ok(line) => Ok(Entered::Line(line)),
                Err(ReadlineError::Interrupted) => Ok(Entered::Interrupted),
                Err(ReadlineError::Eof) => Ok(Entered::End),
                Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => Ok(Entered::Unreadable),
                Err(error) => Err(error).context(FAILED),
            },
            Self::Plain { prompts } => {
                if *prompts {
                    // Nobody is left to tell when stderr is closed.
                    let _ = write!(io::stderr(), "{PROMPT}").and_then(|()| io::stderr().flush());
                }
                let mut line = Vec::new();
                match io::stdin().lock().read_until(b'\n', &mut line).context(FAILED)? {
                    0 => Ok(Entered::End),
                    // One bad byte is no reason to end: the model is told that there was one.
                    _ => Ok(Entered::Line(String::from_utf8_lossy(&line).into_owned())),
                }
            }
        }
    }
}
