//! Turns scores into weights, proportional to probabilities, with 1 for the best score. The loops use only basic
//! arithmetic, so that the compiler can vectorise them; the standard library's exponential is scalar.

/// `e` to the power of `x`, for `x` ≤ 0. Below -87, near the limit of 32-bit floats, the result is 0.
fn exp(x: f32) -> f32 {
    // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer, which is then in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts. The first has few enough bits for exact multiples.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let within = if x > LEAST { x } else { LEAST };
    let rounded = within * std::f32::consts::LOG2_E + ROUND;
    let power = rounded - ROUND;
    let rest = within - power * LN_2_HIGH - power * LN_2_LOW;
    // The polynomial of the Cephes library, for values between -ln 2 / 2 and ln 2 / 2.
    let square = rest * rest;
    let high = (1.987_569_1e-4 * rest + 1.398_2e-3) * square + (8.333_452e-3 * rest + 4.166_579_6e-2);
    let of_rest = (high * square + (1.666_666_5e-1 * rest + 0.5)) * square + (rest + 1.0);
    let power = (rounded.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let scale = f32::from_bits((power.wrapping_add(127) << 23) as u32);
    if x > LEAST { of_rest * scale } else { 0.0 }
}

/// Below this, the exponential is treated as 0.
pub(super) const LEAST: f32 = -87.0;

/// The weights of scores. `best` is the largest score overall.
pub(super) fn weigh(scores: &[f32], best: f32, temperature: f32, weights: &mut [f32]) {
    for (weight, &score) in weights.iter_mut().zip(scores) {
        *weight = exp((score - best) / temperature);
    }
}

/// The weight of one score.
pub(super) fn weight(score: f32, best: f32, temperature: f32) -> f32 {
    exp((score - best) / temperature)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_best_score_weighs_one_and_the_worst_nothing() {
        assert_eq!(weight(3.5, 3.5, 0.7), 1.0);
        assert_eq!(weight(f32::MIN, 3.5, 0.7), 0.0);
        assert_eq!(weight(f32::NEG_INFINITY, 3.5, 0.7), 0.0);
        assert_eq!(weight(f32::NAN, 3.5, 0.7), 0.0);
        assert_eq!(weight(f32::MIN, f32::MIN, 1.0), 1.0);
    }

    proptest! {
        #[test]
        fn weights_are_exponentials(x in -86.9f32..0.0) {
            let wanted = f64::from(x).exp();
            prop_assert!((f64::from(exp(x)) / wanted - 1.0).abs() < 2.0 * f64::from(f32::EPSILON));
        }

        #[test]
        fn a_list_weighs_as_its_members(scores in prop::collection::vec(-40.0f32..40.0, 0..70), temperature in 0.1f32..5.0) {
            let best = scores.iter().copied().fold(f32::MIN, f32::max);
            let mut weights = vec![9.0; scores.len()];
            weigh(&scores, best, temperature, &mut weights);
            let single: Vec<f32> = scores.iter().map(|&score| weight(score, best, temperature)).collect();
            prop_assert_eq!(weights, single);
        }
    }
}
