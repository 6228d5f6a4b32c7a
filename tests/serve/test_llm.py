"""The `llm` command and package against the server."""
import json
import os
import subprocess
import sys
from pathlib import Path

import openai
import pytest
from encoder import expected
from llm.default_plugins.openai_models import Chat
from serving import STORY, TIMEOUT_SECONDS, Server

QUESTION = STORY[0]["content"]
SCHEMA = {
    "type": "object",
    "properties": {"big": {"type": "boolean"}, "legs": {"enum": [2, 4]}},
    "required": ["big", "legs"],
    "additionalProperties": False,
}
# What a Llama 3 model writes to call the tool `weather`.
CALL = {
    "type": "object",
    "properties": {
        "name": {"const": "weather"},
        "parameters": {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"], "additionalProperties": False},
    },
    "required": ["name", "parameters"],
    "additionalProperties": False,
}


@pytest.fixture
def run(tmp_path):
    """Runs the command with a home of its own."""

    def run(*words, stdin="", **variables):
        environment = {**os.environ, "LLM_USER_PATH": str(tmp_path), **variables}
        return subprocess.run(
            [Path(sys.executable).with_name("llm"), *words],
            input=stdin, capture_output=True, text=True, env=environment, timeout=TIMEOUT_SECONDS,
        )

    return run


def endpoint(server, *words):
    return ["openai", "endpoint", f"{server.url}/v1", *words]


def reference(server, messages=STORY):
    """What the endpoint answers without a client library."""
    status, document, _ = server.call("/v1/chat/completions", {"messages": messages, "temperature": 0})
    assert status == 200, document
    return document["choices"][0]["message"]["content"]


def model_of(server, model):
    found = Chat(model_id=model, model_name=model, api_base=f"{server.url}/v1", supports_schema=True, supports_tools=True)
    found.needs_key = None
    return found


@pytest.mark.parametrize("words", [[], ["--no-stream"], ["--responses"]], ids=["stream", "whole", "responses"])
def test_the_command_prints_the_answer(server, run, words):
    done = run(*endpoint(server, QUESTION, "-m", "demo", "-o", "temperature", "0", *words))
    assert done.returncode == 0, done.stderr
    assert done.stdout == reference(server) + "\n"


def test_the_models_are_listed(server, run):
    done = run(*endpoint(server, "--models"))
    assert (done.returncode, done.stdout) == (0, "demo\n"), done.stderr


def test_a_configured_model_keeps_a_conversation(server, run, tmp_path):
    (tmp_path / "extra-openai-models.yaml").write_text(f"- model_id: ours\n  model_name: demo\n  api_base: {server.url}/v1\n")
    first = run("-m", "ours", "-o", "temperature", "0", "-o", "max_tokens", "20", "Tell me about Tom.")
    assert first.returncode == 0, first.stderr
    second = run("-m", "ours", "-o", "temperature", "0", "--continue", "Tell me more.")
    assert second.returncode == 0, second.stderr
    messages = [
        {"role": "user", "content": "Tell me about Tom."},
        {"role": "assistant", "content": first.stdout.removesuffix("\n")},
        {"role": "user", "content": "Tell me more."},
    ]
    assert second.stdout == reference(server, messages) + "\n"


def test_schemas_are_enforced(server, run):
    done = run(*endpoint(server, QUESTION, "-m", "demo", "--schema", json.dumps(SCHEMA)))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document["big"], bool) and document["legs"] in (2, 4) and len(document) == 2


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_is_called_and_its_result_goes_back(templates, stream):
    asked = []

    def weather(city: str) -> str:
        """Tells the weather."""
        asked.append(city)
        return f"It is sunny in {city}."

    conversation = model_of(templates, "llama").conversation(tools=[weather])
    # The package leaves the choice to the model; a schema makes it write what a Llama 3 model writes.
    call = conversation.prompt(QUESTION, schema=CALL, stream=stream, temperature=0)
    assert call.text() == "" and [found.name for found in call.tool_calls()] == ["weather"]
    results = call.execute_tool_calls()
    assert asked and asked[0] in ("Oslo", "Rome") and results[0].output == f"It is sunny in {asked[0]}."
    answer = conversation.prompt(tool_results=results, stream=stream, temperature=0, max_tokens=16)
    assert answer.text() and not answer.tool_calls()
    assert answer.usage().input > call.usage().input, "the model sees the result"


def test_embeddings_are_the_encoders(encoder, run):
    # The command knows only OpenAI's names of models.
    with Server(f"text-embedding-3-small={encoder}") as server:
        variables = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "none"}
        done = run("embed", "-m", "text-embedding-3-small", "-c", "a cat sits", **variables)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == pytest.approx(expected("a cat sits"), abs=1e-6)


@pytest.mark.parametrize(
    "words, message",
    [
        (["-m", "other"], "does not exist"),
        (["-m", "demo", "-o", "max_tokens", "0"], "max_tokens"),
        (["-m", "demo", "--functions", "def weather(city: str): pass"], "does not know tools"),
    ],
    ids=["model", "field", "tools"],
)
def test_the_command_prints_the_servers_errors(server, run, words, message):
    done = run(*endpoint(server, QUESTION, *words))
    assert done.returncode == 1 and done.stderr.startswith("Error: ") and message in done.stderr, done.stderr


def test_errors_are_exceptions_in_python(server):
    with pytest.raises(openai.NotFoundError):
        model_of(server, "other").prompt(QUESTION).text()
    with pytest.raises(openai.BadRequestError):
        model_of(server, "demo").prompt("kite " * 300).text()
