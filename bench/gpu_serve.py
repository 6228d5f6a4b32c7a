"""The server on a GPU: tokens per second of concurrent clients, and the first token of a prompt that was seen before.

Starts `amdgpu-ep serve` on decoders with random weights, and measures it with `amdgpu-ep bench-serve`. All answers have
the same length. The last table sends long prompts twice: the second time, all but the end comes from the prefix cache.

usage: AMDGPU_EP_DRIVER=nvidia python bench/gpu_serve.py LIBRARY [FOLDER ...] [--make] [--tiny]
"""
import argparse
import importlib.util
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import gpu_llm


def runtime():
    """The library of the installed ONNX Runtime."""
    package = Path(importlib.util.find_spec("onnxruntime").origin).parent
    return next(package.glob("capi/libonnxruntime.so.*"))


class Server:
    """A running server for one folder."""

    def __init__(self, command, library, folder, slots, longest):
        words = [command, "serve", folder, "--port", "0", "--library", library, "--ort", runtime(), "--log", "off"]
        self.words = [*map(str, words), "--slots", str(slots), "--max-length", str(longest), "--profile", "hip"]

    def __enter__(self):
        self.process = subprocess.Popen(self.words, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            print(f"  {line.rstrip()}", flush=True)
            if "listening on " in line:
                self.url = line.split("listening on ")[1].strip()
                break
        else:
            raise SystemExit("the server ended before it was ready")
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/ready"):
                    return self
            except OSError:
                if self.process.poll() is not None:
                    raise SystemExit(f"the server ended: {self.process.stderr.read()}") from None
                time.sleep(0.1)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def first_token(self, prompt):
        """Milliseconds until the first event of an answer of one token."""
        body = {"prompt": prompt, "max_tokens": 1, "temperature": 0, "stream": True}
        request = urllib.request.Request(
            f"{self.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        start = time.perf_counter()
        with urllib.request.urlopen(request) as answer:
            answer.readline()
            return 1e3 * (time.perf_counter() - start)


def load(command, server, clients, prompt, tokens):
    """Measures concurrent clients, and prints the table of the command."""
    words = [command, "bench-serve", server.url, "--endpoint", "completions", "--field", "ignore_eos=true"]
    words += ["--concurrency", ",".join(map(str, clients)), "--prompt-tokens", str(prompt), "--max-tokens", str(tokens)]
    report = json.loads(subprocess.run([*map(str, words), "--json"], check=True, capture_output=True, text=True).stdout)
    rows = report["measurements"]
    base = rows[0]["tokens_per_second"]
    for count, row in zip(clients, rows):
        first, between = row["first_token"], row["between_tokens"]
        print(f"  {count:3} clients: {row['tokens_per_second']:8.1f} tokens/s, {row['tokens_per_second'] / base:5.2f} times one client, "
              f"first token {first['p50_ms']:.1f} / {first['p99_ms']:.1f} ms, between tokens {between['p50_ms']:.2f} / {between['p99_ms']:.2f} ms "
              f"(p50 / p99), {row['failed']} failed", flush=True)
    return any(row["failed"] for row in rows)


def prefixes(server, words, rounds):
    """Prompts that are new, and the same ones again."""
    draw = random.Random(1)
    new, again = [], []
    for _ in range(rounds):
        prompt = " ".join(f"w{draw.randrange(10**6)}" for _ in range(words))
        new.append(server.first_token(prompt))
        again.append(server.first_token(prompt))
    ratio = statistics.median(new) / statistics.median(again)
    print(f"  first token of a long prompt: {statistics.median(new):.1f} ms new, {statistics.median(again):.1f} ms again "
          f"({ratio:.1f} times as fast)", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=Path)
    parser.add_argument("decoders", nargs="*")
    parser.add_argument("--make", action="store_true", help="make decoders of two precisions, and measure them")
    parser.add_argument("--tiny", action="store_true", help="small decoders, few clients and short answers")
    parser.add_argument("--clients", type=gpu_llm.numbers, default=[1, 8, 32, 64])
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=128)
    given = parser.parse_args()
    if given.tiny:
        given.clients, given.prompt, given.tokens = [1, 2], 16, 8
    library = given.library.resolve()
    command = library.parent.parent / "bin" / "amdgpu-ep"
    failed, made = False, tempfile.TemporaryDirectory()
    for folder in [*given.decoders, *(gpu_llm.make(made.name, given.tiny) if given.make else [])]:
        print(f"{Path(folder).name}:", flush=True)
        longest = 96 if given.tiny else 4096
        with Server(command, library, folder, max(given.clients), longest) as server:
            failed |= load(command, server, given.clients, given.prompt, given.tokens)
            prefixes(server, *((8, 2) if given.tiny else (500, 5)))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
