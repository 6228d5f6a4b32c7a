//! A sequence, and how often each token occurs in it.

use std::collections::HashMap;

use super::{NEVER, Sampling};

/// The tokens of a row.
#[derive(Debug)]
pub(crate) struct History {
    tokens: Vec<u32>,
    /// Whether each token was generated, rather than part of a prompt.
    generated: Vec<bool>,
    /// `None` if no penalty needs them.
    counts: Option<HashMap<u32, Count>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    all: u32,
    generated: u32,
}

impl History {
    pub fn new(counted: bool) -> History {
        History { tokens: Vec::new(), generated: Vec::new(), counts: counted.then(HashMap::new) }
    }

    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    pub fn push(&mut self, token: u32, generated: bool) {
        self.tokens.push(token);
        self.generated.push(generated);
        if let Some(counts) = &mut self.counts {
            let count = counts.entry(token).or_default();
            count.all += 1;
            count.generated += u32::from(generated);
        }
    }

    pub fn truncate(&mut self, length: usize) {
        while self.tokens.len() > length {
            let (Some(token), Some(generated)) = (self.tokens.pop(), self.generated.pop()) else { return };
            if let Some(counts) = &mut self.counts
                && let Some(count) = counts.get_mut(&token)
            {
                count.all -= 1;
                count.generated -= u32::from(generated);
                if count.all == 0 {
                    counts.remove(&token);
                }
            }
        }
    }

    /// Applies the repetition, presence and frequency penalties.
    pub fn penalise(&self, scores: &mut [f32], sampling: &Sampling) {
        for (&token, count) in self.counts.iter().flatten() {
            let Some(score) = scores.get_mut(token as usize) else { continue };
            let penalty = sampling.repetition_penalty;
            *score = if *score < 0.0 { *score * penalty } else { *score / penalty };
            if count.generated > 0 {
                *score -= sampling.presence_penalty + sampling.frequency_penalty * count.generated as f32;
            }
        }
    }

    /// Forbids tokens that would complete an n-gram of `size` tokens that the sequence already contains.
    pub fn forbid_repeats(&self, scores: &mut [f32], size: usize) {
        if size == 0 || self.tokens.len() < size {
            return;
        }
        let begun = &self.tokens[self.tokens.len() + 1 - size..];
        for run in self.tokens.windows(size) {
            if run[..size - 1] == *begun
                && let Some(score) = scores.get_mut(run[size - 1] as usize)
            {
                *score = NEVER;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn history(tokens: &[u32], given: usize) -> History {
        let mut history = History::new(true);
        tokens.iter().enumerate().for_each(|(index, &token)| history.push(token, index >= given));
        history
    }

    #[test]
    fn repetition_penalty_lowers_scores() {
        let mut scores = [2.0, -2.0, 5.0];
        let sampling = Sampling { repetition_penalty: 2.0, ..Sampling::default() };
        history(&[0, 1, 1], 3).penalise(&mut scores, &sampling);
        assert_eq!(scores, [1.0, -4.0, 5.0]);
    }

    #[test]
    fn presence_and_frequency_count_generated_tokens_only() {
        let mut scores = [0.0; 3];
        let sampling = Sampling { presence_penalty: 1.0, frequency_penalty: 0.5, ..Sampling::default() };
        history(&[0, 1, 2, 1, 1], 2).penalise(&mut scores, &sampling);
        assert_eq!(scores, [0.0, -2.0, -1.5]);
    }

    #[test]
    fn an_ngram_is_not_repeated() {
        let forbidden = |tokens: &[u32], size: usize| {
            let mut scores = [0.0; 4];
            history(tokens, 0).forbid_repeats(&mut scores, size);
            (0..4).filter(|&token| scores[token] == NEVER).collect::<Vec<_>>()
        };
        assert_eq!(forbidden(&[0, 1, 2, 0], 2), [1]);
        assert_eq!(forbidden(&[0, 1, 2, 0, 1], 3), [2]);
        assert_eq!(forbidden(&[0, 1, 2], 1), [0, 1, 2]);
        assert_eq!(forbidden(&[0, 0], 3), Vec::<usize>::new());
        assert_eq!(forbidden(&[0, 1, 0], 0), Vec::<usize>::new());
    }

    proptest! {
        #[test]
        fn rewinding_forgets_later_tokens(tokens in prop::collection::vec(0u32..6, 0..40), keep in 0usize..40) {
            let keep = keep.min(tokens.len());
            let mut shortened = history(&tokens, 5);
            shortened.truncate(keep);
            let fresh = history(&tokens[..keep], 5);
            let sampling = Sampling {
                repetition_penalty: 1.5, presence_penalty: 0.25, frequency_penalty: 0.5, ..Sampling::default()
            };
            let scores = |history: &History| {
                let mut scores = [1.0, -1.0, 2.0, -2.0, 0.5, 0.0];
                history.penalise(&mut scores, &sampling);
                scores
            };
            prop_assert_eq!(scores(&shortened), scores(&fresh));
            prop_assert_eq!(shortened.tokens(), fresh.tokens());
        }
    }
}
