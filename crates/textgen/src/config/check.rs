//! Validates the parsed file, and fills in defaults.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use options::Origin;
use ort_client::HardwareKind;
use serde_json::Value;

use super::raw::{self, Root};
use super::{
    BlockSettings, Config, DeviceFilter, EncoderConfig, Names, ProviderRequest, Search, SessionSettings, Windows,
};
use crate::provider::{self, Name};
use crate::{Error, Result};

/// The operators that read lengths use 32-bit integers.
const LONGEST: i64 = i32::MAX as i64;

/// More layers than any real model has; larger values are mistakes.
const MAX_LAYERS: i64 = 10_000;

/// More characters than the name of any model type has.
const MAX_TYPE_CHARS: usize = 64;

/// The smallest block that PagedAttention allows.
const LEAST_BLOCK: i64 = 16;

/// More elements than any real head has.
const MAX_ELEMENTS: i64 = 1 << 20;

pub(super) fn config(folder: &Path, path: &Path, text: &str) -> Result<Config> {
    let (root, unknown) = parse(path, text)?;
    let check = Check { path };
    let Root { model, search, engine } = root;
    let decoder = model.decoder;
    // Any decoder whose inputs can be fed is supported, whatever its type. The name goes to the provider and into messages.
    let is_plain = |one: char| one.is_ascii_alphanumeric() || matches!(one, '_' | '-' | '.');
    if !(1..=MAX_TYPE_CHARS).contains(&model.kind.len()) || !model.kind.chars().all(is_plain) {
        let problem = format!(
            "{:?} is not the name of a model type",
            model.kind.chars().take(MAX_TYPE_CHARS).collect::<String>()
        );
        return Err(check.wrong("model.type", problem, "write a name such as llama"));
    }
    let vocab_size = check.within("model.vocab_size", model.vocab_size, 1, LONGEST)?;
    let context_length = check.within("model.context_length", model.context_length, 1, LONGEST)?;
    let token = |field: &str, id: i64| -> Result<u32> {
        let last = vocab_size as i64 - 1;
        check.within(field, id, 0, last).map(|id| id as u32)
    };
    let pad_token = token("model.pad_token_id", model.pad_token_id.unwrap_or(0))?;
    let eos_tokens = match model.eos_token_id {
        Some(ids) => {
            let tokens: Result<Vec<u32>> =
                ids.into_vec().into_iter().map(|id| token("model.eos_token_id", id)).collect();
            tokens?
        }
        None => vec![pad_token],
    };
    let session_options = decoder.session_options;
    let mut notices = Vec::new();
    let mut refused = Refused::default();
    let (session_entries, strange) = entries(session_options.others, &mut refused);
    let run_entries = decoder.run_options.into_iter().filter(|(key, _)| refused.allows_run(key)).collect();
    let provider = check_providers(&check, session_options.provider_options, &mut notices, &mut refused)?;
    notices.extend(refused.notice(path));
    let strange = strange.into_iter().map(|key| format!("model.decoder.session_options.{key}"));
    notices.extend(unused(path, unknown.into_iter().chain(strange).collect()));
    if let Some(window) = &decoder.sliding_window
        && (window.slide_inputs || window.slide_key_value_cache)
    {
        return Err(check.wrong(
            "model.decoder.sliding_window",
            "sliding inputs or caches are not supported",
            "set slide_inputs and slide_key_value_cache to false: the whole sequence is then kept",
        ));
    }
    let layers = check.within("model.decoder.num_hidden_layers", decoder.num_hidden_layers, 1, MAX_LAYERS)?;
    let windows = decoder.sliding_window.map(|window| check_windows(&check, window, layers)).transpose()?.flatten();
    // The folder may have been made on a machine with more processors.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = |name: &str, count: Option<i64>| -> Result<Option<usize>> {
        let count = check.maybe(&format!("model.decoder.session_options.{name}"), count, (0, 4096))?;
        Ok(count.map(|count: usize| count.min(processors)))
    };
    let search = check_search(&check, search, context_length, vocab_size)?;
    Ok(Config {
        folder: folder.to_path_buf(),
        kind: model.kind,
        context_length,
        vocab_size,
        pad_token,
        // Some folders name a token outside the vocabulary here; it is never used.
        bos_token: model.bos_token_id.and_then(|id| u32::try_from(id).ok()),
        eos_tokens,
        tokenizer_folder: match model.tokenizer_dir.filter(|folder| !folder.is_empty()) {
            Some(tokenizer) => folder.join(check.inside("model.tokenizer_dir", &tokenizer)?),
            None => folder.to_path_buf(),
        },
        decoder: folder.join(check.inside("model.decoder.filename", &decoder.filename)?),
        encoder: model.encoder.map(|encoder| check_encoder(&check, folder, encoder)).transpose()?,
        layers,
        windows,
        kv_heads: check.within("model.decoder.num_key_value_heads", decoder.num_key_value_heads, 1, MAX_ELEMENTS)?,
        head_size: check.within("model.decoder.head_size", decoder.head_size, 1, MAX_ELEMENTS)?,
        blocks: check_blocks(&check, &engine.dynamic_batching)?,
        names: check_names(&check, decoder.inputs, decoder.outputs)?,
        session_entries,
        run_entries,
        session: SessionSettings {
            log_id: session_options.log_id,
            log_severity: check.maybe(
                "model.decoder.session_options.log_severity_level",
                session_options.log_severity_level,
                (0, 4),
            )?,
            intra_threads: threads("intra_op_num_threads", session_options.intra_op_num_threads)?,
            inter_threads: threads("inter_op_num_threads", session_options.inter_op_num_threads)?,
            memory_pattern: session_options.enable_mem_pattern,
            optimisation: session_options.graph_optimization_level,
        },
        search,
        provider,
        notices,
    })
}

/// One notice for all unknown fields, of which a file may have any number.
fn unused(path: &Path, fields: Vec<String>) -> Option<String> {
    const SHOWN: usize = 8;
    let more = match fields.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let shown: Vec<String> = fields.iter().take(SHOWN).map(|field| field.chars().take(100).collect()).collect();
    (!fields.is_empty()).then(|| format!("{}: unknown fields are ignored: {}{more}", path.display(), shown.join(", ")))
}

/// Parses the file, and collects the unknown fields.
fn parse(path: &Path, text: &str) -> Result<(Root, BTreeSet<String>)> {
    let mut unknown = BTreeSet::new();
    let mut json = serde_json::Deserializer::from_str(text);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut json, &mut track);
    let root: Result<Root, _> = serde_ignored::deserialize(tracked, |field| {
        unknown.insert(field.to_string());
    });
    let ended = root.and_then(|root| json.end().map(|()| root));
    match ended {
        Ok(root) => Ok((root, unknown)),
        Err(error) => {
            let field = track.path().to_string();
            let help = if error.is_data() {
                "write the field as ONNX Runtime GenAI's model builder does"
            } else {
                "the file is not valid JSON: create or copy the folder again"
            };
            let field = if error.is_data() && field != "." { field } else { "the file".to_owned() };
            Err(Error::Config { path: path.to_path_buf(), field, problem: error.to_string(), help: help.to_owned() })
        }
    }
}

fn check_names(check: &Check<'_>, inputs: raw::Inputs, outputs: raw::Outputs) -> Result<Names> {
    let pattern = |field: &str, given: Option<String>, default: &str| check.pattern(field, given, default);
    let name = |given: Option<String>, default: &str| given.unwrap_or_else(|| default.to_owned());
    let (input, output) = ("model.decoder.inputs", "model.decoder.outputs");
    Ok(Names {
        input_ids: name(inputs.input_ids, "input_ids"),
        attention_mask: name(inputs.attention_mask, "attention_mask"),
        position_ids: name(inputs.position_ids, "position_ids"),
        past_key: pattern(&format!("{input}.past_key_names"), inputs.past_key_names, "past_key_values.%d.key")?,
        past_value: pattern(&format!("{input}.past_value_names"), inputs.past_value_names, "past_key_values.%d.value")?,
        past_conv: pattern(&format!("{input}.past_conv_names"), inputs.past_conv_names, "past.%d.conv")?,
        past_recurrent: pattern(
            &format!("{input}.past_recurrent_names"),
            inputs.past_recurrent_names,
            "past.%d.recurrent",
        )?,
        present_conv: pattern(&format!("{output}.present_conv_names"), outputs.present_conv_names, "present.%d.conv")?,
        present_recurrent: pattern(
            &format!("{output}.present_recurrent_names"),
            outputs.present_recurrent_names,
            "present.%d.recurrent",
        )?,
        past_length: name(inputs.past_sequence_length, "past_sequence_length"),
        cross_key: pattern(&format!("{input}.cross_past_key_names"), inputs.cross_past_key_names, "past_key_cross_%d")?,
        cross_value: pattern(
            &format!("{input}.cross_past_value_names"),
            inputs.cross_past_value_names,
            "past_value_cross_%d",
        )?,
        block_table: name(inputs.block_table, "block_table"),
        starts: name(inputs.cumulative_sequence_lengths, "cumulative_sequence_lengths"),
        past_lengths: name(inputs.past_sequence_lengths, "past_sequence_lengths"),
        metadata: name(inputs.attention_metadata, "attention_metadata"),
        scored: name(inputs.logits_indices, "logits_indices"),
        logits: name(outputs.logits, "logits"),
        present_key: pattern(&format!("{output}.present_key_names"), outputs.present_key_names, "present.%d.key")?,
        present_value: pattern(
            &format!("{output}.present_value_names"),
            outputs.present_value_names,
            "present.%d.value",
        )?,
    })
}

fn check_encoder(check: &Check<'_>, folder: &Path, encoder: raw::Encoder) -> Result<EncoderConfig> {
    let name = |given: Option<String>, default: &str| given.unwrap_or_else(|| default.to_owned());
    let (inputs, outputs) = (encoder.inputs, encoder.outputs);
    let pattern = |field: &str, given: Option<String>, default: &str| {
        check.pattern(&format!("model.encoder.outputs.{field}"), given, default)
    };
    Ok(EncoderConfig {
        path: folder.join(check.inside("model.encoder.filename", &encoder.filename)?),
        audio_features: name(inputs.audio_features, "audio_features"),
        hidden_states: name(outputs.encoder_hidden_states, "encoder_hidden_states"),
        cross_key: pattern("cross_present_key_names", outputs.cross_present_key_names, "present_key_cross_%d")?,
        cross_value: pattern("cross_present_value_names", outputs.cross_present_value_names, "present_value_cross_%d")?,
    })
}

fn check_blocks(check: &Check<'_>, settings: &raw::DynamicBatching) -> Result<BlockSettings> {
    let field = |name: &str| format!("engine.dynamic_batching.{name}");
    Ok(BlockSettings {
        size: check.maybe(&field("block_size"), settings.block_size, (LEAST_BLOCK, MAX_ELEMENTS))?,
        count: check.maybe(&field("num_blocks"), settings.num_blocks, (1, LONGEST))?,
    })
}

/// The layers with attention over a window, if the folder names its size. Layers that do not exist have no cache.
fn check_windows(check: &Check<'_>, window: raw::SlidingWindow, layers: usize) -> Result<Option<Windows>> {
    let Some(size) = window.window_size else { return Ok(None) };
    let size = check.within("model.decoder.sliding_window.window_size", size, 1, LONGEST)?;
    let named = window.layers.into_iter().filter_map(|layer| usize::try_from(layer).ok());
    Ok(Some(Windows { size, layers: named.filter(|&layer| layer < layers).collect() }))
}

fn check_search(check: &Check<'_>, search: raw::Search, context: usize, vocab_size: usize) -> Result<Search> {
    let one = |field: &str, count: Option<i64>| -> Result<()> {
        match count {
            None | Some(1) => Ok(()),
            Some(count) => {
                Err(check.wrong(field, format!("{count} is beam search, which is not supported"), "set it to 1"))
            }
        }
    };
    one("search.num_beams", search.num_beams)?;
    one("search.num_return_sequences", search.num_return_sequences)?;
    let context = context as i64;
    let max_length = match check.within("search.max_length", search.max_length.unwrap_or(0), 0, context)? {
        0 => context as usize,
        length => length,
    };
    Ok(Search {
        max_length,
        min_length: check.within("search.min_length", search.min_length.unwrap_or(0), 0, context)?,
        do_sample: search.do_sample.unwrap_or(false),
        top_k: check.within("search.top_k", search.top_k.unwrap_or(50), 0, LONGEST)?.min(vocab_size),
        top_p: check.number("search.top_p", search.top_p.unwrap_or(0.0), 0.0..=1.0)?,
        temperature: check.number("search.temperature", search.temperature.unwrap_or(1.0), 0.0..=1e6)?,
        repetition_penalty: check.number(
            "search.repetition_penalty",
            search.repetition_penalty.unwrap_or(1.0),
            1e-3..=1e6,
        )?,
        no_repeat_ngram_size: check.within(
            "search.no_repeat_ngram_size",
            search.no_repeat_ngram_size.unwrap_or(0),
            0,
            LONGEST,
        )?,
        share_buffer: search.past_present_share_buffer.unwrap_or(false),
        seed: search.random_seed.and_then(|seed| u32::try_from(seed).ok()),
        chunk_size: match check.within("search.chunk_size", search.chunk_size.unwrap_or(0), 0, LONGEST)? {
            0 => None,
            size => Some(size),
        },
    })
}

/// The provider that the folder names. Folders are often made for another provider, so that is a notice, not an error.
fn check_providers(
    check: &Check<'_>,
    given: Vec<BTreeMap<String, BTreeMap<String, Value>>>,
    notices: &mut Vec<String>,
    refused: &mut Refused,
) -> Result<Option<ProviderRequest>> {
    let mut request: Option<ProviderRequest> = None;
    for (name, options) in given.into_iter().flatten() {
        match provider::normalise(&name) {
            Some(Name::Amdgpu) => {}
            Some(Name::Cpu) => continue,
            None => {
                notices.push(format!("the model folder was created for the provider {name:?}, which is not used"));
                continue;
            }
        }
        let request = request.get_or_insert_default();
        for (key, value) in options {
            let field = format!("model.decoder.session_options.provider_options.{name}.{key}");
            match value {
                Value::String(text) if refused.allows_option(&key) => request.options.push((key, text)),
                Value::String(_) => {}
                Value::Object(filter) if key == "device_filtering_options" => {
                    request.filter = check_filter(check, &field, &filter)?;
                }
                other => {
                    return Err(check.wrong(&field, format!("expected a string, found {other}"), "write it in quotes"));
                }
            }
        }
    }
    Ok(request)
}

fn check_filter(check: &Check<'_>, field: &str, filter: &serde_json::Map<String, Value>) -> Result<DeviceFilter> {
    let mut found = DeviceFilter::default();
    for (key, value) in filter {
        let field = format!("{field}.{key}");
        match (key.as_str(), value) {
            ("hardware_device_type", Value::String(kind)) => {
                found.kind = Some(match kind.to_ascii_lowercase().as_str() {
                    "cpu" => HardwareKind::Cpu,
                    "gpu" => HardwareKind::Gpu,
                    "npu" => HardwareKind::Npu,
                    _ => {
                        return Err(check.wrong(
                            &field,
                            format!("unknown device type {kind:?}"),
                            "use cpu, gpu or npu",
                        ));
                    }
                });
            }
            ("hardware_vendor_id" | "hardware_device_id", Value::Number(number)) => {
                let number = number.as_i64().unwrap_or(-1);
                let number = check.within(&field, number, 0, i64::from(u32::MAX))? as u32;
                *(if key == "hardware_vendor_id" { &mut found.vendor_id } else { &mut found.device_id }) = Some(number);
            }
            _ => {
                let help = "hardware_device_type is a string, hardware_vendor_id and hardware_device_id are numbers";
                return Err(check.wrong(&field, format!("unexpected value {value}"), help));
            }
        }
    }
    Ok(found)
}

/// Splits the other settings into strings, which become session entries, and the keys of everything else.
fn entries(others: BTreeMap<String, Value>, refused: &mut Refused) -> (Vec<(String, String)>, Vec<String>) {
    let mut entries = Vec::new();
    let mut strange = Vec::new();
    for (key, value) in others {
        match value {
            Value::String(text) if refused.allows_entry(&key) => entries.push((key, text)),
            Value::String(_) => {}
            _ => strange.push(key),
        }
    }
    (entries, strange)
}

/// Keys that a model folder may not set, collected for one notice.
#[derive(Default)]
struct Refused(Vec<String>);

impl Refused {
    fn allows_entry(&mut self, key: &str) -> bool {
        self.allows(key, options::may_set(Origin::Untrusted, key))
    }

    fn allows_option(&mut self, key: &str) -> bool {
        self.allows(key, options::may_set(Origin::Untrusted, &format!("ep.amdgpu.{key}")))
    }

    fn allows_run(&mut self, key: &str) -> bool {
        self.allows(key, options::may_set_for_runs(Origin::Untrusted, key))
    }

    fn allows(&mut self, key: &str, allowed: bool) -> bool {
        if !allowed {
            self.0.push(key.to_owned());
        }
        allowed
    }

    fn notice(self, path: &Path) -> Option<String> {
        let Refused(keys) = self;
        (!keys.is_empty()).then(|| {
            format!(
                "{}: ignored, because a model folder may not set them: {}\n  help: if you want one of them, set it yourself \
                 (on the command line with --option KEY=VALUE)",
                path.display(),
                keys.join(", ")
            )
        })
    }
}

struct Check<'a> {
    path: &'a Path,
}

impl Check<'_> {
    fn wrong(&self, field: &str, problem: impl Into<String>, help: impl Into<String>) -> Error {
        let (problem, help) = (problem.into(), help.into());
        Error::Config { path: self.path.to_path_buf(), field: field.to_owned(), problem, help }
    }

    fn within(&self, field: &str, number: i64, least: i64, most: i64) -> Result<usize> {
        match usize::try_from(number) {
            Ok(size) if (least..=most).contains(&number) => Ok(size),
            _ => {
                let problem = format!("{number} is not between {least} and {most}");
                Err(self.wrong(field, problem, "take the value from the folder's original model"))
            }
        }
    }

    fn maybe<T: TryFrom<usize>>(&self, field: &str, number: Option<i64>, range: (i64, i64)) -> Result<Option<T>> {
        let Some(number) = number else { return Ok(None) };
        self.within(field, number, range.0, range.1).map(|number| T::try_from(number).ok())
    }

    fn number(&self, field: &str, number: f64, range: std::ops::RangeInclusive<f64>) -> Result<f32> {
        if range.contains(&number) {
            return Ok(number as f32);
        }
        let problem = format!("{number} is not between {} and {}", range.start(), range.end());
        Err(self.wrong(field, problem, "use a number in this range"))
    }

    /// A name with `%d` for a layer.
    fn pattern(&self, field: &str, given: Option<String>, default: &str) -> Result<String> {
        let name = given.unwrap_or_else(|| default.to_owned());
        if name.matches("%d").count() == 1 {
            return Ok(name);
        }
        Err(self.wrong(field, format!("{name:?} has no %d for the layer number"), format!("write it as {default:?}")))
    }

    /// A relative path inside the folder: an untrusted folder must not name other files of this machine.
    fn inside<'p>(&self, field: &str, path: &'p str) -> Result<&'p Path> {
        let inside = Path::new(path);
        let stays = inside.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if stays && !path.is_empty() {
            return Ok(inside);
        }
        let problem = format!("{path:?} is not a path inside the model folder");
        Err(self.wrong(field, problem, "use a relative path without `..`"))
    }
}
