"""Random weights, the same on every machine, and their 4-bit form."""
import zlib
from dataclasses import dataclass

import numpy as np

# Scores differ more from token to token if attention is sharper, the MLP stronger and the head wider.
GAINS = {"q": 2.0, "k": 2.0, "gate": 1.5, "up": 1.5, "head": 3.0}


@dataclass
class FourBit:
    """A matrix in blocks of columns: (values - zeros) * scales."""

    values: np.ndarray  # rows × blocks × columns of a block, from 0 to 15
    scales: np.ndarray  # rows × blocks
    zeros: np.ndarray  # rows × blocks, from 0 to 15

    def numbers(self):
        values, zeros = self.values.astype(np.float64), self.zeros.astype(np.float64)
        scaled = (values - zeros[..., None]) * self.scales.astype(np.float64)[..., None]
        return scaled.reshape(len(scaled), -1)


def four_bit(matrix, block, has_zero_points, scale_type):
    """Rounds blocks of columns to 16 levels: around 8, or between the block's smallest and largest number."""
    blocks = matrix.reshape(len(matrix), -1, block)
    if has_zero_points:
        low, high = np.minimum(blocks.min(-1), 0), np.maximum(blocks.max(-1), 0)
        scales = ((high - low) / 15).astype(scale_type)
        zeros = np.clip(np.rint(-low / scales.astype(np.float32)), 0, 15).astype(np.uint8)
    else:
        # The number that is farthest from zero becomes level 0.
        farthest = np.take_along_axis(blocks, np.abs(blocks).argmax(-1, keepdims=True), -1)[..., 0]
        scales = (farthest / -8).astype(scale_type)
        zeros = np.full(scales.shape, 8, np.uint8)
    levels = np.rint(blocks / scales.astype(np.float32)[..., None]) + zeros[..., None]
    return FourBit(np.clip(levels, 0, 15).astype(np.uint8), scales, zeros)


class Weights:
    """The weights of a model as the file stores them: arrays of a float type, or [`FourBit`]."""

    def __init__(self, settings):
        self.settings = settings
        self.dtype = np.float16 if settings.activations == "fp16" else np.float32

    def random(self, name, *shape):
        """Numbers from -1 to 1 that depend only on the seed, the name and the shape."""
        # The stream of this generator is frozen, unlike those of numpy's newer ones.
        generator = np.random.RandomState([self.settings.seed, zlib.crc32(name.encode())])
        return generator.uniform(-1, 1, shape).astype(np.float32)

    def linear(self, name, rows, columns):
        """The matrix of a product, a row for each result."""
        gain = GAINS.get(name.split(".")[-1], 1.0)
        matrix = self.random(name, rows, columns) * np.float32(gain * np.sqrt(3 / columns))
        if self.settings.precision == "int4":
            return four_bit(matrix, self.settings.block, self.settings.has_zero_points, self.dtype)
        return matrix.astype(self.dtype)

    def embedding(self):
        matrix = self.random("embedding", self.settings.vocabulary, self.settings.hidden)
        if self.settings.has_packed_embedding:
            return four_bit(matrix, self.settings.block, self.settings.has_zero_points, self.dtype)
        return matrix.astype(self.dtype)

    def tied_scale(self):
        """The factor of the products of a tied head."""
        return self.dtype(GAINS["head"] * np.sqrt(3 / self.settings.hidden))

    def norm(self, name, size):
        return (1 + 0.1 * self.random(name, size)).astype(self.dtype)

    def bias(self, name, size):
        return (0.1 * self.random(name, size)).astype(self.dtype)

    def rotary(self, rows=None, growth=0.0):
        """Cosines and sines: a row for each position, a column for each pair of channels. LongRoPE divides the angles by
        factors that grow with the column."""
        half = self.settings.head // 2
        columns = np.arange(half, dtype=np.float64)
        speeds = self.settings.theta ** (-columns / half) / (1 + growth * columns)
        angles = np.arange(rows or self.settings.context, dtype=np.float64)[:, None] * speeds
        return np.cos(angles).astype(self.dtype), np.sin(angles).astype(self.dtype)
