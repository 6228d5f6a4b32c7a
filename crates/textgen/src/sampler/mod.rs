//! How the next token is chosen. The order is fixed: what a filter allows, bias, least length, repetition, presence and frequency, runs of
//! tokens, then the choice.

mod history;
mod random;
mod select;
mod weight;
mod whole;

pub(crate) use history::History;
use random::MersenneTwister;

use crate::config::Search;
use crate::{Error, Result};

/// What a score is set to that must not be chosen.
pub(crate) const NEVER: f32 = f32::MIN;

/// Says which tokens may come next.
pub trait TokenFilter: std::fmt::Debug + Send {
    /// Sets the scores of all others to `f32::MIN`.
    ///
    /// # Errors
    /// When no token may come.
    fn filter(&mut self, scores: &mut [f32]) -> Result<()>;

    /// Takes the token that came.
    ///
    /// # Errors
    /// When it was not allowed.
    fn accept(&mut self, token: u32) -> Result<()>;
}

/// How tokens are chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Whether to draw at random; else the best token is taken, the first of equals.
    pub do_sample: bool,
    /// What scores are divided by; 0 takes the best token.
    pub temperature: f32,
    /// How many of the best tokens can be drawn; 0 is all.
    pub top_k: usize,
    /// The share of probability that can be drawn; 0 and 1 are all.
    pub top_p: f32,
    /// Tokens with less than this share of the best token's probability cannot be drawn; 0 is off.
    pub min_p: f32,
    /// What scores of tokens that are in the sequence are divided by (multiplied, below zero); 1 is nothing.
    pub repetition_penalty: f32,
    /// What is taken from scores of tokens that were generated.
    pub presence_penalty: f32,
    /// What is taken from scores of tokens for each time that they were generated.
    pub frequency_penalty: f32,
    /// Runs of this many tokens do not come twice; 0 is off.
    pub no_repeat_ngram_size: usize,
    /// No end token is chosen before a sequence has this many tokens, prompt included.
    pub min_length: usize,
    /// What is added to scores of tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// Where drawing starts from; `None` is anywhere. Rows of a batch draw in turn: they are not as if alone.
    pub seed: Option<u32>,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            do_sample: false,
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            no_repeat_ngram_size: 0,
            min_length: 0,
            logit_bias: Vec::new(),
            seed: None,
        }
    }
}

impl From<&Search> for Sampling {
    fn from(search: &Search) -> Self {
        Sampling {
            do_sample: search.do_sample,
            temperature: search.temperature,
            top_k: search.top_k,
            top_p: search.top_p,
            repetition_penalty: search.repetition_penalty,
            no_repeat_ngram_size: search.no_repeat_ngram_size,
            min_length: search.min_length,
            seed: search.seed,
            ..Sampling::default()
        }
    }
}

impl Sampling {
    /// Checks the numbers.
    ///
    /// # Errors
    /// When one has no meaning.
    pub fn check(&self, vocab_size: usize) -> Result<()> {
        let within = |name: &str, value: f32, least: f32, most: f32| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(Error::request(format!("{name} is {value}"), format!("use a number between {least} and {most}")))
        };
        within("temperature", self.temperature, 0.0, 1e6)?;
        within("top_p", self.top_p, 0.0, 1.0)?;
        within("min_p", self.min_p, 0.0, 1.0)?;
        within("repetition_penalty", self.repetition_penalty, 1e-3, 1e6)?;
        within("presence_penalty", self.presence_penalty, -1e6, 1e6)?;
        within("frequency_penalty", self.frequency_penalty, -1e6, 1e6)?;
        if self.top_k > vocab_size {
            let help = format!("the vocabulary has {vocab_size} tokens");
            return Err(Error::request(format!("top_k is {}", self.top_k), help));
        }
        for &(token, bias) in &self.logit_bias {
            within("a logit bias", bias, -1e6, 1e6)?;
            if token as usize >= vocab_size {
                let help = format!("the vocabulary has {vocab_size} tokens");
                return Err(Error::request(format!("there is a logit bias for token {token}"), help));
            }
        }
        Ok(())
    }

    /// Whether the sequence so far changes scores.
    fn looks_back(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }

    /// Whether only a share of the probability can be drawn.
    fn is_nucleus(&self) -> bool {
        self.top_p > 0.0 && self.top_p < 1.0
    }

    fn is_greedy(&self) -> bool {
        !self.do_sample || self.temperature == 0.0 || self.top_k == 1
    }
}

/// Chooses tokens.
#[derive(Debug)]
pub(crate) struct Sampler {
    sampling: Sampling,
    random: MersenneTwister,
    room: whole::Room,
}

impl Sampler {
    pub fn new(sampling: Sampling) -> Sampler {
        let random = MersenneTwister::new(sampling.seed.unwrap_or_else(random::anywhere));
        Sampler { sampling, random, room: whole::Room::default() }
    }

    /// A history that counts only what the penalties need.
    pub fn history(&self) -> History {
        History::new(self.sampling.looks_back())
    }

    /// The next token of a sequence, from the scores that follow it.
    pub fn choose(&mut self, scores: &mut [f32], history: &History, end_tokens: &[u32]) -> u32 {
        let sampling = &self.sampling;
        for &(token, bias) in &sampling.logit_bias {
            scores[token as usize] += bias;
        }
        if history.tokens().len() < sampling.min_length {
            for &token in end_tokens {
                scores[token as usize] = NEVER;
            }
        }
        if sampling.looks_back() {
            history.penalise(scores, sampling);
        }
        history.forbid_repeats(scores, sampling.no_repeat_ngram_size);
        if sampling.is_greedy() {
            return select::best(scores);
        }
        select::draw(scores, sampling, &mut self.random, &mut self.room)
    }
}
