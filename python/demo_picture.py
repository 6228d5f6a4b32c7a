"""The demo's picture and the model that classifies it.

If the collection of real models is beside the repository (../shared), they are a photograph of a kitten and SqueezeNet.
Otherwise they are a digit drawn here, and a model made here whose filters are the ten digits.
"""
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parent.parent
COLLECTION = ROOT.parent / "shared" / "data"

# The ImageNet classes that count as correct for a kitten.
CATS = {281: "tabby cat", 282: "tiger cat", 283: "Persian cat", 284: "Siamese cat", 285: "Egyptian cat", 287: "lynx"}

DIGITS = """
.###. ..#.. .###. ##### ...#. ##### ..##. ##### .###. .###.
#...# .##.. #...# ....# ..##. #.... .#... ....# #...# #...#
#..## ..#.. ....# ...#. .#.#. ####. #.... ...#. #...# #...#
#.#.# ..#.. ...#. ..##. #..#. ....# ####. ..#.. .###. .####
##..# ..#.. ..#.. ....# ##### ....# #...# ..#.. #...# ....#
#...# ..#.. .#... #...# ...#. #...# #...# ..#.. #...# ...#.
.###. .###. ##### .###. ...#. .###. .###. ..#.. .###. .##..
"""


@dataclass
class Look:
    """An input, its model, and the meaning of the classes."""

    title: str
    model: Path
    feeds: dict
    names: dict
    wanted: int


def kitten():
    pixels = read_png(COLLECTION / "images" / "kitten_224.png")[:, :, :3]
    image = pixels.transpose(2, 0, 1)[None].astype(np.float16)
    model = COLLECTION / "models" / "squeezenet_fp16.onnx"
    title = "a photograph of a kitten, classified by SqueezeNet (float16, ImageNet's 1000 classes)"
    return Look(title, model, {"data_0": image}, CATS, 281)


def digit(folder):
    """A noisy seven at some position in a 40 by 40 picture."""
    lines = [line.split() for line in DIGITS.strip().splitlines()]
    glyphs = [np.array([[cell == "#" for cell in line[number]] for line in lines], np.float32) for number in range(10)]
    filters = np.stack([np.kron(glyph, np.ones((3, 3), np.float32)) for glyph in glyphs])[:, None]
    filters -= filters.mean(axis=(2, 3), keepdims=True)
    filters /= np.sqrt((filters**2).sum(axis=(2, 3), keepdims=True))
    rng = np.random.default_rng(7)
    image = rng.normal(0, 0.2, (1, 1, 40, 40)).astype(np.float32)
    image[0, 0, 9:30, 13:28] += np.kron(glyphs[7], np.ones((3, 3), np.float32))
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["image", "filters"], ["matches"]),
            helper.make_node("GlobalMaxPool", ["matches"], ["best"]),
            helper.make_node("Softmax", ["best"], ["chances"], axis=1),
        ],
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 40, 40])],
        [helper.make_tensor_value_info("chances", TensorProto.FLOAT, [1, 10, 1, 1])],
        [numpy_helper.from_array(filters.astype(np.float32), "filters")],
    )
    model = Path(folder) / "digits.onnx"
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    model.write_bytes(proto.SerializeToString())
    title = "a generated seven, classified by a generated model (the collection of real models is not installed)"
    return Look(title, model, {"image": image}, {number: f"the digit {number}" for number in range(10)}, 7)


def look(folder):
    """The kitten if it is available; otherwise a model is made in `folder`."""
    return kitten() if (COLLECTION / "models" / "squeezenet_fp16.onnx").exists() else digit(folder)


def read_png(path):
    """The pixels of a non-interlaced PNG file with 8 bits per channel, RGB or RGBA: [height, width, channels]."""
    data = path.read_bytes()
    chunks, position = {}, 8
    while position < len(data):
        size, kind = struct.unpack_from(">I4s", data, position)
        chunks[kind] = chunks.get(kind, b"") + data[position + 8: position + 8 + size]
        position += size + 12
    width, height, depth, colours, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    if depth != 8 or colours not in (2, 6) or interlaced:
        raise ValueError(f"{path}: only plain 8-bit RGB and RGBA pictures can be read")
    channels = 3 if colours == 2 else 4
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, 1 + width * channels)
    pixels = np.zeros((height + 1, width + 1, channels), np.int64)
    for row in range(1, height + 1):
        kind, line = lines[row - 1, 0], lines[row - 1, 1:].reshape(width, channels).astype(np.int64)
        above = pixels[row - 1]
        for column in range(1, width + 1):
            left, up, corner = pixels[row, column - 1], above[column], above[column - 1]
            pixels[row, column] = (line[column - 1] + predicted(kind, left, up, corner)) & 255
    return pixels[1:, 1:].astype(np.uint8)


def predicted(kind, left, up, corner):
    """PNG's filters, which predict a byte from its neighbours."""
    if kind == 1:
        return left
    if kind == 2:
        return up
    if kind == 3:
        return (left + up) // 2
    if kind == 4:
        guess = left + up - corner
        to_left, to_up, to_corner = abs(guess - left), abs(guess - up), abs(guess - corner)
        nearest = np.where(to_up <= to_corner, up, corner)
        return np.where((to_left <= to_up) & (to_left <= to_corner), left, nearest)
    return 0
