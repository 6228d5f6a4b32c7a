//! Texts of options, and where they come from.
use std::collections::BTreeMap;

use super::OptionError;

/// A known option.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    /// Its name.
    pub name: &'static str,
    /// Environment variables that win over it, the first that is set.
    pub environment: &'static [&'static str],
}

macro_rules! keys {
    ($($name:literal $(: $($environment:literal)*)?),* $(,)?) => {
        &[$(Key { name: $name, environment: &[$($($environment),*)?] }),*]
    };
}

const TABLE: &[Key] = keys![
    "target",
    "device_id",
    "fp16_enable": "ORT_MIGRAPHX_FP16_ENABLE",
    "bf16_enable": "ORT_MIGRAPHX_BF16_ENABLE",
    "fp8_enable": "ORT_MIGRAPHX_FP8_ENABLE",
    "int8_enable": "ORT_MIGRAPHX_INT8_ENABLE",
    "int8_calibration_table_name": "ORT_MIGRAPHX_INT8_CALIBRATION_TABLE_NAME",
    "int8_use_native_calibration_table": "ORT_MIGRAPHX_INT8_USE_NATIVE_CALIBRATION_TABLE",
    "cache_dir": "ORT_MIGRAPHX_CACHE_DIR" "ORT_MIGRAPHX_MODEL_CACHE_PATH",
    "cache_max_bytes",
    "disable_caching": "ORT_MIGRAPHX_DISABLE_COMPILED_MODEL_CACHING",
    "force_recompile": "ORT_MIGRAPHX_FORCE_RECOMPILE",
    "exhaustive_tune": "ORT_MIGRAPHX_EXHAUSTIVE_TUNE",
    "compute_mode": "ORT_MIGRAPHX_COMPUTE_MODE",
    "dump_subgraphs": "ORT_MIGRAPHX_DUMP_SUBGRAPHS" "ORT_MIGRAPHX_DUMP_MODEL_OPS",
    "hip_graph_enable": "ORT_MIGRAPHX_HIP_GRAPH_ENABLE",
    "max_dynamic_batch": "ORT_MIGRAPHX_MAX_DYNAMIC_BATCH",
    "compile_batches": "ORT_MIGRAPHX_COMPILE_BATCHES",
    "background_compile",
    "coalesce_io": "ORT_MIGRAPHX_COALESCE_IO",
    "mlss_use_specific_ops": "ORT_MIGRAPHX_MLSS_USE_SPECIFIC_OPS",
    "cpu_control_flow": "ORT_MIGRAPHX_CPU_CONTROL_FLOW",
    "model_arch": "ORT_MIGRAPHX_MODEL_ARCH",
    "static_pad_seq": "ORT_MIGRAPHX_STATIC_PAD_SEQ",
    "static_pad_seq_len": "ORT_MIGRAPHX_STATIC_PAD_SEQ_LEN",
    "static_pad_inputs": "ORT_MIGRAPHX_STATIC_PAD_INPUTS",
    "static_pad_outputs": "ORT_MIGRAPHX_STATIC_PAD_OUTPUTS",
    "offload_copy",
    "max_programs",
];

const fn listed<const N: usize>(table: &[Key]) -> [Key; N] {
    let mut all = [table[0]; N];
    let mut at = 0;
    while at < N {
        all[at] = table[at];
        at += 1;
    }
    all
}

/// Every option.
pub(crate) const KEYS: [Key; TABLE.len()] = listed(TABLE);

/// Options of the provider inside ONNX Runtime that have no meaning here: memory belongs to the device.
const IGNORED: [&str; 6] = [
    "mem_limit",
    "arena_extend_strategy",
    "external_alloc",
    "external_free",
    "external_empty_cache",
    "precompile_at_load",
];

/// One option as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    pub text: String,
    /// The entry or variable it comes from, for messages.
    pub origin: String,
    /// True if it comes from the environment.
    pub from_environment: bool,
}

/// The options of one session as they were written, by their canonical names.
#[derive(Debug, Default)]
pub(crate) struct Raw {
    pub options: BTreeMap<&'static str, Text>,
    /// Sentences about options that were left alone.
    pub warnings: Vec<String>,
}

impl Raw {
    /// Gathers options from session-config entries and the environment.
    ///
    /// # Errors
    /// `ep.migraphx.` has a key that nobody knows.
    pub fn gather(
        entries: &BTreeMap<String, String>,
        registered: &str,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, OptionError> {
        let mut raw = Self::default();
        let registered = format!("ep.{}.", registered.to_lowercase());
        // The backend's own prefix last: it wins.
        for (prefix, own) in [(registered.as_str(), registered == "ep.migraphx."), ("ep.migraphx.", true)] {
            raw.take(entries, prefix, own)?;
        }
        for key in KEYS {
            let set = key.environment.iter().find_map(|&name| Some((name, environment(name)?)));
            if let Some((name, value)) = set.filter(|(_, value)| !unquoted(value).is_empty()) {
                let text = Text { text: unquoted(&value).to_owned(), origin: name.to_owned(), from_environment: true };
                raw.options.insert(key.name, text);
            }
        }
        Ok(raw)
    }

    fn take(&mut self, entries: &BTreeMap<String, String>, prefix: &str, own: bool) -> Result<(), OptionError> {
        // Plain names after legacy ones, so that they win.
        let written = entries.iter().filter_map(|(entry, value)| Some((entry, entry.strip_prefix(prefix)?, value)));
        let (legacy, plain): (Vec<_>, Vec<_>) = written.partition(|(_, key, _)| key.starts_with("migraphx_"));
        for (entry, key, value) in legacy.into_iter().chain(plain) {
            let key = key.strip_prefix("migraphx_").unwrap_or(key);
            let key = if key == "model_cache_dir" { "cache_dir" } else { key };
            if let Some(known) = KEYS.iter().find(|known| known.name == key) {
                let text = Text { text: value.trim().to_owned(), origin: entry.clone(), from_environment: false };
                self.options.insert(known.name, text);
            } else if IGNORED.contains(&key) {
                self.warnings.push(format!("{entry} is ignored: memory is managed by the device, not by the backend"));
            } else if own {
                return Err(OptionError::Unknown { key: entry.clone() });
            }
        }
        Ok(())
    }
}

/// Values in the environment come with blanks and quotes around them.
fn unquoted(text: &str) -> &str {
    text.trim().trim_matches(['"', '\'']).trim()
}
