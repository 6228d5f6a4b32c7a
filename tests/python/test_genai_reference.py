"""The golden tokens of the tiny models are those of the reference in 64-bit floats, and of the tokenizer that it reads."""
import pytest
from genai_support import GOLDENS, cases_of, folder_of
from tiny_llm.record import MARGINS
from tiny_llm.reference import Reference, greedy
from tiny_llm.settings import MODELS


def assert_tokens(reference, prompt, wanted, count, **rules):
    tokens, margin = greedy(reference, prompt, count, **rules)
    assert tokens == wanted
    assert margin >= MARGINS[reference.settings.activations]


@pytest.mark.parametrize("size", ["nano", "micro"])
def test_golden_tokens_are_those_of_the_reference(size):
    for name in (name for name in GOLDENS if name.startswith(size)):
        reference = Reference(MODELS[name])
        for case in cases_of(name, "greedy", "greedy_penalty"):
            (prompt,), (wanted,) = case["prompt_ids"], case["new_ids"]
            count = case["max_length"] - len(prompt)
            assert_tokens(reference, prompt, wanted, count, **case.get("options", {}))
            scores = reference.scores(prompt, {})
            for token, score in case.get("top_scores", []):
                assert abs(scores[token] - score) < 1e-3
        for case in cases_of(name, "continue", "rewind_append"):
            new = len(case["second_new"])
            assert_tokens(reference, case["sequence"][:-new], case["second_new"], new)
        (batch,) = cases_of(name, "greedy_batch_right_padded")
        singles = [case["new_ids"][0] for case in cases_of(name, "greedy")]
        assert [row[: len(single)] for row, single in zip(batch["new_ids"], singles)] == singles


def test_recorded_prompts_are_those_of_the_tokenizer():
    import onnxruntime_genai as og

    for name, golden in GOLDENS.items():
        model = og.Model(str(folder_of(name)))
        tokenizer = og.Tokenizer(model)
        for prompt in golden["prompts"]:
            assert [int(token) for token in tokenizer.encode(prompt["text"])] == prompt["ids"], name
        del tokenizer, model


def test_models_called_eos_end_some_answers():
    for name, golden in GOLDENS.items():
        ended = [case["new_ids"][0][-1] in golden["eos_token_id"] for case in cases_of(name, "greedy")]
        assert any(ended) == ("eos" in name) and not all(ended), name
