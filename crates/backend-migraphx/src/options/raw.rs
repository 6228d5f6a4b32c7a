//! Texts of options, and where they come from.
use std::collections::BTreeMap;

use super::OptionError;

/// A known option.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    /// Its name.
    pub name: &'static str,
    /// What holds without it, in the documents' words.
    #[cfg_attr(not(test), expect(dead_code, reason = "only documents, which a test writes, have it"))]
    pub default: &'static str,
    /// What it does, in one line.
    #[cfg_attr(not(test), expect(dead_code, reason = "only documents, which a test writes, have it"))]
    pub meaning: &'static str,
    /// Environment variables that win over it, the first that is set.
    pub environment: &'static [&'static str],
}

macro_rules! keys {
    ($($name:literal, $default:literal, $meaning:literal $(, $environment:literal)*;)*) => {
        &[$(Key { name: $name, default: $default, meaning: $meaning, environment: &[$($environment),*] }),*]
    };
}

const TABLE: &[Key] = keys! {
    "target", "`gpu`", "`ref` is MIGraphX's interpreter on the CPU: slow, for tests";
    "device_id", "", "taken for compatibility; the device is the one that ONNX Runtime selected";
    "fp16_enable", "0", "compute in fp16; together with bf16 both are off", "ORT_MIGRAPHX_FP16_ENABLE";
    "bf16_enable", "0", "compute in bf16; together with fp16 both are off", "ORT_MIGRAPHX_BF16_ENABLE";
    "fp8_enable", "0", "narrow products and convolutions to fp8 by a calibration table; together with int8 both are off", "ORT_MIGRAPHX_FP8_ENABLE";
    "int8_enable", "0", "narrow products and convolutions to int8 by a calibration table; together with fp8 both are off", "ORT_MIGRAPHX_INT8_ENABLE";
    "int8_calibration_table_name", "", "the table's file, in the cache's folder", "ORT_MIGRAPHX_INT8_CALIBRATION_TABLE_NAME";
    "int8_use_native_calibration_table", "0", "the table is in MIGraphX's own format", "ORT_MIGRAPHX_INT8_USE_NATIVE_CALIBRATION_TABLE";
    "cache_dir", "`AMDGPU_EP_CACHE_DIR`, in its folder `migraphx`; without it nothing is kept", "where compiled programs are kept", "ORT_MIGRAPHX_CACHE_DIR", "ORT_MIGRAPHX_MODEL_CACHE_PATH";
    "cache_max_bytes", "16 GiB", "programs unused for longest go first";
    "disable_caching", "0", "keep no new program", "ORT_MIGRAPHX_DISABLE_COMPILED_MODEL_CACHING";
    "force_recompile", "0", "use no kept program", "ORT_MIGRAPHX_FORCE_RECOMPILE";
    "exhaustive_tune", "0", "try many kernels while compiling", "ORT_MIGRAPHX_EXHAUSTIVE_TUNE";
    "compute_mode", "", "`eager`, `balanced` or `maximum`, where MIGraphX has it", "ORT_MIGRAPHX_COMPUTE_MODE";
    "dump_subgraphs", "0", "write every partition as an ONNX file into the current folder", "ORT_MIGRAPHX_DUMP_SUBGRAPHS", "ORT_MIGRAPHX_DUMP_MODEL_OPS";
    "hip_graph_enable", "0", "replay a captured run; what can't be captured runs as before, with a warning", "ORT_MIGRAPHX_HIP_GRAPH_ENABLE";
    "max_dynamic_batch", "0", "pad batches to powers of two up to this one", "ORT_MIGRAPHX_MAX_DYNAMIC_BATCH";
    "compile_batches", "", "batch sizes to pad to, separated by commas", "ORT_MIGRAPHX_COMPILE_BATCHES";
    "background_compile", "1", "compile the next batch size while this one runs";
    "coalesce_io", "", "taken for compatibility", "ORT_MIGRAPHX_COALESCE_IO";
    "mlss_use_specific_ops", "", "operators for AMD's MLSS, separated by commas, where MIGraphX has it", "ORT_MIGRAPHX_MLSS_USE_SPECIFIC_OPS";
    "cpu_control_flow", "0", "leave If, Loop, Scan, Greater and Cast to the CPU, and take their bodies", "ORT_MIGRAPHX_CPU_CONTROL_FLOW";
    "model_arch", "", "taken for compatibility", "ORT_MIGRAPHX_MODEL_ARCH";
    "static_pad_seq", "0", "pad sequences to one length", "ORT_MIGRAPHX_STATIC_PAD_SEQ";
    "static_pad_seq_len", "", "that length, without an attention mask", "ORT_MIGRAPHX_STATIC_PAD_SEQ_LEN";
    "static_pad_inputs", "", "inputs to pad, as name:axis separated by commas", "ORT_MIGRAPHX_STATIC_PAD_INPUTS";
    "static_pad_outputs", "", "outputs to cut back, as name:axis separated by commas", "ORT_MIGRAPHX_STATIC_PAD_OUTPUTS";
    "offload_copy", "where tensors are in host memory", "MIGraphX copies tensors between host and GPU itself";
    "max_programs", "8", "programs that a partition keeps in memory";
};

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
