"""Language models on Windows: the demo model gives the answers that ONNX Runtime GenAI gave on Linux's CPU provider."""
import contextlib
import json
import queue
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request

import onnxruntime_genai as og
import pytest
from conftest import ROOT, SECONDS, windows_path

MODEL = ROOT / "demo" / "model"
# The margins say by how much logits may differ before a token changes.
GOLDENS = [
    golden for golden in json.loads((ROOT / "demo" / "goldens.json").read_text(encoding="utf-8"))
    if golden["search"] == {"do_sample": False} and golden["margin"] > 1 and len(golden["messages"]) == 1
]
GOLDEN = GOLDENS[0]


def words(windows, command):
    return [command, windows_path(MODEL), *windows.libraries, "--profile", "hip"]


@pytest.mark.parametrize("golden", GOLDENS[:3], ids=lambda golden: golden["text"])
def test_chat_gives_the_recorded_answer(windows, golden):
    said = windows.run(*words(windows, "chat"), "--greedy", text=golden["messages"][0]["content"] + "\n/quit\n")
    assert golden["text"] in said


def test_generate_continues_a_prompt_as_genai_does(windows):
    prompt, count = "Once there was a clever mouse named", 8
    said = windows.run(*words(windows, "generate"), prompt, "--greedy", "--max-new-tokens", count)
    model = og.Model(str(MODEL))
    tokenizer, parameters = og.Tokenizer(model), og.GeneratorParams(model)
    ids = tokenizer.encode(prompt)
    parameters.set_search_options(do_sample=False, max_length=len(ids) + count)
    generator = og.Generator(model, parameters)
    generator.append_tokens(ids)
    while not generator.is_done():
        generator.generate_next_token()
    wanted = tokenizer.decode(generator.get_sequence(0)[len(ids):])
    assert wanted.strip() and wanted.strip() in said


@contextlib.contextmanager
def server(windows):
    """Starts the server on a free port, and gives its address."""
    command = windows.command(*words(windows, "serve"), "--port", 0)
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", cwd=windows.program.parent,
        env=windows.environment(),
    )
    lines = queue.Queue()
    threading.Thread(target=lambda: [lines.put(line) for line in process.stdout] + [lines.put(None)], daemon=True).start()
    said = ""
    try:
        while not (found := re.search(r"http://127\.0\.0\.1:\d+", said)):
            line = lines.get(timeout=SECONDS)
            assert line is not None, f"the server ended: {said}"
            said += line
        wait_until_ready(found.group())
        yield found.group()
    finally:
        process.kill()
        process.wait()


def wait_until_ready(address):
    """Waits until the server has loaded its model: it answers 503 until then."""
    end = time.monotonic() + SECONDS
    while True:
        try:
            return urllib.request.urlopen(f"{address}/ready", timeout=SECONDS)
        except urllib.error.HTTPError as error:
            assert error.code == 503 and time.monotonic() < end, error
        time.sleep(0.2)


def test_server_answers_as_recorded(windows):
    with server(windows) as address:
        body = {"messages": GOLDEN["messages"], "temperature": 0, "max_tokens": 64}
        request = urllib.request.Request(
            f"{address}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"},
        )
        answer = json.load(urllib.request.urlopen(request, timeout=SECONDS))
        assert answer["choices"][0]["message"]["content"].strip() == GOLDEN["text"]
