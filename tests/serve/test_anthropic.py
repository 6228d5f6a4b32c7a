"""Anthropic's API, through the `anthropic` package."""
import json

import anthropic
import pytest
from serving import STORY, TIMEOUT_SECONDS
from test_tools import WEATHER

TOOL = {"name": "weather", "description": "Tells the weather", "input_schema": WEATHER["function"]["parameters"]}


def client(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=TIMEOUT_SECONDS)


def fields(**more):
    return {"model": "demo", "max_tokens": 200, "messages": STORY, **more}


def test_the_answer_is_that_of_the_chat_endpoint(templates):
    chat = templates.client().chat.completions.create(model="demo", messages=STORY, temperature=0)
    message = client(templates).messages.create(**fields())
    assert message.content[0].text == chat.choices[0].message.content
    assert message.stop_reason == "end_turn" and message.role == "assistant"
    usage = message.usage
    assert usage.input_tokens + usage.cache_read_input_tokens == chat.usage.prompt_tokens
    assert usage.output_tokens == chat.usage.completion_tokens


def test_a_stream_has_the_same_text(templates):
    whole = client(templates).messages.create(**fields())
    with client(templates).messages.stream(**fields()) as stream:
        assert "".join(stream.text_stream) == whole.content[0].text
        final = stream.get_final_message()
    assert final.stop_reason == "end_turn" and final.usage.output_tokens == whole.usage.output_tokens


def test_limits_and_stop_sequences_end_the_answer(templates):
    assert client(templates).messages.create(**fields(max_tokens=3)).stop_reason == "max_tokens"
    text = client(templates).messages.create(**fields()).content[0].text
    stopped = client(templates).messages.create(**fields(stop_sequences=[text[20:26]]))
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", text[20:26])
    assert stopped.content[0].text == text[: text.index(text[20:26])]


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "weather"}], ids=["any", "named"])
def test_calls_and_their_results(templates, choice):
    asked = fields(model="hermes", tools=[TOOL], tool_choice=choice)
    message = client(templates).messages.create(**asked)
    call = message.content[0]
    assert message.stop_reason == "tool_use" and call.type == "tool_use" and call.input["city"] in ("Oslo", "Rome")
    with client(templates).messages.stream(**asked) as stream:
        assert stream.get_final_message().content[0].input == call.input
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}]}
    turns = [*STORY, {"role": "assistant", "content": [call.model_dump(include={"type", "id", "name", "input"})]}, result]
    after = client(templates).messages.create(**fields(model="hermes", tools=[TOOL], messages=turns, max_tokens=5))
    assert after.content[0].type == "text"


def test_reasoning_is_a_block_of_its_own(templates):
    message = client(templates).messages.create(**fields(model="thinking", max_tokens=8, system="Be brief."))
    assert message.content[0].type == "thinking" and message.content[0].thinking
    with client(templates).messages.stream(**fields(model="thinking", max_tokens=8, system="Be brief.")) as stream:
        assert stream.get_final_message().content[0].thinking == message.content[0].thinking


def test_errors_have_the_form_of_this_api(templates):
    with pytest.raises(anthropic.NotFoundError) as caught:
        client(templates).messages.create(**fields(model="other"))
    assert caught.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.BadRequestError) as caught:
        client(templates).messages.create(**fields(extra_body={"temperature": -1}))
    assert "temperature" in caught.value.body["error"]["message"]
    for body in ({}, {"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image"}]}]}):
        status, document, _ = templates.call("/v1/messages", body)
        assert status == 400 and document["type"] == "error" and document["error"]["type"] == "invalid_request_error"
    for wanted, host, kind in [(405, "localhost", "invalid_request_error"), (403, "evil.example.org", "permission_error")]:
        status, document, _ = templates.call("/v1/messages", headers={"Host": host})
        assert status == wanted and (document["type"], document["error"]["type"]) == ("error", kind)
