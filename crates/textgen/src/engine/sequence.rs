//! One text that grows: its tokens, its random numbers and the rules that end it. Nothing here depends on the other
//! sequences of a batch.

use std::sync::Arc;

use crate::sampler::{History, Sampler};
use crate::stop::Passed;
use crate::text::ShownText;
use crate::{Result, Sampling, TextFinish, TokenFilter};

use super::TokenLogprob;
use super::logprobs::RawScores;

/// One choice of a request.
#[derive(Debug)]
pub(super) struct Sequence {
    pub request: u64,
    pub choice: usize,
    history: History,
    prompt: usize,
    sampler: Sampler,
    filter: Option<Box<dyn TokenFilter>>,
    text: ShownText,
    rules: Arc<Rules>,
}

/// What the choices of a request have in common.
#[derive(Debug)]
pub(super) struct Rules {
    pub end_tokens: Vec<u32>,
    /// The maximum number of generated tokens.
    pub most: usize,
    /// The maximum number of tokens, prompt included.
    pub max_length: usize,
    pub top_logprobs: Option<usize>,
}

/// The outcome of one step.
#[derive(Debug)]
pub(super) struct Chosen {
    pub token: u32,
    pub text: String,
    pub logprob: Option<TokenLogprob>,
    pub end: Option<End>,
}

/// The end of a text.
#[derive(Debug)]
pub(super) struct End {
    /// Text that was held back.
    pub text: String,
    pub finish: TextFinish,
}

impl Sequence {
    pub fn new(
        (request, choice): (u64, usize),
        prompt: &[u32],
        sampling: Sampling,
        filter: Option<Box<dyn TokenFilter>>,
        text: ShownText,
        rules: &Arc<Rules>,
    ) -> Sequence {
        let sampler = Sampler::new(sampling);
        let mut history = sampler.history();
        prompt.iter().for_each(|&token| history.push(token, false));
        let rules = Arc::clone(rules);
        Sequence { request, choice, history, prompt: prompt.len(), sampler, filter, text, rules }
    }

    /// The prompt and what was generated.
    pub fn tokens(&self) -> &[u32] {
        self.history.tokens()
    }

    pub fn prompt(&self) -> &[u32] {
        &self.history.tokens()[..self.prompt]
    }

    pub fn generated(&self) -> usize {
        self.history.tokens().len() - self.prompt
    }

    /// Whether nothing is to be generated.
    pub fn is_empty(&self) -> bool {
        self.rules.most == 0
    }

    /// How many more tokens it may generate.
    pub fn room(&self) -> usize {
        (self.rules.most - self.generated()).min(self.rules.max_length - self.history.tokens().len())
    }

    /// Chooses the next token from the scores for it, which are changed.
    ///
    /// # Errors
    /// When the filter or the tokenizer fails. The sequence cannot be continued then.
    pub fn choose(&mut self, scores: &mut [f32]) -> Result<Chosen> {
        let raw = self.rules.top_logprobs.map(|count| (RawScores::new(scores), count));
        if let Some(filter) = &mut self.filter {
            filter.filter(scores)?;
        }
        let token = self.sampler.choose(scores, &self.history, &self.rules.end_tokens);
        if let Some(filter) = &mut self.filter {
            filter.accept(token)?;
        }
        self.take(token, raw.map(|(raw, count)| raw.of(token, count)))
    }

    /// Whether it takes the token with the best score, unless [`Sequence::take_best`] says otherwise.
    pub fn takes_best(&self) -> bool {
        self.filter.is_none() && self.rules.top_logprobs.is_none() && self.sampler.takes_best()
    }

    /// Takes the token with the best score. `None` if this token is not allowed yet: then the scores decide.
    ///
    /// # Errors
    /// When the tokenizer fails. The sequence cannot be continued then.
    pub fn take_best(&mut self, token: u32) -> Option<Result<Chosen>> {
        let may_take = self.sampler.may_take(token, &self.history, &self.rules.end_tokens);
        may_take.then(|| self.take(token, None))
    }

    fn take(&mut self, token: u32, logprob: Option<TokenLogprob>) -> Result<Chosen> {
        self.history.push(token, true);
        let (text, is_stopped) = match self.text.push(token)? {
            Passed::Text(text) => (text, false),
            Passed::Stopped(text) => (text, true),
        };
        let end = if is_stopped {
            Some(End { text: String::new(), finish: TextFinish::StopString })
        } else if self.rules.end_tokens.contains(&token) {
            Some(self.end(TextFinish::EndToken)?)
        } else if self.generated() >= self.rules.most {
            Some(self.end(TextFinish::MaxNewTokens)?)
        } else if self.history.tokens().len() >= self.rules.max_length {
            Some(self.end(TextFinish::MaxLength)?)
        } else {
            None
        };
        Ok(Chosen { token, text, logprob, end })
    }

    /// Ends the text.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn end(&mut self, finish: TextFinish) -> Result<End> {
        Ok(match self.text.finish()? {
            Passed::Text(text) => End { text, finish },
            // The rest may show a stop string, but that is not what ended an interrupted text.
            Passed::Stopped(text) if matches!(finish, TextFinish::Cancelled | TextFinish::Deadline) => {
                End { text, finish }
            }
            Passed::Stopped(text) => End { text, finish: TextFinish::StopString },
        })
    }
}
