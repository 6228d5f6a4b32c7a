//! Chooses the next token. The order is fixed: filter, bias, minimum length, repetition, presence and frequency
//! penalties, repeated n-grams, then the choice.

mod history;
mod random;
mod select;
mod weight;
mod whole;

pub(crate) use history::History;
use random::MersenneTwister;
pub(crate) use select::{best, best_of_halves};

use crate::config::Search;
use crate::{Error, Result};

/// The score of tokens that must not be chosen.
pub(crate) const NEVER: f32 = f32::MIN;

/// Restricts which tokens may come next.
pub trait TokenFilter: std::fmt::Debug + Send {
    /// Sets the scores of all forbidden tokens to `f32::MIN`.
    ///
    /// # Errors
    /// When no token is allowed.
    fn filter(&mut self, scores: &mut [f32]) -> Result<()>;

    /// Accepts the chosen token.
    ///
    /// # Errors
    /// When the token is not allowed.
    fn accept(&mut self, token: u32) -> Result<()>;

    /// An independent filter in the same state, for another text from the same prompt. `None` if that is not supported.
    fn fork(&self) -> Option<Box<dyn TokenFilter>> {
        None
    }
}

/// How tokens are chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Whether to sample; otherwise the best token is taken, on a tie the first.
    pub do_sample: bool,
    /// Scores are divided by this; 0 takes the best token.
    pub temperature: f32,
    /// Sample from this many of the best tokens; 0 means all.
    pub top_k: usize,
    /// Sample from the best tokens with this share of the probability; 0 and 1 mean all.
    pub top_p: f32,
    /// Tokens with less than this share of the best token's probability are not sampled; 0 disables this.
    pub min_p: f32,
    /// Scores of tokens already in the sequence are divided by this (multiplied if negative); 1 means no penalty.
    pub repetition_penalty: f32,
    /// Subtracted from the scores of tokens that were generated before.
    pub presence_penalty: f32,
    /// Subtracted from a token's score for each time that it was generated before.
    pub frequency_penalty: f32,
    /// N-grams of this size are not repeated; 0 disables this.
    pub no_repeat_ngram_size: usize,
    /// End tokens are not chosen before a sequence has this many tokens, prompt included.
    pub min_length: usize,
    /// Added to the scores of these tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// The random seed; `None` picks one. Rows of a batch share the random numbers, so a row's text differs from that
    /// of a run on its own.
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
    /// Checks the values.
    ///
    /// # Errors
    /// When a value is out of range.
    pub fn check(&self, vocab_size: usize) -> Result<()> {
        let within = |name: &str, value: f32, least: f32, most: f32| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(Error::request(
                format!("{name} is {value}, out of range"),
                format!("use a number between {least} and {most}"),
            ))
        };
        within("temperature", self.temperature, 0.0, 1e6)?;
        within("top_p", self.top_p, 0.0, 1.0)?;
        within("min_p", self.min_p, 0.0, 1.0)?;
        within("repetition_penalty", self.repetition_penalty, 1e-3, 1e6)?;
        within("presence_penalty", self.presence_penalty, -1e6, 1e6)?;
        within("frequency_penalty", self.frequency_penalty, -1e6, 1e6)?;
        if self.top_k > vocab_size {
            let help = format!("the vocabulary has {vocab_size} tokens");
            return Err(Error::request(format!("top_k is {}, larger than the vocabulary", self.top_k), help));
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

    /// Whether scores depend on earlier tokens.
    fn looks_back(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }

    /// Whether `top_p` restricts the choice.
    fn is_nucleus(&self) -> bool {
        self.top_p > 0.0 && self.top_p < 1.0
    }

    /// Whether end tokens are not chosen yet.
    fn is_too_short(&self, history: &History) -> bool {
        history.tokens().len() < self.min_length
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
    buffers: whole::DrawBuffers,
}

impl Sampler {
    pub fn new(sampling: Sampling) -> Sampler {
        let random = MersenneTwister::new(sampling.seed.unwrap_or_else(random::anywhere));
        Sampler { sampling, random, buffers: whole::DrawBuffers::default() }
    }

    /// A history that keeps only the counts that the penalties need.
    pub fn history(&self) -> History {
        History::new(self.sampling.looks_back())
    }

    /// The next token of a sequence, chosen from the scores for its next position.
    pub fn choose(&mut self, scores: &mut [f32], history: &History, end_tokens: &[u32]) -> u32 {
        let sampling = &self.sampling;
        for &(token, bias) in &sampling.logit_bias {
            scores[token as usize] += bias;
        }
        if sampling.is_too_short(history) {
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
        select::draw(scores, sampling, &mut self.random, &mut self.buffers)
    }

    /// Whether [`choose`](Self::choose) takes the token with the best score, if it [may](Self::may_take).
    pub fn takes_best(&self) -> bool {
        let sampling = &self.sampling;
        let changes_scores =
            !sampling.logit_bias.is_empty() || sampling.looks_back() || sampling.no_repeat_ngram_size > 0;
        sampling.is_greedy() && !changes_scores
    }

    /// Whether the minimum length allows a token.
    pub fn may_take(&self, token: u32, history: &History, end_tokens: &[u32]) -> bool {
        !(self.sampling.is_too_short(history) && end_tokens.contains(&token))
    }
}
