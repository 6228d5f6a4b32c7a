"""Measures an exported demo model in ONNX Runtime on the held-back part of the corpus.

    python evaluate.py MODEL [--seen] [--documents N] [--library libamdgpu-ep.so]

Prints the perplexity and the share of right answers as JSON. With --library, the model runs on the provider instead of
the CPU.
"""
import argparse
import json
import os
from pathlib import Path

import numpy as np
import onnxruntime as ort
import torch
from tokenizers import Tokenizer

from train import evaluate

EP = "AMDGPUExecutionProvider"


class Exported:
    """The exported model, with the interface of the PyTorch model: takes ids, returns the logits of every position."""

    def __init__(self, folder, devices):
        config = json.loads((folder / "genai_config.json").read_text())["model"]
        decoder = config["decoder"]
        self.context = config["context_length"]
        self.cache = (decoder["num_key_value_heads"], 0, decoder["head_size"])
        options = ort.SessionOptions()
        if devices:
            options.add_provider_for_devices(devices, {})
        self.session = ort.InferenceSession(str(folder / decoder["filename"]), options)

    def __call__(self, ids):
        ids = ids.numpy()
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        for value in self.session.get_inputs():
            if value.name.startswith("past"):
                feeds[value.name] = np.zeros((len(ids), *self.cache), np.float32)
        return torch.from_numpy(self.session.run(["logits"], feeds)[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--seen", action="store_true", help="evaluate on documents like those of the training part")
    parser.add_argument("--library", help="path of libamdgpu-ep.so")
    chosen = parser.parse_args()
    devices = None
    if chosen.library:
        ort.register_execution_provider_library(EP, os.path.abspath(chosen.library))
        devices = [device for device in ort.get_ep_devices() if device.ep_name == EP][:1]
    exported = Exported(chosen.model, devices)
    tokenizer = Tokenizer.from_file(str(chosen.model / "tokenizer.json"))
    print(json.dumps(evaluate(exported, tokenizer, chosen.documents, "cpu", exported.context, not chosen.seen)))


if __name__ == "__main__":
    main()
