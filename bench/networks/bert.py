"""The encoder of BERT-base in half precision, sequence length 128, as exporters write it: products, softmax and the
error function are separate nodes."""
import numpy as np

from .onnx_graph import FLOAT16, INT64, Builder

NAME = "BERT-base fp16"
BATCHES = (1, 32)
LAYERS, HIDDEN, HEADS, INNER, TOKENS, LENGTH = 12, 768, 12, 3072, 30522, 128
HEAD = HIDDEN // HEADS


def shrink():
    """The same layers, few and narrow: about a million multiplications."""
    global NAME, LAYERS, HIDDEN, HEADS, INNER, TOKENS, LENGTH, HEAD
    NAME = "small BERT fp16"
    LAYERS, HIDDEN, HEADS, INNER, TOKENS, LENGTH = 2, 64, 2, 128, 50, 16
    HEAD = HIDDEN // HEADS


def weights(seed=0):
    random = np.random.default_rng(seed)
    normal = lambda *shape: (random.standard_normal(shape) * 0.03).astype(np.float32)
    norm = lambda: (random.uniform(0.9, 1.1, HIDDEN).astype(np.float32), random.uniform(-0.1, 0.1, HIDDEN).astype(np.float32))
    layer = lambda: {
        "qkv": [(normal(HIDDEN, HIDDEN), normal(HIDDEN)) for _ in range(3)],
        "out": (normal(HIDDEN, HIDDEN), normal(HIDDEN)), "norm1": norm(),
        "up": (normal(HIDDEN, INNER), normal(INNER)), "down": (normal(INNER, HIDDEN), normal(HIDDEN)), "norm2": norm(),
    }
    return {"tokens": normal(TOKENS, HIDDEN), "places": normal(LENGTH, HIDDEN), "norm": norm(),
            "layers": [layer() for _ in range(LAYERS)]}


def inputs(batch, seed=1):
    return {"ids": np.random.default_rng(seed).integers(0, TOKENS, (batch, LENGTH), dtype=np.int64)}


def onnx_model(made, batch):
    build = Builder()
    half = lambda array: build.weight(array.astype(np.float16))
    number = lambda value: build.weight(np.array(value, np.float16))
    linear = lambda x, pair: build.node("Add", build.node("MatMul", x, half(pair[0])), half(pair[1]))
    norm = lambda x, pair: build.node("LayerNormalization", x, half(pair[0]), half(pair[1]), axis=-1, epsilon=1e-12)
    split = build.weight(np.array([0, 0, HEADS, HEAD], np.int64))
    join = build.weight(np.array([0, 0, HIDDEN], np.int64))
    heads = lambda x, order: build.node("Transpose", build.node("Reshape", x, split), perm=order)

    x = build.node("Add", build.node("Gather", half(made["tokens"]), "ids"), half(made["places"]))
    x = norm(x, made["norm"])
    for layer in made["layers"]:
        q, k, v = (linear(x, pair) for pair in layer["qkv"])
        scores = build.node("MatMul", heads(q, [0, 2, 1, 3]), heads(k, [0, 2, 3, 1]))
        scores = build.node("Softmax", build.node("Div", scores, number(np.sqrt(HEAD))), axis=-1)
        mixed = build.node("MatMul", scores, heads(v, [0, 2, 1, 3]))
        mixed = build.node("Reshape", build.node("Transpose", mixed, perm=[0, 2, 1, 3]), join)
        x = norm(build.node("Add", linear(mixed, layer["out"]), x), layer["norm1"])
        up = linear(x, layer["up"])
        erf = build.node("Erf", build.node("Div", up, number(np.sqrt(2))))
        gelu = build.node("Mul", build.node("Mul", up, build.node("Add", erf, number(1))), number(0.5))
        x = norm(build.node("Add", linear(gelu, layer["down"]), x), layer["norm2"])
    build.nodes[-1].output[0] = "y"
    return build.model({"ids": (INT64, [batch, LENGTH])}, {"y": (FLOAT16, [batch, LENGTH, HIDDEN])})


def torch_module(made):
    import torch
    from torch import nn
    from torch.nn import functional

    def linear(pair):
        layer = nn.Linear(*pair[0].shape)
        layer.weight.data, layer.bias.data = torch.from_numpy(np.ascontiguousarray(pair[0].T)), torch.from_numpy(pair[1])
        return layer

    def norm(pair):
        layer = nn.LayerNorm(HIDDEN, eps=1e-12)
        layer.weight.data, layer.bias.data = (torch.from_numpy(part) for part in pair)
        return layer

    class Layer(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.q, self.k, self.v = (linear(pair) for pair in layer["qkv"])
            self.out, self.up, self.down = (linear(layer[name]) for name in ("out", "up", "down"))
            self.norm1, self.norm2 = norm(layer["norm1"]), norm(layer["norm2"])

        def forward(self, x):
            heads = lambda y: y.view(*y.shape[:2], HEADS, HEAD).transpose(1, 2)
            mixed = functional.scaled_dot_product_attention(heads(self.q(x)), heads(self.k(x)), heads(self.v(x)))
            x = self.norm1(self.out(mixed.transpose(1, 2).reshape(x.shape)) + x)
            return self.norm2(self.down(functional.gelu(self.up(x))) + x)

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("tokens", torch.from_numpy(made["tokens"]))
            self.register_buffer("places", torch.from_numpy(made["places"]))
            self.norm = norm(made["norm"])
            self.layers = nn.ModuleList(Layer(layer) for layer in made["layers"])

        def forward(self, ids):
            x = self.norm(self.tokens[ids] + self.places)
            for layer in self.layers:
                x = layer(x)
            return x

    return Network().eval()


def for_torch(torch, module, feeds):
    return module, (torch.from_numpy(feeds["ids"]).cuda(),)
