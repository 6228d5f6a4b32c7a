//! The decoder of `testkit`, ready for the tests.

use tempfile::TempDir;
use testkit::llm::{END, TinyDecoder, VOCABULARY};
use textgen::{Generator, GeneratorOptions, Model, Tokenizer};

use super::{On, config, load};

/// The tiny decoder, loaded on the CPU.
pub struct Tiny {
    pub decoder: TinyDecoder,
    pub model: Model,
    pub tokenizer: Tokenizer,
    pub _folder: TempDir,
}

impl Tiny {
    /// `None`, with a printed reason, if ONNX Runtime is not installed.
    pub fn new(shared: bool) -> Option<Tiny> {
        Tiny::of(TinyDecoder::new(5), shared)
    }

    /// The same with another decoder.
    pub fn of(decoder: TinyDecoder, shared: bool) -> Option<Tiny> {
        let folder = tempfile::tempdir().unwrap();
        decoder.write(folder.path(), shared).unwrap();
        if let Err(reason) = testkit::place::onnxruntime() {
            println!("skipped: {reason}");
            return None;
        }
        let model = load(&config(folder.path(), On::Cpu).unwrap()).unwrap();
        let tokenizer = Tokenizer::from_folder(model.config()).unwrap();
        Some(Tiny { decoder, model, tokenizer, _folder: folder })
    }

    pub fn generator(&self, options: GeneratorOptions) -> Generator {
        Generator::new(&self.model, options).unwrap()
    }

    /// The tokens that follow a sequence, according to the reference loops.
    pub fn reference(&self, tokens: &[u32], count: usize) -> Vec<u32> {
        let mut tokens = tokens.to_vec();
        let start = tokens.len();
        for _ in 0..count {
            let scores = self.decoder.scores(&tokens);
            let best = (0..VOCABULARY).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap();
            tokens.push(best as u32);
            if END.contains(&(best as u32)) {
                break;
            }
        }
        tokens.split_off(start)
    }
}

/// Tokens of the only row, until it ends or `count` is reached.
pub fn steps(generator: &mut Generator, count: usize) -> Vec<u32> {
    let mut new = Vec::new();
    while new.len() < count
        && let Some(newest) = generator.step().unwrap()
    {
        new.extend(newest[0]);
    }
    new
}
