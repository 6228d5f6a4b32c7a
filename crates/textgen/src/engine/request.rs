//! What a caller asks of the engine, and what it gets back.

use std::time::{Duration, Instant};

use crate::{Error, Sampling, TextFinish, TokenFilter};

/// A text to generate.
#[derive(Debug)]
pub struct Request {
    /// The tokens to continue.
    pub prompt: Vec<u32>,
    /// The maximum number of generated tokens; `None` generates until the sequence is full.
    pub max_new_tokens: Option<usize>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Strings that end the text; they are not part of it.
    pub stops: Vec<String>,
    /// Tokens that end the text, in addition to those of the model folder.
    pub end_tokens: Vec<u32>,
    /// Continue after tokens that end the text, for measurements of a fixed length. Not possible with a filter, which
    /// may allow nothing after the end.
    pub ignore_end: bool,
    /// Tokens without text that separate the text before them from the text after them, such as markers of tool calls.
    /// Stop strings are not searched for across them, so no text is held back beyond them.
    pub separators: Vec<u32>,
    /// Restricts which tokens may come next. With several choices, it must support [`TokenFilter::fork`].
    pub filter: Option<Box<dyn TokenFilter>>,
    /// Report the probability of each token, and of this many of the most likely ones.
    pub top_logprobs: Option<usize>,
    /// Requests with a larger number start earlier.
    pub priority: i32,
    /// When to stop, with the text so far.
    pub deadline: Option<Instant>,
    /// How many independent texts to generate from the prompt. Choice `i` uses the seed plus `i`.
    pub choices: usize,
}

impl Request {
    /// A greedy request without limits.
    pub fn new(prompt: Vec<u32>) -> Request {
        Request {
            prompt,
            max_new_tokens: None,
            sampling: Sampling::default(),
            stops: Vec::new(),
            end_tokens: Vec::new(),
            ignore_end: false,
            separators: Vec::new(),
            filter: None,
            top_logprobs: None,
            priority: 0,
            deadline: None,
            choices: 1,
        }
    }
}

/// Progress of a request.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A token was chosen.
    Token {
        /// The choice that it belongs to.
        choice: usize,
        /// The token.
        token: u32,
        /// Whole characters that no stop string can take back; may be empty.
        text: String,
        /// Its probability, if the request asks for it.
        logprob: Option<TokenLogprob>,
    },
    /// Text that was held back, after the last token.
    Text {
        /// The choice that it belongs to.
        choice: usize,
        /// The text.
        text: String,
    },
    /// A choice ended.
    Finished {
        /// The choice.
        choice: usize,
        /// Why it ended.
        finish: TextFinish,
    },
    /// All choices ended. This is the last event.
    Done(Usage),
    /// The request failed. This is the last event.
    Failed(Error),
}

/// How likely a token was, by the model's own scores: before constraints, penalties and temperature.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    /// Natural logarithm of the chosen token's probability.
    pub logprob: f32,
    /// The most likely tokens, best first, with the logarithms of their probabilities.
    pub top: Vec<(u32, f32)>,
}

/// What a request used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the prompt that did not run, because they were in the cache.
    pub cached_tokens: usize,
    /// Generated tokens of all choices.
    pub new_tokens: usize,
    /// Time until the first choice started.
    pub queued: Duration,
    /// Time until the first token, from submission.
    pub first_token: Duration,
    /// Time until the end, from submission.
    pub total: Duration,
}

/// Why a request was not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Rejected {
    /// Too many requests are waiting.
    #[error("{waiting} requests are waiting already\n  help: try again in {} seconds", retry_after.as_secs())]
    QueueFull {
        /// How many are waiting.
        waiting: usize,
        /// When it may be accepted, estimated from the duration of earlier requests.
        retry_after: Duration,
    },
    /// The prompt leaves no room for a token.
    #[error(
        "the prompt has {tokens} tokens, but the limit is {limit}\n  help: use a shorter prompt or a larger max_length"
    )]
    TooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// The longest allowed prompt.
        limit: usize,
    },
    /// The engine is shutting down.
    #[error("the engine is shutting down\n  help: send the request to another one")]
    ShuttingDown,
    /// A value of the request is wrong.
    #[error(transparent)]
    Invalid(#[from] Error),
}
