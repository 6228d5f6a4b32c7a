"""Decoders in ONNX Runtime GenAI on a GPU: prompts, tokens, and the distance of logits from the CPU provider's.

Times are wall-clock times: a prompt with its first token, and the median of the tokens after it, each including GenAI's
own work around the session (its search, the copy of the logits, the inputs of the next step). Logits are compared for a
prompt and for the tokens after it, as long as both providers choose the same tokens.

usage: AMDGPU_EP_DRIVER=nvidia python bench/gpu_genai.py LIBRARY [FOLDER ...] [--make] [--tiny]
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime_genai as og

NAME = "AMDGPUExecutionProvider"
CHECKED_PROMPT, CHECKED_TOKENS = 70, 6
MAKER = Path(__file__).resolve().parent.parent / "tests" / "tiny_models.py"


def model(folder, ours, session_options=None):
    """A folder's decoder on our device or on the CPU provider."""
    config = og.Config(str(folder))
    config.clear_providers()
    if ours:
        config.append_provider("amdgpu")
        config.set_provider_option("amdgpu", "profile", "hip")
    if session_options:
        config.overlay(json.dumps({"model": {"decoder": {"session_options": session_options}}}))
    return og.Model(config)


def vocabulary(folder):
    return json.loads((Path(folder) / "genai_config.json").read_text())["model"]["vocab_size"]


def generator_for(made, tokens, batch=1):
    """A generator that produces exactly `tokens` tokens, including the prompt."""
    parameters = og.GeneratorParams(made)
    parameters.set_search_options(batch_size=batch, max_length=tokens, min_length=tokens, do_sample=False)
    return og.Generator(made, parameters)


def milliseconds(work):
    start = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - start) / 1e6


def prompt_of(folder, length, batch=1):
    ids = np.random.default_rng(length).integers(10, vocabulary(folder) - 16, (batch, length)).astype(np.int32)
    return ids if batch > 1 else ids[0]


def steps(made, prompt, tokens):
    """The logits and the chosen token of each step."""
    generator = generator_for(made, len(prompt) + tokens)
    generator.append_tokens(prompt)
    for _ in range(tokens):
        logits = np.array(generator.get_logits(), np.float64).reshape(-1)
        generator.generate_next_token()
        yield logits, int(generator.get_next_tokens()[0])


def differences(ours, theirs, prompt):
    """The largest difference of each step's logits, relative to the largest logit, up to the first step with different
    choices."""
    errors = []
    for (found, ours_chose), (wanted, theirs_chose) in zip(*(steps(made, prompt, CHECKED_TOKENS) for made in (ours, theirs))):
        likely = wanted > -1e30  # tokens that are not allowed yet have the lowest number
        errors.append(np.abs(found - wanted)[likely].max() / np.abs(wanted[likely]).max())
        if ours_chose != theirs_chose:
            break
    return errors


def measure(made, prompt, tokens, rounds):
    """The time of the prompt with its first token, and the median of the tokens after it."""
    batch, length = np.atleast_2d(prompt).shape
    first, rest = [], []
    for _ in range(rounds + 1):
        generator = generator_for(made, length + tokens + 1, batch)
        first.append(milliseconds(lambda: (generator.append_tokens(prompt), generator.generate_next_token())))
        rest.append(statistics.median(milliseconds(generator.generate_next_token) for _ in range(tokens)))
        del generator
    return statistics.median(first[1:]), statistics.median(rest[1:])


def make(folder, size):
    for precision in ("fp16", "int4"):
        path = Path(folder) / f"{size}-{precision}"
        formats = ["--precision", precision, "--activations", "fp16"]
        subprocess.run([sys.executable, MAKER, "--to", path, "--size", size, *formats], check=True)
        yield path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=Path)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--make", action="store_true", help="make decoders of two precisions, and measure them")
    parser.add_argument("--size", default="100m", help="which decoders to make")
    parser.add_argument("--tiny", action="store_true", help="make small decoders; few tokens and rounds")
    given = parser.parse_args()
    prompts, batches, tokens, rounds = ([64, 512], [1, 8], 128, 5)
    if given.tiny:
        prompts, batches, tokens, rounds, given.size = [32], [1, 2], 4, 1, "nano"
    og.register_execution_provider_library(NAME, str(given.library.resolve()))
    wrong, made = False, tempfile.TemporaryDirectory()
    for folder in [*given.folders, *(make(made.name, given.size) if given.make else [])]:
        # Create all models before the first generator: see docs/genai.md.
        ours, theirs = model(folder, ours=True), model(folder, ours=False)
        errors = differences(ours, theirs, prompt_of(folder, CHECKED_PROMPT))
        wrong |= not max(errors) < 0.05
        print(f"{folder.name}: logits of {len(errors)} steps beside the CPU provider: {max(errors):.1e} of the largest"
              f"{'' if max(errors) < 0.05 else ' WRONG'}", flush=True)
        for batch in batches:
            for length in prompts:
                prompt = prompt_of(folder, length, batch)
                first, each = measure(ours, prompt, tokens, rounds)
                print(f"  batch {batch}, prompt of {length:4}: {first:8.2f} ms; a token behind it {each:7.3f} ms, "
                      f"{1e3 * batch / each:7.0f} tokens/s", flush=True)
        del ours, theirs
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
