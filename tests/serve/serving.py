"""Starts `amdgpu-ep serve` of the staged build, and talks to it."""
import json
import os
import queue
import signal
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import openai

ROOT = Path(__file__).resolve().parents[2]
COMMAND = Path(os.environ.get("AMDGPU_EP_LIBRARY", "")).parent.parent / "bin" / "amdgpu-ep"
STORY = [{"role": "user", "content": "Tell me a story about a bear named Tom."}]
# The demo model's end tokens. Without them it writes until its 288 tokens are full.
ENDLESS = {"795": -1000, "798": -1000}
# For servers that hang; the machine may be busy.
TIMEOUT_SECONDS = 120


def environment(**variables):
    """The variables of a process that runs on the host device."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("AMDGPU_EP_")}
    library = os.environ["AMDGPU_EP_LIBRARY"]
    return {**kept, "AMDGPU_EP_PATH": library, "AMDGPU_EP_DRIVER": "host", **variables}


def command(*words, stdin="", **variables):
    """Runs the command, and returns the completed process."""
    runtime = () if "--hash-key" in words else ("--ort", os.environ["AMDGPU_EP_TEST_ORT"])
    return subprocess.run(
        [COMMAND, *words, *runtime], input=stdin, capture_output=True, text=True, cwd=ROOT, env=environment(**variables),
        timeout=TIMEOUT_SECONDS,
    )


def wait_until(condition, what):
    """Waits for a state, and fails if it never comes."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < end, f"never happened: {what}"
        time.sleep(0.01)


class Server:
    """A running server."""

    def __init__(self, *words, certificate=None, **variables):
        self.words, self.variables, self.lines = words, variables, []
        self.context = ssl.create_default_context(cafile=certificate) if certificate else None

    def __enter__(self):
        words = [COMMAND, "serve", *self.words, "--port", "0", "--ort", os.environ["AMDGPU_EP_TEST_ORT"]]
        self.process = subprocess.Popen(
            words, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment(**self.variables)
        )
        arrived = queue.Queue()
        threading.Thread(target=self.follow, args=(arrived,), daemon=True).start()
        while "listening on " not in (line := arrived.get(timeout=TIMEOUT_SECONDS)):
            assert line, f"the server ended: {self.log()}"
        self.url = line.split("listening on ")[1].strip()
        wait_until(self.is_ready, "the server is ready")
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def follow(self, arrived):
        """Collects the log."""
        for line in self.process.stderr:
            self.lines.append(line)
            arrived.put(line)
        arrived.put("")

    def log(self):
        return "".join(self.lines)

    def is_ready(self):
        assert self.process.poll() is None, f"the server ended: {self.log()}"
        return self.call("/ready")[0] == 200

    def terminate(self):
        """Sends SIGTERM, as service managers do."""
        self.process.send_signal(signal.SIGTERM)

    def call(self, path, body=None, headers=(), method=None):
        """Sends a request without a client library; returns status, document or text, and headers."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **dict(headers)}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS, context=self.context) as response:
                return response.status, parsed(response.read()), response.headers
        except urllib.error.HTTPError as error:
            with error:
                return error.code, parsed(error.read()), error.headers

    def client(self, key="none", **options):
        """The `openai` package's client, which does not retry."""
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=TIMEOUT_SECONDS, **options)

    def metric(self, name):
        """The value of a metric of the first model."""
        for line in self.call("/metrics")[1].splitlines():
            if line.startswith(f"amdgpu_ep_{name}{{"):
                return float(line.rsplit(" ", 1)[1])
        raise AssertionError(f"no metric {name}")

    def slots(self):
        """The states of the first model's slots."""
        return [slot["state"] for slot in self.call("/slots")[1][0]["slots"]]


def parsed(data):
    try:
        return json.loads(data)
    except ValueError:
        return data.decode(errors="replace")
