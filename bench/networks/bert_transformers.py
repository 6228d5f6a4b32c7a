"""The encoder in its usual form: BertModel of the package transformers, with the weights of `bert`."""
import numpy as np

from . import bert


def modules(torch, made, feeds):
    """Names, modules in single precision on the GPU, and their arguments; if the package is missing, the reason."""
    try:
        import transformers
    except ImportError as error:
        return [], f"no BertModel: {error}"
    ids = torch.from_numpy(feeds["ids"]).cuda()
    # A tokenizer's mask for sequences without padding, and the additive mask that eager attention uses.
    mask = torch.ones_like(ids)
    added = torch.zeros((ids.shape[0], 1, bert.LENGTH, bert.LENGTH), device="cuda")
    rows = [
        ("BertModel sdpa", "sdpa", (ids, mask)),
        ("BertModel sdpa, no mask", "sdpa", (ids,)),
        ("BertModel eager", "eager", (ids, added)),
    ]
    return [(name, module(torch, transformers, made, attention), given) for name, attention, given in rows], ""


def module(torch, transformers, made, attention):
    config = transformers.BertConfig(
        vocab_size=bert.TOKENS, hidden_size=bert.HIDDEN, num_hidden_layers=bert.LAYERS, num_attention_heads=bert.HEADS,
        intermediate_size=bert.INNER, max_position_embeddings=bert.LENGTH, attn_implementation=attention)
    model = transformers.BertModel(config, add_pooling_layer=False)
    found = model.load_state_dict({name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in state(made)}, strict=False)
    # Position tables may be buffers in the state; every weight must be ours.
    weights = {name for name, _ in model.named_parameters()}
    if found.unexpected_keys or weights & set(found.missing_keys):
        raise ValueError(f"unexpected weights: missing {found.missing_keys}, unexpected {found.unexpected_keys}")

    class First(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids, mask=None):
            return self.model(input_ids=ids, attention_mask=mask).last_hidden_state

    return First().cuda().eval()


def state(made):
    """Parameter names of transformers, with arrays. Linear layers store their matrices transposed."""
    linear = lambda name, pair: [(f"{name}.weight", pair[0].T), (f"{name}.bias", pair[1])]
    norm = lambda name, pair: [(f"{name}.LayerNorm.weight", pair[0]), (f"{name}.LayerNorm.bias", pair[1])]
    yield "embeddings.word_embeddings.weight", made["tokens"]
    yield "embeddings.position_embeddings.weight", made["places"]
    yield "embeddings.token_type_embeddings.weight", np.zeros((2, bert.HIDDEN), np.float32)
    yield from norm("embeddings", made["norm"])
    for number, layer in enumerate(made["layers"]):
        at = f"encoder.layer.{number}"
        for name, pair in zip(("query", "key", "value"), layer["qkv"]):
            yield from linear(f"{at}.attention.self.{name}", pair)
        yield from linear(f"{at}.attention.output.dense", layer["out"])
        yield from norm(f"{at}.attention.output", layer["norm1"])
        yield from linear(f"{at}.intermediate.dense", layer["up"])
        yield from linear(f"{at}.output.dense", layer["down"])
        yield from norm(f"{at}.output", layer["norm2"])
