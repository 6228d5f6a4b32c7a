"""The embeddings endpoint, compared with the encoder's definition."""
import openai
import pytest
from encoder import WORDS, expected
from serving import STORY, Server

SENTENCES = ["a cat sits here", "dog runs", "a", "a dog sits here here cat"]


@pytest.fixture(scope="module")
def server(encoder):
    with Server("demo=demo/model", f"encoder={encoder}") as server:
        yield server


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_vectors_are_means_of_the_table(server, encoding):
    answer = server.client().embeddings.create(model="encoder", input=SENTENCES, encoding_format=encoding)
    assert [entry.index for entry in answer.data] == [0, 1, 2, 3]
    assert answer.usage.prompt_tokens == sum(len(sentence.split()) for sentence in SENTENCES)
    if encoding == "float":
        for entry, sentence in zip(answer.data, SENTENCES):
            assert entry.embedding == pytest.approx(expected(sentence), abs=1e-6)


def test_the_client_decodes_what_it_asks_for_by_default(server):
    answer = server.client().embeddings.create(model="encoder", input="a cat")
    assert answer.data[0].embedding == pytest.approx(expected("a cat"), abs=1e-6)


def test_many_sentences_keep_their_order(server):
    sentences = [WORDS[1 + number % 6] for number in range(100)]
    answer = server.client().embeddings.create(model="encoder", input=sentences)
    for entry, sentence in zip(answer.data, sentences):
        assert entry.embedding == pytest.approx(expected(sentence), abs=1e-6)


def test_models_are_not_confused(server):
    kinds = {model.id: model.kind for model in server.client().models.list().data}
    assert kinds == {"demo": "text", "encoder": "embeddings"}
    with pytest.raises(openai.BadRequestError):
        server.client().embeddings.create(model="demo", input="a")
    with pytest.raises(openai.BadRequestError):
        server.client().chat.completions.create(model="encoder", messages=STORY)


@pytest.mark.parametrize("body", [{"input": []}, {"input": ""}, {"input": ["a", ""]}, {"input": 3}, {"input": [1]}, {}, {"input": "a", "dimensions": 2}])
def test_wrong_inputs_are_bad_requests(server, body):
    status, document, _ = server.call("/v1/embeddings", {"model": "encoder", **body})
    assert status == 400 and document["error"]["type"] == "invalid_request_error"
