"""ResNet-50 in half precision. The ONNX model has batch normalisation folded into the convolutions, as exporters write
it; the PyTorch module keeps it separate, as people write it."""
import numpy as np

from .onnx_graph import FLOAT16, Builder

NAME = "ResNet-50 fp16"
BATCHES = (1, 64)
SHAPE, STEM, CLASSES = (3, 224, 224), 64, 1000
STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))


def shrink():
    """The same layers, few and narrow: about two million multiplications."""
    global NAME, SHAPE, STEM, CLASSES, STAGES
    NAME, SHAPE, STEM, CLASSES, STAGES = "small ResNet fp16", (3, 32, 32), 16, 10, ((16, 1), (32, 1))


def layers():
    """Every convolution: name, inputs, outputs, kernel, stride."""
    yield "stem", 3, STEM, 7, 2
    width = STEM
    for stage, (inner, blocks) in enumerate(STAGES):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            at = f"{stage}.{block}"
            yield f"{at}.a", width, inner, 1, 1
            yield f"{at}.b", inner, inner, 3, stride
            yield f"{at}.c", inner, 4 * inner, 1, 1
            if not block:
                yield f"{at}.side", width, 4 * inner, 1, stride
            width = 4 * inner


def weights(seed=0):
    """Convolutions with a scale and shift for each channel, and the classifier, in single precision."""
    random = np.random.default_rng(seed)
    made = {}
    for name, inputs, outputs, kernel, _ in layers():
        spread = np.sqrt(2 / (inputs * kernel * kernel))
        # Branches that are added to others stay small, so that half precision can represent the sums.
        gain = 0.25 if name.endswith(".c") else 1.0
        made[name] = (
            (random.standard_normal((outputs, inputs, kernel, kernel)) * spread).astype(np.float32),
            (gain * random.uniform(0.8, 1.2, outputs)).astype(np.float32),
            random.uniform(-0.1, 0.1, outputs).astype(np.float32),
        )
    width = 4 * STAGES[-1][0]
    made["classifier"] = (random.standard_normal((width, CLASSES)) / np.sqrt(width)).astype(np.float32)
    return made


def inputs(batch, seed=1):
    return {"x": np.random.default_rng(seed).standard_normal((batch, *SHAPE)).astype(np.float16)}


def onnx_model(made, batch):
    build = Builder()
    facts = {name: (kernel, stride) for name, _, _, kernel, stride in layers()}

    def conv(x, name):
        (kernel, stride), (w, scale, shift) = facts[name], made[name]
        folded = (w * scale[:, None, None, None]).astype(np.float16)
        return build.node("Conv", x, build.weight(folded), build.weight(shift.astype(np.float16)),
                          pads=[kernel // 2] * 4, strides=[stride] * 2, kernel_shape=[kernel] * 2)

    x = build.node("Relu", conv("x", "stem"))
    x = build.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for stage, (_, blocks) in enumerate(STAGES):
        for block in range(blocks):
            at = f"{stage}.{block}"
            side = x if block else conv(x, f"{at}.side")
            x = build.node("Relu", conv(x, f"{at}.a"))
            x = build.node("Relu", conv(x, f"{at}.b"))
            x = build.node("Relu", build.node("Add", conv(x, f"{at}.c"), side))
    x = build.node("Flatten", build.node("GlobalAveragePool", x))
    build.node("MatMul", x, build.weight(made["classifier"].astype(np.float16)))
    build.nodes[-1].output[0] = "y"
    return build.model({"x": (FLOAT16, [batch, *SHAPE])}, {"y": (FLOAT16, [batch, CLASSES])})


def torch_module(made):
    import torch
    from torch import nn

    def conv(name, inputs, outputs, kernel, stride):
        w, scale, shift = (torch.from_numpy(part) for part in made[name])
        layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        norm = nn.BatchNorm2d(outputs)
        layer.weight.data, norm.weight.data, norm.bias.data = w, scale, shift
        norm.running_var.fill_(1 - norm.eps)
        return nn.Sequential(layer, norm)

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.ModuleDict({layer[0].replace(".", "_"): conv(*layer) for layer in layers()})
            self.pool = nn.MaxPool2d(3, 2, 1)
            self.register_buffer("classifier", torch.from_numpy(made["classifier"]))

        def forward(self, x):
            convs, relu = self.convs, torch.relu
            x = self.pool(relu(convs["stem"](x)))
            for stage, (_, blocks) in enumerate(STAGES):
                for block in range(blocks):
                    at = f"{stage}_{block}"
                    side = x if block else convs[f"{at}_side"](x)
                    x = relu(convs[f"{at}_a"](x))
                    x = relu(convs[f"{at}_b"](x))
                    x = relu(convs[f"{at}_c"](x) + side)
            return x.mean((2, 3)) @ self.classifier

    return Network().eval()


def for_torch(torch, module, feeds):
    """The network and its input in PyTorch's fastest layout."""
    x = torch.from_numpy(feeds["x"]).cuda().to(memory_format=torch.channels_last)
    return module.to(memory_format=torch.channels_last), (x,)
