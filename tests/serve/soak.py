"""Runs a server at full load with random faults for a given time.

Clients send greedy and seeded requests, continue conversations, read slowly, leave in the middle of an answer, reset their
connections, and send huge, malformed and half requests. Now and then the device fails for a moment. Every answer that ends must be the one
that a server with one slot and without a prefix cache gives when nothing else runs; some of these are compared with
`amdgpu-ep generate`. Only requests that run while the device fails may get an error. At the end no slot is in use, no request
waits, and the server has as many files open as at the start. Its memory must not have grown.

usage: python tests/serve/soak.py [--seconds N] [--clients N] [--slots N] [--kinds N] [--seed N] [--model FOLDER]

`--model` runs the demo model in another form, such as the folder that `tests/serve/paged.py` writes; its caches get few blocks.

`AMDGPU_EP_LIBRARY` and `AMDGPU_EP_TEST_ORT` name the built library and that of ONNX Runtime, as in the tests.
"""
import argparse
import collections
import http.client
import json
import os
import random
import socket
import statistics
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from serving import TIMEOUT_SECONDS, Server, command, wait_until

CHAT = "/v1/chat/completions"
NAMES = ["Tom", "Lily", "Max", "Anna", "Ben", "Mia"]
THINGS = ["bear", "fox", "mouse", "cat", "rabbit", "boat", "lantern", "kite"]
SCHEMA = {
    "type": "object",
    "properties": {"big": {"type": "boolean"}, "legs": {"enum": [2, 4]}},
    "required": ["big", "legs"],
    "additionalProperties": False,
}
# Resets a connection instead of closing it.
RESET = struct.pack("ii", 1, 0)
HUGE_BYTES = 5 << 20
# What a run may change: buffers of the allocator, and what the longest answers needed.
GROWTH_BYTES = 48 << 20
DEMO = "demo/model"
# For caches in blocks: the longest sequence has 18, so sequences compete for them.
BLOCKS = 30


def kinds(generator, count):
    """Different requests: greedy and seeded, with several choices, stop strings and schemas."""
    for number in range(count):
        name, thing = generator.choice(NAMES), generator.choice(THINGS)
        request = {
            "messages": [{"role": "user", "content": f"Tell me a story about {name} and a {thing}, number {number}."}],
            "max_tokens": generator.randrange(4, 50),
            "temperature": 0,
        }
        if number % 3 == 1:
            request |= {"temperature": generator.choice([0.7, 1.3]), "seed": generator.randrange(1 << 31)}
        if number % 5 == 2:
            request["n"] = generator.randrange(2, 4)
        if number % 7 == 3:
            request["stop"] = [" the", "."]
        if number % 8 == 5:
            request["response_format"] = {"type": "json_schema", "json_schema": {"name": "animal", "schema": SCHEMA}}
        yield request


def continued(request, answer):
    """The next turn of a conversation, whose beginning may be in the cache."""
    turns = [{"role": "assistant", "content": answer[0][0]}, {"role": "user", "content": "Tell me more."}]
    return {**request, "messages": request["messages"] + turns}


def answer_of(document):
    """Texts and reasons of the choices."""
    choices = sorted(document["choices"], key=lambda choice: choice["index"])
    return [(choice["message"]["content"], choice["finish_reason"]) for choice in choices]


class Broken(Exception):
    """The server reported a fault of its own."""


class Soak:
    def __init__(self, server, cases, seed, seconds, lost):
        self.server, self.cases, self.seed, self.lost = server, cases, seed, lost
        # Changes when the device fails and when it works again.
        self.epoch = 0
        self.address = urlsplit(server.url)
        self.end = time.monotonic() + seconds
        self.counts, self.problems, self.samples = collections.Counter(), [], []
        self.lock = threading.Lock()

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def is_over(self):
        """Whether the time is over. A machine that stalls gets the time for some complete answers."""
        has_answers = all(self.counts[action] for action in ("whole", "stream"))
        return bool(self.problems) or (time.monotonic() >= self.end and has_answers)

    def connection(self):
        return http.client.HTTPConnection(self.address.hostname, self.address.port, timeout=TIMEOUT_SECONDS)

    def post(self, connection, body):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request("POST", CHAT, data, {"Content-Type": "application/json"})
        return connection.getresponse()

    def started(self, connection, request):
        """A response that has begun, or `None` if the queue is full."""
        response = self.post(connection, request)
        if response.status == 429:
            assert int(response.headers["retry-after"]) >= 1
            response.read()
            self.count("refused")
            return None
        if response.status == 500:
            raise Broken(response.read())
        assert response.status == 200, (response.status, response.read(500))
        return response

    def events(self, response, pause=lambda: None):
        """The documents of a stream."""
        for line in response:
            pause()
            if line.startswith(b"data: ") and line != b"data: [DONE]\n":
                event = json.loads(line[6:])
                if "error" in event:
                    raise Broken(event)
                yield event

    def check(self, action, request, found, wanted):
        assert found == wanted, f"{action}: {request}\n  answered {found}\n  alone    {wanted}"
        self.count(action)

    def whole(self, generator):
        request, wanted = generator.choice(self.cases)
        connection = self.connection()
        if response := self.started(connection, request):
            self.check("whole", request, answer_of(json.loads(response.read())), wanted)
        connection.close()

    def stream(self, generator, action="stream", pause=lambda: None, prepare=lambda connection: None):
        request, wanted = generator.choice(self.cases)
        connection = self.connection()
        connection.connect()
        prepare(connection)
        if response := self.started(connection, {**request, "stream": True}):
            texts, reasons = collections.defaultdict(str), {}
            for event in self.events(response, pause):
                for choice in event["choices"]:
                    texts[choice["index"]] += choice["delta"].get("content") or ""
                    if choice["finish_reason"]:
                        reasons[choice["index"]] = choice["finish_reason"]
            self.check(action, request, [(texts[index], reasons.get(index)) for index in range(len(wanted))], wanted)
        connection.close()

    def slow(self, generator):
        """A client that reads slowly, through a small buffer."""
        small = lambda connection: connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        self.stream(generator, "slow", lambda: time.sleep(generator.uniform(0, 0.05)), small)

    def left(self, generator, action="left", prepare=lambda connection: None):
        """A client that leaves in the middle of a stream."""
        request, _ = generator.choice(self.cases)
        connection = self.connection()
        if response := self.started(connection, {**request, "stream": True}):
            events = self.events(response)
            for _ in range(generator.randrange(6)):
                next(events, None)
            prepare(connection)
            response.close()
            self.count(action)
        connection.close()

    def reset(self, generator):
        linger = lambda connection: connection.sock and connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.left(generator, "reset", linger)

    def half(self, generator):
        """A client that sends a part of its request."""
        request, _ = generator.choice(self.cases)
        data = json.dumps(request).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        sent = head.encode() + data
        with socket.create_connection((self.address.hostname, self.address.port), timeout=TIMEOUT_SECONDS) as client:
            client.sendall(sent[: generator.randrange(1, len(sent))])
        self.count("half")

    def huge(self, generator):
        connection = self.connection()
        try:
            response = self.post(connection, b'{"messages": "' + b"x" * HUGE_BYTES + b'"}')
            assert response.status == 413, response.status
        except (BrokenPipeError, ConnectionResetError):
            pass  # The server answered before it read everything.
        connection.close()
        self.count("huge")

    def malformed(self, generator):
        request, _ = generator.choice(self.cases)
        data = bytearray(json.dumps(request).encode())
        # A NUL byte is valid nowhere in a JSON document.
        data[generator.randrange(len(data))] = 0
        connection = self.connection()
        response = self.post(connection, bytes(data))
        document = json.loads(response.read())
        assert response.status == 400 and document["error"]["type"] == "invalid_request_error", document
        connection.close()
        self.count("malformed")

    def work(self, number):
        generator = random.Random(self.seed * 1000 + number)
        actions = [self.whole, self.stream, self.slow, self.left, self.reset, self.half, self.huge, self.malformed]
        weights = [8, 8, 2, 3, 3, 1, 0.2, 1]
        while not self.is_over():
            action, epoch = generator.choices(actions, weights)[0], self.epoch
            try:
                action(generator)
            except Broken as error:
                if epoch % 2 == 0 and epoch == self.epoch:
                    self.problems.append(f"{action.__name__}: the device worked, but the server answered {error}")
                self.count("device_failed")
            except Exception as error:
                self.problems.append(f"{action.__name__}: {type(error).__name__}: {error}")

    def fail(self):
        """Lets the device fail now and then, for a moment."""
        generator = random.Random(self.seed)
        while not self.is_over():
            time.sleep(generator.uniform(1, 4))
            self.epoch += 1
            self.lost.touch()
            time.sleep(generator.uniform(0.01, 0.2))
            self.lost.unlink()
            self.epoch += 1
            self.count("device_failures")

    def sample(self):
        """Memory in bytes, threads and open files of the server."""
        process = Path("/proc") / str(self.server.process.pid)
        lines = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        return int(lines["VmRSS"].split()[0]) << 10, int(lines["Threads"]), len(os.listdir(process / "fd"))

    def run(self, clients):
        _, _, files = self.sample()
        threads = [threading.Thread(target=self.work, args=(number,)) for number in range(clients)]
        threads.append(threading.Thread(target=self.fail))
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            assert self.server.process.poll() is None, f"the server ended: {self.server.log()[-3000:]}"
            self.samples.append(self.sample())
            threads[-1].join(0.5)
        assert not self.problems, "\n".join(self.problems)
        wait_until(lambda: set(self.server.slots()) == {"idle"}, "all slots are free")
        wait_until(lambda: self.server.metric("requests_waiting") == 0, "no request waits")
        ended = lambda: sum(self.server.metric(f"requests_{name}_total") for name in ("finished", "cancelled", "failed"))
        wait_until(lambda: ended() == self.server.metric("requests_submitted_total"), "every request ended")
        # Connections that are kept open close in a moment.
        wait_until(lambda: self.sample()[2] <= files + 1, "the files of all connections are closed")

    def growth(self):
        """By how much the memory of the last quarter exceeds that of the second one."""
        memory = [sample[0] for sample in self.samples]
        quarter = max(1, len(memory) // 4)
        return statistics.median(memory[-quarter:]) - statistics.median(memory[quarter : 2 * quarter] or memory)


def alone(server, requests):
    """The answers of a server that does nothing else."""
    answers = []
    for request in requests:
        status, document, _ = server.call(CHAT, request)
        assert status == 200, document
        answers.append(answer_of(document))
    return answers


def generated(request, model):
    """The text that `amdgpu-ep generate` writes for a greedy request."""
    words = ["generate", model, request["messages"][0]["content"], "--chat", "--greedy", "--json"]
    done = command(*words, "--max-new-tokens", str(request["max_tokens"]))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["text"]


def soak(seconds, clients=12, slots=4, count=24, seed=1, model=DEMO):
    """Runs everything, and returns the figures. Raises if something is wrong."""
    generator = random.Random(seed)
    requests = list(kinds(generator, count))
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "serve.toml"
        settings.write_text("slots = 1\nprefix_cache = false\nlog = 'off'\n")
        with Server(f"demo={model}", "--config", settings) as server:
            first = alone(server, requests)
            requests += [continued(request, answer) for request, answer in zip(requests, first) if "stop" not in request]
            answers = first + alone(server, requests[count:])
            assert server.metric("cached_tokens_total") == 0
    greedy = [number for number in range(count) if set(requests[number]) == {"messages", "max_tokens", "temperature"}]
    for number in [number for number in greedy if requests[number]["temperature"] == 0][:2]:
        assert answers[number][0][0] == generated(requests[number], model), "the reference differs from `amdgpu-ep generate`"
    with tempfile.TemporaryDirectory() as folder:
        lost = Path(folder) / "lost"
        settings = Path(folder) / "serve.toml"
        settings.write_text(f"cache_blocks = {BLOCKS}\n")
        words = [f"demo={model}", "--config", settings, "--slots", str(slots), "--queue", str(clients), "--log", "off"]
        with Server(*words, AMDGPU_EP_HOST_LOST=str(lost)) as server:
            return loaded(server, lost, requests, answers, seconds, clients, seed)


def loaded(server, lost, requests, answers, seconds, clients, seed):
    """Loads the server, and returns the figures."""
    run = Soak(server, list(zip(requests, answers)), seed, seconds, lost)
    run.run(clients)
    again = alone(server, requests)
    assert again == answers, "answers changed after the load"
    growth = run.growth()
    assert growth <= GROWTH_BYTES, f"the server's memory grew by {growth / 2**20:.0f} MiB"
    assert "panicked" not in server.log(), server.log()
    figures = {
        "seconds": seconds,
        "requests": dict(sorted(run.counts.items())),
        "tokens": int(server.metric("new_tokens_total")),
        "cached_tokens": int(server.metric("cached_tokens_total")),
        "memory_growth_mib": round(growth / 2**20, 1),
        "memory_mib": round(run.samples[-1][0] / 2**20, 1),
    }
    assert figures["cached_tokens"] > 0, "no request found its beginning in the cache"
    server.terminate()
    assert server.process.wait(timeout=TIMEOUT_SECONDS) == 0, server.log()
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--kinds", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", default=DEMO)
    found = parser.parse_args()
    figures = soak(found.seconds, found.clients, found.slots, found.kinds, found.seed, found.model)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    sys.exit(main())
