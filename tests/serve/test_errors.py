"""Errors, as the `openai` package's exceptions and as raw responses to hostile bodies."""
import json
import socket

import openai
import pytest
from serving import STORY

CHAT = "/v1/chat/completions"


def ask(server, **fields):
    return server.client().chat.completions.create(**{"model": "demo", "messages": STORY, **fields})


@pytest.mark.parametrize(
    "fields, kind, param",
    [
        ({"model": "other"}, openai.NotFoundError, "model"),
        ({"messages": []}, openai.BadRequestError, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, openai.BadRequestError, "messages"),
        ({"temperature": -1}, openai.BadRequestError, "temperature"),
        ({"top_p": 2}, openai.BadRequestError, "top_p"),
        ({"n": 0}, openai.BadRequestError, "n"),
        ({"n": 1000}, openai.BadRequestError, "n"),
        ({"max_tokens": 0}, openai.BadRequestError, "max_tokens"),
        ({"logprobs": True, "top_logprobs": 99}, openai.BadRequestError, "top_logprobs"),
        ({"top_logprobs": 2}, openai.BadRequestError, "top_logprobs"),
        ({"logit_bias": {"999999": 1}}, openai.BadRequestError, "logit_bias"),
        ({"logit_bias": {"1": 1, "01": 1}}, openai.BadRequestError, "logit_bias"),
        ({"stop": ["x"] * 99}, openai.BadRequestError, "stop"),
        ({"functions": [{"name": "f"}]}, openai.BadRequestError, "functions"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "nothing"}}}},
            openai.UnprocessableEntityError,
            "response_format",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_wrong_fields_are_named(server, fields, kind, param):
    with pytest.raises(kind) as caught:
        ask(server, **fields)
    assert caught.value.param == param and caught.value.message


def test_a_prompt_that_does_not_fit_is_rejected(server):
    text, client = "kite " * 300, server.client()
    for send, param in [
        (lambda: ask(server, messages=[{"role": "user", "content": text}]), "messages"),
        (lambda: client.completions.create(model="demo", prompt=text), "prompt"),
        (lambda: client.responses.create(model="demo", input=text), "input"),
    ]:
        with pytest.raises(openai.BadRequestError) as caught:
            send()
        assert (caught.value.code, caught.value.param) == ("context_length_exceeded", param)


def test_the_number_of_biases_is_limited(server):
    with pytest.raises(openai.BadRequestError, match="at most 1024"):
        ask(server, logit_bias={str(token): 0 for token in range(1025)})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[1]",
        b"\xff\xfe",
        b'{"messages": NaN}',
        b'{"messages":' + b"[" * 100_000,
        b'{"messages":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}",
        b'{"messages": 1e999}',
        b'{"messages": "x"}',
        b'{"messages": [1]}',
        b'{"messages": [{"role": "user", "content": {"a": 1}}]}',
        b'{"messages": [{"role": "user", "content": "x"}], "seed": 1.5}',
        b'{"messages": [{"role": "user", "content": "x"}], "stop": 3}',
        b'{"messages": [{"role": "user", "content": "x"}], "n": 18446744073709551616}',
        b'{"messages": [{"role": "user", "content": "x"}], "logit_bias": [1]}',
        b'{"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "poem"}}',
        b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "max_tokens": "two"}',
    ],
    ids=lambda body: body[:40].decode(errors="replace"),
)
def test_hostile_bodies_are_bad_requests(server, body):
    status, document, _ = server.call(CHAT, body)
    assert status == 400 and document["error"]["type"] == "invalid_request_error", document
    assert len(json.dumps(document)) < 2000, "the body is repeated in the message"


def test_huge_bodies_are_refused(server):
    status, document, _ = server.call(CHAT, b'{"messages": "' + b"x" * (5 << 20) + b'"}')
    assert status == 413 and document["error"]["code"] == "body_too_large"


def test_a_body_of_unknown_length_is_refused_at_the_limit(server):
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        try:
            for _ in range(1200):
                connection.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        except OSError:
            pass  # The server has answered and closed the connection.
        assert b" 413 " in connection.recv(4096).split(b"\r\n")[0]


def test_unknown_paths_and_methods_are_errors_in_the_same_form(server):
    for path, body, wanted in [("/v1/nothing", None, 404), (CHAT, None, 405), ("/health", {}, 405)]:
        status, document, _ = server.call(path, body)
        assert status == wanted and document["error"]["message"]


def test_other_content_types_are_refused(server):
    status, document, _ = server.call(CHAT, {"messages": STORY}, {"Content-Type": "text/plain"})
    assert status == 415 and document["error"]["code"] == "unsupported_media_type"


def test_the_server_still_answers_after_all_that(server):
    assert ask(server, max_tokens=2, temperature=0).usage.completion_tokens == 2
