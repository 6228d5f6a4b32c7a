"""OpenAI's responses endpoint, without stored responses."""
import json

import openai
import pytest
from serving import STORY

QUESTION = STORY[0]["content"]


def respond(server, **fields):
    return server.client().responses.create(**{"model": "demo", "input": QUESTION, "temperature": 0, **fields})


def test_the_answer_is_that_of_the_chat_endpoint(server):
    chat = server.client().chat.completions.create(model="demo", messages=STORY, temperature=0)
    response = respond(server)
    assert response.output_text == chat.choices[0].message.content and response.status == "completed"
    assert response.usage.input_tokens == chat.usage.prompt_tokens
    assert response.usage.output_tokens == chat.usage.completion_tokens
    assert respond(server, input=STORY).output_text == response.output_text


def test_instructions_are_a_system_message(server):
    messages = [{"role": "system", "content": "Be brief."}, *STORY]
    chat = server.client().chat.completions.create(model="demo", messages=messages, temperature=0)
    assert respond(server, instructions="Be brief.").output_text == chat.choices[0].message.content


def test_a_stream_has_the_same_text_and_response(server):
    whole = respond(server)
    events = list(respond(server, stream=True))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    assert events[0].type == "response.created" and events[-1].type == "response.completed"
    assert events[-1].response.output_text == whole.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_a_limit_makes_the_response_incomplete(server):
    response = respond(server, max_output_tokens=3)
    assert response.status == "incomplete" and response.incomplete_details.reason == "max_output_tokens"
    assert list(respond(server, max_output_tokens=3, stream=True))[-1].type == "response.incomplete"


def test_schemas_are_enforced(server):
    schema = {"type": "object", "properties": {"big": {"type": "boolean"}}, "required": ["big"], "additionalProperties": False}
    text = {"format": {"type": "json_schema", "name": "animal", "schema": schema}}
    assert isinstance(json.loads(respond(server, text=text).output_text)["big"], bool)


@pytest.mark.parametrize("fields", [{"previous_response_id": "resp_1"}, {"input": [{"type": "item_reference", "id": "x"}]}], ids=["previous", "reference"])
def test_stored_responses_are_not_supported(server, fields):
    with pytest.raises(openai.BadRequestError):
        respond(server, **fields)
