"""The models: their sizes, number formats and the operators that they are made of."""
from dataclasses import dataclass, replace

SPECIALS = ("<|bos|>", "<|eos|>", "<|pad|>", "<|im_start|>", "<|im_end|>", "<|unk|>", "<|tool|>", "<|think|>")


@dataclass(frozen=True)
class Settings:
    """A decoder like Llama's: norms without a mean, rotary positions, shared key heads, a gated MLP."""

    seed: int = 0
    layers: int = 2
    hidden: int = 64
    heads: int = 4
    key_heads: int = 2
    head: int = 16
    inner: int = 128
    vocabulary: int = 512
    context: int = 256
    theta: float = 10000.0
    epsilon: float = 1e-5
    # The head is the transposed embedding.
    is_tied: bool = False
    # The type of the weights: fp32, fp16 or int4.
    precision: str = "fp32"
    # The type of activations and caches: fp32 or fp16.
    activations: str = "fp32"
    ids: str = "int64"
    # packed: GroupQueryAttention rotates one tensor of queries, keys and values; split: three tensors;
    # apart: RotaryEmbedding rotates them before; standard: the operators of ONNX 23, with a growing cache.
    attention: str = "packed"
    has_bias: bool = False
    has_head_norms: bool = False
    window: int = -1
    softcap: float = 0.0
    # LongRoPE: sequences of more tokens are rotated by other tables; 0 for one pair of tables.
    long_rope: int = 0
    # Numbers of 4-bit weights that share a scale.
    block: int = 32
    has_zero_points: bool = False
    has_packed_embedding: bool = False

    @property
    def queries(self):
        return self.heads * self.head

    @property
    def keys(self):
        return self.key_heads * self.head

    @property
    def has_positions(self):
        """Whether positions are an input of the model."""
        return self.attention in ("apart", "standard")

    @property
    def shares_cache(self):
        return self.attention != "standard"

    def special(self, text):
        """The id of a special token. Special tokens are the last ones of the vocabulary."""
        return self.vocabulary - len(SPECIALS) + SPECIALS.index(text)

    @property
    def pad(self):
        return self.special("<|pad|>")

    @property
    def ends(self):
        return [self.special("<|eos|>"), self.special("<|im_end|>")]


NANO = Settings()
MICRO = Settings(layers=4, hidden=256, heads=8, head=32, inner=704, vocabulary=2048, context=1024)

# The sizes that the programs under bench/ ask for.
SIZES = {
    "nano": NANO,
    "micro": MICRO,
    "100m": Settings(
        layers=12, hidden=768, heads=12, key_heads=4, head=64, inner=2048, vocabulary=16384, context=4096
    ),
    "1b": Settings(
        layers=16, hidden=2048, heads=32, key_heads=8, head=64, inner=8192, vocabulary=128256, context=8192,
        theta=500000.0, is_tied=True,
    ),
}


def nano(seed, precision="fp32", **changes):
    activations = "fp16" if precision == "fp16" else "fp32"
    return replace(NANO, **{"seed": seed, "precision": precision, "activations": activations, **changes})


# Seeds are chosen so that the best score is well ahead of the second-best one at every recorded token, and so that
# models called "eos" end some of their answers: record.py checks both.
MODELS = {
    "nano-fp32": nano(121),
    "nano-fp16": nano(121, "fp16"),
    "nano-int4": nano(253, "int4"),
    "nano-fp32-eos": nano(310),
    "nano-fp16-eos": nano(310, "fp16"),
    "nano-int4-eos": nano(94, "int4"),
    "nano-fp32-int32ids-rope": nano(121, ids="int32", attention="apart"),
    "nano-fp32-unpacked": nano(121, attention="split"),
    "nano-fp32-standard": nano(121, attention="standard"),
    "nano-fp32-qknorm": nano(145, attention="split", has_head_norms=True),
    "nano-fp32-bias": nano(274, has_bias=True),
    "nano-fp32-window8": nano(347, window=8),
    "nano-fp32-softcap5": nano(314, softcap=5.0),
    "nano-int4-asym": nano(85, "int4", has_zero_points=True),
    "nano-int4-emb": nano(211, "int4", has_packed_embedding=True),
    "nano-int4-io16": nano(274, "int4", activations="fp16"),
    "micro-fp32": replace(MICRO, seed=18),
    "micro-int4": replace(MICRO, seed=2, precision="int4"),
}
