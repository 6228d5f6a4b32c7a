"""Writes the models of the examples to a folder. Needs the packages onnx and numpy.

    python models.py FOLDER
"""

import sys
from pathlib import Path

import numpy as np
import onnx

HEADER = '<ir_version: 10, opset_import: ["": 21]>'

# A convolution that hipDNN can run together with its bias and its activation.
CONVOLUTION = f"""{HEADER}
convolution (float[1, 3, 32, 32] x) => (float[1, 8, 16, 16] y) {{
    sum = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]>(x, weight, bias)
    y = Relu(sum)
}}"""

# One step of a small recurrent network. The caller passes `next_state` as the next `state`.
RECURRENT = f"""{HEADER}
recurrent (float[batch, 8] x, float[batch, 16] state) => (float[batch, 16] next_state, float[batch, 4] y) {{
    from_input = MatMul(x, input_weight)
    from_state = MatMul(state, state_weight)
    sum = Add(from_input, from_state)
    biased = Add(sum, bias)
    next_state = Tanh(biased)
    scores = MatMul(next_state, output_weight)
    y = Softmax<axis = -1>(scores)
}}"""

WEIGHTS = {
    "convolution": {"weight": (8, 3, 3, 3), "bias": (8,)},
    "recurrent": {"input_weight": (8, 16), "state_weight": (16, 16), "bias": (16,), "output_weight": (16, 4)},
}


def main(folder):
    random = np.random.default_rng(15)
    folder.mkdir(parents=True, exist_ok=True)
    for text in (CONVOLUTION, RECURRENT):
        model = onnx.parser.parse_model(text)
        for name, shape in WEIGHTS[model.graph.name].items():
            values = random.uniform(-0.5, 0.5, shape).astype(np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, folder / f"{model.graph.name}.onnx")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: models.py FOLDER")
    main(Path(sys.argv[1]))
