//! Which session-config entries a model folder may set.

use super::backend;
use super::prefix::{ConfigKey, Prefixes};
use super::table;
use super::trust::Origin;

/// ONNX Runtime's own entries that tune a session and do not read or write files, load code, or affect memory safety.
/// Everything else is refused: newer releases may add entries of any kind.
const HARMLESS: [&str; 24] = [
    "mlas.enable_gemm_fastmath_arm64_bfloat16",
    "optimization.disable_specified_optimizers",
    "optimization.enable_cast_chain_elimination",
    "optimization.enable_gelu_approximation",
    "optimization.enable_memory_optimizer",
    "session.allow_released_opsets_only",
    "session.disable_aot_function_inlining",
    "session.disable_cpu_ep_fallback",
    "session.disable_double_qdq_remover",
    "session.disable_prepacking",
    "session.disable_qdq_constant_folding",
    "session.disable_quant_qdq",
    "session.dynamic_block_base",
    "session.enable_quant_qdq_cleanup",
    "session.force_spinning_stop",
    "session.inter_op.allow_spinning",
    "session.intra_op.allow_spinning",
    "session.qdq_matmulnbits_accuracy_level",
    "session.qdqisint8allowed",
    "session.record_ep_graph_assignment_info",
    "session.set_denormal_as_zero",
    "session.strict_shape_type_inference",
    "session.use_device_allocator_for_initializers",
    "session.use_env_allocators",
];

/// ONNX Runtime's entry that makes a session write a compiled model. ONNX Runtime checks it itself, so we cannot ignore
/// it.
pub(super) const WRITES_COMPILED_MODEL: &str = "ep.context_enable";

/// ONNX Runtime's entry that says where a compiled model is.
pub(super) const PLACE_OF_COMPILED_MODEL: &str = "ep.context_file_path";

/// Entries of a single run that are equally harmless.
const HARMLESS_FOR_RUNS: [&str; 2] = ["gpu_graph_id", "memory.enable_memory_arena_shrinkage"];

/// Whether `origin` may set the entry `key` of a run's configuration.
pub fn may_set_for_runs(origin: Origin, key: &str) -> bool {
    origin == Origin::Trusted || HARMLESS_FOR_RUNS.contains(&key)
}

/// Whether `origin` may set the session-config entry `key`.
///
/// A misspelled option of the provider or one of its backends is let through: the provider reports it with an error
/// that suggests the nearest option.
pub fn may_set(origin: Origin, key: &str) -> bool {
    if origin == Origin::Trusted {
        return true;
    }
    match Prefixes::new("").classify(key) {
        ConfigKey::Own(option) => table::find(option).is_none_or(|(row, _)| row.set_by.allows(origin)),
        ConfigKey::Backend(namespace, option) => backend::table(namespace)
            .is_some_and(|table| table.find(option).is_none_or(|row| row.set_by.allows(origin))),
        ConfigKey::Arena(_) => true,
        ConfigKey::Foreign => HARMLESS.contains(&key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_folder_sets_nothing_that_acts_on_the_machine() {
        for key in [
            "ep.amdgpu.backend_library",
            "ep.amdgpuexecutionprovider.routing_table",
            "ep.amdgpu.cache_dir",
            "ep.amdgpu.migraphx_model_cache_dir",
            "ep.amdgpu.user_compute_stream",
            "ep.amdgpu.dump_subgraphs",
            "ep.hip.explain_file",
            "ep.hip.dump_dir",
            "ep.hip.memory_file",
            "ep.hip.profile_file",
            "ep.hip.progress_file",
            "ep.hip.report_dir",
            "ep.hip.cache_dir",
            "ep.migraphx.cache_dir",
            "ep.migraphx.migraphx_model_cache_dir",
            "ep.migraphx.dump_subgraphs",
            "ep.migraphx.int8_calibration_table_name",
            "ep.directml.anything",
            "ep.context_enable",
            "ep.context_file_path",
            "session.use_ort_model_bytes_directly",
            "session.model_external_initializers_file_folder_path",
            "session.a_key_of_a_later_release",
            "custom_ops_library",
            "enable_profiling",
            "",
        ] {
            assert!(!may_set(Origin::Untrusted, key), "{key}");
            assert!(may_set(Origin::Trusted, key), "{key}");
        }
    }

    #[test]
    fn a_model_folder_may_tune_its_session() {
        for key in
            ["ep.amdgpu.profile", "ep.hip.last_logits", "ep.migraphx.static_pad_seq", "session.disable_prepacking"]
        {
            assert!(may_set(Origin::Untrusted, key), "{key}");
        }
    }

    #[test]
    fn misspelled_options_reach_the_provider_which_names_the_nearest() {
        for key in ["ep.amdgpu.profil", "ep.hip.tf23", "ep.migraphx.fp61_enable"] {
            assert!(may_set(Origin::Untrusted, key), "{key}");
        }
    }

    #[test]
    fn harmless_entries_are_sorted_and_unique() {
        assert!(HARMLESS.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
