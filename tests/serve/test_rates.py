"""Rate limits for each key."""
import openai
import pytest
from serving import STORY

ANN, BOB = "a-long-key-that-ann-has", "a-long-key-that-bob-has"


def ask(server, key, **fields):
    return server.client(key).chat.completions.create(model="demo", messages=STORY, **{"max_tokens": 2, **fields})


def settings(tmp_path, text):
    file = tmp_path / "serve.toml"
    file.write_text(text)
    return file


def test_requests_of_a_key_are_limited(start, tmp_path):
    server = start("demo=demo/model", "--config", settings(tmp_path, "requests_per_minute = 2"), AMDGPU_EP_API_KEYS=f"{ANN},{BOB}")
    for _ in range(2):
        assert ask(server, ANN).usage.completion_tokens == 2
    with pytest.raises(openai.RateLimitError) as caught:
        ask(server, ANN)
    assert caught.value.code == "rate_limit_exceeded"
    assert 1 <= int(caught.value.response.headers["retry-after"]) <= 30
    assert ask(server, BOB).usage.completion_tokens == 2, "keys do not share their limits"
    assert server.client(ANN).models.list().data, "only generations are limited"


def test_a_key_over_its_limit_is_refused_before_its_request_is_prepared(start, tmp_path):
    server = start("demo=demo/model", "--config", settings(tmp_path, "requests_per_minute = 1"), AMDGPU_EP_API_KEYS=ANN)
    wrong = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "magic"}}}
    for _ in range(2):
        with pytest.raises(openai.UnprocessableEntityError):
            ask(server, ANN, response_format=wrong)
    assert ask(server, ANN).usage.completion_tokens == 2, "requests that do not run do not count"
    with pytest.raises(openai.RateLimitError):
        ask(server, ANN, response_format=wrong)
    with pytest.raises(openai.RateLimitError):
        server.client(ANN).completions.create(model="demo", prompt="x", extra_body={"response_format": wrong})


def test_requests_to_plain_models_count(start, tmp_path, tensors):
    words = [f"classifier={tensors}/classifier", "--config", settings(tmp_path, "requests_per_minute = 1")]
    server = start(*words, AMDGPU_EP_API_KEYS=ANN)
    x = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    infer = lambda **tensor: server.call("/v2/models/classifier/infer", {"inputs": [{**x, **tensor}]}, {"x-api-key": ANN})
    assert infer(shape=[4])[0] == 400, "requests that do not run do not count"
    assert infer()[0] == 200
    status, document, headers = infer()
    assert status == 429 and "rate limit" in document["error"] and int(headers["retry-after"]) > 1


def test_tokens_of_a_key_are_limited(start, tmp_path):
    server = start("demo=demo/model", "--config", settings(tmp_path, "tokens_per_minute = 30"), AMDGPU_EP_API_KEYS=f"{ANN},{BOB}")
    used = ask(server, ANN, max_tokens=60, logit_bias={"795": -1000, "798": -1000}).usage.total_tokens
    assert used > 60
    with pytest.raises(openai.RateLimitError) as caught:
        ask(server, ANN)
    assert int(caught.value.response.headers["retry-after"]) > 30, "more than a minute's tokens were used at once"
    assert ask(server, BOB, stream=True)
