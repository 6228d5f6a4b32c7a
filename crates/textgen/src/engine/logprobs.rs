//! Probabilities of tokens, from the model's scores.

use super::TokenLogprob;

/// The scores of a step, before they were changed to choose a token.
#[derive(Debug)]
pub(super) struct RawScores {
    scores: Vec<f32>,
}

impl RawScores {
    pub fn new(scores: &[f32]) -> RawScores {
        RawScores { scores: scores.to_vec() }
    }

    /// The logarithm of the token's probability, and the `count` most likely tokens.
    pub fn of(&self, token: u32, count: usize) -> TokenLogprob {
        let best = self.scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights = self.scores.iter().map(|&score| f64::from(score - best).exp());
        let total = f64::from(best) + weights.sum::<f64>().ln();
        let logprob = |token: u32| (f64::from(self.scores[token as usize]) - total) as f32;
        let mut tokens: Vec<u32> = (0..self.scores.len() as u32).collect();
        let count = count.min(tokens.len());
        // Best first; on a tie the first, as in greedy search.
        let order = |&left: &u32, &right: &u32| {
            let by_score = self.scores[right as usize].total_cmp(&self.scores[left as usize]);
            by_score.then(left.cmp(&right))
        };
        if count > 0 && count < tokens.len() {
            tokens.select_nth_unstable_by(count - 1, order);
        }
        tokens.truncate(count);
        tokens.sort_unstable_by(order);
        TokenLogprob { logprob: logprob(token), top: tokens.into_iter().map(|token| (token, logprob(token))).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_a_softmax_of_the_scores() {
        let scores = [1.0f32, 3.0, -2.0, 3.0];
        let total: f64 = scores.iter().map(|&score| f64::from(score).exp()).sum();
        let wanted = |token: usize| (f64::from(scores[token]).exp() / total).ln() as f32;
        let found = RawScores::new(&scores).of(2, 3);
        assert!((found.logprob - wanted(2)).abs() < 1e-6);
        assert_eq!(found.top.iter().map(|&(token, _)| token).collect::<Vec<_>>(), [1, 3, 0]);
        assert!(found.top.iter().all(|&(token, logprob)| (logprob - wanted(token as usize)).abs() < 1e-6));
    }

    #[test]
    fn no_more_tokens_are_listed_than_there_are() {
        let scores = RawScores::new(&[0.0, 1.0]);
        assert_eq!((scores.of(0, 0).top.len(), scores.of(0, 2).top.len(), scores.of(0, 9).top.len()), (0, 2, 2));
    }
}
