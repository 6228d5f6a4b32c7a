//! The table of options: fields of [`Options`], rows of [`OPTIONS`], and everything derived from them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use super::prefix::Namespace;
use super::profile::Profile;
use super::slot::{Hint, Kind, Malformed, Slot};
use super::trust::SetBy;

/// Entries of the backend namespaces, not parsed: namespace → key without prefix → value.
pub type BackendEntries = BTreeMap<Namespace, BTreeMap<String, String>>;

/// An option, for documentation, error messages, the parser and the relay to MIGraphX.
pub struct OptionRow {
    /// The name after a prefix.
    pub name: &'static str,
    /// The kind of value it takes.
    pub kind: Kind,
    /// Whether a set value is passed on to the migraphx backend under the same name.
    pub relayed: bool,
    /// Who may set it.
    pub set_by: SetBy,
    /// What it does, in one line.
    pub meaning: &'static str,
    /// Stores a text in the option's field.
    pub(super) store: fn(&mut Options, &str) -> Result<(), Malformed>,
    /// The canonical form of a text, `None` if it means "unset".
    pub(super) canonical: fn(&str) -> Result<Option<String>, Malformed>,
    /// The canonical text of the option's field, `None` if unset.
    pub(super) render: fn(&Options) -> Option<String>,
}

impl OptionRow {
    /// The canonical text of the option's field, `None` if unset.
    pub fn text(&self, options: &Options) -> Option<String> {
        (self.render)(options)
    }

    /// Whether two texts give the option the same value.
    pub fn means_the_same(&self, one: &str, other: &str) -> bool {
        match ((self.canonical)(one), (self.canonical)(other)) {
            (Ok(one), Ok(other)) => one == other,
            _ => false,
        }
    }
}

macro_rules! relayed {
    (kept) => {
        false
    };
    (relayed) => {
        true
    };
}

macro_rules! options {
    ($($name:ident: $slot:ty, $reach:ident, $set_by:ident, $meaning:literal;)*) => {
        /// The typed options of one session. A field that was not given is `None`, an empty list or `Profile::Auto`.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Options {
            $(#[doc = concat!("`", stringify!($name), "`: ", $meaning, ".")] pub $name: $slot,)*
            /// Entries of the backend namespaces, not parsed.
            pub backend_entries: BackendEntries,
            /// Keys of ignored entries that no backend may see: refused or unknown ones.
            pub withheld: Vec<String>,
        }

        /// Every option of the umbrella.
        pub const OPTIONS: &[OptionRow] = &[$(OptionRow {
            name: stringify!($name),
            kind: <$slot as Slot>::KIND,
            relayed: relayed!($reach),
            set_by: SetBy::$set_by,
            meaning: $meaning,
            store: |options, text| {
                options.$name = Slot::parse(text)?;
                Ok(())
            },
            canonical: |text| Ok(<$slot as Slot>::parse(text)?.render()),
            render: |options| options.$name.render(),
        }),*];
    };
}

options! {
    profile: Profile, kept, Anyone, "the backend that runs the session; auto chooses by device and hints";
    device_id: Option<u32>, relayed, Anyone, "HIP ordinal of the device; must match the device ONNX Runtime selected";
    cache_dir: Option<PathBuf>, relayed, Trusted, "folder for compiled programs; default: AMDGPU_EP_CACHE_DIR, then the backend's own default";
    disable_caching: Option<bool>, relayed, Anyone, "compile without saving to the cache";
    force_recompile: Option<bool>, relayed, Anyone, "compile even if the program is in the cache";
    exhaustive_tune: Option<bool>, relayed, Anyone, "MIGraphX: try every kernel variant while compiling";
    mlss_use_specific_ops: Vec<String>, relayed, Anyone, "MIGraphX: operators to run with AMD's MLSS kernels";
    cpu_control_flow: Option<bool>, relayed, Anyone, "keep If, Loop and Scan on the CPU and run only their bodies on the device";
    model_arch: Option<Hint>, relayed, Anyone, "model family, such as llama; a routing hint";
    model_fw: Option<Hint>, kept, Anyone, "calling framework; webnn is a routing hint";
    hip_graph_enable: Option<bool>, relayed, Anyone, "MIGraphX: replay captured HIP graphs";
    static_pad_seq: Option<bool>, relayed, Anyone, "MIGraphX: pad the sequence axis to a fixed length";
    static_pad_seq_len: Option<u32>, relayed, Anyone, "MIGraphX: the length to pad to";
    static_pad_inputs: Option<String>, relayed, Anyone, "MIGraphX: inputs to pad, as name:axis separated by commas";
    static_pad_outputs: Option<String>, relayed, Anyone, "MIGraphX: outputs to slice back, as name:axis separated by commas";
    fp16_enable: Option<bool>, relayed, Anyone, "MIGraphX: compute in fp16";
    bf16_enable: Option<bool>, relayed, Anyone, "MIGraphX: compute in bf16";
    fp8_enable: Option<bool>, relayed, Anyone, "MIGraphX: compute in fp8";
    int8_enable: Option<bool>, relayed, Anyone, "MIGraphX: compute in int8, which needs a calibration table";
    int8_calibration_table_name: Option<String>, relayed, Trusted, "MIGraphX: file name of the int8 calibration table";
    int8_use_native_calibration_table: Option<bool>, relayed, Anyone, "MIGraphX: the calibration table is in MIGraphX's format";
    compute_mode: Option<String>, relayed, Anyone, "MIGraphX: compile effort, such as eager, balanced or maximum";
    dump_subgraphs: Option<bool>, relayed, Trusted, "MIGraphX: write each partition as an ONNX file";
    max_dynamic_batch: Option<u32>, relayed, Anyone, "MIGraphX: largest size of a dynamic batch axis; 0 turns it off";
    compile_batches: Option<String>, relayed, Anyone, "MIGraphX: batch sizes to compile for, separated by commas";
    coalesce_io: Option<bool>, relayed, Anyone, "MIGraphX: accepted for compatibility; tensors are already on the device when a partition runs";
    precompile_at_load: Option<bool>, relayed, Anyone, "MIGraphX: compile every batch size when the session is created";
    has_user_compute_stream: Option<bool>, relayed, Trusted, "MIGraphX: run on the stream of user_compute_stream";
    user_compute_stream: Option<String>, relayed, Trusted, "MIGraphX: address of the application's HIP stream, in decimal";
    routing_table: Option<PathBuf>, kept, Trusted, "file with your own routing rows for profile=auto";
    backend_library: Option<PathBuf>, kept, Trusted, "any plugin library, to run the session instead of a profile's backend";
    backend_device: Vec<(String, String)>, kept, Trusted, "ep_metadata by which the plugin in backend_library identifies its device, such as ov_device=CPU";
    strict_options: Option<bool>, kept, Anyone, "0 turns unknown options into warnings; malformed values are still errors";
}

impl Options {
    /// The options that are set, as config entries in canonical form, including backend entries; parsing them under any
    /// registration name gives equal options.
    pub fn config_entries(&self) -> Vec<(String, String)> {
        let own = OPTIONS
            .iter()
            .filter_map(|row| Some((format!("ep.amdgpuexecutionprovider.{}", row.name), (row.render)(self)?)));
        let backend = self.backend_entries.iter().flat_map(|(namespace, entries)| {
            entries.iter().map(move |(key, value)| (format!("ep.{namespace}.{key}"), value.clone()))
        });
        own.chain(backend).collect()
    }

    /// The options that are passed on to the migraphx backend, as name and canonical text.
    pub fn relayed_to_migraphx(&self) -> impl Iterator<Item = (&'static str, String)> {
        OPTIONS.iter().filter(|row| row.relayed).filter_map(|row| Some((row.name, (row.render)(self)?)))
    }

    /// Whether unknown options are errors (the default) rather than warnings.
    pub fn is_strict(&self) -> bool {
        self.strict_options.unwrap_or(true)
    }
}

/// The spelling of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    Canonical,
    /// A name from the MIGraphX provider inside ONNX Runtime; a canonical spelling overrides it.
    Legacy,
}

/// Legacy names that have no effect, because our own allocator does their job.
const IGNORED_LEGACY: [&str; 5] = [
    "migraphx_arena_extend_strategy",
    "migraphx_external_alloc",
    "migraphx_external_empty_cache",
    "migraphx_external_free",
    "migraphx_mem_limit",
];

/// The row for a name, if there is one.
pub(super) fn find(name: &str) -> Option<(&'static OptionRow, Spelling)> {
    let row = |name: &str| OPTIONS.iter().find(|row| row.name == name);
    if let Some(row) = row(name) {
        return Some((row, Spelling::Canonical));
    }
    let legacy = name.strip_prefix("migraphx_")?;
    let current = if legacy == "model_cache_dir" { "cache_dir" } else { legacy };
    row(current).filter(|row| row.relayed).map(|row| (row, Spelling::Legacy))
}

/// Whether a legacy name is accepted but has no effect.
pub(super) fn is_ignored_legacy(name: &str) -> bool {
    IGNORED_LEGACY.contains(&name)
}

/// The options as a Markdown table for the documentation, followed by a description of each kind of value.
pub fn markdown_table() -> String {
    let mut text =
        String::from("| Option | Value | Set by | Passed on to MIGraphX | Meaning |\n|---|---|---|---|---|\n");
    // Writing to a String cannot fail.
    for row in OPTIONS {
        let relayed = if row.relayed { "yes" } else { "no" };
        let (name, kind, set_by, meaning) = (row.name, row.kind.documented(), row.set_by.word(), row.meaning);
        let _ = writeln!(text, "| `{name}` | {kind} | {set_by} | {relayed} | {meaning} |");
    }
    text.push('\n');
    for kind in Kind::EXPLAINED {
        let _ = writeln!(text, "- *{}*: {}", kind.word(), kind.accepted());
    }
    text
}
