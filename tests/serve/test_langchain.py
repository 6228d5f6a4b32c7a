"""The `langchain-openai` package against the server."""
import asyncio
from typing import Literal

import openai
import pytest
from encoder import expected
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel, ConfigDict
from serving import STORY, TIMEOUT_SECONDS, Server

QUESTION = STORY[0]["content"]


class Animal(BaseModel):
    """An animal."""

    model_config = ConfigDict(extra="forbid")
    big: bool
    legs: Literal[2, 4]


@tool
def weather(city: Literal["Oslo", "Rome"]) -> str:
    """Tells the weather."""
    return f"It is sunny in {city}."


def chat(server, model="demo", **options):
    options = {"temperature": 0, "max_retries": 0, "timeout": TIMEOUT_SECONDS, **options}
    return ChatOpenAI(base_url=f"{server.url}/v1", api_key="none", model=model, **options)


def reference(server, messages=STORY, **fields):
    """What the endpoint answers without a client library."""
    status, document, _ = server.call("/v1/chat/completions", {"messages": messages, "temperature": 0, **fields})
    assert status == 200, document
    return document


def test_answers_and_usage_are_those_of_the_endpoint(server):
    answer, document = chat(server).invoke(QUESTION), reference(server)
    assert answer.content == document["choices"][0]["message"]["content"]
    assert answer.response_metadata["finish_reason"] == "stop"
    usage = document["usage"]
    assert (answer.usage_metadata["input_tokens"], answer.usage_metadata["output_tokens"]) == (
        usage["prompt_tokens"], usage["completion_tokens"]
    )


def test_streams_arrive_in_pieces_with_usage(server):
    chunks = list(chat(server).stream(QUESTION, stream_usage=True))
    document = reference(server)
    assert "".join(chunk.content for chunk in chunks) == document["choices"][0]["message"]["content"]
    assert len([chunk for chunk in chunks if chunk.content]) > 10
    usage = [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata]
    assert len(usage) == 1 and usage[0]["output_tokens"] == document["usage"]["completion_tokens"]


def test_batches_and_asynchronous_calls_work(server):
    prompts = [f"Tell me a story about {name}." for name in ("Lily", "Tom", "a bear", "the sea")]
    alone = [reference(server, [{"role": "user", "content": prompt}])["choices"][0]["message"]["content"] for prompt in prompts]
    assert [answer.content for answer in chat(server).batch(prompts)] == alone
    answers = asyncio.run(chat(server).abatch(prompts))
    assert [answer.content for answer in answers] == alone


def test_a_tool_is_called_and_its_result_goes_back(templates):
    model = chat(templates, "hermes")
    messages = [HumanMessage(QUESTION)]
    call = model.bind_tools([weather], tool_choice="any", strict=True).invoke(messages)
    assert call.content == "" and len(call.tool_calls) == 1
    assert call.tool_calls[0]["name"] == "weather" and call.tool_calls[0]["args"]["city"] in ("Oslo", "Rome")
    result = weather.invoke(call.tool_calls[0])
    assert isinstance(result, ToolMessage) and result.content.startswith("It is sunny in ")
    messages += [call, result]
    answer = model.bind_tools([weather], tool_choice="none").invoke(messages, max_tokens=16)
    assert answer.content and not answer.tool_calls
    without = model.bind_tools([weather], tool_choice="none").invoke(messages[:1], max_tokens=16)
    assert answer.usage_metadata["input_tokens"] > without.usage_metadata["input_tokens"], "the model sees the result"


def test_a_streamed_call_is_put_together(templates):
    bound = chat(templates, "hermes").bind_tools([weather], tool_choice="weather", strict=True)
    chunks = list(bound.stream(QUESTION))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.content == "" and whole.tool_calls[0]["name"] == "weather"
    assert whole.tool_calls[0]["args"] == bound.invoke(QUESTION).tool_calls[0]["args"]


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_structured_output_is_parsed(templates, method):
    schema = Animal if method != "json_mode" else None
    model = chat(templates, "hermes", max_tokens=120)
    answer = model.with_structured_output(schema, method=method, include_raw=True).invoke(QUESTION)
    if schema:
        assert answer["parsing_error"] is None and isinstance(answer["parsed"], Animal)
    else:
        # The model writes JSON of its own, which may be longer than its sequences.
        assert answer["raw"].content.lstrip().startswith("{")


def test_embeddings_are_the_encoders(encoder):
    with Server(f"sentences={encoder}") as server:
        # By default the package sends token ids of OpenAI's own tokenizer.
        embeddings = OpenAIEmbeddings(
            base_url=f"{server.url}/v1", api_key="none", model="sentences", check_embedding_ctx_length=False, max_retries=0
        )
        assert embeddings.embed_query("a cat") == pytest.approx(expected("a cat"), abs=1e-6)
        sentences = ["dog runs", "a", "a dog sits here"]
        for vector, sentence in zip(embeddings.embed_documents(sentences), sentences, strict=True):
            assert vector == pytest.approx(expected(sentence), abs=1e-6)


def test_errors_are_the_packages_exceptions(server, start, tmp_path):
    with pytest.raises(openai.NotFoundError):
        chat(server, "other").invoke(QUESTION)
    with pytest.raises(openai.BadRequestError):
        chat(server, temperature=-1).invoke(QUESTION)
    with pytest.raises(openai.UnprocessableEntityError):
        chat(server).bind_tools([weather]).invoke(QUESTION)
    with pytest.raises(ContextOverflowError):
        chat(server).invoke("kite " * 300)
    with pytest.raises(ContextOverflowError):
        list(chat(server).stream("kite " * 300))
    locked = start("demo=demo/model", AMDGPU_EP_API_KEYS="a-key-that-is-long-enough")
    with pytest.raises(openai.AuthenticationError):
        chat(locked).invoke(QUESTION)
    limits = tmp_path / "serve.toml"
    limits.write_text("requests_per_minute = 1")
    limited = start("demo=demo/model", "--config", limits)
    chat(limited, max_tokens=1).invoke(QUESTION)
    with pytest.raises(openai.RateLimitError):
        chat(limited, max_tokens=1).invoke(QUESTION)
