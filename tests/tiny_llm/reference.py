"""The scores of a model in 64-bit floats, computed from its weights and not from its graph, and the tokens that follow
from them."""
import numpy as np

from .weights import FourBit, Weights


def wide(weights):
    """The numbers that stored weights stand for."""
    return weights.numbers() if isinstance(weights, FourBit) else weights.astype(np.float64)


def softmax(scores):
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


class Reference:
    """A model whose weights are all rounded as in its file. Only the activations are not."""

    def __init__(self, settings):
        self.settings, self.weights, self.made = settings, Weights(settings), {}
        self.rotary = [wide(table) for table in self.weights.rotary()]

    def stored(self, kind, *arguments):
        """Weights by the name of their maker and its arguments."""
        key = (kind, *arguments)
        if key not in self.made:
            self.made[key] = wide(getattr(self.weights, kind)(*arguments))
        return self.made[key]

    def linear(self, x, name, rows):
        return x @ self.stored("linear", name, rows, x.shape[-1]).T

    def norm(self, x, name):
        inverse = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + self.settings.epsilon)
        return x * inverse * self.stored("norm", name, x.shape[-1])

    def turned(self, x, first):
        """Rotates pairs of channels; x has a row for each token from position `first` on."""
        rows = slice(first, first + len(x))
        cos, sin = (table[rows, None, :] for table in self.rotary)
        left, right = np.split(x, 2, axis=-1)
        return np.concatenate([left * cos - right * sin, right * cos + left * sin], -1)

    def projected(self, x, name, part, heads):
        """Queries, keys or values, as tokens × heads × channels."""
        settings = self.settings
        made = self.linear(x, f"{name}.{part}", heads * settings.head)
        if settings.has_bias:
            made = made + self.stored("bias", f"{name}.{part}.bias", made.shape[-1])
        made = made.reshape(len(x), heads, settings.head)
        if settings.has_head_norms and part != "v":
            made = self.norm(made, f"{name}.{part}.norm")
        return made

    def attention(self, x, name, cache):
        settings = self.settings
        past = len(cache[name][0]) if name in cache else 0
        queries = self.turned(self.projected(x, name, "q", settings.heads), past)
        keys = self.turned(self.projected(x, name, "k", settings.key_heads), past)
        values = self.projected(x, name, "v", settings.key_heads)
        if past:
            keys, values = (np.concatenate(pair) for pair in zip(cache[name], (keys, values)))
        cache[name] = keys, values
        shared = settings.heads // settings.key_heads
        keys, values = (np.repeat(each, shared, axis=1) for each in (keys, values))
        scores = np.einsum("qhd,khd->hqk", queries, keys) / np.sqrt(settings.head)
        if settings.softcap:
            scores = settings.softcap * np.tanh(scores / settings.softcap)
        query, key = past + np.arange(len(x))[:, None], np.arange(len(keys))
        is_seen = key <= query
        if settings.window > 0:
            is_seen &= key > query - settings.window
        weights = softmax(np.where(is_seen, scores, -np.inf))
        attended = np.einsum("hqk,khd->qhd", weights, values).reshape(len(x), settings.queries)
        return self.linear(attended, f"{name}.o", settings.hidden)

    def mlp(self, x, name):
        gate, up = (self.linear(x, f"{name}.{part}", self.settings.inner) for part in ("gate", "up"))
        return self.linear(gate / (1 + np.exp(-gate)) * up, f"{name}.down", self.settings.hidden)

    def scores(self, tokens, cache):
        """The scores after the last of the tokens, which follow those that `cache` has keys and values of."""
        settings = self.settings
        x = self.stored("embedding")[tokens]
        for layer in range(settings.layers):
            x = x + self.attention(self.norm(x, f"{layer}.before"), f"{layer}.attention", cache)
            x = x + self.mlp(self.norm(x, f"{layer}.after"), f"{layer}.mlp")
        last = self.norm(x[-1], "last")
        if settings.is_tied and settings.precision != "int4":
            return last @ self.stored("embedding").T * float(self.weights.tied_scale())
        return self.linear(last, "head", settings.vocabulary)


def penalised(scores, sequence, ends, repetition_penalty=1.0, no_repeat_ngram_size=0, min_length=0):
    """The scores after the rules of GenAI's search options."""
    scores = scores.copy()
    if len(sequence) < min_length:
        scores[ends] = -np.inf
    seen = sorted(set(sequence))
    scores[seen] = np.where(scores[seen] < 0, scores[seen] * repetition_penalty, scores[seen] / repetition_penalty)
    size = no_repeat_ngram_size
    if size:
        start = sequence[len(sequence) - size + 1 :]
        for at in range(len(sequence) - size + 1):
            if sequence[at : at + size - 1] == start:
                scores[sequence[at + size - 1]] = -np.inf
    return scores


def greedy(reference, prompt, count, **rules):
    """Returns at most `count` tokens after the prompt, up to an end, and the smallest distance between the best and the
    second-best score."""
    sequence, unread, cache, margin = list(prompt), list(prompt), {}, np.inf
    ends = reference.settings.ends
    for _ in range(count):
        scores = penalised(reference.scores(unread, cache), sequence, ends, **rules)
        second, best = np.sort(scores)[-2:]
        margin = min(margin, best - second)
        unread = [int(scores.argmax())]
        sequence += unread
        if unread[0] in ends:
            break
    return sequence[len(prompt) :], float(margin)
