//! The validated configuration of a model folder. Every error names the file, the field and how to fix it.

mod check;
mod raw;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use ort_client::HardwareKind;

use crate::files::{self, largest};
use crate::provider;
use crate::{Error, Result};

/// The file that makes a folder a model folder.
pub(crate) const FILE: &str = "genai_config.json";

/// A model folder's configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The folder.
    pub folder: PathBuf,
    /// `model.type`, such as `llama`.
    pub kind: String,
    /// The maximum length of a sequence.
    pub context_length: usize,
    /// The length of a row of logits.
    pub vocab_size: usize,
    /// The token that pads rows.
    pub pad_token: u32,
    /// The token that begins a text, if the folder names one.
    pub bos_token: Option<u32>,
    /// The tokens that end a sequence.
    pub eos_tokens: Vec<u32>,
    /// The folder of the tokenizer.
    pub tokenizer_folder: PathBuf,
    /// Path of the decoder's ONNX file.
    pub decoder: PathBuf,
    /// The encoder of a speech model.
    pub encoder: Option<EncoderConfig>,
    /// Number of layers of the decoder.
    pub layers: usize,
    /// Key/value heads per layer.
    pub kv_heads: usize,
    /// Elements per head.
    pub head_size: usize,
    /// Layers with attention over a window, if their caches may be shorter than a sequence.
    pub windows: Option<Windows>,
    /// Blocks of the cache, if the decoder has PagedAttention.
    pub blocks: BlockSettings,
    /// Names of the decoder's inputs and outputs.
    pub names: Names,
    /// Session configuration entries.
    pub session_entries: Vec<(String, String)>,
    /// Run configuration entries, for every run.
    pub run_entries: Vec<(String, String)>,
    /// Settings of the session.
    pub session: SessionSettings,
    /// Search settings, unless the caller overrides them.
    pub search: Search,
    /// The requested provider; `None` means the CPU.
    pub provider: Option<ProviderRequest>,
    /// Messages about settings in the folder that are not used.
    pub notices: Vec<String>,
}

/// Blocks of a cache that all sequences share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockSettings {
    /// Tokens in a block, if the folder says it.
    pub size: Option<usize>,
    /// How many there are at most, if the folder says it.
    pub count: Option<usize>,
}

/// Names of the decoder's inputs and outputs; `%d` stands for a layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Names {
    /// Token ids.
    pub input_ids: String,
    /// Which positions hold a token.
    pub attention_mask: String,
    /// Positions of the token ids.
    pub position_ids: String,
    /// Keys of earlier tokens.
    pub past_key: String,
    /// Values of earlier tokens.
    pub past_value: String,
    /// Inputs with the states of convolutions.
    pub past_conv: String,
    /// Inputs with the states of linear attention.
    pub past_recurrent: String,
    /// The score of every token in the vocabulary.
    pub logits: String,
    /// Keys of all tokens.
    pub present_key: String,
    /// Values of all tokens.
    pub present_value: String,
    /// Outputs with the states of convolutions.
    pub present_conv: String,
    /// Outputs with the states of linear attention.
    pub present_recurrent: String,
    /// The number of earlier tokens, in decoders that read the output of an encoder.
    pub past_length: String,
    /// Keys that an encoder computed.
    pub cross_key: String,
    /// Values that an encoder computed.
    pub cross_value: String,
    /// The blocks of each sequence, in decoders with PagedAttention.
    pub block_table: String,
    /// Where each sequence starts in the token ids, in decoders with PagedAttention.
    pub starts: String,
    /// The number of earlier tokens of each sequence, in decoders with PagedAttention.
    pub past_lengths: String,
    /// Bounds of lengths, in decoders with PagedAttention.
    pub metadata: String,
    /// The tokens whose scores are computed, in decoders with PagedAttention.
    pub scored: String,
}

/// The encoder of a speech model, and names of its inputs and outputs; `%d` stands for a layer of the decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct EncoderConfig {
    /// Path of the ONNX file.
    pub path: PathBuf,
    /// The input.
    pub audio_features: String,
    /// The output of the last layer.
    pub hidden_states: String,
    /// Keys for the decoder.
    pub cross_key: String,
    /// Values for the decoder.
    pub cross_value: String,
}

/// Layers with attention over a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Windows {
    /// Tokens in the window. Caches of these layers must not be shorter.
    pub size: usize,
    /// The layers.
    pub layers: Vec<usize>,
}

impl Names {
    /// The name for a layer.
    pub(crate) fn layer(pattern: &str, layer: usize) -> String {
        pattern.replacen("%d", &layer.to_string(), 1)
    }
}

/// Settings of a session that are not configuration entries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionSettings {
    /// The name in the log.
    pub log_id: Option<String>,
    /// 0 (everything) to 4 (fatal errors).
    pub log_severity: Option<u8>,
    /// Threads within an operator.
    pub intra_threads: Option<usize>,
    /// Threads across operators.
    pub inter_threads: Option<usize>,
    /// Whether memory is planned from earlier runs (`enable_mem_pattern`).
    pub memory_pattern: Option<bool>,
    /// `ORT_DISABLE_ALL`, `ORT_ENABLE_BASIC`, `ORT_ENABLE_EXTENDED`, `ORT_ENABLE_LAYOUT` or `ORT_ENABLE_ALL`.
    pub optimisation: Option<String>,
}

/// The `search` section of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// The maximum length of a sequence, prompt included.
    pub max_length: usize,
    /// End tokens are not chosen before a sequence has this many tokens.
    pub min_length: usize,
    /// Whether to sample; otherwise the best token is taken.
    pub do_sample: bool,
    /// Sample from this many of the best tokens; 0 means all.
    pub top_k: usize,
    /// Sample from the best tokens with this share of the probability; 0 and 1 mean all.
    pub top_p: f32,
    /// Scores are divided by this.
    pub temperature: f32,
    /// Scores of tokens already in the sequence are divided by this; 1 means no penalty.
    pub repetition_penalty: f32,
    /// N-grams of this size are not repeated; 0 disables this.
    pub no_repeat_ngram_size: usize,
    /// Whether the cache stays in one buffer of the full length.
    pub share_buffer: bool,
    /// The random seed; `None` picks one.
    pub seed: Option<u32>,
    /// The maximum number of prompt tokens in one run; `None` means all.
    pub chunk_size: Option<usize>,
}

/// The requested provider and its options.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProviderRequest {
    /// Options of the provider.
    pub options: Vec<(String, String)>,
    /// Selects among its devices.
    pub filter: DeviceFilter,
    /// The plugin library; `None` uses `AMDGPU_EP_PATH`, or the library that is already registered.
    pub library: Option<PathBuf>,
    /// Whether it is an error if the machine has no usable GPU.
    pub require_gpu: bool,
}

/// Selects devices of a provider. Fields that are `None` match all devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceFilter {
    /// The type of device.
    pub kind: Option<HardwareKind>,
    /// The PCI vendor id.
    pub vendor_id: Option<u32>,
    /// The device id.
    pub device_id: Option<u32>,
}

impl Config {
    /// Reads and validates a model folder's configuration.
    ///
    /// # Errors
    /// When the file is missing, is not JSON, or a field is wrong.
    pub fn from_folder(folder: &Path) -> Result<Config> {
        let path = folder.join(FILE);
        let help = format!("name a model folder: it holds {FILE}, the decoder (.onnx) and tokenizer.json");
        let text = files::read_text(&path, largest::CONFIG, &help)?;
        Config::from_text(folder, &text)
    }

    /// Like [`Config::from_folder`], from the text of the file.
    ///
    /// # Errors
    /// When the text is not JSON, or a field is wrong.
    pub fn from_text(folder: &Path, text: &str) -> Result<Config> {
        check::config(folder, &folder.join(FILE), text)
    }

    /// Requests a provider by any of its names. Options already set for it are kept unless they are given again.
    ///
    /// # Errors
    /// When the name is neither `amdgpu` nor `cpu`.
    pub fn append_provider<K: Into<String>, V: Into<String>>(
        &mut self,
        name: &str,
        options: impl IntoIterator<Item = (K, V)>,
    ) -> Result<()> {
        match provider::normalise(name) {
            Some(provider::Name::Amdgpu) => {
                let request = self.provider.get_or_insert_default();
                for (key, value) in options {
                    let (key, value) = (key.into(), value.into());
                    request.options.retain(|(known, _)| *known != key);
                    request.options.push((key, value));
                }
                Ok(())
            }
            Some(provider::Name::Cpu) => {
                self.provider = None;
                Ok(())
            }
            None => Err(Error::Provider {
                problem: format!("unknown provider {name:?}"),
                help: "use amdgpu or cpu".to_owned(),
            }),
        }
    }

    /// Resets the provider to the CPU.
    pub fn clear_providers(&mut self) {
        self.provider = None;
    }
}
