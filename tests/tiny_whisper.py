"""A tiny Whisper model with random weights, in the form that the model builder of ONNX Runtime GenAI writes: an encoder, a
decoder, a tokenizer and the settings. Its transcripts are noise that depends on the audio.

    python tests/tiny_whisper.py DIR [--mels 128] [--half] [--signal WAV]
"""
import argparse
import json
import wave
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tiny_llm.texts import alphabet

HIDDEN, HEADS, LAYERS, INNER = 32, 4, 2, 64
FRAMES, POSITIONS, CONTEXT = 3000, 1500, 48
HEAD = HIDDEN // HEADS
SPECIALS = [
    "<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|fr|>", "<|translate|>", "<|transcribe|>",
    "<|notimestamps|>",
]
VOCABULARY = 256 + len(SPECIALS)


def special(text):
    return 256 + SPECIALS.index(text)


class Network:
    """A graph under construction."""

    def __init__(self, name, seed, half):
        self.name, self.random = name, np.random.RandomState(seed)
        self.dtype = np.float16 if half else np.float32
        self.element = TensorProto.FLOAT16 if half else TensorProto.FLOAT
        self.nodes, self.tensors, self.inputs, self.outputs = [], [], [], []

    def weight(self, name, *shape, gain=1.0):
        fan = shape[0] if len(shape) == 2 else int(np.prod(shape[1:]))
        array = self.random.uniform(-1, 1, shape) * gain * np.sqrt(3 / fan)
        return self.constant(name, array.astype(self.dtype))

    def constant(self, name, array):
        self.tensors.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, kind, inputs, output, domain="", **attributes):
        outputs = output if isinstance(output, list) else [output]
        self.nodes.append(helper.make_node(kind, inputs, outputs, domain=domain, **attributes))
        return outputs[0]

    def input(self, name, shape, element=None):
        self.inputs.append(helper.make_tensor_value_info(name, element or self.element, shape))
        return name

    def output(self, name, shape):
        self.outputs.append(helper.make_tensor_value_info(name, self.element, shape))
        return name

    def linear(self, name, source, columns, rows=HIDDEN, gain=1.0):
        product = self.node("MatMul", [source, self.weight(f"{name}.weight", rows, columns, gain=gain)], f"{name}/MatMul")
        return self.node("Add", [product, self.weight(f"{name}.bias", 1, columns, gain=0.05)], f"{name}/Add")

    def norm(self, name, source):
        scale = self.constant(f"{name}.scale", np.ones(HIDDEN, self.dtype))
        bias = self.constant(f"{name}.bias", np.zeros(HIDDEN, self.dtype))
        return self.node("LayerNormalization", [source, scale, bias], f"{name}/Norm", axis=-1, epsilon=1e-5)

    def attention(self, name, inputs, outputs, **attributes):
        attended = self.node("MultiHeadAttention", inputs, [f"{name}/Attention", *outputs], "com.microsoft",
                             num_heads=HEADS, scale=float(HEAD) ** -0.5, **attributes)
        return self.linear(f"{name}.out", attended, HIDDEN)

    def mlp(self, name, source):
        inner = self.linear(f"{name}.fc1", self.norm(f"{name}.norm", source), INNER)
        inner = self.node("Gelu", [inner], f"{name}/Gelu", approximate="none")
        return self.node("Add", [source, self.linear(f"{name}.fc2", inner, HIDDEN, INNER)], f"{name}/Sum")

    def save(self, path):
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.tensors)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)


def encoder(mels, half):
    net = Network("encoder", 11, half)
    features = net.input("audio_features", ["batch_size", mels, FRAMES])
    for index, (channels, stride) in enumerate([(mels, 1), (HIDDEN, 2)], 1):
        weights = [net.weight(f"conv{index}.weight", HIDDEN, channels, 3, gain=2.0), net.constant(f"conv{index}.bias", np.zeros(HIDDEN, net.dtype))]
        convolved = net.node("Conv", [features, *weights], f"conv{index}", kernel_shape=[3], pads=[1, 1], strides=[stride])
        features = net.node("Gelu", [convolved], f"gelu{index}", approximate="none")
    x = net.node("Transpose", [features], "transposed", perm=[0, 2, 1])
    x = net.node("Add", [x, net.weight("positions", POSITIONS, HIDDEN, gain=3.0)], "embedded")
    for layer in range(LAYERS):
        name = f"encoder.{layer}"
        normed = net.norm(f"{name}.norm", x)
        q, k, v = (net.linear(f"{name}.{part}", normed, HIDDEN, gain=2.0) for part in "qkv")
        x = net.node("Add", [x, net.attention(name, [q, k, v], [])], f"{name}/Sum")
        x = net.mlp(f"{name}.mlp", x)
    x = net.norm("final", x)
    net.node("Identity", [x], net.output("hidden_states", ["batch_size", POSITIONS, HIDDEN]))
    shape = net.constant("heads", np.array([-1, POSITIONS, HEADS, HEAD]))
    for layer in range(LAYERS):
        for part in ("key", "value"):
            product = net.linear(f"cross.{layer}.{part}", x, HIDDEN, gain=3.0)
            split = net.node("Reshape", [product, shape], f"cross.{layer}.{part}/Reshape")
            output = net.output(f"present_{part}_cross_{layer}", ["batch_size", HEADS, POSITIONS, HEAD])
            net.node("Transpose", [split], output, perm=[0, 2, 1, 3])
    return net


def decoder(half, shared):
    """With `shared`, keys and values stay in buffers of the longest sequence, and an input has the length of the past."""
    net = Network("decoder", 12, half)
    ids = net.input("input_ids", ["batch_size", "sequence_length"], TensorProto.INT32)
    for part in ("key", "value"):
        for layer in range(LAYERS):
            net.input(f"past_{part}_self_{layer}", ["batch_size", HEADS, "past_sequence_length", HEAD])
            net.input(f"past_{part}_cross_{layer}", ["batch_size", HEADS, POSITIONS, HEAD])
    # The positions are counted from the length of the past.
    zero, one, two = (net.constant(f"number{at}", np.array([at])) for at in range(3))
    new = net.node("Gather", [net.node("Shape", [ids], "shape/ids"), one], "new", axis=0)
    if shared:
        length = net.input("past_sequence_length", [1], TensorProto.INT32)
        past = net.node("Cast", [length], "past", to=TensorProto.INT64)
    else:
        past = net.node("Gather", [net.node("Shape", ["past_key_self_0"], "shape/past"), two], "past", axis=0)
    total = net.node("Add", [new, past], "total")
    table = net.weight("positions", CONTEXT, HIDDEN, gain=3.0)
    places = net.node("Slice", [table, past, total, zero, one], "places")
    words = net.node("Gather", [net.weight("words", VOCABULARY, HIDDEN, gain=9.0), ids], "word", axis=0)
    x = net.node("Add", [words, places], "embedded")
    for layer in range(LAYERS):
        name = f"decoder.{layer}"
        normed = net.norm(f"{name}.norm", x)
        q, k, v = (net.linear(f"{name}.{part}", normed, HIDDEN, gain=2.0) for part in "qkv")
        pasts = [f"past_{part}_self_{layer}" for part in ("key", "value")] + (["past_sequence_length"] if shared else [])
        presents = [net.output(f"present_{part}_self_{layer}", ["batch_size", HEADS, "total_sequence_length", HEAD]) for part in ("key", "value")]
        x = net.node("Add", [x, net.attention(name, [q, k, v, "", "", "", *pasts], presents, unidirectional=1)], f"{name}/Sum")
        q = net.linear(f"{name}.cross.q", net.norm(f"{name}.cross.norm", x), HIDDEN, gain=3.0)
        crosses = [f"past_{part}_cross_{layer}" for part in ("key", "value")]
        x = net.node("Add", [x, net.attention(f"{name}.cross", [q, *crosses], [])], f"{name}.cross/Sum")
        x = net.mlp(f"{name}.mlp", x)
    logits = net.output("logits", ["batch_size", "sequence_length", VOCABULARY])
    net.node("MatMul", [net.norm("final", x), net.weight("head", HIDDEN, VOCABULARY, gain=3.0)], logits)
    return net


def tokenizer():
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    vocabulary = {token: at for at, token in enumerate(alphabet().values())}
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": special(text), "content": text, **flags} for text in SPECIALS],
        "pre_tokenizer": level, "decoder": level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": vocabulary, "merges": [],
        },
    }


def genai_config(shared):
    end = special("<|endoftext|>")
    heads = {"head_size": HEAD, "hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_hidden_layers": LAYERS,
             "num_key_value_heads": HEADS, "session_options": {"log_id": "tiny", "provider_options": []}}
    inputs = {"input_ids": "input_ids", "past_key_names": "past_key_self_%d", "past_value_names": "past_value_self_%d",
              "cross_past_key_names": "past_key_cross_%d", "cross_past_value_names": "past_value_cross_%d"}
    if shared:
        inputs["past_sequence_length"] = "past_sequence_length"
    outputs = {"logits": "logits", "present_key_names": "present_key_self_%d", "present_value_names": "present_value_self_%d"}
    encoded = {"encoder_hidden_states": "hidden_states", "cross_present_key_names": "present_key_cross_%d",
               "cross_present_value_names": "present_value_cross_%d"}
    model = {
        "type": "whisper", "context_length": CONTEXT, "vocab_size": VOCABULARY, "bos_token_id": end, "eos_token_id": end,
        "pad_token_id": end, "decoder": {"filename": "decoder.onnx", **heads, "inputs": inputs, "outputs": outputs},
        "encoder": {"filename": "encoder.onnx", **heads, "inputs": {"audio_features": "audio_features"}, "outputs": encoded},
    }
    search = {"do_sample": False, "max_length": CONTEXT, "num_beams": 1, "top_k": 1, "past_present_share_buffer": shared}
    return {"model": model, "search": search}


def audio_processor_config(mels):
    """The settings of GenAI's own features."""
    window = [float(value) for value in 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)]
    steps = [
        {"name": "audio_decoder", "type": "AudioDecoder"},
        {"name": "STFT", "type": "STFTNorm", "attrs": {"n_fft": 400, "frame_length": 400, "hop_length": 160, "_comment": window}},
        {"name": "log_mel_spectrogram", "type": "LogMelSpectrum",
         "attrs": {"chunk_size": 30, "hop_length": 160, "n_fft": 400, "n_mel": mels}},
    ]
    return {"feature_extraction": {"sequence": [{"operation": step} for step in steps]}}


def write(folder, mels=80, half=False, shared=False):
    """Writes the files of a model. The weights depend only on `mels`."""
    folder.mkdir(parents=True, exist_ok=True)
    encoder(mels, half).save(folder / "encoder.onnx")
    decoder(half, shared).save(folder / "decoder.onnx")
    end = "<|endoftext|>"
    files = {
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": end, "eos_token": end,
                                  "pad_token": end, "unk_token": end, "clean_up_tokenization_spaces": False},
        "genai_config.json": genai_config(shared),
        "audio_processor_config.json": audio_processor_config(mels),
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1), encoding="utf-8")


def signal(seed, seconds, rate=16000):
    """Tones that come and go, and noise, from -1 to 1. The ends of the signal and of each 30 seconds are silent: there GenAI's
    features differ from those of transformers, which mirrors the signal."""
    random, time = np.random.RandomState(seed), np.arange(int(seconds * rate)) / rate
    sound = 0.02 * random.standard_normal(len(time))
    for _ in range(6):
        middle, length, hertz = random.uniform(0, seconds), random.uniform(0.2, 2.0), random.uniform(80, 3500)
        sound += 0.2 * np.exp(-(((time - middle) / length) ** 2)) * np.sin(2 * np.pi * hertz * time)
    within = time % 30
    is_silent = (within < 0.05) | (within > 29.95) | (time > seconds - 0.05)
    return np.clip(np.where(is_silent, 0, sound), -1, 1).astype(np.float32)


def save_wav(path, samples, rate=16000):
    """Writes 16-bit samples."""
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes(np.round(samples * 32767).astype("<i2").tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--mels", type=int, default=80)
    parser.add_argument("--half", action="store_true", help="16-bit floats")
    parser.add_argument("--signal", type=Path, metavar="WAV", help="also write four seconds of audio")
    given = parser.parse_args()
    write(given.folder, given.mels, given.half)
    if given.signal:
        save_wav(given.signal, signal(1, 4))


if __name__ == "__main__":
    main()
