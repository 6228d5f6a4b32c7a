//! Whisper's features, compared with those of the transformers library on generated signals.
#![allow(clippy::unwrap_used, reason = "test helpers may panic")]

use std::f64::consts::PI;
use std::io::Write;
use std::process::{Command, Stdio};

use testkit::place;
use textgen::speech::LogMel;

/// Both compute in 64-bit floats, but transformers rounds spectra to 32 bits.
const TOLERANCE: f32 = 1e-5;

const BANDS: [usize; 2] = [80, 128];

/// The features of all signals with all numbers of bands, one after the other.
fn reference(signals: &[(&str, Vec<f32>)]) -> Vec<f32> {
    let mut python = Command::new(place::python().unwrap())
        .arg(place::root().join("tests/whisper_features.py"))
        .args(BANDS.map(|bands| bands.to_string()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The script reads everything before it writes anything.
    let mut stdin = python.stdin.take().unwrap();
    for (_, samples) in signals {
        stdin.write_all(&(samples.len() as u32).to_le_bytes()).unwrap();
        stdin.write_all(&samples.iter().flat_map(|sample| sample.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
    }
    drop(stdin);
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "tests/whisper_features.py failed");
    output.stdout.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

/// Noise between -1 and 1, the same on every machine.
fn noise(count: usize) -> Vec<f32> {
    let mut state = 1u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// A tone that becomes higher.
fn chirp(count: usize) -> Vec<f32> {
    let phase = |i: f64| 2.0 * PI * 50.0 * i * (1.0 + i / 6000.0) / 16_000.0;
    (0..count).map(|i| phase(i as f64).sin() as f32 / 3.0).collect()
}

#[test]
fn features_are_those_of_transformers() {
    if let Err(reason) = place::python() {
        println!("skipped: {reason}");
        return;
    }
    let quiet: Vec<f32> = noise(100_000).iter().map(|sample| sample * 1e-4).collect();
    let signals = [
        ("noise", noise(48_000)),
        ("quiet noise", quiet),
        ("a chirp", chirp(320_000)),
        ("30 seconds", noise(480_000)),
        ("one sample", vec![0.5]),
        ("silence", vec![0.0; 16_000]),
    ];
    let mut expected = &reference(&signals)[..];
    for (name, samples) in signals {
        for bands in BANDS {
            let found = LogMel::new(bands).features(&samples);
            let (these, others) = expected.split_at(found.len());
            let far = found.iter().zip(these).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(far <= TOLERANCE, "{name}, {bands} bands: {far}");
            expected = others;
        }
    }
    assert!(expected.is_empty());
}
