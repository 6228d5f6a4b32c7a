//! The schema of `genai_config.json`. Fields for other kinds of models are left out.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// A field that is known but not used. serde's own type for that would count as an unknown field.
type Unused = Option<Value>;

#[derive(Deserialize)]
pub(super) struct Root {
    pub model: Model,
    #[serde(default)]
    pub search: Search,
    #[serde(default)]
    pub engine: Engine,
}

/// Settings of GenAI's engine, which runs decoders with caches in blocks.
#[derive(Deserialize, Default)]
pub(super) struct Engine {
    #[serde(default)]
    pub dynamic_batching: DynamicBatching,
}

#[derive(Deserialize, Default)]
pub(super) struct DynamicBatching {
    pub block_size: Option<i64>,
    pub num_blocks: Option<i64>,
    // Known but unused: the caller sets the number of sequences, and the memory follows from it.
    #[serde(rename = "max_batch_size", default)]
    pub _max_batch_size: Unused,
    #[serde(rename = "gpu_utilization_factor", default)]
    pub _gpu_utilization_factor: Unused,
    #[serde(rename = "max_scheduled_tokens", default)]
    pub _max_scheduled_tokens: Unused,
}

#[derive(Deserialize)]
pub(super) struct Model {
    #[serde(rename = "type")]
    pub kind: String,
    pub context_length: i64,
    pub vocab_size: i64,
    pub pad_token_id: Option<i64>,
    pub bos_token_id: Option<i64>,
    pub eos_token_id: Option<Ids>,
    pub tokenizer_dir: Option<String>,
    pub decoder: Decoder,
    pub encoder: Option<Encoder>,
    // Known but unused: they are for other kinds of models, or for interpreting the generated text.
    #[serde(rename = "sep_token_id", default)]
    pub _sep: Unused,
    #[serde(rename = "decoder_start_token_id", default)]
    pub _decoder_start: Unused,
    #[serde(rename = "bot_token_id", default)]
    pub _begin_of_tool: Unused,
    #[serde(rename = "eot_token_id", default)]
    pub _end_of_tool: Unused,
    #[serde(rename = "bor_token_id", default)]
    pub _begin_of_reasoning: Unused,
    #[serde(rename = "eor_token_id", default)]
    pub _end_of_reasoning: Unused,
    #[serde(rename = "speech", default)]
    pub _speech: Unused,
}

/// The encoder of a speech model. Its session has the decoder's settings.
#[derive(Deserialize)]
pub(super) struct Encoder {
    pub filename: String,
    #[serde(default)]
    pub inputs: EncoderInputs,
    #[serde(default)]
    pub outputs: EncoderOutputs,
    // Known but unused: the encoder itself has this information.
    #[serde(rename = "session_options", default)]
    pub _session_options: Unused,
    #[serde(rename = "run_options", default)]
    pub _run_options: Unused,
    #[serde(rename = "head_size", default)]
    pub _head_size: Unused,
    #[serde(rename = "hidden_size", default)]
    pub _hidden_size: Unused,
    #[serde(rename = "num_attention_heads", default)]
    pub _num_attention_heads: Unused,
    #[serde(rename = "num_hidden_layers", default)]
    pub _num_hidden_layers: Unused,
    #[serde(rename = "num_key_value_heads", default)]
    pub _num_key_value_heads: Unused,
}

#[derive(Deserialize, Default)]
pub(super) struct EncoderInputs {
    pub audio_features: Option<String>,
}

#[derive(Deserialize, Default)]
pub(super) struct EncoderOutputs {
    pub encoder_hidden_states: Option<String>,
    pub cross_present_key_names: Option<String>,
    pub cross_present_value_names: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a token id or a list of token ids")]
pub(super) enum Ids {
    One(i64),
    Many(Vec<i64>),
}

impl Ids {
    pub fn into_vec(self) -> Vec<i64> {
        match self {
            Ids::One(id) => vec![id],
            Ids::Many(ids) => ids,
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Decoder {
    pub filename: String,
    pub num_hidden_layers: i64,
    pub num_key_value_heads: i64,
    pub head_size: i64,
    #[serde(default)]
    pub inputs: Inputs,
    #[serde(default)]
    pub outputs: Outputs,
    #[serde(default)]
    pub session_options: SessionOptions,
    #[serde(default)]
    pub run_options: BTreeMap<String, String>,
    pub sliding_window: Option<SlidingWindow>,
    // Known but unused: the decoder itself has this information.
    #[serde(rename = "hidden_size")]
    pub _hidden_size: Option<i64>,
    #[serde(rename = "num_attention_heads")]
    pub _num_attention_heads: Option<i64>,
    #[serde(rename = "layer_types", default)]
    pub _layer_types: Unused,
    #[serde(rename = "conv_cache_size", default)]
    pub _conv_cache_size: Unused,
    #[serde(rename = "state_groups", default)]
    pub _state_groups: Unused,
}

#[derive(Deserialize, Default)]
pub(super) struct Inputs {
    pub input_ids: Option<String>,
    pub attention_mask: Option<String>,
    pub position_ids: Option<String>,
    pub past_key_names: Option<String>,
    pub past_value_names: Option<String>,
    pub past_conv_names: Option<String>,
    pub past_recurrent_names: Option<String>,
    pub cross_past_key_names: Option<String>,
    pub cross_past_value_names: Option<String>,
    pub past_sequence_length: Option<String>,
    pub block_table: Option<String>,
    pub cumulative_sequence_lengths: Option<String>,
    pub past_sequence_lengths: Option<String>,
    pub attention_metadata: Option<String>,
    pub logits_indices: Option<String>,
}

#[derive(Deserialize, Default)]
pub(super) struct Outputs {
    pub logits: Option<String>,
    pub present_key_names: Option<String>,
    pub present_value_names: Option<String>,
    pub present_conv_names: Option<String>,
    pub present_recurrent_names: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct SlidingWindow {
    #[serde(default = "yes")]
    pub slide_key_value_cache: bool,
    #[serde(default = "yes")]
    pub slide_inputs: bool,
    pub window_size: Option<i64>,
    #[serde(default)]
    pub layers: Vec<i64>,
    // Known but unused: they are for sliding inputs and caches.
    #[serde(rename = "cache_slack", default)]
    pub _cache_slack: Unused,
    #[serde(rename = "alignment", default)]
    pub _alignment: Unused,
    #[serde(rename = "pad_value", default)]
    pub _pad_value: Unused,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize, Default)]
pub(super) struct SessionOptions {
    pub log_id: Option<String>,
    pub log_severity_level: Option<i64>,
    pub intra_op_num_threads: Option<i64>,
    pub inter_op_num_threads: Option<i64>,
    pub enable_mem_pattern: Option<bool>,
    pub graph_optimization_level: Option<String>,
    #[serde(default)]
    pub provider_options: Vec<BTreeMap<String, BTreeMap<String, Value>>>,
    /// Strings become session configuration entries.
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

#[derive(Deserialize, Default)]
pub(super) struct Search {
    pub max_length: Option<i64>,
    pub min_length: Option<i64>,
    pub do_sample: Option<bool>,
    pub top_k: Option<i64>,
    pub top_p: Option<f64>,
    pub temperature: Option<f64>,
    pub repetition_penalty: Option<f64>,
    pub no_repeat_ngram_size: Option<i64>,
    pub num_beams: Option<i64>,
    pub num_return_sequences: Option<i64>,
    pub past_present_share_buffer: Option<bool>,
    pub random_seed: Option<i64>,
    pub chunk_size: Option<i64>,
    // Known but unused: they only matter for beam search, and the caller sets the batch size.
    #[serde(rename = "batch_size")]
    pub _batch_size: Option<i64>,
    #[serde(rename = "diversity_penalty")]
    pub _diversity_penalty: Option<f64>,
    #[serde(rename = "length_penalty")]
    pub _length_penalty: Option<f64>,
    #[serde(rename = "early_stopping")]
    pub _early_stopping: Option<bool>,
}
