"""Precisions and options of the model builder for each family, and which folder is the reference of which."""
from dataclasses import dataclass, field

from families.catalogue import FAMILIES

CACHE_SCALES = {"int8": 0.05, "fp8": 0.05, "int4": 0.6}
FUSION_OFF = {"fuse_qk_norm_gqa": "false"}
WINDOW_OFF = {"windowed_kv_cache": "false"}
WIDE = {"use_cuda_bf16": "true"}

COMMON = ["cpu-fp32", "cpu-int4", "cuda-fp16", "cuda-int4"]

# The options behind a provider and a precision.
OPTIONS = {
    "": {},
    **{f"b{size}": {"block_size": size} for size in (16, 64, 128)},
    "acc1": {"accuracy_level": 1},
    "rtn": {"algo_config": "rtn"},
    "kmixed": {"algo_config": "k_quant_mixed"},
    "klast": {"algo_config": "k_quant_last"},
    "klinear": {"algo_config": "k_quant_linear"},
    "asym": {"is_symmetric": "false"},
    "gather": {"op_types_to_quantize": "MatMul/Gather"},
    "qdq": {"use_qdq": "true"},
    "bf16": WIDE,
    "prepacked": {"matmulnbits_weights_prepacked": 1},
    "paged": {"use_paged_attention": "true"},
    "prune": {"prune_lm_head": "true"},
    "nohead": {"exclude_lm_head": "true"},
    "noembed": {"exclude_embeds": "true"},
    "hidden": {"include_hidden_states": "true"},
    "noqkv": {"fuse_qkv": "false"},
    "gateup": {"fuse_mlp_gate_up": "true"},
    "kv8t": {"kv_cache_quant_scheme": "int8_per_tensor"},
    "kv8c": {"kv_cache_quant_scheme": "int8_per_channel"},
    "kv4t": {"kv_cache_quant_scheme": "int4_per_tensor"},
    "kv4c": {"kv_cache_quant_scheme": "int4_per_channel"},
    "kvf8": {"kv_cache_quant_scheme": "fp8_per_tensor"},
    "shared": {"shared_embeddings": "true"},
    "unshared": {"shared_embeddings": "false"},
    "nofuse": FUSION_OFF,
    "nowindow": WINDOW_OFF,
    "gdn": {"linear_attn_op": "gated_delta_net"},
    "mxfp4": {"moe_quant_type": "mxfp4"},
}

NO_FUSION = ["cuda-fp16-nofuse", "cuda-int4-nofuse"]
BFLOAT = ["cuda-bf16", "cuda-int4-bf16"]
MORE = {
    "llama3": [
        *(f"cpu-int4-{name}" for name in ("b16", "b64", "b128", "acc1", "rtn", "kmixed", "klast", "asym", "asym-kmixed")),
        "cpu-int4-gather", "cpu-int4-qdq", "cpu-int8", "cpu-int8-asym", "cuda-int8", *BFLOAT, "cuda-fp32",
        "cuda-int4-kmixed", "cuda-int4-prepacked", "cuda-fp16-paged", "cuda-int4-paged", "dml-fp16", "dml-int4",
        "webgpu-int4", "cpu-fp32-prune", "cuda-fp16-prune",
        *(f"cpu-fp32-{name}" for name in ("nohead", "noembed", "hidden", "noqkv", "gateup", "kv8t", "kv8c", "kv4t", "kv4c")),
        "cuda-fp16-kv8t", "cuda-fp16-kvf8",
    ],
    "qwen2.5": ["cpu-int4-shared", "cpu-int4-unshared", "cpu-int8-shared", "cpu-int4-asym-shared",
                "cpu-int4-kmixed-shared", "cuda-fp16-unshared"],
    "qwen3": [*NO_FUSION, *BFLOAT, "cuda-int4-bf16-nofuse", "webgpu-int4"],
    "qwen3.5": ["cuda-fp16-gdn", "cuda-bf16", "cpu-int4-klinear"],
    "gemma2": ["cuda-fp16-nowindow", *BFLOAT],
    "gemma3": ["cuda-fp16-nowindow", *NO_FUSION, *BFLOAT, "cuda-int4-bf16-nofuse", "cpu-fp32-nowindow",
               "cuda-bf16-nowindow", "cuda-int4-bf16-nowindow"],
    "gemma3-vl": NO_FUSION,
    "gemma4": ["cuda-fp16-nowindow", "cuda-bf16"],
    "gemma4-moe": ["cpu-fp32-nowindow"],
    "gpt-oss": ["cpu-fp32-nowindow", "cpu-int8", "cuda-int4-mxfp4", "cuda-bf16"],
    "lfm2": [*NO_FUSION, "cuda-bf16"],
    "lfm2-moe": NO_FUSION,
    "smollm3-nope": ["dml-fp16"],
}


@dataclass(frozen=True)
class Build:
    """A folder: what the model builder is called with."""

    family: str
    provider: str
    precision: str
    options: dict = field(default_factory=dict)

    def but(self, **options):
        """The same with other options; `None` removes one."""
        merged = {**self.options, **options}
        kept = {key: value for key, value in merged.items() if value is not None}
        return Build(self.family, self.provider, self.precision, kept)

    @property
    def is_wide(self):
        """Its tensors are bfloat16."""
        return self.precision == "bf16" or self.options.get("use_cuda_bf16") == "true"

    @property
    def is_quantised(self):
        return self.precision in ("int4", "int8") or "kv_cache_quant_scheme" in self.options

    @property
    def generates(self):
        """GenAI and textgen can run it."""
        return self.family != "whisper" and not {"exclude_lm_head", "exclude_embeds"} & set(self.options)

    @property
    def needs_shared_caches(self):
        """The builder writes `past_present_share_buffer: false`, which GenAI refuses on this provider."""
        return self.provider == "cpu" and "kv_cache_quant_scheme" in self.options


@dataclass(frozen=True)
class Reference:
    """A folder for GenAI's CPU provider, and how its graph is rewritten; without a folder, transformers."""

    build: Build | None
    as_floats: bool = False
    plain_experts: bool = False
    # Keys and values of transformers are rounded to 8-bit floats.
    short_cache: bool = False


def build_of(family, variant):
    provider, precision, *rest = variant.split("-")
    options = {}
    for name in rest:
        options |= OPTIONS[name]
    if family == "gpt-oss" and precision == "int8":
        options["moe_quant_type"] = "int8"
    return Build(family, provider, precision, options)


def reference_of(build):
    """What the tokens of a folder are compared with: the first table of docs/models.md."""
    family, options = FAMILIES[build.family], build.options
    if options.get("kv_cache_quant_scheme") == "fp8_per_tensor":
        return Reference(None, short_cache=True)
    changed = {}
    if family.head_norms and build.provider == "cuda":
        changed |= FUSION_OFF
    if "matmulnbits_weights_prepacked" in options:
        changed["matmulnbits_weights_prepacked"] = 0
    if "linear_attn_op" in options:
        changed["linear_attn_op"] = None
    quantised = family.experts and build.precision in ("int4", "int8")
    plain = bool(quantised and (build.provider == "cuda" or family.experts == "geglu" or "moe_quant_type" in options))
    if plain and build.provider == "cuda" and options.get("moe_quant_type") != "mxfp4":
        changed["qmoe_weights_prepacked"] = 0
    return Reference(build.but(**changed), as_floats=build.is_wide, plain_experts=plain)


def all_names():
    """(family, variant) of every folder, in the order of the table."""
    return [(family, variant) for family in FAMILIES for variant in
            ([] if family == "smollm3-nope" else COMMON) + MORE.get(family, [])]
