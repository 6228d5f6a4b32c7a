"""The families: a model class of transformers, and a configuration small enough to build in a second."""
from dataclasses import dataclass, field

VOCABULARY = 512
PAD, BOS, EOS = 0, 1, 2
WINDOW = 16
LAYERS_OF_QWEN = ["linear_attention"] * 3 + ["full_attention"]
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
IMAGE = {"image_token_id": 500, "video_token_id": 501, "vision_start_token_id": 502, "vision_end_token_id": 503}


@dataclass(frozen=True)
class Family:
    """What the table calls it, the classes of transformers, and the values of the configuration."""

    title: str
    model: str
    config: str
    values: dict
    # Norms of queries and keys, which the builder moves into the attention for CUDA.
    head_norms: bool = False
    # The activation of the experts, if it has any.
    experts: str | None = None
    # transformers runs it from tokens alone.
    runs: bool = True
    # Values that the builder reads elsewhere than this release of transformers keeps them.
    moved: dict = field(default_factory=dict)


def decoder(**more):
    """The values that decoders share."""
    plain = {
        "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": BOS,
        "eos_token_id": EOS, "pad_token_id": PAD, "tie_word_embeddings": False,
    }
    return {**plain, **more}


def rope(**more):
    return {"rope_parameters": {**PLAIN_ROPE, **more}}


def long_rope(width, **more):
    """Factors that change behind 32 positions."""
    half = width // 2
    factors = {"short_factor": [1 + at / 50 for at in range(half)], "long_factor": [1 + at / 2 for at in range(half)]}
    return {"original_max_position_embeddings": 32, "sliding_window": 262144,
            "rope_parameters": {"type": "longrope", "rope_theta": 10000.0, **factors, **more}}


def linear_attention(**more):
    sizes = {"linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_num_key_heads": 2,
             "linear_num_value_heads": 4, "linear_conv_kernel_dim": 4}
    parts = rope(partial_rotary_factor=0.5, mrope_section=[4, 2, 2], mrope_interleaved=True)
    return decoder(num_hidden_layers=4, head_dim=32, layer_types=LAYERS_OF_QWEN, **sizes, **parts, **more)


def with_vision(text, **more):
    """A text model beside a small vision model, as Qwen's configurations nest them."""
    vision = {"depth": 1, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "in_channels": 3, "patch_size": 4,
              "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 64}
    return {"text_config": text, "vision_config": {**vision, **more}, "tie_word_embeddings": False, **IMAGE}


EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
PIXELS = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
          "image_size": 16, "patch_size": 4}
WINDOWED = {"head_dim": 32, "tie_word_embeddings": True, "sliding_window": WINDOW, "query_pre_attn_scalar": 32}
GEMMA3_MOVED = {"rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}, "rope_local_base_freq": 10000.0}
GLOBAL_HEADS = {"global_head_dim": 32, "num_global_key_value_heads": 1}
GEMMA4 = decoder(
    num_hidden_layers=4, head_dim=16, tie_word_embeddings=True, sliding_window=WINDOW, attention_k_eq_v=True,
    layer_types=["sliding_attention", "full_attention"] * 2, **GLOBAL_HEADS,
)
GEMMA4_TOKENS = {"vision_config": None, "audio_config": None, "image_token_id": 500, "boi_token_id": 501,
                 "eoi_token_id": 502, "video_token_id": 503, "boa_token_id": 504, "audio_token_id": 506}
GEMMA4_MOVED = {**GLOBAL_HEADS, "head_dim": 16, "num_key_value_heads": 2}
GRANITE = {"embedding_multiplier": 3.0, "logits_scaling": 2.0, "residual_multiplier": 0.5, "attention_multiplier": 0.2}
WHISPER = {
    "vocab_size": VOCABULARY, "num_mel_bins": 80, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128,
    "max_source_positions": 1500, "max_target_positions": 64, "bos_token_id": BOS, "eos_token_id": EOS,
    "pad_token_id": PAD, "decoder_start_token_id": BOS, "begin_suppress_tokens": [3],
}
CHATGLM = {
    "vocab_size": VOCABULARY, "hidden_size": 128, "ffn_hidden_size": 192, "num_layers": 2, "num_attention_heads": 4,
    "multi_query_group_num": 2, "seq_length": 256, "rms_norm_eps": 1e-5, "layernorm_epsilon": 1e-5,
    "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD, "tie_word_embeddings": False, **rope(),
}

FAMILIES = {
    "llama3": Family("Llama 3", "LlamaForCausalLM", "LlamaConfig", decoder(rope_parameters={
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64})),
    "qwen2.5": Family("Qwen 2.5", "Qwen2ForCausalLM", "Qwen2Config", decoder(tie_word_embeddings=True)),
    "qwen3": Family("Qwen 3", "Qwen3ForCausalLM", "Qwen3Config", decoder(head_dim=32), head_norms=True),
    "qwen3.5": Family(
        "Qwen 3.5 (linear attention)", "Qwen3_5ForConditionalGeneration", "Qwen3_5Config",
        with_vision(linear_attention(), num_position_embeddings=16), head_norms=True),
    "qwen3.5-moe": Family(
        "Qwen 3.5 MoE", "Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeConfig",
        with_vision(linear_attention(**EXPERTS, shared_expert_intermediate_size=32), num_position_embeddings=16),
        head_norms=True, experts="silu"),
    "phi2": Family("Phi 2", "PhiForCausalLM", "PhiConfig", decoder(
        hidden_size=128, num_key_value_heads=4, **rope(partial_rotary_factor=0.5))),
    "phi3": Family("Phi 3", "Phi3ForCausalLM", "Phi3Config", decoder(
        num_key_value_heads=4, original_max_position_embeddings=256, sliding_window=128)),
    "phi3-longrope": Family("Phi 3 with LongRoPE", "Phi3ForCausalLM", "Phi3Config", decoder(
        num_key_value_heads=4, **long_rope(16))),
    "phi4-mini": Family("Phi 4 mini (LongRoPE)", "Phi3ForCausalLM", "Phi3Config", decoder(
        head_dim=64, hidden_size=256, tie_word_embeddings=True, **long_rope(48, partial_rotary_factor=0.75))),
    "mistral": Family("Mistral", "MistralForCausalLM", "MistralConfig", decoder(sliding_window=None, head_dim=16)),
    "mistral3": Family("Mistral 3", "Mistral3ForConditionalGeneration", "Mistral3Config", {
        "text_config": {"model_type": "mistral", **decoder(head_dim=16, sliding_window=None)},
        "vision_config": {"model_type": "pixtral", **PIXELS}, "image_token_index": 500, "tie_word_embeddings": False}),
    "gemma": Family("Gemma", "GemmaForCausalLM", "GemmaConfig", decoder(head_dim=32, tie_word_embeddings=True)),
    "gemma2": Family("Gemma 2", "Gemma2ForCausalLM", "Gemma2Config", decoder(num_hidden_layers=4, **WINDOWED)),
    "gemma3": Family(
        "Gemma 3", "Gemma3ForCausalLM", "Gemma3TextConfig",
        decoder(num_hidden_layers=6, sliding_window_pattern=6, **WINDOWED), head_norms=True, moved=GEMMA3_MOVED),
    "gemma3-vl": Family("Gemma 3 VL", "Gemma3ForConditionalGeneration", "Gemma3Config", {
        "text_config": decoder(**WINDOWED), "vision_config": PIXELS, "mm_tokens_per_image": 4, "image_token_index": 500,
        "boi_token_index": 501, "eoi_token_index": 502}, head_norms=True, moved=GEMMA3_MOVED),
    "gemma4": Family("Gemma 4", "Gemma4UnifiedForConditionalGeneration", "Gemma4UnifiedConfig", {
        "text_config": GEMMA4, "eoa_token_index": 505, **GEMMA4_TOKENS}, head_norms=True, moved=GEMMA4_MOVED),
    "gemma4-moe": Family("Gemma 4 MoE", "Gemma4ForConditionalGeneration", "Gemma4Config", {
        "text_config": {**GEMMA4, "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "enable_moe_block": True,
                        "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 64,
                        "vocab_size_per_layer_input": VOCABULARY},
        "eoa_token_id": 505, **GEMMA4_TOKENS}, head_norms=True, experts="geglu", moved=GEMMA4_MOVED),
    "gpt-oss": Family("gpt-oss", "GptOssForCausalLM", "GptOssConfig", decoder(
        head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=WINDOW, intermediate_size=64),
        experts="swiglu"),
    "lfm2": Family("LFM2 (convolutions)", "Lfm2ForCausalLM", "Lfm2Config", decoder(
        layer_types=["conv", "conv", "full_attention", "conv"], num_hidden_layers=4, conv_L_cache=3,
        block_auto_adjust_ff_dim=False, tie_word_embeddings=True), head_norms=True),
    "lfm2-moe": Family("LFM2 MoE", "Lfm2MoeForCausalLM", "Lfm2MoeConfig", decoder(
        layer_types=["conv", "full_attention", "conv"], num_hidden_layers=3, conv_L_cache=3, num_dense_layers=1,
        tie_word_embeddings=True, **EXPERTS), head_norms=True, experts="silu"),
    "smollm3": Family("SmolLM 3", "SmolLM3ForCausalLM", "SmolLM3Config", decoder(
        num_hidden_layers=4, tie_word_embeddings=True, no_rope_layers=[1] * 4, use_sliding_window=False)),
    "smollm3-nope": Family("SmolLM 3, layers without positions", "SmolLM3ForCausalLM", "SmolLM3Config", decoder(
        num_hidden_layers=4, tie_word_embeddings=True, no_rope_layer_interval=4, use_sliding_window=False)),
    "granite": Family("Granite", "GraniteForCausalLM", "GraniteConfig", decoder(**GRANITE)),
    "granite4": Family("Granite 4", "GraniteMoeHybridForCausalLM", "GraniteMoeHybridConfig", decoder(
        shared_intermediate_size=128, num_local_experts=0, num_experts_per_tok=0, layer_types=["attention"] * 2,
        position_embedding_type="rope", **GRANITE)),
    "olmo": Family("OLMo", "OlmoForCausalLM", "OlmoConfig", decoder(clip_qkv=None)),
    "nemotron": Family("Nemotron", "NemotronForCausalLM", "NemotronConfig", decoder(
        head_dim=32, **rope(partial_rotary_factor=0.5))),
    "ernie4.5": Family("ERNIE 4.5", "Ernie4_5ForCausalLM", "Ernie4_5Config", decoder(
        head_dim=16, tie_word_embeddings=True)),
    "hunyuan": Family("Hunyuan", "HunYuanDenseV1ForCausalLM", "HunYuanDenseV1Config", decoder(
        head_dim=16, **rope(rope_type="dynamic", alpha=1000.0, factor=1.0)), head_norms=True),
    "qwen2.5-vl": Family(
        "Qwen 2.5 VL, text part", "Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VLConfig",
        with_vision(decoder(**rope(mrope_section=[4, 2, 2])), window_size=16, fullatt_block_indexes=[0])),
    "qwen3-vl": Family(
        "Qwen 3 VL, text part", "Qwen3VLForConditionalGeneration", "Qwen3VLConfig",
        with_vision(decoder(head_dim=32, **rope(mrope_section=[8, 4, 4], mrope_interleaved=True)),
                    num_position_embeddings=16, deepstack_visual_indexes=[0]), head_norms=True),
    "chatglm": Family("ChatGLM", "ChatGLMModel", "ChatGLMConfig", CHATGLM, runs=False),
    "whisper": Family(
        "Whisper, encoder and decoder apart", "WhisperForConditionalGeneration", "WhisperConfig", WHISPER, runs=False),
}
