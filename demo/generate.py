"""Talks to the demo model through ONNX Runtime GenAI; each TEXT is one turn of the same conversation.

    python generate.py "Tell me a story." "Who won the race?" [--library libamdgpu-ep.so] [--seed N]

With --library, the model runs on the provider, otherwise on the CPU. With --seed, tokens are sampled, otherwise
decoding is greedy.
"""
import argparse
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime_genai as og

MODEL = Path(__file__).parent / "model"


def answer(model, tokenizer, messages, search):
    """Prints the answer as it is generated; returns its text and its number of tokens."""
    prompt = tokenizer.apply_chat_template(json.dumps(messages), add_generation_prompt=True)
    parameters = og.GeneratorParams(model)
    parameters.set_search_options(**search)
    generator = og.Generator(model, parameters)
    generator.append_tokens(np.array(tokenizer.encode(prompt), np.int32))
    stream, parts, count = tokenizer.create_stream(), [], 0
    while not generator.is_done():
        generator.generate_next_token()
        parts.append(stream.decode(generator.get_next_tokens()[0]))
        count += 1
        print(parts[-1], end="", flush=True)
    print()
    return "".join(parts), count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", nargs="+")
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--library", help="path of libamdgpu-ep.so")
    parser.add_argument("--seed", type=int)
    chosen = parser.parse_args()

    config = og.Config(str(chosen.model))
    if chosen.library:
        # GenAI looks for this provider's library here. ONNX Runtime would resolve a relative path beside its own
        # library.
        os.environ["AMDGPU_EP_PATH"] = os.path.abspath(chosen.library)
        config.clear_providers()
        config.append_provider("amdgpu")
    model = og.Model(config)
    tokenizer = og.Tokenizer(model)
    search = {"do_sample": False}
    if chosen.seed is not None:
        search = {"do_sample": True, "random_seed": chosen.seed, "temperature": 0.9, "top_k": 40, "top_p": 0.95}
    messages, tokens, start = [], 0, time.perf_counter()
    for text in chosen.text:
        print(f"> {text}")
        messages.append({"role": "user", "content": text})
        said, count = answer(model, tokenizer, messages, search)
        messages.append({"role": "assistant", "content": said})
        tokens += count
    spent = time.perf_counter() - start
    print(f"{tokens} tokens on {model.device_type} in {spent:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
