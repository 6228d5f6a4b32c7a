"""Prompts of lengths that a session has not seen yet: the first run of each length, and later ones, of a decoder with random weights.

The mask is as wide as the prompt, or as wide as the cache.

usage: AMDGPU_EP_DRIVER=nvidia python bench/gpu_prompt_lengths.py LIBRARY [--tiny]
"""
import statistics
import sys
import tempfile
import time
from pathlib import Path

import gpu_llm
import gpu_models
import onnxruntime as ort

CACHE, PASSES = 4096, 4


def pass_over(running, decoder, lengths, is_wide, cache):
    """Milliseconds of a prompt of each length."""
    times = []
    for length in lengths:
        feeds = decoder.feeds(1, length, 0, cache)
        if not is_wide:
            feeds["attention_mask"] = feeds["attention_mask"][:, :length]
        bound = gpu_llm.Bound(running, decoder, feeds, 1, length, cache)
        start = time.perf_counter()
        bound.run()
        times.append(1e3 * (time.perf_counter() - start))
    return times


def main():
    library, tiny = Path(sys.argv[1]).resolve(), "--tiny" in sys.argv
    ort.register_execution_provider_library(gpu_models.NAME, str(library))
    lengths, cache = (range(8, 12), 64) if tiny else (range(100, 130), CACHE)
    with tempfile.TemporaryDirectory() as made:
        for folder in gpu_llm.make(made, tiny):
            decoder = gpu_llm.Decoder(folder)
            for is_wide in (False, True):
                running = gpu_llm.session(decoder.path, {"profile": "llm"})
                pass_over(running, decoder, [64], is_wide, cache)
                for number in range(PASSES):
                    times = pass_over(running, decoder, lengths, is_wide, cache)
                    print(f"{folder.name}, mask of {'the cache' if is_wide else 'the prompt'}, pass {number + 1}: "
                          f"median {statistics.median(times):.2f} ms, {min(times):.2f} to {max(times):.2f} ms", flush=True)


if __name__ == "__main__":
    main()
