"""Tools through the `openai` package. The demo model knows none, so its template is replaced and its answers are forced."""
import json

import openai
import pytest
from serving import STORY

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Oslo", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}}
FORCED_WEATHER = {"type": "function", "function": {"name": "weather"}}


def ask(server, model, **fields):
    fields = {"messages": STORY, "temperature": 0, **fields}
    return server.client().chat.completions.create(model=model, **fields)


def arguments_of(call):
    assert call.type == "function" and call.id
    return call.function.name, json.loads(call.function.arguments)


@pytest.mark.parametrize("choice", ["required", FORCED_WEATHER], ids=["required", "named"])
def test_a_call_can_be_required(templates, choice):
    answer = ask(templates, "hermes", tools=[WEATHER], tool_choice=choice).choices[0]
    name, arguments = arguments_of(answer.message.tool_calls[0])
    assert name == "weather" and arguments["city"] in ("Oslo", "Rome")
    assert answer.finish_reason == "tool_calls" and answer.message.content is None


def test_one_of_several_tools_is_called(templates):
    for seed in range(4):
        answer = ask(templates, "hermes", tools=[WEATHER, CLOCK], tool_choice="required", temperature=2, seed=seed)
        name, arguments = arguments_of(answer.choices[0].message.tool_calls[0])
        assert (name, arguments) in [("clock", {}), ("weather", {"city": "Oslo"}), ("weather", {"city": "Rome"})]


def test_a_streamed_call_is_complete_and_nothing_leaks(templates):
    chunks = list(ask(templates, "hermes", tools=[WEATHER], tool_choice="required", stream=True))
    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    whole = ask(templates, "hermes", tools=[WEATHER], tool_choice="required").choices[0].message.tool_calls[0]
    assert len(calls) == 1 and calls[0].function.model_dump() == whole.function.model_dump() and calls[0].index == 0
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == ""
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_the_model_chooses_is_recognised(templates, stream):
    """A schema makes the model write what a Llama 3 model writes of its own accord."""
    schema = {
        "type": "object",
        "properties": {"name": {"const": "weather"}, "parameters": WEATHER["function"]["parameters"]},
        "required": ["name", "parameters"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "call", "schema": schema}}
    answer = ask(templates, "llama", tools=[WEATHER], response_format=form, stream=stream)
    if stream:
        chunks = list(answer)
        calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    else:
        calls, text = answer.choices[0].message.tool_calls, answer.choices[0].message.content
    assert not text and arguments_of(calls[0])[0] == "weather"


def test_schemas_may_have_references(templates):
    parameters = {
        "type": "object",
        "properties": {"city": {"$ref": "#/$defs/City"}},
        "required": ["city"],
        "additionalProperties": False,
        "$defs": {"City": {"enum": ["Oslo", "Rome"]}},
    }
    tool = {"type": "function", "function": {"name": "weather", "parameters": parameters}}
    for tools in ([tool], [tool, {"type": "function", "function": {"name": "storm", "parameters": parameters}}]):
        message = ask(templates, "hermes", tools=tools, tool_choice="required").choices[0].message
        assert arguments_of(message.tool_calls[0])[1]["city"] in ("Oslo", "Rome")


def test_no_tool_is_called_if_none_is_allowed(templates):
    answer = ask(templates, "hermes", tools=[WEATHER], tool_choice="none").choices[0].message
    assert answer.tool_calls is None and answer.content == ask(templates, "demo").choices[0].message.content


def test_results_of_tools_go_back_to_the_model(templates):
    first = ask(templates, "hermes", tools=[WEATHER], tool_choice="required").choices[0].message
    result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "sunny"}
    answer = ask(templates, "hermes", tools=[WEATHER], messages=[*STORY, first.model_dump(), result], max_tokens=8)
    assert answer.choices[0].message.content


def test_reasoning_is_split_off(templates):
    message = ask(templates, "thinking", max_tokens=8).choices[0].message
    assert message.content == "" and message.reasoning_content
    pieces = [chunk.choices[0].delta for chunk in ask(templates, "thinking", max_tokens=8, stream=True)]
    assert "".join(getattr(piece, "reasoning_content", None) or "" for piece in pieces) == message.reasoning_content


def test_a_template_without_tools_says_so(templates):
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        ask(templates, "demo", tools=[WEATHER])
    assert caught.value.param == "tools"


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{**WEATHER, "type": "magic"}]},
        {"tools": [{"type": "function", "function": {"name": "two words"}}]},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": 3}}]},
        {"tools": [CLOCK] * 200},
        {"tools": 3},
        {"tool_choice": "required"},
        {"tools": [CLOCK], "tool_choice": "sometimes"},
        {"tools": [CLOCK], "tool_choice": FORCED_WEATHER},
        {"tools": [CLOCK], "tool_choice": "required", "response_format": {"type": "json_object"}},
    ],
    ids=range(9),
)
def test_wrong_tools_are_bad_requests(templates, fields):
    status, document, _ = templates.call("/v1/chat/completions", {"model": "hermes", "messages": STORY, **fields})
    assert status == 400 and document["error"]["param"].startswith(("tool", "response_format")), document
