//! Options of the migraphx backend, `ep.migraphx.*`.

use super::backend::{BackendOption, BackendTable};
use super::prefix::Namespace;
use super::slot::Kind;
use super::trust::SetBy;

macro_rules! migraphx_options {
    ($($name:literal $(or $old:literal)*, $kind:expr, $set_by:ident, $default:literal, $meaning:literal $(, $environment:literal)*;)*) => {
        &[$(BackendOption {
            name: $name,
            old_names: &[$($old),*],
            kind: $kind,
            set_by: SetBy::$set_by,
            default: $default,
            meaning: $meaning,
            environment: &[$($environment),*],
        }),*]
    };
}

const ROWS: &[BackendOption] = migraphx_options! {
    "target", Kind::Hint, Anyone, "`gpu`", "`ref` is MIGraphX's CPU reference target: slow, for tests", "AMDGPU_EP_MIGRAPHX_TARGET";
    "device_id", Kind::Number, Anyone, "", "accepted for compatibility; ONNX Runtime selects the device";
    "fp16_enable", Kind::Switch, Anyone, "0", "compute in fp16; if bf16 is on too, both are ignored", "ORT_MIGRAPHX_FP16_ENABLE";
    "bf16_enable", Kind::Switch, Anyone, "0", "compute in bf16; if fp16 is on too, both are ignored", "ORT_MIGRAPHX_BF16_ENABLE";
    "fp8_enable", Kind::Switch, Anyone, "0", "quantise matrix products and convolutions to fp8 with a calibration table; if int8 is on too, both are ignored", "ORT_MIGRAPHX_FP8_ENABLE";
    "int8_enable", Kind::Switch, Anyone, "0", "quantise matrix products and convolutions to int8 with a calibration table; if fp8 is on too, both are ignored", "ORT_MIGRAPHX_INT8_ENABLE";
    "int8_calibration_table_name", Kind::Text, Trusted, "", "file name of the calibration table, in the cache folder", "ORT_MIGRAPHX_INT8_CALIBRATION_TABLE_NAME";
    "int8_use_native_calibration_table", Kind::Switch, Anyone, "0", "the table is in MIGraphX's own format", "ORT_MIGRAPHX_INT8_USE_NATIVE_CALIBRATION_TABLE";
    "cache_dir" or "migraphx_model_cache_dir", Kind::Path, Trusted, "`migraphx` in `AMDGPU_EP_CACHE_DIR`; if that is unset, nothing is cached", "folder for compiled programs", "ORT_MIGRAPHX_CACHE_DIR", "ORT_MIGRAPHX_MODEL_CACHE_PATH";
    "cache_max_bytes", Kind::Bytes, Trusted, "16 GiB", "size limit of the cache; the least recently used programs are removed first";
    "disable_caching", Kind::Switch, Anyone, "0", "do not save new programs", "ORT_MIGRAPHX_DISABLE_COMPILED_MODEL_CACHING";
    "force_recompile", Kind::Switch, Anyone, "0", "ignore saved programs", "ORT_MIGRAPHX_FORCE_RECOMPILE";
    "exhaustive_tune", Kind::Switch, Anyone, "0", "try many kernels while compiling", "ORT_MIGRAPHX_EXHAUSTIVE_TUNE";
    "compute_mode", Kind::Choice(&["eager", "balanced", "maximum", "max", "0", "50", "100"]), Anyone, "", "compile effort, if this MIGraphX supports it", "ORT_MIGRAPHX_COMPUTE_MODE";
    "dump_subgraphs", Kind::Switch, Trusted, "0", "write every partition as an ONNX file into the current folder", "ORT_MIGRAPHX_DUMP_SUBGRAPHS", "ORT_MIGRAPHX_DUMP_MODEL_OPS";
    "hip_graph_enable", Kind::Switch, Anyone, "0", "capture runs as HIP graphs and replay them; what cannot be captured runs as before, with a warning", "ORT_MIGRAPHX_HIP_GRAPH_ENABLE";
    "max_dynamic_batch", Kind::Number, Anyone, "0", "pad batches to powers of two up to this size", "ORT_MIGRAPHX_MAX_DYNAMIC_BATCH";
    "compile_batches", Kind::List, Anyone, "", "batch sizes to pad to", "ORT_MIGRAPHX_COMPILE_BATCHES";
    "background_compile", Kind::Switch, Anyone, "1", "compile the next batch size while this one runs";
    "coalesce_io", Kind::Switch, Anyone, "", "accepted for compatibility", "ORT_MIGRAPHX_COALESCE_IO";
    "mlss_use_specific_ops", Kind::List, Anyone, "", "operators for AMD's MLSS, if this MIGraphX supports it", "ORT_MIGRAPHX_MLSS_USE_SPECIFIC_OPS";
    "cpu_control_flow", Kind::Switch, Anyone, "0", "keep If, Loop, Scan, Greater and Cast on the CPU, and run their bodies on the device", "ORT_MIGRAPHX_CPU_CONTROL_FLOW";
    "model_arch", Kind::Hint, Anyone, "", "accepted for compatibility", "ORT_MIGRAPHX_MODEL_ARCH";
    "static_pad_seq", Kind::Switch, Anyone, "0", "pad sequences to a fixed length", "ORT_MIGRAPHX_STATIC_PAD_SEQ";
    "static_pad_seq_len", Kind::Number, Anyone, "", "the fixed length, for models without an attention mask", "ORT_MIGRAPHX_STATIC_PAD_SEQ_LEN";
    "static_pad_inputs", Kind::Text, Anyone, "", "inputs to pad, as name:axis separated by commas", "ORT_MIGRAPHX_STATIC_PAD_INPUTS";
    "static_pad_outputs", Kind::Text, Anyone, "", "outputs to slice back, as name:axis separated by commas", "ORT_MIGRAPHX_STATIC_PAD_OUTPUTS";
    "offload_copy", Kind::Switch, Anyone, "on if tensors are in host memory", "let MIGraphX copy tensors between host and GPU";
    "max_programs", Kind::Number, Anyone, "8", "number of programs that a partition keeps in memory";
};

/// All options of the migraphx backend. The provider inside ONNX Runtime used the same names with the prefix
/// `migraphx_`; those of its memory pool have no effect here, because the provider manages device memory.
pub static TABLE: BackendTable = BackendTable {
    namespace: Namespace::Migraphx,
    rows: ROWS,
    ignored: &[
        "arena_extend_strategy",
        "external_alloc",
        "external_empty_cache",
        "external_free",
        "mem_limit",
        "precompile_at_load",
    ],
    old_prefix: Some("migraphx_"),
};
