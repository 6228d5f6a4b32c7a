//! Reads WAV files: uncompressed samples, of which the channels are mixed into one.
//!
//! Files are untrusted. Sizes in the header only say where data ends: samples are read in blocks, so no size in the
//! file decides how much memory is allocated.

use std::io::{self, Read};

use crate::{Error, Result};

/// Frames that are read at once.
const BLOCK: usize = 1 << 14;

/// More channels than any recording of speech has.
const MAX_CHANNELS: u16 = 64;

/// Sample rates that can be converted.
const RATES: std::ops::RangeInclusive<u32> = 1000..=192_000;

/// Chunks before the samples that are skipped; more are a sign of a damaged file.
const MAX_CHUNKS: usize = 1000;

const PCM: u16 = 1;
const FLOAT: u16 = 3;
/// The format is in the first two bytes of a longer header.
const EXTENSIBLE: u16 = 0xfffe;

/// A WAV file whose header was read.
pub(super) struct WavReader<R> {
    source: R,
    sample: Sample,
    channels: usize,
    /// Samples per second of a channel.
    pub rate: u32,
    /// Bytes of samples that were not read yet. Recorders that cannot go back write the largest number, or 0; then it is
    /// `u64::MAX`, and the samples end with the file.
    left: u64,
    bytes: Vec<u8>,
}

/// How a sample is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sample {
    U8,
    I16,
    I24,
    I32,
    F32,
    F64,
}

impl Sample {
    fn of(format: u16, bits: u16) -> Option<Sample> {
        match (format, bits) {
            (PCM, 8) => Some(Sample::U8),
            (PCM, 16) => Some(Sample::I16),
            (PCM, 24) => Some(Sample::I24),
            (PCM, 32) => Some(Sample::I32),
            (FLOAT, 32) => Some(Sample::F32),
            (FLOAT, 64) => Some(Sample::F64),
            _ => None,
        }
    }

    fn bytes(self) -> usize {
        match self {
            Sample::U8 => 1,
            Sample::I16 => 2,
            Sample::I24 => 3,
            Sample::I32 | Sample::F32 => 4,
            Sample::F64 => 8,
        }
    }

    /// The sample as a number between -1 and 1. `bytes` has as many bytes as the sample.
    fn value(self, bytes: &[u8]) -> f32 {
        match (self, bytes) {
            (Sample::U8, &[a]) => (f32::from(a) - 128.0) / 128.0,
            (Sample::I16, &[a, b]) => f32::from(i16::from_le_bytes([a, b])) / 32_768.0,
            (Sample::I24, &[a, b, c]) => i32::from_le_bytes([0, a, b, c]) as f32 / 2_147_483_648.0,
            (Sample::I32, &[a, b, c, d]) => i32::from_le_bytes([a, b, c, d]) as f32 / 2_147_483_648.0,
            (Sample::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
            (Sample::F64, &[a, b, c, d, e, f, g, h]) => f64::from_le_bytes([a, b, c, d, e, f, g, h]) as f32,
            _ => 0.0,
        }
    }
}

impl<R: Read> WavReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// When it is not a WAV file, or its samples are in an unsupported format.
    pub fn new(mut source: R) -> Result<WavReader<R>> {
        let mut riff = [0; 12];
        read_exactly(&mut source, &mut riff)?;
        let is_wave = matches!(&riff[..4], b"RIFF" | b"RF64") && &riff[8..] == b"WAVE";
        if !is_wave {
            return Err(wrong("it is not a WAV file"));
        }
        let mut format = None;
        for _ in 0..MAX_CHUNKS {
            let mut head = [0; 8];
            read_exactly(&mut source, &mut head)?;
            let size = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
            match &head[..4] {
                b"fmt " => format = Some(Format::read(&mut source, size)?),
                b"data" => {
                    let Format { sample, channels, rate } =
                        format.ok_or_else(|| wrong("its samples come before their format"))?;
                    let left = if matches!(size, 0 | u32::MAX) { u64::MAX } else { size.into() };
                    return Ok(WavReader { source, sample, channels, rate, left, bytes: Vec::new() });
                }
                _ => skip(&mut source, size)?,
            }
        }
        Err(wrong(format!("there are no samples in its first {MAX_CHUNKS} chunks")))
    }

    /// Replaces `samples` by the next ones, mixed into one channel. There are none at the end. A file that ends in the
    /// middle of its samples is accepted up to there, as recordings that were interrupted are worth transcribing.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(&mut self, samples: &mut Vec<f32>) -> Result<()> {
        samples.clear();
        let frame = self.sample.bytes() * self.channels;
        let wanted = ((BLOCK * frame) as u64).min(self.left);
        self.bytes.clear();
        let read = self.source.by_ref().take(wanted).read_to_end(&mut self.bytes).map_err(failed)?;
        self.left = if self.left == u64::MAX { u64::MAX } else { self.left - read as u64 };
        let (sample, channels) = (self.sample, self.channels as f32);
        samples.extend(self.bytes.chunks_exact(frame).map(|frame| {
            let sum: f32 = frame.chunks_exact(sample.bytes()).map(|bytes| sample.value(bytes)).sum();
            // Floats of any size, infinities and NaN are possible in a file, and would end up in every feature.
            let mean = sum / channels;
            if mean.is_finite() { mean.clamp(-1.0, 1.0) } else { 0.0 }
        }));
        Ok(())
    }
}

/// The `fmt ` chunk.
struct Format {
    sample: Sample,
    channels: usize,
    rate: u32,
}

impl Format {
    fn read(source: &mut impl Read, size: u32) -> Result<Format> {
        let mut bytes = [0; 40];
        let known = bytes.len().min(size as usize);
        if known < 16 {
            return Err(wrong(format!("the description of its format has {size} bytes, but needs 16")));
        }
        read_exactly(source, &mut bytes[..known])?;
        skip(source, size - known as u32)?;
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let (channels, rate, bits) =
            (short(2), u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]), short(14));
        let format = match short(0) {
            EXTENSIBLE if known == bytes.len() => short(24),
            format => format,
        };
        if !(1..=MAX_CHANNELS).contains(&channels) {
            return Err(wrong(format!("it has {channels} channels, but 1 to {MAX_CHANNELS} are supported")));
        }
        if !RATES.contains(&rate) {
            let problem = format!("{rate} samples per second are not in {} to {}", RATES.start(), RATES.end());
            return Err(wrong(problem));
        }
        let sample = Sample::of(format, bits)
            .ok_or_else(|| wrong(format!("samples of {bits} bits in format {format} are not supported")))?;
        Ok(Format { sample, channels: channels.into(), rate })
    }
}

/// Skips a chunk. The sizes of chunks are padded to even numbers, except for the format's, which always is even.
fn skip(source: &mut impl Read, size: u32) -> Result<()> {
    let padded = u64::from(size) + u64::from(size % 2);
    match io::copy(&mut source.take(padded), &mut io::sink()) {
        Ok(skipped) if skipped == padded => Ok(()),
        Ok(_) => Err(wrong(TRUNCATED)),
        Err(error) => Err(failed(error)),
    }
}

const TRUNCATED: &str = "it ends before its samples";

fn read_exactly(source: &mut impl Read, bytes: &mut [u8]) -> Result<()> {
    source.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => wrong(TRUNCATED),
        _ => failed(error),
    })
}

fn wrong(problem: impl Into<String>) -> Error {
    let problem = format!("the audio cannot be used: {}", problem.into());
    Error::request(problem, "convert it, for example with `ffmpeg -i INPUT -ac 1 -ar 16000 OUTPUT.wav`")
}

fn failed(error: io::Error) -> Error {
    Error::request(format!("the audio could not be read: {error}"), "check the file and its permissions")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with this format and data.
    fn wav(format: u16, channels: u16, rate: u32, bits: u16, data: &[u8]) -> Vec<u8> {
        let mut file = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0".to_vec();
        file.extend([format.to_le_bytes(), channels.to_le_bytes()].concat());
        file.extend([rate.to_le_bytes(), 0u32.to_le_bytes()].concat());
        file.extend([0u16.to_le_bytes(), bits.to_le_bytes()].concat());
        file.extend(b"data");
        file.extend((data.len() as u32).to_le_bytes());
        file.extend(data);
        file
    }

    fn samples(file: &[u8]) -> Vec<f32> {
        let (mut reader, mut all, mut block) = (WavReader::new(file).unwrap(), Vec::new(), Vec::new());
        loop {
            reader.read(&mut block).unwrap();
            if block.is_empty() {
                return all;
            }
            all.extend_from_slice(&block);
        }
    }

    fn problem(file: &[u8]) -> String {
        WavReader::new(file).map(|_| ()).unwrap_err().to_string()
    }

    fn integer(value: f64, bits: u32) -> i32 {
        (value * f64::from(1u32 << (bits - 1))) as i32
    }

    #[test]
    fn every_format_gives_the_same_numbers() {
        const EXPECTED: [f64; 4] = [0.5, -1.0, 0.0, 0.25];
        let bytes = |write: fn(f64) -> Vec<u8>| EXPECTED.iter().flat_map(|&value| write(value)).collect::<Vec<u8>>();
        let cases = [
            (PCM, 8, bytes(|value| vec![(value * 128.0 + 128.0) as u8])),
            (PCM, 16, bytes(|value| (integer(value, 16) as i16).to_le_bytes().to_vec())),
            (PCM, 24, bytes(|value| integer(value, 24).to_le_bytes()[..3].to_vec())),
            (PCM, 32, bytes(|value| integer(value, 32).to_le_bytes().to_vec())),
            (FLOAT, 32, bytes(|value| (value as f32).to_le_bytes().to_vec())),
            (FLOAT, 64, bytes(|value| value.to_le_bytes().to_vec())),
        ];
        for (format, bits, data) in cases {
            assert_eq!(
                samples(&wav(format, 1, 16_000, bits, &data)),
                EXPECTED.map(|value| value as f32),
                "{bits} bits"
            );
        }
    }

    #[test]
    fn channels_are_mixed() {
        let data: Vec<u8> = [0.5f32, -0.25, 1.0, 0.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(samples(&wav(FLOAT, 2, 8000, 32, &data)), [0.125, 0.5]);
    }

    #[test]
    fn numbers_that_are_not_samples_become_finite() {
        let data: Vec<u8> =
            [f32::NAN, f32::INFINITY, 1e30, -7.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(samples(&wav(FLOAT, 1, 8000, 32, &data)), [0.0, 0.0, 1.0, -1.0]);
    }

    #[test]
    fn other_chunks_are_skipped() {
        let mut file = wav(PCM, 1, 16_000, 16, &[0, 64]);
        file.splice(12..12, b"LIST\x03\0\0\0abc\0".iter().copied());
        assert_eq!(samples(&file), [0.5]);
    }

    #[test]
    fn sizes_of_interrupted_and_streamed_recordings_mean_until_the_end() {
        for size in [0, 1_000_000, u32::MAX] {
            let mut file = wav(PCM, 1, 16_000, 16, &[0, 64, 0, 192, 7]);
            file[40..44].copy_from_slice(&size.to_le_bytes());
            assert_eq!(samples(&file), [0.5, -0.5], "{size}");
        }
    }

    #[test]
    fn unusable_files_are_refused_with_a_reason() {
        assert!(problem(b"").contains("ends before its samples"));
        assert!(problem(b"ID3\x04 this is music, in another format").contains("not a WAV file"));
        assert!(problem(&wav(PCM, 0, 16_000, 16, &[])).contains("0 channels"));
        assert!(problem(&wav(PCM, 65_535, 16_000, 16, &[])).contains("65535 channels"));
        assert!(problem(&wav(PCM, 1, 0, 16, &[])).contains("0 samples per second"));
        assert!(problem(&wav(PCM, 1, u32::MAX, 16, &[])).contains("4294967295 samples per second"));
        assert!(problem(&wav(PCM, 1, 16_000, 17, &[])).contains("17 bits in format 1"));
        assert!(problem(&wav(85, 1, 16_000, 16, &[])).contains("16 bits in format 85"));
        let whole = wav(PCM, 1, 16_000, 16, &[0, 64]);
        for length in 0..44 {
            assert!(WavReader::new(&whole[..length]).is_err(), "{length}");
        }
        let mut huge = whole.clone();
        huge.splice(12..12, b"LIST\xff\xff\xff\xff".iter().copied());
        assert!(problem(&huge).contains("ends before its samples"));
        let mut unordered = whole;
        unordered[12..16].copy_from_slice(b"junk");
        assert!(problem(&unordered).contains("come before their format"));
        let chunks: Vec<u8> = b"RIFF\0\0\0\0WAVE".iter().copied().chain(b"none\0\0\0\0".repeat(2000)).collect();
        assert!(problem(&chunks).contains("no samples in its first 1000 chunks"));
    }
}
