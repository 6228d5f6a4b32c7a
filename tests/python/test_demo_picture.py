"""The picture of the demo: its PNG reader, and the model that stands in if there is no real one."""
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from support import registered, session_on

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import demo_picture


def png(pixels, kinds):
    """Returns a PNG file whose lines use the filter `kinds` in turn."""
    height, width, channels = pixels.shape
    padded = np.zeros((height + 1, width + 1, channels), np.int64)
    padded[1:, 1:] = pixels
    data = b""
    for row in range(height):
        kind = kinds[row % len(kinds)]
        left, up, corner = padded[row + 1, :-1], padded[row, 1:], padded[row, :-1]
        # The distances of the Paeth predictor from its three neighbours, in tie-breaking order.
        distances = np.stack([abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)])
        paeth = np.choose(distances.argmin(axis=0), [left, up, corner])
        guess = (0, left, up, (left + up) // 2, paeth)[kind]
        data += bytes([kind]) + ((padded[row + 1, 1:] - guess) & 255).astype(np.uint8).tobytes()
    head = struct.pack(">IIBBBBB", width, height, 8, {3: 2, 4: 6}[channels], 0, 0, 0)
    packed = zlib.compress(data)
    parts = [(b"IHDR", head), (b"IDAT", packed[:10]), (b"IDAT", packed[10:]), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts
    )


@pytest.mark.parametrize("channels", [3, 4])
def test_reads_lines_of_every_filter(tmp_path, channels):
    pixels = np.random.default_rng(channels).integers(0, 256, (15, 7, channels), np.uint8)
    file = tmp_path / "random.png"
    file.write_bytes(png(pixels, kinds=(0, 1, 2, 3, 4)))
    np.testing.assert_array_equal(demo_picture.read_png(file), pixels)


def test_drawn_digit_is_recognised_on_the_device(tmp_path):
    look = demo_picture.digit(tmp_path)
    with registered() as devices:
        session = session_on(devices, str(look.model))
        chances = session.run(None, look.feeds)[0].ravel()
        del session
    assert int(chances.argmax()) == look.wanted and chances.max() > 0.8
