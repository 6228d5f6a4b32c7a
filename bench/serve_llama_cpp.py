"""Our server on the host device beside llama.cpp's `llama-server`, on the same CPU with the same weights.

`bench/gguf_model.py` writes both models. Both servers are started, and `amdgpu-ep bench-serve` measures them
in turns, round by round, so that other load on the machine affects both. A server that is not measured is
stopped (SIGSTOP), because llama.cpp's threads spin. The figures of a round are the generated tokens per
second of time, and per second of CPU time that all threads of the server took, prompts included. The program
prints medians over the rounds, and the median of the rounds' ratios. With one thread, CPU time hardly depends
on other load.

The program first checks that both have the same weights: the most likely token of each must be among the
eight most likely of the other, for several prompts. Scores differ slightly, because both round activations to
8 bits, in different ways.

usage: python bench/serve_llama_cpp.py STAGE LLAMA_SERVER FOLDER FILE.gguf [--threads N] [--rounds N] [--concurrency N,...]

STAGE is the folder of `cargo xtask stage --release`, and LLAMA_SERVER the command: Debian's package llama.cpp-tools has it.
Needs `onnxruntime`, whose library our server uses.
"""
import argparse
import importlib.util
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

SLOTS, START_SECONDS = 8, 120
PROMPTS = ["The model reads the prompt once and", "Hello world, this is", "Weights may be stored with four bits"]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A server that is stopped while another one is measured."""

    def __init__(self, name, ready, words, port, environment):
        self.name, self.ready, self.url = name, ready, f"http://127.0.0.1:{port}"
        log = subprocess.DEVNULL
        self.process = subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, **environment})

    def call(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=START_SECONDS) as response:
            return json.loads(response.read())

    def wait(self):
        end = time.monotonic() + START_SECONDS
        while True:
            assert self.process.poll() is None, f"{self.name} ended"
            try:
                return self.call(self.ready)
            except (urllib.error.URLError, ConnectionError):
                assert time.monotonic() < end, f"{self.name} did not start"
                time.sleep(0.2)

    def cpu_seconds(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def signal(self, number):
        self.process.send_signal(number)



def onnxruntime_library():
    package = Path(importlib.util.find_spec("onnxruntime").origin).parent
    return next(package.glob("capi/libonnxruntime.so.*"))


def started(given):
    ports = free_port(), free_port()
    ours = [
        given.stage / "bin/amdgpu-ep", "serve", f"model={given.folder}", "--port", str(ports[0]), "--slots", str(SLOTS),
        "--threads", str(given.threads), "--ort", onnxruntime_library(), "--log", "off",
    ]
    context = json.loads((given.folder / "genai_config.json").read_text())["model"]["context_length"]
    theirs = [
        given.llama_server, "--model", given.file, "--port", str(ports[1]), "--parallel", str(SLOTS), "--threads",
        str(given.threads), "--threads-batch", str(given.threads), "--ctx-size", str(SLOTS * context), "--no-webui",
    ]
    library = given.stage / "lib/libamdgpu-ep.so"
    host = {"AMDGPU_EP_DRIVER": "host", "AMDGPU_EP_PATH": str(library)}
    return Server("ours", "/ready", ours, ports[0], host), Server("llama.cpp", "/health", theirs, ports[1], {})


def check_weights(ours, theirs):
    """Whether both have the same model, up to rounding."""
    for prompt in PROMPTS:
        body = {"prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": 8}
        likely = ours.call("/v1/completions", body)["choices"][0]["logprobs"]["top_logprobs"][0]
        body = {"prompt": prompt, "n_predict": 1, "temperature": 0, "n_probs": 8}
        found = theirs.call("/completion", body)["completion_probabilities"][0]["top_logprobs"]
        other = {entry["token"]: entry["logprob"] for entry in found}
        best = max(likely, key=likely.get), max(other, key=other.get)
        assert best[0] in other and best[1] in likely, f"the models differ: {likely} and {other}"


def measured(given, server, clients, seed):
    """Generated tokens per second, and per second of CPU time."""
    words = [
        given.stage / "bin/amdgpu-ep", "bench-serve", server.url, "--endpoint", "completions", "--concurrency", str(clients),
        "--requests", str(max(given.requests, clients)), "--prompt-tokens", str(given.prompt), "--max-tokens", str(given.tokens),
        "--seed", str(seed), "--json",
    ]
    before = server.cpu_seconds()
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    cpu = server.cpu_seconds() - before
    measurement = json.loads(done.stdout)["measurements"][0]
    assert measurement["failed"] == 0, measurement
    speed = measurement["tokens_per_second"]
    return speed, speed * measurement["seconds"] / cpu


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", type=Path)
    parser.add_argument("llama_server", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=8, help="of a round")
    parser.add_argument("--concurrency", default="1,4,8")
    parser.add_argument("--prompt", type=int, default=64, help="tokens of a prompt")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens of a request")
    given = parser.parse_args()
    servers = started(given)
    try:
        for server in servers:
            server.wait()
        check_weights(*servers)
        for server in servers:
            server.signal(signal.SIGSTOP)
        print(f"prompts of {given.prompt}, {given.tokens} new tokens, {given.threads} threads, {given.rounds} rounds")
        for clients in map(int, given.concurrency.split(",")):
            rounds = []
            for number in range(given.rounds):
                found = []
                for server in servers:
                    server.signal(signal.SIGCONT)
                    found.append(measured(given, server, clients, number))
                    server.signal(signal.SIGSTOP)
                rounds.append(found)
            for at, unit in enumerate(("tokens/s", "tokens/s of CPU time")):
                ours, theirs = (statistics.median(found[side][at] for found in rounds) for side in (0, 1))
                ratios = sorted(found[0][at] / found[1][at] for found in rounds)
                ratio = f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
                print(f"{clients} clients: ours {ours:.1f} {unit}, llama.cpp {theirs:.1f}, {ratio}", flush=True)
    finally:
        for server in servers:
            server.signal(signal.SIGCONT)
            server.process.terminate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
