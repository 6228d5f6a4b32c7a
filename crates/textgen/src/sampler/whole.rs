//! Sampling from the whole vocabulary without sorting it.
//!
//! Scores are divided into slices of descending value. The token count and total weight of each slice tell in which
//! slice the candidates end, and in which slice the sampled token lies. Only these slices are sorted.

use super::Sampling;
use super::random::MersenneTwister;
use super::select::{self, Candidate, maximum, order};
use super::weight::{LEAST, weigh, weight};

/// With this many, even the fullest slice of a 128k vocabulary has only a few hundred tokens.
const SLICES: usize = 2048;

/// Number of scores processed together.
const BLOCK: usize = 64;

/// Extra slices after the last one, for tokens that cannot be sampled. Each position in a block has its own: adding to
/// a single slice repeatedly would stall.
const LEFT_OUT: usize = SLICES;

/// Buffers that are reused between draws.
#[derive(Debug, Default)]
pub(super) struct DrawBuffers {
    pub found: Vec<Candidate>,
    slices: Vec<Slice>,
}

#[derive(Clone, Copy, Debug)]
struct Slice {
    tokens: u32,
    /// The weight of its lightest token.
    least: f32,
    weight: f64,
}

const EMPTY: Slice = Slice { tokens: 0, least: f32::INFINITY, weight: 0.0 };

/// The tokens that can be sampled.
#[derive(Clone, Copy, Debug)]
struct EligibleTokens {
    tokens: usize,
    weight: f64,
}

/// Samples a token.
pub(super) fn draw(
    scores: &[f32],
    sampling: &Sampling,
    random: &mut MersenneTwister,
    buffers: &mut DrawBuffers,
) -> u32 {
    let best = maximum(scores);
    if !best.is_finite() {
        return select::best(scores);
    }
    let (slicing, eligible) = eligible_tokens(scores, sampling, best, buffers);
    if eligible.tokens <= 1 {
        return select::best(scores);
    }
    slicing.token_at(random.next_unit() * eligible.weight, buffers)
}

/// Finds the tokens that can be sampled.
fn eligible_tokens<'a>(
    scores: &'a [f32],
    sampling: &Sampling,
    best: f32,
    buffers: &mut DrawBuffers,
) -> (Slicing<'a>, EligibleTokens) {
    if sampling.is_nucleus() {
        let slicing = Slicing::new(scores, sampling, best, nucleus_depth(sampling.top_p, scores.len()), buffers);
        if let Some(eligible) = slicing.nucleus(sampling.top_p, buffers) {
            return (slicing, eligible);
        }
    }
    let slicing = Slicing::new(scores, sampling, best, LEAST, buffers);
    let nucleus = if sampling.is_nucleus() { slicing.nucleus(sampling.top_p, buffers) } else { None };
    let eligible = nucleus.unwrap_or_else(|| slicing.all(buffers));
    (slicing, eligible)
}

/// The largest depth below the best score, in temperatures, at which a nucleus can end. The best token alone weighs 1,
/// which suffices if all tokens together weigh no more than the share that can be left out. Slightly deeper, to allow
/// for rounding.
fn nucleus_depth(share: f32, tokens: usize) -> f32 {
    let left_out = (1.0 - f64::from(share)) / (f64::from(share) * tokens as f64);
    (0.99 * left_out).ln().min(0.0) as f32
}

/// How scores are divided into slices.
#[derive(Clone, Copy, Debug)]
struct Slicing<'a> {
    scores: &'a [f32],
    best: f32,
    temperature: f32,
    /// Tokens with a lower score are left out.
    floor: f32,
    /// Tokens with a lower weight are left out.
    min_p: f32,
    slices_per_score: f32,
}

impl<'a> Slicing<'a> {
    /// Divides the scores down to `depth` temperatures below the best.
    fn new(scores: &'a [f32], sampling: &Sampling, best: f32, depth: f32, buffers: &mut DrawBuffers) -> Slicing<'a> {
        let &Sampling { temperature, min_p, .. } = sampling;
        let depth = if min_p > 0.0 { depth.max(min_p.ln() - 0.01) } else { depth };
        let floor = (best + depth * temperature).max(f32::MIN);
        let range = best - lowest_from(scores, floor);
        let slices_per_score = ((SLICES - 1) as f32 / range).min(1e30);
        let slicing = Slicing { scores, best, temperature, floor, min_p, slices_per_score };
        buffers.slices.clear();
        buffers.slices.resize(LEFT_OUT + BLOCK, EMPTY);
        slicing.count(&mut buffers.slices);
        slicing
    }

    /// Computes count and weight of every slice.
    fn count(&self, slices: &mut [Slice]) {
        let (mut weights, mut places) = ([0.0; BLOCK], [0; BLOCK]);
        for block in self.scores.chunks(BLOCK).filter(|block| maximum(block) >= self.floor) {
            weigh(block, self.best, self.temperature, &mut weights);
            self.cut(block, &mut places);
            for (&weight, &place) in weights.iter().zip(&places).take(block.len()) {
                let place = if weight >= self.min_p { place as usize } else { LEFT_OUT };
                let slice = &mut slices[place];
                slice.tokens += 1;
                slice.weight += f64::from(weight);
                slice.least = if weight < slice.least { weight } else { slice.least };
            }
        }
    }

    /// The tokens of a slice, best first.
    fn sort(&self, slice: usize, found: &mut Vec<Candidate>) {
        found.clear();
        let mut places = [0; BLOCK];
        for (index, block) in self.scores.chunks(BLOCK).enumerate() {
            self.cut(block, &mut places);
            let places = &places[..block.len()];
            if !places.iter().fold(false, |any, &place| any | (place == slice as u32)) {
                continue;
            }
            for (offset, (&score, &place)) in block.iter().zip(places).enumerate() {
                if place == slice as u32 {
                    let weight = weight(score, self.best, self.temperature);
                    found.push(Candidate { token: (index * BLOCK + offset) as u32, score, weight });
                }
            }
        }
        found.retain(|candidate| candidate.weight >= self.min_p);
        found.sort_unstable_by(order);
    }

    /// The slice of each score.
    fn cut(&self, scores: &[f32], places: &mut [u32; BLOCK]) {
        /// A number added to this is rounded to an integer in the low bits.
        const WHOLE: f32 = 8_388_608.0;
        for ((place, &score), left_out) in places.iter_mut().zip(scores).zip(LEFT_OUT as u32..) {
            let number = (self.best - score) * self.slices_per_score + WHOLE;
            *place = if score >= self.floor { number.to_bits() - WHOLE.to_bits() } else { left_out };
        }
    }

    /// All tokens in the slices.
    fn all(&self, buffers: &DrawBuffers) -> EligibleTokens {
        let eligible = EligibleTokens { tokens: 0, weight: 0.0 };
        buffers.slices[..SLICES].iter().fold(eligible, |eligible, slice| EligibleTokens {
            tokens: eligible.tokens + slice.tokens as usize,
            weight: eligible.weight + slice.weight,
        })
    }

    /// The best tokens that hold a share of the probability; `None` if the end is not within the slices.
    ///
    /// Matches ONNX Runtime GenAI, so that seeded texts are equal. The weight of the remaining tokens is bounded by the
    /// last weight seen, which keeps a few more tokens than necessary. An end at exactly 16, 64, 256, ... tokens is not
    /// accepted.
    fn nucleus(&self, share: f32, buffers: &mut DrawBuffers) -> Option<EligibleTokens> {
        let all = self.scores.len();
        let is_enough = |reached: f64, tokens: usize, last: f32| {
            let (reached, tail) = (reached as f32, (all - tokens) as f32 * last);
            reached >= share * (reached + tail)
        };
        let is_border = |tokens: usize| {
            tokens < all && tokens >= 16 && tokens.is_power_of_two() && tokens.trailing_zeros().is_multiple_of(2)
        };
        let mut eligible = EligibleTokens { tokens: 0, weight: 0.0 };
        for index in 0..SLICES {
            let slice = buffers.slices[index];
            let end = EligibleTokens {
                tokens: eligible.tokens + slice.tokens as usize,
                weight: eligible.weight + slice.weight,
            };
            if slice.tokens > 0 && is_enough(end.weight, end.tokens, slice.least) {
                self.sort(index, &mut buffers.found);
                for candidate in &buffers.found {
                    eligible = EligibleTokens {
                        tokens: eligible.tokens + 1,
                        weight: eligible.weight + f64::from(candidate.weight),
                    };
                    if is_enough(eligible.weight, eligible.tokens, candidate.weight) && !is_border(eligible.tokens) {
                        return Some(eligible);
                    }
                }
            }
            eligible = end;
        }
        None
    }

    /// The token at which the cumulative weight, best first, reaches `wanted`.
    fn token_at(&self, wanted: f64, buffers: &mut DrawBuffers) -> u32 {
        let mut reached = 0.0;
        for index in 0..SLICES {
            let slice = buffers.slices[index];
            if slice.tokens > 0 && reached + slice.weight >= wanted {
                self.sort(index, &mut buffers.found);
                for candidate in &buffers.found {
                    reached += f64::from(candidate.weight);
                    if reached >= wanted {
                        return candidate.token;
                    }
                }
                return buffers.found.last().map_or(0, |candidate| candidate.token);
            }
            reached += slice.weight;
        }
        select::best(self.scores)
    }
}

/// The smallest score that is not below `floor`.
fn lowest_from(scores: &[f32], floor: f32) -> f32 {
    let mut lanes = [f32::INFINITY; 16];
    let lower = |least: f32, score: f32| if score >= floor && score < least { score } else { least };
    let chunks = scores.chunks_exact(lanes.len());
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &score) in lanes.iter_mut().zip(chunk) {
            *lane = lower(*lane, score);
        }
    }
    lanes.iter().chain(rest).copied().fold(f32::INFINITY, lower)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition: sorts everything, in 64-bit floats.
    struct Naive {
        tokens: Vec<u32>,
        weights: Vec<f64>,
    }

    impl Naive {
        fn new(scores: &[f32], temperature: f32) -> Naive {
            let mut tokens: Vec<u32> = (0..scores.len() as u32).collect();
            tokens.sort_by(|&left, &right| scores[right as usize].total_cmp(&scores[left as usize]));
            let score = |token: u32| f64::from(scores[token as usize]);
            let best = score(tokens[0]);
            let weights = tokens.iter().map(|&token| ((score(token) - best) / f64::from(temperature)).exp());
            Naive { weights: weights.collect(), tokens }
        }

        /// How many tokens can be sampled, if sums may be off by a factor.
        fn eligible(&self, sampling: &Sampling, slack: f64) -> usize {
            let all = self.tokens.len();
            let (mut reached, mut eligible) = (0.0, all);
            for (index, weight) in self.weights.iter().enumerate().filter(|_| sampling.is_nucleus()) {
                reached += weight;
                let tail = (all - 1 - index) as f64 * weight;
                let border = [16, 64, 256, 1024, 4096].contains(&(index + 1)) && index + 1 < all;
                if reached * slack >= f64::from(sampling.top_p) * (reached + tail) && !border {
                    eligible = index + 1;
                    break;
                }
            }
            let likely = self.weights.iter().take_while(|&&weight| weight * slack >= f64::from(sampling.min_p)).count();
            eligible.min(likely.max(1))
        }
    }

    fn scores() -> impl Strategy<Value = Vec<f32>> {
        let smooth = (0.01f32..8.0, prop::collection::vec(-1.0f32..1.0, 1..3000))
            .prop_map(|(spread, scores)| scores.into_iter().map(|score| score * spread).collect::<Vec<_>>());
        let stepped = prop::collection::vec(-8i8..8, 1..600)
            .prop_map(|scores| scores.into_iter().map(|score| f32::from(score) / 2.0).collect());
        let masked = (prop::collection::vec(-3.0f32..3.0, 1..600), 1usize..50).prop_map(|(mut scores, every)| {
            scores.iter_mut().step_by(every).for_each(|score| *score = f32::MIN);
            scores.iter_mut().skip(1).step_by(7 * every).for_each(|score| *score = f32::NEG_INFINITY);
            scores
        });
        let one_high = (prop::collection::vec(-0.1f32..0.1, 1..600), 0.0f32..40.0).prop_map(|(mut scores, high)| {
            let middle = scores.len() / 2;
            scores[middle] = high;
            scores
        });
        prop_oneof![
            smooth,
            stepped,
            masked,
            one_high,
            (1usize..600, -9.0f32..9.0).prop_map(|(n, score)| vec![score; n])
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn draws_are_those_of_a_sorted_vocabulary(
            scores in scores(),
            temperature in prop_oneof![Just(1.0f32), 0.05f32..3.0, Just(1e4)],
            top_p in prop_oneof![Just(1.0f32), Just(0.9), 0.001f32..0.9999],
            min_p in prop_oneof![3 => Just(0.0f32), 1 => 0.0001f32..1.0],
            unit in prop_oneof![Just(0.0), Just(1.0), 0.0..1.0],
        ) {
            let sampling = Sampling { do_sample: true, temperature, top_p, min_p, ..Sampling::default() };
            let best = maximum(&scores);
            let mut buffers = DrawBuffers::default();
            let (slicing, eligible) = eligible_tokens(&scores, &sampling, best, &mut buffers);
            let naive = Naive::new(&scores, temperature);
            // Tokens without weight are never sampled, so it does not matter whether they are counted.
            let weighty = naive.weights.iter().filter(|&&weight| weight > f64::from(LEAST).exp()).count();
            let least = naive.eligible(&sampling, 1.0 + 1e-5).min(weighty);
            let most = naive.eligible(&sampling, 1.0 - 1e-5);
            // The slack moves the bounds of top-p and min-p in opposite directions.
            let (least, most) = (least.min(most), least.max(most));
            prop_assert!((least..=most).contains(&eligible.tokens), "{} of {least} to {most}", eligible.tokens);

            let wanted = unit * eligible.weight;
            let token = slicing.token_at(wanted, &mut buffers);
            let place = naive.tokens.iter().position(|&other| other == token).unwrap();
            let before: f64 = naive.weights[..place].iter().sum();
            let (slack, after) = (1e-6 * eligible.weight, before + naive.weights[place]);
            prop_assert!(place < eligible.tokens, "{place} of {}", eligible.tokens);
            prop_assert!((before - slack..=after + slack).contains(&wanted), "{before} < {wanted} <= {after}");
        }
    }

    #[test]
    fn nan_scores_still_give_a_token() {
        for (top_k, top_p) in [(0, 0.9), (0, 1.0), (2, 0.9), (2, 1.0)] {
            let sampling = Sampling { do_sample: true, top_k, top_p, ..Sampling::default() };
            let (mut random, mut buffers) = (MersenneTwister::new(1), DrawBuffers::default());
            let mut drawn = |scores: &[f32]| select::draw(scores, &sampling, &mut random, &mut buffers);
            assert_eq!(drawn(&[f32::NAN, f32::NAN]), 0);
            assert_eq!(drawn(&[f32::NAN, -3.0, f32::NAN]), 1);
            assert_eq!(drawn(&[f32::NEG_INFINITY; 3]), 0);
            assert_eq!(drawn(&[1.0, f32::INFINITY, 2.0]), 1, "{top_k}, {top_p}");
            assert_eq!(drawn(&[f32::INFINITY, 1.0, f32::INFINITY]), 0, "{top_k}, {top_p}");
            assert_eq!(drawn(&[f32::MIN, f32::MAX, f32::MIN]), 1, "{top_k}, {top_p}");
        }
    }

    #[test]
    fn a_temperature_near_zero_selects_the_best_token() {
        let sampling = Sampling { do_sample: true, temperature: 1e-30, ..Sampling::default() };
        let (mut random, mut buffers) = (MersenneTwister::new(1), DrawBuffers::default());
        assert_eq!(draw(&[1.0, 1.5, 1.4999999], &sampling, &mut random, &mut buffers), 1);
    }
}
