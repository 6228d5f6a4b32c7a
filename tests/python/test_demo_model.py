"""The demo's language model: its answers on the CPU provider and on ours, and properties of its corpus."""
import json
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from support import LIBRARY

DEMO = Path(__file__).resolve().parents[2] / "demo"
MODEL = DEMO / "model"
GOLDENS = json.loads((DEMO / "goldens.json").read_text())

pytestmark = pytest.mark.environment(AMDGPU_EP_PATH=LIBRARY)


@pytest.fixture
def corpus(monkeypatch):
    monkeypatch.syspath_prepend(DEMO)
    import corpus

    yield corpus
    sys.modules.pop("corpus")


def first_documents(corpus, count, held):
    return list(islice(corpus.documents(0, held=held), count))


@pytest.mark.parametrize("provider", ["cpu", "amdgpu"])
def test_generates_the_recorded_text(provider):
    import numpy as np
    import onnxruntime_genai as og

    config = og.Config(str(MODEL))
    if provider == "amdgpu":
        config.clear_providers()
        config.append_provider(provider)
    model = og.Model(config)
    assert model.device_type.upper() == provider.upper()
    tokenizer = og.Tokenizer(model)
    for golden in GOLDENS:
        prompt = tokenizer.apply_chat_template(json.dumps(golden["messages"]), add_generation_prompt=True)
        assert tokenizer.encode(prompt).tolist() == golden["prompt_ids"]
        parameters = og.GeneratorParams(model)
        parameters.set_search_options(**golden["search"])
        generator = og.Generator(model, parameters)
        generator.append_tokens(np.array(golden["prompt_ids"], np.int32))
        new = []
        while not generator.is_done():
            generator.generate_next_token()
            new.append(int(generator.get_next_tokens()[0]))
        del generator
        assert new == golden["new_ids"], f"{golden['search']}: {tokenizer.decode(np.array(new, np.int32))!r}"
        assert tokenizer.decode(np.array(new, np.int32)) == golden["text"]
    del tokenizer, model


def test_the_script_accepts_a_relative_path_of_the_library():
    golden = GOLDENS[0]
    library = Path(LIBRARY)
    script = [sys.executable, str(DEMO / "generate.py"), "--library", library.name, golden["messages"][0]["content"]]
    said = subprocess.run(script, cwd=library.parent, check=True, capture_output=True, text=True)
    assert said.stdout == f"> {golden['messages'][0]['content']}\n{golden['text']}\n"
    assert "AMDGPU" in said.stderr


def test_greedy_goldens_leave_room_for_rounding():
    """A device's logits may be off by half of a margin; in float32 they are off by about 1e-5."""
    assert min(golden["margin"] for golden in GOLDENS if "margin" in golden) >= 0.001


def test_model_is_small_enough_to_live_in_the_repository():
    assert sum(file.stat().st_size for file in MODEL.iterdir()) <= 12_000_000


def test_corpus_follows_from_its_seed(corpus):
    assert first_documents(corpus, 50, held=False) == first_documents(corpus, 50, held=False)
    assert first_documents(corpus, 50, held=False) != list(islice(corpus.documents(1, held=False), 50))


def test_no_held_back_content_is_in_the_training_part(corpus):
    trained = {key for document in first_documents(corpus, 3000, held=False) for key in document.keys}
    held = {key for document in first_documents(corpus, 200, held=True) for key in document.keys}
    assert len(trained) > 250 and len(held) > 20
    assert not trained & held


def test_sums_of_the_corpus_are_right(corpus):
    sums = re.compile(r"(\d+) (plus|minus) (\d+) is (\d+)")
    checked = 0
    for document in first_documents(corpus, 1000, held=False):
        for role, text in document.turns:
            for left, word, right, result in sums.findall(text):
                wanted = int(left) + int(right) if word == "plus" else int(left) - int(right)
                assert int(result) == wanted, text
                checked += 1
    assert checked > 100


def test_answers_of_the_corpus_occur_in_its_stories(corpus):
    """Every name, place, colour or thing in an answer also occurs in the text that it is about."""
    telling = {*corpus.GIRLS, *corpus.BOYS, *corpus.PLACES, *corpus.COLOURS, *corpus.OBJECTS, *corpus.ANIMALS}
    for document in first_documents(corpus, 500, held=False):
        for index, kind in document.answers:
            if kind in ("story", "facts"):
                before = " ".join(text for _, text in document.turns[: index - 1])
                told = set(re.findall(r"\w+", before + " " + document.turns[index - 1][1]))
                assert telling & set(re.findall(r"\w+", document.turns[index][1])) <= told
