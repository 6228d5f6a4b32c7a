//! Reads the user's lines: with editing and history on a terminal, as plain text otherwise.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Context, Result};
use rustyline::config::Behavior;
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Config, Editor};

const PROMPT: &str = "> ";

/// Terminals that cannot move the cursor.
const PLAIN_TERMINALS: [&str; 3] = ["dumb", "cons25", "emacs"];

/// The source of lines.
pub enum Lines {
    /// A terminal with line editing.
    Edited(Box<Editor<(), MemHistory>>),
    /// Anything else; the prompt is shown if a user types.
    Plain { prompts: bool },
}

/// The user's input.
#[derive(Debug, PartialEq, Eq)]
pub enum UserInput {
    Line(String),
    /// Ctrl-C; nothing was sent.
    Interrupted,
    /// Bytes that are not valid UTF-8; nothing was sent.
    Unreadable,
    /// Ctrl-D, or the end of the input.
    End,
}

impl Lines {
    /// Lines from stdin.
    ///
    /// # Errors
    /// When the terminal cannot be set up.
    pub fn new() -> Result<Self> {
        let prompts = io::stdin().is_terminal();
        let is_plain = std::env::var("TERM").is_ok_and(|term| PLAIN_TERMINALS.contains(&term.as_str()));
        if !prompts || is_plain {
            return Ok(Self::Plain { prompts });
        }
        // Write to the terminal itself, because stdout may be a file that should contain only the answers. The history
        // is not saved when the program ends.
        let config = Config::builder().behavior(Behavior::PreferTerm).auto_add_history(true).build();
        let editor = Editor::with_history(config.clone(), MemHistory::with_config(&config));
        Ok(Self::Edited(Box::new(editor.context("the terminal could not be set up")?)))
    }

    /// The next line.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn next(&mut self) -> Result<UserInput> {
        const FAILED: &str = "stdin could not be read";
        match self {
            Self::Edited(editor) => match editor.readline(PROMPT) {
                Ok(line) => Ok(UserInput::Line(line)),
                Err(ReadlineError::Interrupted) => Ok(UserInput::Interrupted),
                Err(ReadlineError::Eof) => Ok(UserInput::End),
                Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
                    Ok(UserInput::Unreadable)
                }
                Err(error) => Err(error).context(FAILED),
            },
            Self::Plain { prompts } => {
                if *prompts {
                    // If stderr is closed, there is no one to tell.
                    let _ = write!(io::stderr(), "{PROMPT}").and_then(|()| io::stderr().flush());
                }
                let mut line = Vec::new();
                match io::stdin().lock().read_until(b'\n', &mut line).context(FAILED)? {
                    0 => Ok(UserInput::End),
                    // One invalid byte is no reason to stop: the model sees a replacement character.
                    _ => Ok(UserInput::Line(String::from_utf8_lossy(&line).into_owned())),
                }
            }
        }
    }
}
