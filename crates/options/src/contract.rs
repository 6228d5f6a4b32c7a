//! Names that several crates have to agree on.

/// The key of a device's number in the metadata of the provider's devices.
pub const DEVICE_ID_KEY: &str = "hip_device_id";

/// Model types whose decoder generates text from text alone: `model.type` in GenAI's configuration, and values of the
/// option `model_arch`.
pub const TEXT_MODELS: [&str; 31] = [
    "chatglm",
    "decoder",
    "ernie4_5",
    "gemma",
    "gemma2",
    "gemma3_text",
    "gemma3_vl_text",
    "gemma4_text",
    "gptoss",
    "granite",
    "granitemoehybrid",
    "hunyuandensev1",
    "internlm2",
    "lfm2",
    "lfm2_moe",
    "llama",
    "mistral",
    "mistral3_text",
    "nemotron",
    "olmo",
    "phi",
    "phi3",
    "phi3small",
    "phimoe",
    "qwen2",
    "qwen2_5_vl_text",
    "qwen3",
    "qwen3_5_moe_text",
    "qwen3_5_text",
    "qwen3_vl_text",
    "smollm3",
];
