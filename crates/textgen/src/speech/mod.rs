//! Speech to text with Whisper models: a GenAI model folder of type `whisper`, with an encoder and a decoder.
//!
//! ```no_run
//! use textgen::speech::{SpeechOptions, Transcriber};
//! use textgen::{Config, Runtime};
//!
//! # fn main() -> textgen::Result<()> {
//! let runtime = Runtime::load("libonnxruntime.so".as_ref())?;
//! let mut config = Config::from_folder("models/whisper-small".as_ref())?;
//! config.append_provider("amdgpu", [("device_id", "0")])?;
//! let mut transcriber = Transcriber::load(&runtime, &config)?;
//! let audio = textgen::open_regular("speech.wav".as_ref()).expect("the file is readable");
//! let transcript = transcriber.transcribe(audio, &SpeechOptions::default(), |segment| print!("{}", segment.text))?;
//! println!("{} seconds in {:?}", transcript.seconds, transcript.language);
//! # Ok(())
//! # }
//! ```
//!
//! Audio is read in chunks of 30 seconds, the length that these models read at once. Each chunk is transcribed on its own:
//! a word at the end of one is cut.

mod encoder;
mod fft;
mod log_mel;
mod prompt;
mod resample;
mod suppress;
mod wav;

use std::io::Read;

use encoder::Encoder;
use log_mel::{CHUNK, RATE};
use prompt::Prompt;
use resample::Resampler;
use suppress::Suppressed;
use wav::WavReader;

pub use log_mel::LogMel;

use crate::generator::check_max_length;
use crate::{
    Attached, Canceller, Config, Error, Generator, GeneratorOptions, Limits, Model, Result, Runtime, TextFinish,
    Tokenizer, generate_text,
};

/// What a model writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Task {
    /// What is said, in its language.
    #[default]
    Transcribe,
    /// What is said, in English.
    Translate,
}

/// Options of a transcript.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpeechOptions {
    /// The language that is spoken, by its code, such as `en`. With `None`, the model chooses one for the first chunk, which
    /// is then the language of all chunks.
    pub language: Option<String>,
    /// What the model writes.
    pub task: Task,
}

/// The text of a chunk.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Where it begins, in seconds.
    pub start: f64,
    /// Where it ends, in seconds.
    pub end: f64,
    /// The text, which usually begins with a space.
    pub text: String,
    /// The tokens, including the one that ended the text.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub finish: TextFinish,
}

/// The text of audio.
#[derive(Clone, Debug, PartialEq)]
pub struct Transcript {
    /// The text of all segments.
    pub text: String,
    /// The language that is spoken; `None` if the model knows only English.
    pub language: Option<String>,
    /// The length of the audio in seconds.
    pub seconds: f64,
    /// The chunks. The last one may be cancelled.
    pub segments: Vec<Segment>,
}

/// A speech model that is ready to run.
#[derive(Debug)]
pub struct Transcriber {
    generator: Generator,
    encoder: Encoder,
    tokenizer: Tokenizer,
    prompt: Prompt,
    suppressed: Suppressed,
    log_mel: LogMel,
}

impl Transcriber {
    /// Loads a folder of type `whisper` on the configured provider.
    ///
    /// # Errors
    /// When a file cannot be loaded, does not match the configuration, or a GPU is required and not available.
    pub fn load(runtime: &Runtime, config: &Config) -> Result<Transcriber> {
        let Some(names) = &config.encoder else {
            return Err(Error::request(
                format!("a model of type {:?} without an encoder does not transcribe audio", config.kind),
                "name a folder of type whisper, whose genai_config.json has model.encoder",
            ));
        };
        // The small files first: loading the model may take minutes.
        let tokenizer = Tokenizer::from_folder(config)?;
        let prompt = Prompt::new(config, &tokenizer)?;
        let suppressed = Suppressed::from_folder(config)?;
        let model = Model::load(runtime, config)?;
        let encoder = Encoder::load(runtime, &model, names)?;
        let max_length = check_max_length(&model, None)?;
        let generator =
            Generator::of_encoded(&model, GeneratorOptions { max_length: Some(max_length), ..Default::default() })?;
        let log_mel = LogMel::new(encoder.bands());
        Ok(Transcriber { generator, encoder, tokenizer, prompt, suppressed, log_mel })
    }

    /// Transcribes a WAV file: uncompressed samples of 8 to 64 bits, at any rate, with any number of channels. Every chunk
    /// is passed on when its text is complete. Cancelling ends the transcript without an error.
    ///
    /// # Errors
    /// When the audio or the language is not supported, or a run fails.
    pub fn transcribe(
        &mut self,
        audio: impl Read,
        options: &SpeechOptions,
        mut on_segment: impl FnMut(&Segment),
    ) -> Result<Transcript> {
        let mut language = self.prompt.language(options)?;
        let mut audio = Samples::new(audio)?;
        let mut transcript = Transcript { text: String::new(), language: None, seconds: 0.0, segments: Vec::new() };
        while let Some(samples) = audio.chunk()? {
            let start = transcript.seconds;
            let end = start + samples.len() as f64 / f64::from(RATE);
            let segment = match self.segment(samples, (start, end), &mut language, options.task) {
                Err(Error::Cancelled) => break,
                segment => segment?,
            };
            on_segment(&segment);
            transcript.text += &segment.text;
            transcript.seconds = end;
            let is_cancelled = segment.finish == TextFinish::Cancelled;
            transcript.segments.push(segment);
            if is_cancelled {
                break;
            }
        }
        if transcript.segments.is_empty() && audio.is_empty {
            return Err(Error::request("the audio has no samples", "record or convert it again"));
        }
        transcript.language = language.map(|token| self.prompt.code(token).to_owned());
        transcript.text = transcript.text.trim().to_owned();
        Ok(transcript)
    }

    /// A handle that cancels a transcript from another thread.
    pub fn canceller(&self) -> Canceller {
        self.generator.canceller()
    }

    /// The provider that it runs on.
    pub fn attached(&self) -> &Attached {
        self.generator.model().attached()
    }

    /// Messages about the folder and its provider; meant for stderr.
    pub fn notices(&self) -> impl Iterator<Item = &String> {
        let model = self.generator.model();
        model.config().notices.iter().chain(model.notices())
    }

    /// Transcribes a chunk. `language` is chosen if it is open and the model knows several.
    fn segment(
        &mut self,
        samples: &[f32],
        (start, end): (f64, f64),
        language: &mut Option<u32>,
        task: Task,
    ) -> Result<Segment> {
        let features = self.log_mel.features(samples);
        let encoder = &mut self.encoder;
        self.generator.encode(|options, outputs| encoder.run(&features, options, outputs))?;
        self.generator.append(&[self.prompt.start])?;
        if language.is_none() && self.prompt.is_multilingual {
            *language = Some(self.prompt.most_likely(self.generator.scores()?));
        }
        self.generator.append(&self.prompt.rest(*language, task))?;
        self.generator.constrain(Box::new(self.suppressed.filter()))?;
        let answer = generate_text(&mut self.generator, &self.tokenizer, &Limits::default(), |_| ())?;
        Ok(Segment { start, end, text: answer.text, tokens: answer.tokens, finish: answer.finish })
    }
}

/// The samples of a file at the model's rate, in chunks.
struct Samples<R> {
    source: WavReader<R>,
    resampler: Resampler,
    block: Vec<f32>,
    /// Samples of the next chunk, and a few more.
    pending: Vec<f32>,
    /// The current chunk.
    chunk: Vec<f32>,
    has_ended: bool,
    /// Whether there was any sample.
    is_empty: bool,
}

impl<R: Read> Samples<R> {
    fn new(source: R) -> Result<Samples<R>> {
        let source = WavReader::new(source)?;
        let resampler = Resampler::new(source.rate, RATE);
        Ok(Samples {
            source,
            resampler,
            block: Vec::new(),
            pending: Vec::new(),
            chunk: Vec::new(),
            has_ended: false,
            is_empty: true,
        })
    }

    /// The samples of the next 30 seconds, or of the rest.
    fn chunk(&mut self) -> Result<Option<&[f32]>> {
        while self.pending.len() < CHUNK && !self.has_ended {
            self.source.read(&mut self.block)?;
            if self.block.is_empty() {
                self.resampler.finish(&mut self.pending);
                self.has_ended = true;
            } else {
                self.is_empty = false;
                self.resampler.push(&self.block, &mut self.pending);
            }
        }
        self.chunk.clear();
        self.chunk.extend(self.pending.drain(..self.pending.len().min(CHUNK)));
        Ok((!self.chunk.is_empty()).then_some(&self.chunk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of 16-bit samples.
    fn wav(rate: u32, samples: usize) -> Vec<u8> {
        let mut file = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
        file.extend([rate.to_le_bytes(), (2 * rate).to_le_bytes()].concat());
        file.extend(b"\x02\0\x10\0data");
        file.extend((2 * samples as u32).to_le_bytes());
        file.extend((0..samples).flat_map(|i| ((i % 1000) as i16).to_le_bytes()));
        file
    }

    fn lengths(file: &[u8]) -> Vec<usize> {
        let mut samples = Samples::new(file).unwrap();
        let mut lengths = Vec::new();
        while let Some(chunk) = samples.chunk().unwrap() {
            lengths.push(chunk.len());
        }
        lengths
    }

    #[test]
    fn audio_is_split_into_chunks_of_30_seconds() {
        assert_eq!(lengths(&wav(16_000, 0)), [0; 0]);
        assert_eq!(lengths(&wav(16_000, 1)), [1]);
        assert_eq!(lengths(&wav(16_000, CHUNK)), [CHUNK]);
        assert_eq!(lengths(&wav(16_000, CHUNK + 1)), [CHUNK, 1]);
        assert_eq!(lengths(&wav(8000, 70 * 8000)), [CHUNK, CHUNK, 10 * 16_000]);
    }
}
