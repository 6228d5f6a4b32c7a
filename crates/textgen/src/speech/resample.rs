//! Converts samples to another rate, block by block, with a windowed sinc filter.

use std::f64::consts::PI;

/// Zero crossings of the filter on each side. With the window below, what would be aliased is 80 dB quieter.
const CROSSINGS: f64 = 24.0;

/// The part of the band that is kept; the filter falls off in the rest.
const KEPT: f64 = 0.92;

/// The shape of the Kaiser window.
const BETA: f64 = 8.6;

/// Converts samples from one rate to another. An output sample at time t is a weighted sum of the input around t; the
/// weights depend on the position of t between two input samples, of which there are only `phases` different ones.
pub(super) struct Resampler {
    /// For each phase, the weights of `taps` inputs.
    weights: Vec<f32>,
    taps: usize,
    phases: u64,
    /// Phases from an output sample to the next one.
    advance: u64,
    /// The input that is still needed, which begins with `taps / 2` zeros.
    pending: Vec<f32>,
    /// The phase of the next output sample, counted from the first pending sample.
    position: u64,
    /// Samples in and out so far.
    taken: u64,
    made: u64,
}

impl Resampler {
    /// From `from` to `to` samples per second; neither is 0.
    pub fn new(from: u32, to: u32) -> Resampler {
        let divisor = gcd(from, to);
        let (phases, advance) = (u64::from(to / divisor), u64::from(from / divisor));
        // Cuts off at half of the lower rate.
        let cut = KEPT * f64::min(1.0, f64::from(to) / f64::from(from));
        let half = (CROSSINGS / cut).ceil();
        let taps = if from == to { 1 } else { 2 * half as usize };
        let mut weights = vec![1.0; taps * phases as usize];
        if from != to {
            for (phase, row) in weights.chunks_exact_mut(taps).enumerate() {
                let fraction = phase as f64 / phases as f64;
                let exact: Vec<f64> = (0..taps)
                    .map(|tap| {
                        let distance = tap as f64 - (half - 1.0) - fraction;
                        cut * sinc(cut * distance) * kaiser(distance / half)
                    })
                    .collect();
                // A constant stays the same constant in every phase.
                let sum: f64 = exact.iter().sum();
                row.iter_mut().zip(exact).for_each(|(weight, exact)| *weight = (exact / sum) as f32);
            }
        }
        let pending = vec![0.0; (taps - 1) / 2];
        Resampler { weights, taps, phases, advance, pending, position: 0, taken: 0, made: 0 }
    }

    /// Converts a block, and appends to `output` what is known so far.
    pub fn push(&mut self, input: &[f32], output: &mut Vec<f32>) {
        self.taken += input.len() as u64;
        self.pending.extend_from_slice(input);
        self.run(output);
    }

    /// Appends the last samples, so that the output lasts as long as the input.
    pub fn finish(&mut self, output: &mut Vec<f32>) {
        let total = (self.taken * self.phases).div_ceil(self.advance);
        self.pending.resize(self.pending.len() + self.taps, 0.0);
        self.run(output);
        let surplus = self.made.saturating_sub(total) as usize;
        output.truncate(output.len().saturating_sub(surplus));
    }

    fn run(&mut self, output: &mut Vec<f32>) {
        loop {
            let (start, phase) = ((self.position / self.phases) as usize, (self.position % self.phases) as usize);
            let Some(window) = self.pending.get(start..start + self.taps) else { break };
            let weights = &self.weights[phase * self.taps..][..self.taps];
            output.push(window.iter().zip(weights).map(|(sample, weight)| sample * weight).sum());
            self.made += 1;
            self.position += self.advance;
        }
        let unused = ((self.position / self.phases) as usize).min(self.pending.len());
        self.pending.drain(..unused);
        self.position -= unused as u64 * self.phases;
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn sinc(x: f64) -> f64 {
    if x.abs() < 1e-9 { 1.0 } else { (PI * x).sin() / (PI * x) }
}

/// The Kaiser window between -1 and 1.
fn kaiser(x: f64) -> f64 {
    if x.abs() >= 1.0 { 0.0 } else { bessel(BETA * (1.0 - x * x).sqrt()) / bessel(BETA) }
}

/// The modified Bessel function of order 0, by its series.
fn bessel(x: f64) -> f64 {
    let quarter = x * x / 4.0;
    let (mut sum, mut term, mut k) = (1.0, 1.0, 1.0);
    while term > 1e-12 * sum {
        term *= quarter / (k * k);
        sum += term;
        k += 1.0;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(rate: u32, hertz: f64, seconds: f64) -> Vec<f32> {
        let count = (seconds * f64::from(rate)) as usize;
        (0..count).map(|i| (2.0 * PI * hertz * i as f64 / f64::from(rate)).sin() as f32).collect()
    }

    fn converted(input: &[f32], from: u32, to: u32, block: usize) -> Vec<f32> {
        let (mut resampler, mut output) = (Resampler::new(from, to), Vec::new());
        input.chunks(block).for_each(|block| resampler.push(block, &mut output));
        resampler.finish(&mut output);
        output
    }

    #[test]
    fn a_tone_stays_the_same_tone() {
        for from in [8000, 11_025, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000, 15_999] {
            let (found, expected) = (converted(&tone(from, 1000.0, 0.2), from, 16_000, 777), tone(16_000, 1000.0, 0.2));
            assert!(found.len().abs_diff(expected.len()) <= 1, "{from}: {} samples", found.len());
            // At the ends, the filter lacks the samples before and after.
            let middle = 400..found.len() - 400;
            let furthest = middle.map(|i| (found[i] - expected[i]).abs()).fold(0.0, f32::max);
            assert!(furthest < 1e-3, "{from}: {furthest}");
        }
    }

    #[test]
    fn tones_above_half_the_rate_vanish() {
        for (from, hertz) in [(44_100, 9000.0), (48_000, 12_000.0), (96_000, 20_000.0)] {
            let found = converted(&tone(from, hertz, 0.2), from, 16_000, 4096);
            let loudest = found[400..found.len() - 400].iter().fold(0.0, |most: f32, sample| most.max(sample.abs()));
            assert!(loudest < 1e-3, "{from}: {loudest}");
        }
    }

    #[test]
    fn blocks_do_not_matter() {
        let input: Vec<f32> = tone(44_100, 440.0, 0.1);
        let whole = converted(&input, 44_100, 16_000, input.len());
        for block in [1, 7, 160, 1000] {
            assert_eq!(converted(&input, 44_100, 16_000, block), whole, "{block}");
        }
    }

    #[test]
    fn the_same_rate_changes_nothing() {
        let input = tone(16_000, 440.0, 0.1);
        assert_eq!(converted(&input, 16_000, 16_000, 100), input);
    }

    #[test]
    fn nothing_stays_nothing() {
        assert!(converted(&[], 44_100, 16_000, 1).is_empty());
    }
}
