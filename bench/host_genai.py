"""Decoders in ONNX Runtime GenAI on the host device, compared with ONNX Runtime's CPU provider.

Both models read the same prompt and generate the same number of tokens, round by round, in one process on one thread.
Times are CPU times of all threads of the process, so that other load on the machine has little effect. The figure of a
round is the time of its prompt, or the median of its tokens; the printed figures and the ratio are medians over the
rounds.

usage: AMDGPU_EP_DRIVER=host python bench/host_genai.py LIBRARY FOLDER ... [--prompt N] [--tokens N] [--rounds N]
"""
import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime_genai as og

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gpu_genai

ONE_THREAD = {"intra_op_num_threads": 1, "inter_op_num_threads": 1}


def milliseconds(work):
    start = time.process_time_ns()
    work()
    return (time.process_time_ns() - start) / 1e6


def one_round(made, prompt, tokens):
    """The time of the prompt with its first token, the median of the tokens after it, and all tokens."""
    parameters = og.GeneratorParams(made)
    length = len(prompt) + tokens + 1
    parameters.set_search_options(max_length=length, min_length=length, do_sample=False)
    generator = og.Generator(made, parameters)

    def read():
        generator.append_tokens(prompt)
        generator.generate_next_token()

    first = milliseconds(read)
    steps = [milliseconds(generator.generate_next_token) for _ in range(tokens)]
    return first, statistics.median(steps), list(generator.get_sequence(0))


def compare(folder, prompt_tokens, tokens, rounds):
    vocabulary = gpu_genai.vocabulary(folder)
    models = [gpu_genai.model(folder, ours, ONE_THREAD) for ours in (True, False)]
    for made in models:
        one_round(made, np.arange(10, 10 + prompt_tokens, dtype=np.int32) % vocabulary, 2)
    found = []
    for number in range(rounds):
        prompt = np.random.default_rng(number).integers(10, vocabulary, prompt_tokens).astype(np.int32)
        found.append([one_round(made, prompt, tokens) for made in models])
    same = sum(ours[2][prompt_tokens] == theirs[2][prompt_tokens] for ours, theirs in found)
    for at, title in enumerate((f"a prompt of {prompt_tokens}", f"a token behind {prompt_tokens}")):
        ours, theirs = (statistics.median(pair[side][at] for pair in found) for side in (0, 1))
        ratios = sorted(pair[1][at] / pair[0][at] for pair in found)
        count = prompt_tokens if at == 0 else 1
        print(
            f"{Path(folder).name + ': ' + title:36} {ours:9.2f} ms {theirs:9.2f} ms  {statistics.median(ratios):5.2f} x"
            f" ({ratios[0]:.2f} - {ratios[-1]:.2f})  {1e3 * count / ours:7.1f} and {1e3 * count / theirs:7.1f} tokens/s",
            flush=True,
        )
    print(f"{'':36} the first token is the same in {same} of {rounds} rounds", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    og.register_execution_provider_library(gpu_genai.NAME, given.library)
    print(f"{'':36} {'ours':>12} {'CPU':>12}    ratio")
    for folder in given.folders:
        compare(folder, given.prompt, given.tokens, given.rounds)


if __name__ == "__main__":
    main()
