//! Options of the migraphx backend, `ep.migraphx.*`.

use super::backend::{BackendOption, BackendTable};
use super::prefix::Namespace;
use super::slot::Kind;
use super::trust::SetBy;

macro_rules! migraphx_options {
    ($($name:literal, $kind:expr, $set_by:ident, $default:literal, $meaning:literal $(, $environment:literal)*;)*) => {
        &[$(BackendOption {
            name: $name,
            kind: $kind,
            set_by: SetBy::$set_by,
            default: $default,
            meaning: $meaning,
            environment: &[$($environment),*],
        }),*]
    };
}

const ROWS: &[BackendOption] = migraphx_options! {
    "target", Kind::Hint, Anyone, "`gpu`", "`ref` is MIGraphX's interpreter on the CPU: slow, for tests", "AMDGPU_EP_MIGRAPHX_TARGET";
    "device_id", Kind::Number, Anyone, "", "accepted for compatibility; the device is the one that ONNX Runtime selected";
    "fp16_enable", Kind::Switch, Anyone, "0", "compute in fp16; together with bf16 both are off", "ORT_MIGRAPHX_FP16_ENABLE";
    "bf16_enable", Kind::Switch, Anyone, "0", "compute in bf16; together with fp16 both are off", "ORT_MIGRAPHX_BF16_ENABLE";
    "fp8_enable", Kind::Switch, Anyone, "0", "narrow products and convolutions to fp8 by a calibration table; together with int8 both are off", "ORT_MIGRAPHX_FP8_ENABLE";
    "int8_enable", Kind::Switch, Anyone, "0", "narrow products and convolutions to int8 by a calibration table; together with fp8 both are off", "ORT_MIGRAPHX_INT8_ENABLE";
    "int8_calibration_table_name", Kind::Text, Trusted, "", "file of the calibration table, in the cache's folder", "ORT_MIGRAPHX_INT8_CALIBRATION_TABLE_NAME";
    "int8_use_native_calibration_table", Kind::Switch, Anyone, "0", "the table is in MIGraphX's own format", "ORT_MIGRAPHX_INT8_USE_NATIVE_CALIBRATION_TABLE";
    "cache_dir", Kind::Path, Trusted, "`AMDGPU_EP_CACHE_DIR`, in its folder `migraphx`; without it nothing is kept", "folder for compiled programs", "ORT_MIGRAPHX_CACHE_DIR", "ORT_MIGRAPHX_MODEL_CACHE_PATH";
    "cache_max_bytes", Kind::Bytes, Trusted, "16 GiB", "size limit of the cache; programs unused for longest go first";
    "disable_caching", Kind::Switch, Anyone, "0", "save no new program", "ORT_MIGRAPHX_DISABLE_COMPILED_MODEL_CACHING";
    "force_recompile", Kind::Switch, Anyone, "0", "use no saved program", "ORT_MIGRAPHX_FORCE_RECOMPILE";
    "exhaustive_tune", Kind::Switch, Anyone, "0", "try many kernels while compiling", "ORT_MIGRAPHX_EXHAUSTIVE_TUNE";
    "compute_mode", Kind::Choice(&["eager", "balanced", "maximum", "max", "0", "50", "100"]), Anyone, "", "compile effort, where MIGraphX has it", "ORT_MIGRAPHX_COMPUTE_MODE";
    "dump_subgraphs", Kind::Switch, Trusted, "0", "write every partition as an ONNX file into the current folder", "ORT_MIGRAPHX_DUMP_SUBGRAPHS", "ORT_MIGRAPHX_DUMP_MODEL_OPS";
    "hip_graph_enable", Kind::Switch, Anyone, "0", "replay a captured run; what cannot be captured runs as before, with a warning", "ORT_MIGRAPHX_HIP_GRAPH_ENABLE";
    "max_dynamic_batch", Kind::Number, Anyone, "0", "pad batches to powers of two up to this one", "ORT_MIGRAPHX_MAX_DYNAMIC_BATCH";
    "compile_batches", Kind::List, Anyone, "", "batch sizes to pad to", "ORT_MIGRAPHX_COMPILE_BATCHES";
    "background_compile", Kind::Switch, Anyone, "1", "compile the next batch size while this one runs";
    "coalesce_io", Kind::Switch, Anyone, "", "accepted for compatibility", "ORT_MIGRAPHX_COALESCE_IO";
    "mlss_use_specific_ops", Kind::List, Anyone, "", "operators for AMD's MLSS, where MIGraphX has it", "ORT_MIGRAPHX_MLSS_USE_SPECIFIC_OPS";
    "cpu_control_flow", Kind::Switch, Anyone, "0", "leave If, Loop, Scan, Greater and Cast to the CPU, and take their bodies", "ORT_MIGRAPHX_CPU_CONTROL_FLOW";
    "model_arch", Kind::Hint, Anyone, "", "accepted for compatibility", "ORT_MIGRAPHX_MODEL_ARCH";
    "static_pad_seq", Kind::Switch, Anyone, "0", "pad sequences to one length", "ORT_MIGRAPHX_STATIC_PAD_SEQ";
    "static_pad_seq_len", Kind::Number, Anyone, "", "that length, without an attention mask", "ORT_MIGRAPHX_STATIC_PAD_SEQ_LEN";
    "static_pad_inputs", Kind::Text, Anyone, "", "inputs to pad, as name:axis separated by commas", "ORT_MIGRAPHX_STATIC_PAD_INPUTS";
    "static_pad_outputs", Kind::Text, Anyone, "", "outputs to cut back, as name:axis separated by commas", "ORT_MIGRAPHX_STATIC_PAD_OUTPUTS";
    "offload_copy", Kind::Switch, Anyone, "where tensors are in host memory", "MIGraphX copies tensors between host and GPU itself";
    "max_programs", Kind::Number, Anyone, "8", "programs that a partition keeps in memory";
};

/// Every option of the migraphx backend. The provider inside ONNX Runtime spelled them with `migraphx_` in front; those of its
/// memory pool have no meaning here, since memory belongs to the device.
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
    legacy: Some(("migraphx_", &[("model_cache_dir", "cache_dir")])),
};
