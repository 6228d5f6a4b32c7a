//! Generates text: streaming, limits and stop strings.

use std::time::{Duration, Instant};

use crate::stop::Passed;
use crate::{Error, Finish, Generator, Result, StopStrings, TokenStream, Tokenizer};

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
    /// The time was over.
    Deadline,
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
            TextFinish::Deadline => "deadline",
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

/// The text of tokens, without stop strings.
#[derive(Debug)]
pub(crate) struct ShownText {
    stream: TokenStream,
    stops: StopStrings,
    separators: Vec<u32>,
}

impl ShownText {
    pub fn new(tokenizer: &Tokenizer, stops: impl IntoIterator<Item = String>) -> ShownText {
        ShownText { stream: tokenizer.stream(), stops: StopStrings::new(stops), separators: Vec::new() }
    }

    /// Holds no text back beyond these tokens.
    pub fn separated_by(self, separators: &[u32]) -> ShownText {
        ShownText { separators: separators.to_vec(), ..self }
    }

    /// Adds a token.
    pub fn push(&mut self, token: u32) -> Result<Passed> {
        let passed = self.stops.push(&self.stream.push(token)?);
        match passed {
            Passed::Text(text) if self.separators.contains(&token) => Ok(Passed::Text(text + &self.stops.finish())),
            passed => Ok(passed),
        }
    }

    /// Ends the text, and returns the part that was held back.
    pub fn finish(&mut self) -> Result<Passed> {
        Ok(match self.stops.push(&self.stream.finish()?) {
            Passed::Text(piece) => Passed::Text(piece + &self.stops.finish()),
            stopped @ Passed::Stopped(_) => stopped,
        })
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
    let mut shown = ShownText::new(tokenizer, limits.stops.iter().cloned());
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
        let (piece, stopped) = match shown.push(token)? {
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
        let rest = match shown.finish()? {
            Passed::Text(piece) => piece,
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A tokenizer whose token 2 is special, and has no text.
    fn tokenizer() -> Tokenizer {
        let file = json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
            "post_processor": null, "decoder": {"type": "Fuse"},
            "added_tokens": [{
                "id": 2, "content": "<tool_call>", "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true,
            }],
            "model": {"type": "WordLevel", "vocab": {"a": 0, "E": 1, "<tool_call>": 2, "ND": 3}, "unk_token": "a"}
        });
        Tokenizer::from_bytes(file.to_string().into_bytes(), "tokenizer.json".as_ref()).unwrap()
    }

    #[test]
    fn no_text_is_held_back_beyond_a_separator() {
        let text = |text: &str| Passed::Text(text.to_owned());
        let mut shown = ShownText::new(&tokenizer(), ["END".to_owned()]).separated_by(&[2]);
        assert_eq!(shown.push(0).unwrap(), text("a"));
        assert_eq!(shown.push(1).unwrap(), text(""), "E may begin END");
        assert_eq!(shown.push(2).unwrap(), text("E"), "the text before the marker comes no later than the marker");
        assert_eq!(shown.push(3).unwrap(), text("ND"));
        assert_eq!(shown.push(1).unwrap(), text(""));
        assert_eq!(shown.push(3).unwrap(), Passed::Stopped(String::new()));
    }

    #[test]
    fn stop_strings_are_found_across_other_special_tokens() {
        let mut shown = ShownText::new(&tokenizer(), ["END".to_owned()]);
        assert_eq!(shown.push(1).unwrap(), Passed::Text(String::new()));
        assert_eq!(shown.push(2).unwrap(), Passed::Text(String::new()));
        assert_eq!(shown.push(3).unwrap(), Passed::Stopped(String::new()));
    }
}
