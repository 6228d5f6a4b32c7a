//! From scores to one token.

use std::cmp::Ordering;

use super::Sampling;
use super::random::MersenneTwister;

/// A token that can be drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    token: u32,
    score: f32,
    /// In proportion to its probability; the best one has 1.
    weight: f32,
}

/// The best token, the first of equals.
pub(super) fn best(scores: &[f32]) -> u32 {
    let most = maximum(scores);
    scores.iter().position(|&score| score == most).unwrap_or(0) as u32
}

/// The largest score. Each lane has its own, so that the loop has no chain of branches.
fn maximum(scores: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 16];
    let chunks = scores.chunks_exact(lanes.len());
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &score) in lanes.iter_mut().zip(chunk) {
            *lane = if score > *lane { score } else { *lane };
        }
    }
    lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max)
}

/// The tokens that can be drawn, the best first.
pub(super) fn candidates(scores: &[f32], sampling: &Sampling, found: &mut Vec<Candidate>) {
    let is_nucleus = sampling.top_p > 0.0 && sampling.top_p < 1.0;
    if sampling.top_k > 0 {
        best_tokens(scores, sampling.top_k, found);
        weigh(found, sampling.temperature);
        if is_nucleus {
            let total: f32 = found.iter().map(|candidate| candidate.weight).sum();
            found.truncate(prefix(found, sampling.top_p * total));
        }
    } else if is_nucleus {
        nucleus(scores, sampling.top_p, sampling.temperature, found);
    } else {
        best_tokens(scores, scores.len(), found);
        weigh(found, sampling.temperature);
    }
    if sampling.min_p > 0.0 {
        let kept = found.iter().take_while(|candidate| candidate.weight >= sampling.min_p).count();
        found.truncate(kept.max(1));
    }
}

/// Draws one of the candidates.
pub(super) fn draw(candidates: &[Candidate], random: &mut MersenneTwister) -> u32 {
    let [first, rest @ ..] = candidates else { return 0 };
    if rest.is_empty() {
        return first.token;
    }
    let total: f64 = candidates.iter().map(|candidate| f64::from(candidate.weight)).sum();
    let unit = random.next_unit();
    let mut reached = 0.0;
    for candidate in candidates {
        reached += f64::from(candidate.weight) / total;
        if reached >= unit {
            return candidate.token;
        }
    }
    candidates[candidates.len() - 1].token
}

fn order(left: &Candidate, right: &Candidate) -> Ordering {
    right.score.total_cmp(&left.score).then(left.token.cmp(&right.token))
}

/// The best `count` tokens in order. One pass that keeps few: most scores are below those that are kept.
fn best_tokens(scores: &[f32], count: usize, found: &mut Vec<Candidate>) {
    found.clear();
    let room = count.saturating_mul(2).max(64);
    let mut least = f32::NEG_INFINITY;
    for (token, &score) in scores.iter().enumerate() {
        // A later token of the same score is not better.
        if score > least {
            found.push(Candidate { token: token as u32, score, weight: 0.0 });
            if found.len() >= room && count > 0 {
                found.select_nth_unstable_by(count - 1, order);
                found.truncate(count);
                least = found[count - 1].score;
            }
        }
    }
    found.sort_unstable_by(order);
    found.truncate(count);
}

/// `found` is sorted.
fn weigh(found: &mut [Candidate], temperature: f32) {
    let best = found.first().map_or(0.0, |candidate| candidate.score);
    for candidate in found {
        candidate.weight = ((candidate.score - best) / temperature).exp();
    }
}

/// How many of the first candidates reach a weight together.
fn prefix(found: &[Candidate], wanted: f32) -> usize {
    let mut reached = 0.0;
    for (index, candidate) in found.iter().enumerate() {
        reached += candidate.weight;
        if reached >= wanted {
            return index + 1;
        }
    }
    found.len()
}

/// The best tokens that hold a share of the probability, over the whole vocabulary.
///
/// As ONNX Runtime GenAI does it, so that seeded texts are equal: the weight of what is not looked at is bounded by the last
/// weight looked at, which keeps a few tokens more than needed; and the best 16, 64, 256, ... tokens are sorted at a time, an
/// end exactly there not being taken for one.
fn nucleus(scores: &[f32], share: f32, temperature: f32, found: &mut Vec<Candidate>) {
    let all = scores.len();
    let (mut known, mut step, mut reached) = (0, 16, 0.0);
    loop {
        let end = step.min(all);
        best_tokens(scores, end, found);
        weigh(found, temperature);
        for index in known..found.len() {
            reached += found[index].weight;
            let tail = (all - 1 - index) as f32 * found[index].weight;
            let is_border = index + 1 == end && end < all;
            if reached >= share * (reached + tail) && !is_border {
                found.truncate(index + 1);
                return;
            }
        }
        if end == all {
            return;
        }
        (known, step) = (end, step.saturating_mul(4));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tokens(scores: &[f32], sampling: &Sampling) -> Vec<u32> {
        let mut found = Vec::new();
        candidates(scores, sampling, &mut found);
        found.iter().map(|candidate| candidate.token).collect()
    }

    fn sampled() -> Sampling {
        Sampling { do_sample: true, ..Sampling::default() }
    }

    #[test]
    fn the_best_of_equals_is_the_first() {
        assert_eq!(best(&[1.0, 3.0, 3.0, 2.0]), 1);
        assert_eq!(best(&[f32::MIN; 3]), 0);
        assert_eq!(best(&[f32::NAN, 1.0]), 1);
    }

    #[test]
    fn top_k_keeps_the_best_in_order() {
        let scores = [0.0, 3.0, 1.0, 3.0, 2.0];
        assert_eq!(tokens(&scores, &Sampling { top_k: 3, ..sampled() }), [1, 3, 4]);
        assert_eq!(tokens(&scores, &Sampling { top_k: 5, ..sampled() }), [1, 3, 4, 2, 0]);
        assert_eq!(tokens(&scores, &sampled()), [1, 3, 4, 2, 0]);
    }

    #[test]
    fn top_p_ends_where_the_share_is_reached() {
        let scores = [0.5f32, 0.25, 0.125, 0.125].map(f32::ln);
        let top = |top_p: f32| tokens(&scores, &Sampling { top_k: 4, top_p, ..sampled() }).len();
        assert_eq!([top(0.3), top(0.6), top(0.8), top(0.9)], [1, 2, 3, 4]);
    }

    #[test]
    fn min_p_is_a_share_of_the_best() {
        let scores = [0.5f32, 0.25, 0.125, 0.125].map(f32::ln);
        assert_eq!(tokens(&scores, &Sampling { min_p: 0.4, ..sampled() }), [0, 1]);
        assert_eq!(tokens(&scores, &Sampling { min_p: 1.0, ..sampled() }), [0]);
    }

    proptest! {
        #[test]
        fn a_nucleus_holds_its_share(
            scores in prop::collection::vec(-5.0f32..5.0, 1..700), top_p in 0.01f32..0.99, temperature in 0.2f32..3.0,
        ) {
            let sampling = Sampling { top_p, temperature, ..sampled() };
            let kept = tokens(&scores, &sampling);
            let all = tokens(&scores, &Sampling { top_p: 1.0, ..sampling });
            prop_assert_eq!(&kept[..], &all[..kept.len()]);
            let weight = |token: &u32| (f64::from(scores[*token as usize]) / f64::from(temperature)).exp();
            let share = kept.iter().map(weight).sum::<f64>() / all.iter().map(weight).sum::<f64>();
            prop_assert!(share >= f64::from(top_p) - 1e-4, "{} of {}", share, top_p);
        }

        #[test]
        fn draws_are_candidates(scores in prop::collection::vec(-5.0f32..5.0, 1..50), seed: u32, top_k in 0usize..50) {
            let sampling = Sampling { top_k: top_k.min(scores.len()), ..sampled() };
            let mut found = Vec::new();
            candidates(&scores, &sampling, &mut found);
            let drawn = draw(&found, &mut MersenneTwister::new(seed));
            prop_assert!(found.iter().any(|candidate| candidate.token == drawn));
        }
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let scores = [0.5f32, 0.3, 0.2].map(f32::ln);
        let mut found = Vec::new();
        candidates(&scores, &sampled(), &mut found);
        let mut random = MersenneTwister::new(7);
        let mut counts = [0; 3];
        (0..10_000).for_each(|_| counts[draw(&found, &mut random) as usize] += 1);
        for (count, share) in counts.into_iter().zip([0.5, 0.3, 0.2]) {
            assert!((f64::from(count) / 10_000.0 - share).abs() < 0.02, "{counts:?}");
        }
    }
}
