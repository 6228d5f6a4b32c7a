//! Selects the best token, or samples from the best few.

use std::cmp::Ordering;

use super::random::MersenneTwister;
use super::weight::weight;
use super::{Sampling, whole};

/// Scores are processed in blocks: most blocks contain no candidate and are skipped.
const BLOCK: usize = 128;

/// A token that can be sampled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub token: u32,
    pub score: f32,
    pub weight: f32,
}

/// The best token; on a tie, the first.
pub(crate) fn best(scores: &[f32]) -> u32 {
    let (mut most, mut place) = (f32::NEG_INFINITY, 0);
    for (index, block) in scores.chunks(BLOCK).enumerate() {
        let here = maximum(block);
        if here > most {
            (most, place) = (here, index * BLOCK);
        }
    }
    let within = scores[place..].iter().position(|&score| score == most);
    (place + within.unwrap_or(0)) as u32
}

/// The same for scores of 16 bits in a format whose infinity has these bits.
pub(crate) fn best_of_halves(scores: &[u16], infinity: u16) -> u32 {
    // Integers in the order of the numbers. Both zeros are equal, and NaN comes last.
    let rank = |bits: u16| {
        let magnitude = bits & 0x7fff;
        let signed = if bits > 0x7fff { -(magnitude as i16) } else { magnitude as i16 };
        if magnitude > infinity { i16::MIN } else { signed }
    };
    let highest = |block: &[u16]| {
        let mut lanes = [i16::MIN; 32];
        let chunks = block.chunks_exact(lanes.len());
        let rest = chunks.remainder();
        for chunk in chunks {
            lanes.iter_mut().zip(chunk).for_each(|(lane, &bits)| *lane = (*lane).max(rank(bits)));
        }
        lanes.into_iter().chain(rest.iter().map(|&bits| rank(bits))).fold(i16::MIN, i16::max)
    };
    let (mut most, mut place) = (i16::MIN, 0);
    for (index, block) in scores.chunks(BLOCK).enumerate() {
        let here = highest(block);
        if here > most {
            (most, place) = (here, index * BLOCK);
        }
    }
    let within = scores[place..].iter().position(|&bits| rank(bits) == most);
    (place + within.unwrap_or(0)) as u32
}

/// The largest score. Each lane tracks its own maximum, so the loop has no dependent branches.
pub(super) fn maximum(scores: &[f32]) -> f32 {
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

/// Samples a token.
pub(super) fn draw(
    scores: &[f32],
    sampling: &Sampling,
    random: &mut MersenneTwister,
    buffers: &mut whole::DrawBuffers,
) -> u32 {
    if sampling.top_k == 0 || (sampling.top_k >= scores.len() && !sampling.is_nucleus()) {
        return whole::draw(scores, sampling, random, buffers);
    }
    let found = &mut buffers.found;
    best_tokens(scores, sampling.top_k, found);
    // If the best score is infinite, weights cannot be computed.
    if !found.first().is_some_and(|best| best.score.is_finite()) {
        return best(scores);
    }
    apply_limits(found, sampling);
    pick(found, random)
}

/// Keeps those of the best tokens that can be sampled.
fn apply_limits(found: &mut Vec<Candidate>, sampling: &Sampling) {
    let best = found.first().map_or(0.0, |candidate| candidate.score);
    for candidate in found.iter_mut() {
        candidate.weight = weight(candidate.score, best, sampling.temperature);
    }
    if sampling.is_nucleus() {
        let total: f32 = found.iter().map(|candidate| candidate.weight).sum();
        found.truncate(prefix(found, sampling.top_p * total));
    }
    if sampling.min_p > 0.0 {
        let likely = found.iter().take_while(|candidate| candidate.weight >= sampling.min_p).count();
        found.truncate(likely.max(1));
    }
}

/// Samples one of the candidates.
fn pick(candidates: &[Candidate], random: &mut MersenneTwister) -> u32 {
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

/// Best first; on a tie, the lower token id first.
pub(super) fn order(left: &Candidate, right: &Candidate) -> Ordering {
    right.score.total_cmp(&left.score).then(left.token.cmp(&right.token))
}

/// The best `count` tokens in order. One pass that keeps few candidates: most scores are below the kept ones.
fn best_tokens(scores: &[f32], count: usize, found: &mut Vec<Candidate>) {
    found.clear();
    let capacity = count.saturating_mul(2).max(64);
    let mut least = f32::NEG_INFINITY;
    for (index, block) in scores.chunks(BLOCK).enumerate() {
        if maximum(block) <= least {
            continue;
        }
        for (offset, &score) in block.iter().enumerate() {
            // On a tie, the earlier token wins.
            if score > least {
                found.push(Candidate { token: (index * BLOCK + offset) as u32, score, weight: 0.0 });
                if found.len() >= capacity && count > 0 {
                    found.select_nth_unstable_by(count - 1, order);
                    found.truncate(count);
                    least = found[count - 1].score;
                }
            }
        }
    }
    found.sort_unstable_by(order);
    found.truncate(count);
}

/// How many of the first candidates are needed to reach a total weight.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tokens(scores: &[f32], sampling: &Sampling) -> Vec<u32> {
        let mut found = Vec::new();
        best_tokens(scores, sampling.top_k, &mut found);
        apply_limits(&mut found, sampling);
        found.iter().map(|candidate| candidate.token).collect()
    }

    fn best_of(top_k: usize) -> Sampling {
        Sampling { do_sample: true, top_k, ..Sampling::default() }
    }

    #[test]
    fn the_best_of_equals_is_the_first() {
        assert_eq!(best(&[1.0, 3.0, 3.0, 2.0]), 1);
        assert_eq!(best(&[f32::MIN; 3]), 0);
        assert_eq!(best(&[f32::NEG_INFINITY; 3]), 0);
        assert_eq!(best(&[f32::NAN, 1.0]), 1);
        let mut scores = vec![0.0; 1000];
        (scores[999], scores[500], scores[501]) = (1.0, 1.0, 1.0);
        assert_eq!(best(&scores), 500);
    }

    proptest! {
        #[test]
        fn the_best_of_halves_is_that_of_the_same_numbers_as_floats(
            bits in prop_oneof![
                prop::collection::vec(any::<u16>(), 1..600),
                // Zeros of both signs, infinities, NaN and the largest numbers, with many ties.
                prop::collection::vec(prop::sample::select(vec![
                    0u16, 0x8000, 1, 0x8001, 0x7c00, 0xfc00, 0x7e00, 0xfe00, 0x7bff, 0xfbff, 0x7f80, 0xff80, 0xffc0,
                ]), 1..300),
            ],
        ) {
            let floats: Vec<f32> = bits.iter().map(|&bits| half::f16::from_bits(bits).to_f32()).collect();
            prop_assert_eq!(best_of_halves(&bits, half::f16::INFINITY.to_bits()), best(&floats));
            let floats: Vec<f32> = bits.iter().map(|&bits| half::bf16::from_bits(bits).to_f32()).collect();
            prop_assert_eq!(best_of_halves(&bits, half::bf16::INFINITY.to_bits()), best(&floats));
        }
    }

    #[test]
    fn top_k_keeps_the_best_in_order() {
        let scores = [0.0, 3.0, 1.0, 3.0, 2.0];
        assert_eq!(tokens(&scores, &best_of(3)), [1, 3, 4]);
        assert_eq!(tokens(&scores, &best_of(5)), [1, 3, 4, 2, 0]);
    }

    #[test]
    fn top_p_ends_where_the_share_is_reached() {
        let scores = [0.5f32, 0.25, 0.125, 0.125].map(f32::ln);
        let top = |top_p: f32| tokens(&scores, &Sampling { top_p, ..best_of(4) }).len();
        assert_eq!([top(0.3), top(0.6), top(0.8), top(0.9)], [1, 2, 3, 4]);
    }

    #[test]
    fn min_p_is_a_share_of_the_best() {
        let scores = [0.5f32, 0.25, 0.125, 0.125].map(f32::ln);
        assert_eq!(tokens(&scores, &Sampling { min_p: 0.4, ..best_of(4) }), [0, 1]);
        assert_eq!(tokens(&scores, &Sampling { min_p: 1.0, ..best_of(4) }), [0]);
    }

    proptest! {
        #[test]
        fn the_best_tokens_are_those_of_a_sorted_list(
            steps in prop::collection::vec(-20i8..20, 1..700), count in 1usize..100,
        ) {
            let scores: Vec<f32> = steps.iter().map(|&step| f32::from(step) / 4.0).collect();
            let mut sorted: Vec<u32> = (0..scores.len() as u32).collect();
            sorted.sort_by(|&left, &right| scores[right as usize].total_cmp(&scores[left as usize]));
            sorted.truncate(count);
            prop_assert_eq!(best(&scores), sorted[0]);
            prop_assert_eq!(tokens(&scores, &best_of(count)), sorted);
        }

        #[test]
        fn draws_are_candidates(scores in prop::collection::vec(-5.0f32..5.0, 1..50), seed: u32, top_k in 1usize..50) {
            let sampling = best_of(top_k.min(scores.len()));
            let drawn = draw(&scores, &sampling, &mut MersenneTwister::new(seed), &mut whole::DrawBuffers::default());
            prop_assert!(tokens(&scores, &sampling).contains(&drawn));
        }
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let scores = [0.5f32, 0.3, 0.2].map(f32::ln);
        for top_k in [0, 3] {
            let (mut random, mut buffers) = (MersenneTwister::new(7), whole::DrawBuffers::default());
            let mut counts = [0; 3];
            (0..10_000).for_each(|_| counts[draw(&scores, &best_of(top_k), &mut random, &mut buffers) as usize] += 1);
            for (count, share) in counts.into_iter().zip([0.5, 0.3, 0.2]) {
                assert!((f64::from(count) / 10_000.0 - share).abs() < 0.02, "{counts:?}");
            }
        }
    }
}
