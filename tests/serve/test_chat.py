"""Answers of the chat endpoint, through the `openai` package and curl."""
import contextlib
import io
import json
import math
import shutil
import subprocess

import openai
import pytest
from serving import ROOT, STORY, command

GOLDENS = [golden for golden in json.loads((ROOT / "demo/goldens.json").read_text()) if not golden["search"]["do_sample"]]


def ask(server, messages=STORY, **fields):
    return server.client().chat.completions.create(model="demo", messages=messages, **fields)


@pytest.mark.parametrize("golden", GOLDENS, ids=range(len(GOLDENS)))
def test_greedy_answers_are_the_recorded_ones(server, golden):
    """The recordings were made with ONNX Runtime GenAI."""
    answer = ask(server, golden["messages"], temperature=0)
    assert answer.choices[0].message.content == golden["text"]
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens == len(golden["prompt_ids"])
    assert answer.usage.completion_tokens == len(golden["new_ids"])


def test_greedy_answers_are_those_of_the_generate_command(server):
    done = command("generate", "demo/model", STORY[0]["content"], "--chat", "--greedy", "--json")
    assert done.returncode == 0, done.stderr
    generated = json.loads(done.stdout)
    answer = ask(server, temperature=0, max_tokens=256)
    assert answer.choices[0].message.content == generated["text"]
    assert answer.usage.completion_tokens == len(generated["tokens"])


def test_the_example_of_the_page_runs(server):
    page = (ROOT / "docs/serve.md").read_text(encoding="utf-8")
    example = page.split("```python no-run\n")[1].split("```")[0]
    assert 'model="model"' in example and "http://127.0.0.1:8080" in example
    example = example.replace('model="model"', 'model="demo"').replace("http://127.0.0.1:8080", server.url)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(example, "docs/serve.md", "exec"), {})
    assert len(printed.getvalue()) > 20


def test_a_stream_has_the_same_text_and_usage(server):
    whole = ask(server, temperature=0)
    chunks = list(ask(server, temperature=0, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == whole.choices[0].message.content
    assert len(chunks) > 10, "the text came in one piece"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    usage = chunks[-1].usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (whole.usage.prompt_tokens, whole.usage.completion_tokens)
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_a_stream_without_the_option_has_no_usage(server):
    assert all(chunk.usage is None for chunk in ask(server, temperature=0, max_tokens=3, stream=True))


def test_the_same_seed_gives_the_same_answer(server):
    answers = [ask(server, temperature=1.5, seed=seed).choices[0].message.content for seed in (7, 7, 8)]
    assert answers[0] == answers[1] != answers[2]


def test_choices_use_consecutive_seeds(server):
    both = ask(server, temperature=1.5, seed=7, n=2).choices
    alone = [ask(server, temperature=1.5, seed=seed).choices[0].message.content for seed in (7, 8)]
    assert [choice.message.content for choice in both] == alone
    assert [choice.index for choice in both] == [0, 1]


def test_a_stop_string_ends_the_answer_before_it(server):
    text = ask(server, temperature=0).choices[0].message.content
    stop = text[20:26]
    answer = ask(server, temperature=0, stop=[stop]).choices[0]
    assert answer.message.content == text[: text.index(stop)]
    assert answer.finish_reason == "stop"


def test_a_token_limit_ends_the_answer(server):
    answer = ask(server, temperature=0, max_completion_tokens=5)
    assert answer.choices[0].finish_reason == "length" and answer.usage.completion_tokens == 5


def test_logprobs_belong_to_the_tokens(server):
    answer = ask(server, temperature=0, max_tokens=4, logprobs=True, top_logprobs=3).choices[0]
    assert "".join(entry.token for entry in answer.logprobs.content) == answer.message.content
    for entry in answer.logprobs.content:
        best = [other.logprob for other in entry.top_logprobs]
        assert len(best) == 3 and best == sorted(best, reverse=True)
        assert entry.token == entry.top_logprobs[0].token, "the greedy token is the most likely one"
        assert sum(map(math.exp, best)) <= 1.0001


def test_a_logit_bias_forbids_a_token(server):
    first = ask(server, temperature=0, max_tokens=1).choices[0].message.content
    token = server.call("/tokenize", {"prompt": first})[1]["tokens"][0]
    assert ask(server, temperature=0, max_tokens=1, logit_bias={token: -1000}).choices[0].message.content != first


def test_json_schemas_are_enforced(server):
    schema = {
        "type": "object",
        "properties": {"big": {"type": "boolean"}, "legs": {"enum": [2, 4]}},
        "required": ["big", "legs"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "animal", "schema": schema}}
    for choice in ask(server, response_format=form, temperature=1, seed=1, n=3).choices:
        document = json.loads(choice.message.content)
        assert isinstance(document["big"], bool) and document["legs"] in (2, 4) and len(document) == 2


def test_a_system_message_and_parts_are_accepted(server):
    parts = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": STORY[0]["content"]}]}]
    plain = [{"role": "system", "content": "Be brief."}, *STORY]
    answers = [ask(server, messages, temperature=0, max_tokens=20) for messages in (parts, plain)]
    assert answers[0].choices[0].message.content == answers[1].choices[0].message.content


def test_a_repeated_prompt_is_found_in_the_cache(server):
    messages = [{"role": "user", "content": "Tell me a story about Lily the cat and a lantern."}]
    ask(server, messages, temperature=0, max_tokens=4)
    usage = ask(server, messages, temperature=0, max_tokens=4).usage
    assert 0 < usage.prompt_tokens_details.cached_tokens < usage.prompt_tokens


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_receives_events(server):
    body = json.dumps({"messages": STORY, "stream": True, "max_tokens": 2, "temperature": 0})
    words = ["curl", "-sN", f"{server.url}/v1/chat/completions", "-H", "Content-Type: application/json", "-d", body]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    assert all(line.startswith("data: {") for line in lines[:-2])


def test_the_models_are_listed(server):
    models = server.client().models.list().data
    assert [model.id for model in models] == ["demo"]
    assert server.client().models.retrieve("demo").id == "demo"
    with pytest.raises(openai.NotFoundError):
        server.client().models.retrieve("other")
