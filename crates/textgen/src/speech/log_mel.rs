//! The features that Whisper reads: the logarithm of the energy in bands of the mel scale, 100 times per second.
//!
//! They are those of the `WhisperFeatureExtractor` of the transformers library: frames of 25 ms with a Hann window, Slaney's mel
//! scale and normalisation, and everything quieter than 80 dB below the loudest value raised to that.

use std::f64::consts::PI;

use super::fft::Fft;

/// Samples per second.
pub(super) const RATE: u32 = 16_000;

/// Samples of a window.
const WINDOW: usize = 400;

/// Samples from a frame to the next.
const HOP: usize = 160;

/// Samples that the model reads at once, which are 30 seconds.
pub(super) const CHUNK: usize = 30 * RATE as usize;

/// Frames that the model reads at once.
pub(super) const FRAMES: usize = CHUNK / HOP;

/// Frequencies of a spectrum.
const FREQUENCIES: usize = WINDOW / 2 + 1;

/// The least energy of a band, before its logarithm.
const FLOOR: f64 = 1e-10;

/// Computes features.
#[derive(Debug)]
pub struct LogMel {
    bands: usize,
    window: Vec<f64>,
    filters: Vec<Filter>,
    fft: Fft,
}

/// The weights of a band, which is a triangle over neighbouring frequencies.
#[derive(Debug)]
struct Filter {
    first: usize,
    weights: Vec<f64>,
}

impl LogMel {
    /// With this many bands: 80, or 128 for newer models.
    pub fn new(bands: usize) -> LogMel {
        let window = (0..WINDOW).map(|i| 0.5 - 0.5 * (2.0 * PI * i as f64 / WINDOW as f64).cos()).collect();
        LogMel { bands, window, filters: filters(bands), fft: Fft::new(WINDOW) }
    }

    /// The features of up to 30 seconds at 16 kHz; the rest is silence. The result has the shape [bands, 3000]. Samples
    /// after 30 seconds are not used.
    pub fn features(&self, samples: &[f32]) -> Vec<f32> {
        let samples = &samples[..samples.len().min(CHUNK)];
        let mut features = vec![0.0f32; self.bands * FRAMES];
        let (mut frame, mut energies) = (vec![0.0; WINDOW], vec![0.0; FREQUENCIES]);
        let mut loudest = f32::MIN;
        for index in 0..FRAMES {
            // Frames are centred on their time. The signal is mirrored at both ends of the 30 seconds.
            let start = (index * HOP) as isize - (WINDOW / 2) as isize;
            for (offset, (cell, weight)) in frame.iter_mut().zip(&self.window).enumerate() {
                let sample = samples.get(mirrored(start + offset as isize)).copied().unwrap_or(0.0);
                *cell = f64::from(sample) * weight;
            }
            self.fft.energies(&frame, &mut energies);
            for (band, filter) in self.filters.iter().enumerate() {
                let weighted = filter.weights.iter().zip(&energies[filter.first..]);
                let energy: f64 = weighted.map(|(weight, energy)| weight * energy).sum();
                let value = energy.max(FLOOR).log10() as f32;
                features[band * FRAMES + index] = value;
                loudest = loudest.max(value);
            }
        }
        features.iter_mut().for_each(|value| *value = (value.max(loudest - 8.0) + 4.0) / 4.0);
        features
    }
}

/// The index of a sample, if samples before the first and after the last one are mirrored.
fn mirrored(index: isize) -> usize {
    let last = CHUNK as isize - 1;
    let index = index.abs();
    (if index > last { 2 * last - index } else { index }) as usize
}

/// One triangle for each band, of area 1 in hertz. Bands are equally wide on the mel scale, from 0 to half the rate.
fn filters(bands: usize) -> Vec<Filter> {
    let highest = mel(f64::from(RATE) / 2.0);
    let edges: Vec<f64> = (0..bands + 2).map(|i| hertz(highest * i as f64 / (bands + 1) as f64)).collect();
    let step = f64::from(RATE) / WINDOW as f64;
    edges
        .windows(3)
        .map(|edges| {
            let (low, middle, high) = (edges[0], edges[1], edges[2]);
            let weights = (0..FREQUENCIES).map(|bin| {
                let at = bin as f64 * step;
                let height = f64::min((at - low) / (middle - low), (high - at) / (high - middle));
                height.max(0.0) * 2.0 / (high - low)
            });
            let weights: Vec<f64> = weights.collect();
            let first = weights.iter().position(|&weight| weight > 0.0).unwrap_or(0);
            let end = weights.iter().rposition(|&weight| weight > 0.0).map_or(first, |last| last + 1);
            Filter { first, weights: weights[first..end].to_vec() }
        })
        .collect()
}

/// Slaney's mel scale: linear up to 1000 Hz, then logarithmic.
fn mel(hertz: f64) -> f64 {
    if hertz < 1000.0 { 3.0 * hertz / 200.0 } else { 15.0 + (hertz / 1000.0).ln() * 27.0 / 6.4f64.ln() }
}

fn hertz(mel: f64) -> f64 {
    if mel < 15.0 { 200.0 * mel / 3.0 } else { 1000.0 * ((mel - 15.0) * 6.4f64.ln() / 27.0).exp() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mel_scale_and_its_inverse_agree() {
        for frequency in [0.0, 50.0, 999.0, 1000.0, 1001.0, 4000.0, 8000.0] {
            assert!((hertz(mel(frequency)) - frequency).abs() < 1e-9, "{frequency}");
        }
    }

    #[test]
    fn a_tone_is_loudest_in_its_band() {
        let tone: Vec<f32> = (0..16_000).map(|i| (2.0 * PI * 2000.0 * f64::from(i) / 16_000.0).sin() as f32).collect();
        for bands in [80, 128] {
            let features = LogMel::new(bands).features(&tone);
            let at = |band: usize| features[band * FRAMES + 50];
            let found = (0..bands).max_by(|&a, &b| at(a).total_cmp(&at(b))).unwrap();
            let expected = mel(2000.0) / mel(8000.0) * (bands + 1) as f64 - 1.0;
            assert!((found as f64 - expected).abs() <= 1.0, "{bands} bands: {found}, not {expected}");
        }
    }

    #[test]
    fn silence_is_the_same_everywhere() {
        let features = LogMel::new(80).features(&[]);
        assert_eq!(features.len(), 80 * FRAMES);
        assert!(features.iter().all(|&value| value == -1.5));
    }
}
