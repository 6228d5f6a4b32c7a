//! What a model folder says, checked: every error names the file, the field and what to do.

mod check;
mod raw;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

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
    /// The most tokens that a sequence can have.
    pub context_length: usize,
    /// The length of a row of logits.
    pub vocab_size: usize,
    /// The token that fills rows up.
    pub pad_token: u32,
    /// The token that begins a text, where the folder names one.
    pub bos_token: Option<u32>,
    /// The tokens that end a sequence.
    pub eos_tokens: Vec<u32>,
    /// Where the tokenizer lies.
    pub tokenizer_folder: PathBuf,
    /// The decoder's file.
    pub decoder: PathBuf,
    /// Layers of the decoder.
    pub layers: usize,
    /// Heads of keys and values in a layer.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_size: usize,
    /// The names of inputs and outputs.
    pub names: Names,
    /// Entries of the session's configuration.
    pub session_entries: Vec<(String, String)>,
    /// Entries of every run's configuration.
    pub run_entries: Vec<(String, String)>,
    /// Settings of the session.
    pub session: SessionSettings,
    /// How sequences are continued when the caller does not say otherwise.
    pub search: Search,
    /// The provider asked for; `None` is the CPU.
    pub provider: Option<ProviderRequest>,
    /// What was found in the folder and is not used, in sentences.
    pub notices: Vec<String>,
}

/// Names of the decoder's inputs and outputs; `%d` stands for a layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Names {
    /// Token ids.
    pub input_ids: String,
    /// Which positions are real.
    pub attention_mask: String,
    /// Positions of the token ids.
    pub position_ids: String,
    /// Keys of earlier tokens.
    pub past_key: String,
    /// Values of earlier tokens.
    pub past_value: String,
    /// Scores of every token of the vocabulary.
    pub logits: String,
    /// Keys of all tokens.
    pub present_key: String,
    /// Values of all tokens.
    pub present_value: String,
}

impl Names {
    /// The name in a layer.
    pub(crate) fn layer(pattern: &str, layer: usize) -> String {
        pattern.replacen("%d", &layer.to_string(), 1)
    }
}

/// Settings of a session that are no entries of its configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionSettings {
    /// Its name in the log.
    pub log_id: Option<String>,
    /// 0 (everything) to 4 (fatal errors).
    pub log_severity: Option<u8>,
    /// Threads inside an operator.
    pub intra_threads: Option<usize>,
    /// Threads between operators.
    pub inter_threads: Option<usize>,
    /// Whether memory is planned from earlier runs.
    pub memory_pattern: Option<bool>,
    /// `ORT_DISABLE_ALL`, `ORT_ENABLE_BASIC`, `ORT_ENABLE_EXTENDED`, `ORT_ENABLE_LAYOUT` or `ORT_ENABLE_ALL`.
    pub optimisation: Option<String>,
}

/// `search` of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// The most tokens of a sequence, prompt included.
    pub max_length: usize,
    /// No end token is chosen before a sequence has this many tokens.
    pub min_length: usize,
    /// Whether to draw at random; else the best token is taken.
    pub do_sample: bool,
    /// How many of the best tokens can be drawn; 0 is all.
    pub top_k: usize,
    /// The share of probability that can be drawn; 0 and 1 are all.
    pub top_p: f32,
    /// What scores are divided by.
    pub temperature: f32,
    /// What scores of tokens that were there already are divided by; 1 is nothing.
    pub repetition_penalty: f32,
    /// Runs of this many tokens do not come twice; 0 is off.
    pub no_repeat_ngram_size: usize,
    /// Whether keys and values stay in one buffer of the full length.
    pub share_buffer: bool,
    /// Where drawing starts from; `None` is anywhere.
    pub seed: Option<u32>,
    /// The most tokens of a prompt that are run at once; `None` is all.
    pub chunk_size: Option<usize>,
}

/// The provider to use, and how.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProviderRequest {
    /// Options of the provider.
    pub options: Vec<(String, String)>,
    /// Which of its devices.
    pub filter: DeviceFilter,
    /// Its plugin library; `None` is `AMDGPU_EP_PATH`, or what is registered already.
    pub library: Option<PathBuf>,
    /// Whether a machine without a GPU for it is an error.
    pub require_gpu: bool,
}

/// Which devices of a provider to use. Nothing given is all of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceFilter {
    /// What kind of device.
    pub kind: Option<HardwareKind>,
    /// The vendor's PCI number.
    pub vendor_id: Option<u32>,
    /// The device's number.
    pub device_id: Option<u32>,
}

/// What kind of device ONNX Runtime says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HardwareKind {
    /// A processor.
    Cpu,
    /// A graphics processor.
    Gpu,
    /// A neural processor.
    Npu,
}

impl Config {
    /// Reads and checks a model folder's configuration.
    ///
    /// # Errors
    /// When the file is missing, is not JSON, or a field is wrong.
    pub fn from_folder(folder: &Path) -> Result<Config> {
        let path = folder.join(FILE);
        let help = format!("name a model folder: it holds {FILE}, the decoder (.onnx) and tokenizer.json");
        let text = files::read_text(&path, largest::CONFIG, &help)?;
        Config::from_text(folder, &text)
    }

    /// As [`Config::from_folder`], from the text of the file.
    ///
    /// # Errors
    /// When the text is not JSON, or a field is wrong.
    pub fn from_text(folder: &Path, text: &str) -> Result<Config> {
        check::config(folder, &folder.join(FILE), text)
    }

    /// Asks for a provider, by any of its names; options that were there for it are kept unless given again.
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
                problem: format!("there is no provider {name:?}"),
                help: "use amdgpu or cpu".to_owned(),
            }),
        }
    }

    /// Goes back to the CPU.
    pub fn clear_providers(&mut self) {
        self.provider = None;
    }
}
