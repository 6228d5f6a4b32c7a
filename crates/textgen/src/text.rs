//! Generates text: streaming, limits and stop strings.

use std::time::{Duration, Instant};

use crate::stop::Passed;
use crate::{Error, Finish, Generator, Result, StopStrings, Tokenizer};

/// Limits of a generated text, in addition to end tokens.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// The maximum number of generated tokens; `None` generates until the sequence is full.
    pub max_new_tokens: Option<usize>,
    /// Strings that end the text; they are not part of it.
    pub stops: Vec<String>,
}

/// A piece of text.
#[derive(Clone, Copy, Debug)]
pub struct TextStep<'a> {
    /// Whole characters; may be empty.
    pub text: &'a str,
    /// The generated token; `None` for text after the last token.
    pub token: Option<u32>,
}

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFinish {
    /// The model produced an end token.
    EndToken,
    /// A stop string was found.
    StopString,
    /// The requested number of tokens was generated.
    MaxNewTokens,
    /// The sequence reached its maximum length.
    MaxLength,
    /// It was cancelled.
    Cancelled,
}

impl TextFinish {
    /// A single word, for reports.
    pub fn as_str(self) -> &'static str {
        match self {
            TextFinish::EndToken => "end_token",
            TextFinish::StopString => "stop_string",
            TextFinish::MaxNewTokens => "max_new_tokens",
            TextFinish::MaxLength => "max_length",
            TextFinish::Cancelled => "cancelled",
        }
    }
}

impl From<Finish> for TextFinish {
    fn from(finish: Finish) -> Self {
        match finish {
            Finish::EndToken => TextFinish::EndToken,
            Finish::MaxLength => TextFinish::MaxLength,
        }
    }
}

/// What was generated.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The text, without stop strings and special tokens.
    pub text: String,
    /// The tokens, including the one that ended the text.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub finish: TextFinish,
    /// Tokens that ran before the first new one: the prompt, without its cached part.
    pub prompt_tokens: usize,
    /// Time to the first token.
    pub first_token: Duration,
    /// Time of all other tokens together.
    pub other_tokens: Duration,
}

impl Answer {
    /// Tokens per second, after the first one.
    pub fn tokens_per_second(&self) -> Option<f64> {
        let seconds = self.other_tokens.as_secs_f64();
        (self.tokens.len() > 1 && seconds > 0.0).then(|| (self.tokens.len() - 1) as f64 / seconds)
    }
}

/// Continues the only row of a generator until the model, a limit or a stop string ends it, and passes on the text as
/// it is generated. Cancelling also ends it, without an error.
///
/// # Errors
/// When a step fails, or the tokenizer rejects a token.
pub fn generate_text(
    generator: &mut Generator,
    tokenizer: &Tokenizer,
    limits: &Limits,
    mut on_text: impl FnMut(TextStep<'_>),
) -> Result<Answer> {
    let (mut stream, mut stops) = (tokenizer.stream(), StopStrings::new(limits.stops.iter().cloned()));
    let most = limits.max_new_tokens.unwrap_or(usize::MAX);
    let prompt_tokens = generator.tokens(0).len() - generator.cached().min(generator.tokens(0).len());
    let mut text = String::new();
    let mut tokens = Vec::new();
    let (start, mut first_token) = (Instant::now(), Duration::ZERO);
    let mut finish = loop {
        if tokens.len() >= most {
            break TextFinish::MaxNewTokens;
        }
        let token = match generator.step() {
            Ok(Some(newest)) => newest[0],
            // The row had ended before this call.
            Ok(None) => break generator.finish(0).map_or(TextFinish::MaxLength, TextFinish::from),
            Err(Error::Cancelled) => break TextFinish::Cancelled,
            Err(error) => return Err(error),
        };
        let Some(token) = token else { break TextFinish::EndToken };
        if tokens.is_empty() {
            first_token = start.elapsed();
        }
        tokens.push(token);
        let piece = stream.push(token)?;
        let (piece, stopped) = match stops.push(&piece) {
            Passed::Text(piece) => (piece, false),
            Passed::Stopped(piece) => (piece, true),
        };
        text += &piece;
        on_text(TextStep { text: &piece, token: Some(token) });
        if stopped {
            break TextFinish::StopString;
        }
        match generator.finish(0) {
            // If both limits are reached at once, report the one that was asked for.
            Some(Finish::MaxLength) if tokens.len() == most => break TextFinish::MaxNewTokens,
            Some(finish) => break finish.into(),
            None => {}
        }
    };
    let other_tokens = start.elapsed().saturating_sub(first_token);
    if finish != TextFinish::StopString {
        let rest = match stops.push(&stream.finish()?) {
            Passed::Text(piece) => piece + &stops.finish(),
            Passed::Stopped(piece) => {
                finish = TextFinish::StopString;
                piece
            }
        };
        if !rest.is_empty() {
            text += &rest;
            on_text(TextStep { text: &rest, token: None });
        }
    }
    Ok(Answer { text, tokens, finish, prompt_tokens, first_token, other_tokens })
}
