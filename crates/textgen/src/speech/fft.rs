//! Spectra of frames of any length.

use std::f64::consts::PI;

/// A Fourier transform of one length. The length is split into two factors that are as close as possible: `length`
/// transforms of each factor take `length * (rows + columns)` steps, which is enough for the short frames of speech.
#[derive(Debug)]
pub(super) struct Fft {
    rows: usize,
    columns: usize,
    /// cos and -sin of 2π i / length.
    turns: Vec<(f64, f64)>,
}

impl Fft {
    pub fn new(length: usize) -> Fft {
        let root = length.isqrt();
        let rows = (1..=root).rev().find(|&rows| length.is_multiple_of(rows)).unwrap_or(1);
        let turns = (0..length).map(|i| {
            let angle = 2.0 * PI * i as f64 / length as f64;
            (angle.cos(), -angle.sin())
        });
        Fft { rows, columns: length / rows, turns: turns.collect() }
    }

    /// The squared absolute values of the spectrum of real numbers, for as many frequencies as `energies` has.
    pub fn energies(&self, frame: &[f64], energies: &mut [f64]) {
        let Fft { rows, columns, ref turns } = *self;
        let length = rows * columns;
        // With n = columns * a + b, frequency k and r = k mod rows, first sum over a: only r matters there.
        let mut partial = vec![(0.0, 0.0); length];
        for r in 0..rows {
            for b in 0..columns {
                let (mut re, mut im) = (0.0, 0.0);
                for a in 0..rows {
                    let (cos, sin) = turns[columns * a * r % length];
                    let value = frame[columns * a + b];
                    re += value * cos;
                    im += value * sin;
                }
                partial[r * columns + b] = (re, im);
            }
        }
        for (k, energy) in energies.iter_mut().enumerate() {
            let row = &partial[k % rows * columns..][..columns];
            let (mut re, mut im, mut turn) = (0.0, 0.0, 0);
            for &(x, y) in row {
                let (cos, sin) = turns[turn];
                re += x * cos - y * sin;
                im += x * sin + y * cos;
                turn = (turn + k) % length;
            }
            *energy = re * re + im * im;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_the_definition() {
        for length in [1, 2, 7, 12, 400] {
            let frame: Vec<f64> = (0..length).map(|i| ((i * i) as f64 * 0.37).sin()).collect();
            let mut energies = vec![0.0; length / 2 + 1];
            Fft::new(length).energies(&frame, &mut energies);
            for (k, energy) in energies.into_iter().enumerate() {
                let angle = |n: usize| 2.0 * PI * (n * k) as f64 / length as f64;
                let re: f64 = frame.iter().enumerate().map(|(n, x)| x * angle(n).cos()).sum();
                let im: f64 = frame.iter().enumerate().map(|(n, x)| x * angle(n).sin()).sum();
                assert!((energy - (re * re + im * im)).abs() < 1e-9, "frequency {k} of {length}");
            }
        }
    }
}
