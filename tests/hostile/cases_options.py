"""Options in `genai_config.json` that load libraries, write files or contain addresses."""
import os

from case import ALL, COMMAND, EITHER, Case

BOTH = (*COMMAND, "genai")

# name, options of the provider, the key that must be reported
PROVIDER = [
    ("backend_library", {"backend_library": "{evil}"}, "backend_library"),
    ("backend_library-relative", {"backend_library": "../evil/libevil.so"}, "backend_library"),
    ("backend_library-in-folder", {"backend_library": "{model}/libevil.so"}, "backend_library"),
    ("backend_library-in-cwd", {"backend_library": "./libevil.so"}, "backend_library"),
    ("backend_library-bare-name", {"backend_library": "libevil.so"}, "backend_library"),
    ("backend_library-capitals", {"BACKEND_LIBRARY": "{evil}"}, "BACKEND_LIBRARY"),
    ("backend_library-itself", {"backend_library": "{umbrella}"}, "backend_library"),
    ("backend_library-and-device", {"backend_library": "{evil}", "backend_device": "x=y"}, "backend_library"),
    ("backend_library-lenient", {"backend_library": "{evil}", "strict_options": "0"}, "backend_library"),
    ("routing_table", {"routing_table": "{model}/routes.txt", "profile": "auto"}, "routing_table"),
    ("routing_table-relative", {"routing_table": "../model/routes.txt"}, "routing_table"),
    ("cache_dir", {"cache_dir": "{target}/cache"}, "cache_dir"),
    ("cache_dir-migraphx", {"cache_dir": "{target}/cache", "profile": "migraphx"}, "cache_dir"),
    ("cache_dir-in-model", {"cache_dir": "{model}"}, "cache_dir"),
    ("int8-table", {"int8_enable": "1", "int8_calibration_table_name": "{target}/secret.txt"}, "int8_calibration_table_name"),
    ("dump_subgraphs", {"dump_subgraphs": "1"}, "dump_subgraphs"),
    # Without MIGraphX, session creation fails before the warning.
    ("dump_subgraphs-migraphx", {"dump_subgraphs": "1", "profile": "migraphx"}, "migraphx"),
    ("user_compute_stream", {"has_user_compute_stream": "1", "user_compute_stream": "4096"}, "user_compute_stream"),
    ("user_compute_stream-max", {"has_user_compute_stream": "1", "user_compute_stream": str(2**64 - 1)}, "user_compute_stream"),
]

# Our keys that load a library or write a file, as session-config entries.
ENTRIES = [
    ("explain_file", {"ep.hip.explain_file": "{target}/explain"}, "ep.hip.explain_file"),
    ("explain_file-over-secret", {"ep.hip.explain_file": "{target}/secret.txt"}, "ep.hip.explain_file"),
    ("explain_file-in-cwd", {"ep.hip.explain_file": "explain"}, "ep.hip.explain_file"),
    ("dump_dir", {"ep.hip.dump_dir": "{target}/dump"}, "ep.hip.dump_dir"),
    ("memory_file", {"ep.hip.memory_file": "{target}/memory"}, "ep.hip.memory_file"),
    ("profile_file", {"ep.hip.profile_file": "{target}/profile"}, "ep.hip.profile_file"),
    ("report_dir", {"ep.hip.report_dir": "{target}/reports"}, "ep.hip.report_dir"),
    ("progress_file", {"ep.hip.progress_file": "{target}/progress"}, "ep.hip.progress_file"),
    ("hip-cache_dir", {"ep.hip.cache_dir": "{target}/cache", "ep.hip.tune": "on"}, "ep.hip.cache_dir"),
    ("migraphx-cache_dir", {"ep.migraphx.cache_dir": "{target}/cache"}, "ep.migraphx.cache_dir"),
    ("migraphx-dump_subgraphs", {"ep.migraphx.dump_subgraphs": "1"}, "ep.migraphx.dump_subgraphs"),
    ("migraphx-int8-table", {"ep.migraphx.int8_calibration_table_name": "{target}/x"}, "int8_calibration_table_name"),
    ("amdgpu-backend_library", {"ep.amdgpu.backend_library": "{evil}"}, "ep.amdgpu.backend_library"),
    ("long-backend_library", {"ep.amdgpuexecutionprovider.backend_library": "{evil}"}, "ep.amdgpuexecutionprovider.backend_library"),
    ("amdgpu-routing_table", {"ep.amdgpu.routing_table": "{model}/routes.txt"}, "ep.amdgpu.routing_table"),
    ("amdgpu-cache_dir", {"ep.amdgpu.cache_dir": "{target}/cache"}, "ep.amdgpu.cache_dir"),
    ("amdgpu-user_compute_stream", {"ep.amdgpu.user_compute_stream": "4096", "ep.amdgpu.has_user_compute_stream": "1"}, "user_compute_stream"),
    ("explain-fifo", {"ep.hip.explain_file": "{target}/fifo"}, "ep.hip.explain_file"),
]

# Keys of ONNX Runtime and GenAI; in their own processes, they act on them before a provider could reject them.
RUNTIME = [
    ("optimized_model_filepath", {"session.optimized_model_filepath": "{target}/o.onnx"}, "optimized_model_filepath"),
    ("optimized_model_filepath-plain", {"optimized_model_filepath": "{target}/o.onnx"}, "optimized_model_filepath"),
    ("node_memory_stats", {"session.collect_node_memory_stats_to_file": "{target}/stats.csv"}, "session.collect_node_memory_stats_to_file"),
    ("profiling", {"session.enable_profiling": "1", "session.profile_file_prefix": "{target}/p"}, "profiling"),
    ("enable_profiling", {"enable_profiling": "{target}/p"}, "enable_profiling"),
    ("moe_state_file", {"session.enable_moe_expert_counting": "1", "session.moe_expert_counter_state_file": "{target}/moe"}, "session.moe_expert_counter_state_file"),
    ("partition_config_file", {"session.node_partition_config_file": "{target}/parts"}, "session.node_partition_config_file"),
    ("initializers_file", {"session.optimized_model_external_initializers_file_name": "{target}/w"}, "session.optimized_model_external_initializers_file_name"),
    ("context", {"ep.context_enable": "1", "ep.context_file_path": "{target}/c.onnx", "ep.context_embed_mode": "0"}, "ep.context_file_path"),
    ("context-beside-model", {"ep.context_enable": "1"}, "ep.context_enable"),
    ("custom_ops_library", {"custom_ops_library": "{evil}"}, "custom_ops_library"),
    ("custom_ops_library-relative", {"custom_ops_library": "libevil.so"}, "custom_ops_library"),
]


def setting(values, provider=None):
    def change(place):
        (place.model / "libevil.so").write_bytes(place.evil.read_bytes())
        (place.cwd / "libevil.so").write_bytes(place.evil.read_bytes())
        place.write("routes.txt", f"* * {place.evil}\n")
        place.options(values, provider)

    return change


def with_fifo(values):
    def change(place):
        os.mkfifo(place.target / "fifo")
        setting(values)(place)

    return change


def other_providers(place):
    """The same keys for other providers, and for ours in a different spelling."""
    options = {"backend_library": str(place.evil), "cache_dir": str(place.target / "cache")}
    place.edit(
        "genai_config.json",
        lambda document: document["model"]["decoder"]["session_options"].update(
            provider_options=[{"AMDGPUExecutionProvider": options}, {"AmdGpu": options}, {"amdgpu": {"profile": "hip"}}]
        ),
    )


def cases():
    for name, values, key in PROVIDER:
        yield Case(f"provider-{name}", setting(values, "amdgpu"), ALL, refused=key)
    for name, values, key in ENTRIES:
        change = with_fifo(values) if "fifo" in name else setting(values)
        yield Case(f"entry-{name}", change, ALL, refused=key, seconds=20)
    for name, values, key in RUNTIME:
        theirs = ("python", "genai")
        ways = COMMAND + (("genai",) if "custom_ops" in name else theirs)
        yield Case(f"runtime-{name}", setting(values), ways, refused=key, theirs=theirs)
    # Entries are case-sensitive, so for the provider this one is not an option at all.
    yield Case("entry-capitals-backend_library", setting({"ep.AMDGPUExecutionProvider.backend_library": "{evil}"}), ALL)
    yield Case("provider-other-spellings", other_providers, BOTH, EITHER, refused="backend_library")
