"""The demo model in PyTorch: a small Llama, with the int4 rounding of its exported form.

Training includes the rounding: in its last part, every weight matrix is used in its int4 form, while the gradient
passes to the float weights as if there were no rounding.
"""
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn

BLOCK = 32


@dataclass
class Shape:
    vocabulary: int = 832
    hidden: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 32
    inner: int = 256
    context: int = 288
    theta: float = 10000.0
    epsilon: float = 1e-5

    as_dict = asdict


def quantise(weight):
    """Int4 values (-8 to 7), with one scale per BLOCK weights of a row.

    The weight with the largest magnitude becomes exactly -8: the scale carries its sign, so that all sixteen values are
    used.
    """
    blocks = weight.reshape(weight.shape[0], -1, BLOCK)
    largest = blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True))
    scale = largest / -8
    safe = torch.where(scale == 0, torch.ones_like(scale), scale)
    return (blocks / safe).round().clamp(-8, 7), scale


def rounded(weight):
    """The weights after rounding to int4; the gradient passes unchanged."""
    values, scale = quantise(weight.detach())
    return weight + ((values * scale).reshape(weight.shape) - weight.detach())


class RmsNorm(nn.Module):
    def __init__(self, size, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.epsilon)


class Linear(nn.Module):
    def __init__(self, inputs, outputs, gain=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) * gain * inputs**-0.5)
        self.int4 = False

    def forward(self, x):
        return F.linear(x, rounded(self.weight) if self.int4 else self.weight)


def rotary_tables(shape):
    """Cosine and sine of every position and frequency: [context, head_size / 2]."""
    frequencies = shape.theta ** (-torch.arange(0, shape.head_size, 2, dtype=torch.float64) / shape.head_size)
    angles = torch.arange(shape.context, dtype=torch.float64)[:, None] * frequencies
    return angles.cos().float(), angles.sin().float()


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Layer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        # Residual branches start small, so that an untrained stack of layers is close to the identity.
        gain = (2 * shape.layers) ** -0.5
        self.attention_norm = RmsNorm(shape.hidden, shape.epsilon)
        self.qkv = Linear(shape.hidden, (shape.heads + 2 * shape.kv_heads) * shape.head_size)
        self.out = Linear(shape.heads * shape.head_size, shape.hidden, gain)
        self.mlp_norm = RmsNorm(shape.hidden, shape.epsilon)
        self.gate = Linear(shape.hidden, shape.inner)
        self.up = Linear(shape.hidden, shape.inner)
        self.down = Linear(shape.inner, shape.hidden, gain)

    def forward(self, x, cos, sin):
        shape = self.shape
        batch, length, _ = x.shape
        heads = self.qkv(self.attention_norm(x)).view(batch, length, -1, shape.head_size).transpose(1, 2)
        q, k, v = heads.split([shape.heads, shape.kv_heads, shape.kv_heads], dim=1)
        repeats = shape.heads // shape.kv_heads
        k = rotate(k, cos, sin).repeat_interleave(repeats, dim=1)
        v = v.repeat_interleave(repeats, dim=1)
        attended = F.scaled_dot_product_attention(rotate(q, cos, sin), k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, -1))
        h = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.embedding = Linear(shape.hidden, shape.vocabulary)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = RmsNorm(shape.hidden, shape.epsilon)
        cos, sin = rotary_tables(shape)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def set_int4(self, on):
        for module in self.modules():
            if isinstance(module, Linear):
                module.int4 = on

    def forward(self, ids):
        """The logits of the next token at every position; the embedding and the head share their weights."""
        table = rounded(self.embedding.weight) if self.embedding.int4 else self.embedding.weight
        x = F.embedding(ids, table)
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.linear(self.norm(x), table)
