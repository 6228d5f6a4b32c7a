"""Models of transformers with random weights, and the GenAI folders that the model builder makes of them."""
import json
import shutil

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from families.catalogue import EOS, FAMILIES, VOCABULARY
from families.prompts import PROMPTS, STEPS, TEXTS
from families.variants import CACHE_SCALES


def tokenizer_in(folder):
    """Byte pairs of a few sentences."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(names.values()), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(TEXTS * 4, trainer)
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    return tokenizer


def is_table(name):
    return any(part in name for part in ("embed_tokens", "word_embeddings", "embed_positions", "lm_head", "proj_out"))


def draw_weights(model):
    """Weights with which hidden states and scores have ordinary sizes, so that tokens vary and rarely tie."""
    source = torch.Generator().manual_seed(20)
    config = getattr(model.config, "text_config", model.config)
    table = 1.0
    if getattr(model.config, "tie_word_embeddings", False):
        # A token's own row would always win otherwise. Gemma multiplies embeddings by the root of their width.
        table = 0.15 / (config.hidden_size**0.5 if "gemma" in config.model_type else 1.0)
    for name, weight in model.named_parameters():
        if any(part in name for part in ("A_log", "dt_bias", "visual", "vision")):
            continue
        drawn = torch.randn(weight.shape, generator=source)
        if is_table(name):
            drawn *= table if "embed" in name else weight.shape[-1] ** -0.5
        elif weight.dim() == 1:
            drawn = weight.detach() + 0.1 * drawn
        elif weight.dim() == 3 and "conv" in name:
            drawn *= 0.7
        else:
            # Most matrices are [out, in]; the first ones of stacked experts are [expert, in, out].
            stacked = weight.dim() == 3 and not name.endswith("down_proj")
            drawn *= 1.4 * weight.shape[-2 if stacked else -1] ** -0.5
        weight.data.copy_(drawn)
        if is_table(name) and weight.shape[0] == VOCABULARY:
            # The end is never the best token.
            weight.data[EOS] = 0


def mxfp4_experts(model):
    """Gives the experts of gpt-oss weights that MXFP4 holds exactly, and returns them as checkpoints store them."""
    source, stored = torch.Generator().manual_seed(21), {}
    steps = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    steps = torch.cat([steps, -steps])
    for name, weight in model.named_parameters():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            continue
        count, depth, columns = weight.shape
        codes = torch.randint(0, 16, (count, columns, depth // 32, 32), generator=source)
        scales = torch.randint(122, 125, (count, columns, depth // 32), generator=source)
        values = steps[codes] * (2.0 ** (scales - 127))[..., None]
        weight.data.copy_(values.reshape(count, columns, depth).transpose(1, 2))
        stored[f"{name}_blocks"] = (codes[..., ::2] + 16 * codes[..., 1::2]).to(torch.uint8)
        stored[f"{name}_scales"] = scales.to(torch.uint8)
    return stored


class ShortCache(transformers.DynamicCache):
    """Keys and values rounded to 8-bit floats."""

    def update(self, keys, values, *arguments, **named):
        scale = CACHE_SCALES["fp8"]
        keys, values = ((part / scale).to(torch.float8_e4m3fn).to(part.dtype) * scale for part in (keys, values))
        return super().update(keys, values, *arguments, **named)


def greedy(model, tokenizer, cache):
    """Tokens and scores of each prompt; every step runs the whole sequence."""
    cases = {}
    for name, text in PROMPTS.items():
        sequence, scores = tokenizer.encode(text).ids, []
        for _ in range(STEPS):
            state = {"past_key_values": cache(), "use_cache": True} if cache else {"use_cache": False}
            last = model(input_ids=torch.tensor([sequence]), **state).logits[0, -1].float()
            scores.append(last.tolist())
            sequence.append(int(last.argmax()))
        cases[name] = {"tokens": [sequence[-STEPS:]], "scores": scores}
    return {"cases": cases}


def model_folder(name, folder):
    """Writes a model of transformers to `folder`, and its tokens to `reference.json` and `short-cache.json`."""
    family = FAMILIES[name]
    torch.manual_seed(22)
    if name == "chatglm":
        from families import chatglm as library
    else:
        library = transformers
    kind, config = getattr(library, family.model), getattr(library, family.config)(**family.values)
    config.architectures = [kind.__name__]
    model = kind(config).eval().float()
    with torch.no_grad():
        draw_weights(model)
        stored = mxfp4_experts(model) if name == "gpt-oss" else {}
        model.save_pretrained(folder)
        if stored:
            from safetensors.torch import load_file, save_file

            path = folder / "model.safetensors"
            save_file({**load_file(path), **stored}, path, metadata={"format": "pt"})
        tokenizer = tokenizer_in(folder)
        if family.runs:
            (folder / "reference.json").write_text(json.dumps(greedy(model, tokenizer, None)))
        if name == "llama3":
            (folder / "short-cache.json").write_text(json.dumps(greedy(model, tokenizer, ShortCache)))


def cache_scales(build, source, path):
    """A file with the scales of a quantised cache, as the builder reads it."""
    config = json.loads((source / "config.json").read_text())
    kind, per = build.options["kv_cache_quant_scheme"].split("_per_")
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    scale = CACHE_SCALES[kind]
    layer = scale if per == "tensor" else [scale] * (config["num_key_value_heads"] * size)
    layers = [layer] * config["num_hidden_layers"]
    path.write_text(json.dumps({"scales": {"k_scales": layers, "v_scales": layers}}))


def adjust(name, config):
    """Puts values where the builder of 0.18.0 reads them; newer releases of transformers keep them elsewhere."""
    target = config
    if name.startswith("gemma4"):
        for part in (config, config.text_config):
            part.allow_global_per_layer_attribute_access = True
    if name.startswith("gemma3"):
        target = getattr(config, "text_config", config)
    for key, value in FAMILIES[name].moved.items():
        setattr(target, key, value)


def genai_folder(build, source, folder):
    """Runs the model builder on the model in `source`."""
    from onnxruntime_genai.models import builder

    if build.family == "chatglm":
        from families import chatglm  # noqa: F401 - registers its classes
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    options = dict(build.options)
    if "kv_cache_quant_scheme" in options:
        scales = folder.with_suffix(".scales.json")
        cache_scales(build, source, scales)
        options["kv_cache_scale_file"] = scales
    pairs = ["hf_token=false", *(f"{key}={value}" for key, value in options.items())]
    where = [None, str(source), str(folder), build.precision, build.provider, str(folder.with_suffix(".cache"))]
    extra = builder.parse_extra_options(*where, pairs)
    adjust(build.family, extra["hf_details"]["hf_config"])
    builder.create_model(*where, **extra)
