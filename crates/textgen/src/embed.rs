//! Sentence embeddings from encoder models (`model.onnx` beside a `tokenizer.json`): similar sentences have similar
//! vectors.
//!
//! ```no_run
//! use textgen::Runtime;
//! use textgen::embed::{EmbedOptions, Embedder};
//!
//! # fn main() -> textgen::Result<()> {
//! let runtime = Runtime::load("libonnxruntime.so".as_ref())?;
//! let mut embedder = Embedder::load(&runtime, "models/sentences".as_ref(), EmbedOptions::default())?;
//! let vectors = embedder.embed(&["A cat sits on the mat.", "There is a cat on the rug."])?;
//! let likeness: f32 = vectors[0].iter().zip(&vectors[1]).map(|(a, b)| a * b).sum();
//! # Ok(())
//! # }
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ort_client::{Element, Kind, Port, Session, SessionOptions, Value};
use serde_json::Value as Json;
use tokenizers::{PostProcessor, TruncationParams};

use crate::error::Doing;
use crate::files::{self, largest};
use crate::growth::Growth;
use crate::provider::{self, Attached};
use crate::tokenizer::{self, FILE as TOKENIZER};
use crate::{Error, ProviderRequest, Result, Runtime};

/// Possible paths of the model in its folder.
const MODELS: [&str; 2] = ["model.onnx", "onnx/model.onnx"];

/// The pooling configuration that the sentence-transformers library writes.
const POOLING: &str = "1_Pooling/config.json";

/// How the token vectors of a sentence are combined into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean, without padding.
    Mean,
    /// The vector of the first token, which such models put before the sentence (CLS).
    First,
}

/// Options of an [`Embedder`].
#[derive(Clone, Debug)]
pub struct EmbedOptions {
    /// `None` reads `1_Pooling/config.json`, and uses the mean if there is no such file.
    pub pooling: Option<Pooling>,
    /// Whether vectors are normalised to length 1.
    pub normalise: bool,
    /// Longer sentences are truncated.
    pub max_tokens: usize,
    /// `None` means the CPU.
    pub provider: Option<ProviderRequest>,
}

impl Default for EmbedOptions {
    fn default() -> Self {
        EmbedOptions { pooling: None, normalise: true, max_tokens: 512, provider: None }
    }
}

/// An encoder that is ready to run.
#[derive(Debug)]
pub struct Embedder {
    path: PathBuf,
    session: Session,
    tokenizer: Arc<tokenizers::Tokenizer>,
    tokenizer_path: PathBuf,
    growth: Growth,
    pooling: Pooling,
    normalise: bool,
    attached: Attached,
    notices: Vec<String>,
}

/// A batch of tokenized sentences, padded to the longest one.
struct Batch {
    rows: usize,
    columns: usize,
    ids: Vec<u32>,
    mask: Vec<u32>,
    types: Vec<u32>,
}

impl Embedder {
    /// Loads the encoder from a folder.
    ///
    /// # Errors
    /// When a file is missing or damaged, or the model is not a sentence encoder.
    pub fn load(runtime: &Runtime, folder: &Path, options: EmbedOptions) -> Result<Embedder> {
        let path = MODELS.iter().map(|name| folder.join(name)).find(|path| path.exists());
        let path = path.ok_or_else(|| Error::File {
            path: folder.join(MODELS[0]),
            source: std::io::ErrorKind::NotFound.into(),
            help: "export the encoder to ONNX, and put it beside its tokenizer.json".to_owned(),
        })?;
        let pooling = options.pooling.map_or_else(|| pooling_of(&folder.join(POOLING)), Ok)?;
        let tokenizer_path = folder.join(TOKENIZER);
        let (tokenizer, growth) = tokenizer(&tokenizer_path, options.max_tokens)?;
        files::check_folder(folder)?;
        let settings = || SessionOptions::new(runtime.environment()).doing("creating session options");
        let opened = provider::open(runtime, options.provider.as_ref(), &[], &path, settings)?;
        for input in opened.session.inputs() {
            if !matches!(&*input.name, "input_ids" | "attention_mask" | "token_type_ids") {
                let problem = format!("its input {:?} is not supported", input.name);
                return Err(wrong(
                    &path,
                    problem,
                    "use an encoder with only the inputs input_ids, attention_mask and token_type_ids",
                ));
            }
        }
        let (attached, notices) = (opened.attached, opened.notices);
        let normalise = options.normalise;
        Ok(Embedder {
            path,
            session: opened.session,
            tokenizer: Arc::new(tokenizer),
            tokenizer_path,
            growth,
            pooling,
            normalise,
            attached,
            notices,
        })
    }

    /// The vectors of these sentences. They run as one batch.
    ///
    /// # Errors
    /// When the tokenizer rejects a sentence, or the run fails.
    pub fn embed(&mut self, sentences: &[&str]) -> Result<Vec<Vec<f32>>> {
        Ok(self.embed_counted(sentences)?.0)
    }

    /// Like [`Embedder::embed`], with the number of tokens that the sentences have.
    ///
    /// # Errors
    /// When the tokenizer rejects a sentence, or the run fails.
    pub fn embed_counted(&mut self, sentences: &[&str]) -> Result<(Vec<Vec<f32>>, usize)> {
        if sentences.is_empty() {
            return Ok((Vec::new(), 0));
        }
        for sentence in sentences {
            let fits = self.growth.check(sentence.len());
            fits.map_err(|problem| tokenizer::limit(&self.tokenizer_path, &problem))?;
        }
        let (tokenizer, texts) = (Arc::clone(&self.tokenizer), sentences.iter().map(|&text| text.to_owned()).collect());
        let bytes = sentences.iter().map(|sentence| sentence.len()).sum();
        let batch = tokenizer::timed(&self.tokenizer_path, bytes, move || Batch::new(&tokenizer, texts))?;
        let batch = batch.map_err(|problem| {
            wrong(&self.path, format!("the tokenizer failed: {problem}"), "every sentence needs at least one word")
        })?;
        let ports = self.session.inputs();
        let values =
            ports.iter().map(|input| batch.tensor(&self.session, input)).collect::<ort_client::Result<Vec<_>>>();
        let values = values.doing("creating the encoder's inputs")?;
        let inputs: Vec<_> = ports.iter().map(|input| input.name.as_str()).zip(&values).collect();
        let outputs: Vec<_> = self.session.outputs().iter().map(|output| output.name.as_str()).collect();
        let outputs = self.session.run(&inputs, &outputs).doing("running the encoder")?;
        let first = outputs.first().ok_or_else(|| {
            wrong(&self.path, "it has no output".to_owned(), "use an encoder whose first output is float32")
        })?;
        let read = first.to_vec::<f32>().and_then(|values| Ok((first.shape()?, values)));
        let (shape, values) =
            read.map_err(|error| wrong(&self.path, error.to_string(), "use an encoder whose first output is float32"))?;
        let rows = batch.rows as i64;
        let mut vectors: Vec<Vec<f32>> = match shape[..] {
            [found, columns, size] if found == rows && columns == batch.columns as i64 && size > 0 => {
                let sentences = values.chunks(batch.columns * size as usize).zip(batch.mask.chunks(batch.columns));
                sentences.map(|(tokens, mask)| pool(tokens, mask, size as usize, self.pooling)).collect()
            }
            // The model did the pooling.
            [found, size] if found == rows && size > 0 => values.chunks(size as usize).map(<[f32]>::to_vec).collect(),
            _ => {
                let problem = format!("its first output has the shape {shape:?}");
                return Err(wrong(
                    &self.path,
                    problem,
                    "expected [sentences, tokens, elements] or [sentences, elements]",
                ));
            }
        };
        if self.normalise {
            vectors.iter_mut().for_each(|vector| normalise(vector));
        }
        Ok((vectors, batch.mask.iter().filter(|mask| **mask != 0).count()))
    }

    /// The provider that it runs on.
    pub fn attached(&self) -> &Attached {
        &self.attached
    }

    /// Why it does not run on the requested provider; meant for stderr.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }
}

impl Batch {
    fn new(tokenizer: &tokenizers::Tokenizer, sentences: Vec<String>) -> Result<Batch, String> {
        let encodings = tokenizer.encode_batch_fast(sentences, true).map_err(|error| error.to_string())?;
        let columns = encodings.iter().map(|encoding| encoding.len()).max().unwrap_or(0);
        if encodings.iter().any(|encoding| encoding.is_empty()) {
            return Err("a sentence has no tokens".to_owned());
        }
        let filled = |part: fn(&tokenizers::Encoding) -> &[u32]| -> Vec<u32> {
            let rows = encodings.iter().map(part);
            rows.flat_map(|row| row.iter().copied().chain(std::iter::repeat(0)).take(columns)).collect()
        };
        Ok(Batch {
            rows: encodings.len(),
            columns,
            ids: filled(|encoding| encoding.get_ids()),
            mask: filled(|encoding| encoding.get_attention_mask()),
            types: filled(|encoding| encoding.get_type_ids()),
        })
    }

    /// The tensor for an input, in the integer type that it expects.
    fn tensor(&self, session: &Session, input: &Port) -> ort_client::Result<Value> {
        let values = match &*input.name {
            "input_ids" => &self.ids,
            "attention_mask" => &self.mask,
            _ => &self.types,
        };
        let (runtime, shape) = (session.environment().runtime(), [self.rows as i64, self.columns as i64]);
        if matches!(input.kind, Kind::Tensor(Element::I32, _)) {
            let values: Vec<i32> = values.iter().map(|&value| value as i32).collect();
            return Value::from_slice(runtime, &shape, &values);
        }
        let values: Vec<i64> = values.iter().map(|&value| value.into()).collect();
        Value::from_slice(runtime, &shape, &values)
    }
}

/// Pools the token vectors of one sentence. Sums are 64-bit floats, because sentences may be long.
fn pool(tokens: &[f32], mask: &[u32], size: usize, pooling: Pooling) -> Vec<f32> {
    if pooling == Pooling::First {
        return tokens[..size].to_vec();
    }
    let mut sums = vec![0.0f64; size];
    let real = tokens.chunks(size).zip(mask).filter(|(_, mask)| **mask != 0);
    let mut count = 0.0;
    for (token, _) in real {
        sums.iter_mut().zip(token).for_each(|(sum, &value)| *sum += f64::from(value));
        count += 1.0;
    }
    sums.into_iter().map(|sum| (sum / f64::max(count, 1.0)) as f32).collect()
}

/// Scales a vector to length 1. A zero vector stays as it is.
fn normalise(vector: &mut [f32]) {
    let length = vector.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|value| *value = (f64::from(*value) / length) as f32);
    }
}

fn pooling_of(path: &Path) -> Result<Pooling> {
    let text = match files::read_text(path, largest::CONFIG, "make the file readable, or remove it") {
        Err(Error::File { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => return Ok(Pooling::Mean),
        text => text?,
    };
    let config: Json = serde_json::from_str(&text).unwrap_or(Json::Null);
    let is = |mode: &str| config[format!("pooling_mode_{mode}")] == Json::Bool(true);
    match (is("cls_token"), is("mean_tokens")) {
        (true, false) => Ok(Pooling::First),
        (false, true) => Ok(Pooling::Mean),
        _ => Err(Error::Text {
            path: path.to_path_buf(),
            problem: "it must set either pooling_mode_cls_token or pooling_mode_mean_tokens, and no other mode"
                .to_owned(),
            help: "choose the pooling with EmbedOptions::pooling".to_owned(),
        }),
    }
}

fn tokenizer(path: &Path, max_tokens: usize) -> Result<(tokenizers::Tokenizer, Growth)> {
    let wrong = |problem: String| Error::Text {
        path: path.to_path_buf(),
        problem: format!("sentences cannot be cut at {max_tokens} tokens: {problem}"),
        help: "use a larger max_tokens".to_owned(),
    };
    let (mut tokenizer, growth) = tokenizer::read(path)?;
    let added = tokenizer.get_post_processor().map_or(0, |processor| processor.added_tokens(false));
    if max_tokens <= added {
        return Err(wrong(format!("the tokenizer adds {added} special tokens to each")));
    }
    let truncation = TruncationParams { max_length: max_tokens, ..TruncationParams::default() };
    // Padding to the longest sentence of a batch happens in this module.
    tokenizer.with_truncation(Some(truncation)).map_err(|error| wrong(error.to_string()))?;
    Ok((tokenizer, growth))
}

fn wrong(path: &Path, problem: String, help: &str) -> Error {
    Error::Model { path: path.to_path_buf(), problem, help: help.to_owned() }
}
