"""The completions endpoint and the tokenizer's endpoints."""
import pytest
from serving import ENDLESS, STORY

PROMPT = "<|im_start|>user\nTell me a story about a bear named Tom.<|im_end|>\n<|im_start|>assistant\n"


def complete(server, prompt=PROMPT, **fields):
    return server.client().completions.create(model="demo", prompt=prompt, **{"temperature": 0, **fields})


def test_a_rendered_chat_gives_the_answer_of_the_chat_endpoint(server):
    chat = server.client().chat.completions.create(model="demo", messages=STORY, temperature=0)
    answer = complete(server)
    assert answer.choices[0].text == chat.choices[0].message.content
    assert answer.usage == chat.usage or answer.usage.completion_tokens == chat.usage.completion_tokens


def test_text_and_token_ids_are_the_same_prompt(server):
    tokens = server.call("/tokenize", {"prompt": PROMPT})[1]["tokens"]
    assert complete(server, tokens, max_tokens=9).choices[0].text == complete(server, max_tokens=9).choices[0].text


def test_several_prompts_keep_their_order(server):
    prompts = ["Once there was", "Mia had a", "In the end"]
    together = complete(server, prompts, max_tokens=6, n=2, temperature=1.2, seed=3).choices
    alone = [
        choice.text for prompt in prompts for choice in complete(server, prompt, max_tokens=6, n=2, temperature=1.2, seed=3).choices
    ]
    assert [choice.text for choice in together] == alone
    assert [choice.index for choice in together] == list(range(6))


def test_streams_of_several_prompts_are_told_apart(server):
    prompts = ["Once there was", "Mia had a"]
    texts = ["", ""]
    for chunk in complete(server, prompts, max_tokens=6, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [choice.text for choice in complete(server, prompts, max_tokens=6).choices]


def test_logprobs_have_offsets_into_the_text(server):
    choice = complete(server, max_tokens=5, logprobs=2).choices[0]
    found = choice.logprobs
    for token, offset, top in zip(found.tokens, found.text_offset, found.top_logprobs):
        assert choice.text[offset:].startswith(token) and len(top) == 2 and token in top


def test_tokens_and_text_are_inverse(server):
    text = "Tom had a red kite."
    status, tokenized, _ = server.call("/tokenize", {"content": text})
    assert status == 200 and tokenized["count"] == len(tokenized["tokens"]) > 3
    assert server.call("/detokenize", {"tokens": tokenized["tokens"]})[1]["content"] == text


def test_messages_are_tokenized_with_the_template(server):
    tokens = server.call("/tokenize", {"messages": STORY})[1]["tokens"]
    assert tokens == server.call("/tokenize", {"prompt": PROMPT})[1]["tokens"]


@pytest.mark.parametrize("ignores, tokens, reason", [(False, 1, "stop"), (True, 7, "length")])
def test_an_answer_goes_on_after_an_end_that_is_ignored(server, ignores, tokens, reason):
    # The end is the most likely token at every step.
    fields = {"logit_bias": {next(iter(ENDLESS)): 1000}, "extra_body": {"ignore_eos": ignores}}
    answer = complete(server, max_tokens=7, **fields)
    assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) == (tokens, reason)


@pytest.mark.parametrize("fields", [{"echo": True}, {"suffix": "x"}, {"best_of": 3}], ids=lambda fields: next(iter(fields)))
def test_unsupported_fields_are_errors(server, fields):
    status, body, _ = server.call("/v1/completions", {"prompt": "a", **fields})
    assert status == 400 and body["error"]["param"] == next(iter(fields))
