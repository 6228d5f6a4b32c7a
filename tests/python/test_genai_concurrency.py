"""Concurrent generations, and many in sequence."""
import gc
import json

import pytest
from genai_support import cases_of, generator_for, greedy, model_on_device, rest_of
from support import LIBRARY, on_threads, resident_kib

pytestmark = pytest.mark.environment(AMDGPU_EP_PATH=LIBRARY)


def test_two_generators_of_one_model_take_turns():
    import onnxruntime_genai as og

    model = model_on_device("nano-fp32", og)
    cases = cases_of("nano-fp32", "greedy")[:2]
    generators = [
        generator_for(og, model, case["prompt_ids"], max_length=case["max_length"], do_sample=False) for case in cases
    ]
    new = [[], []]
    while not all(generator.is_done() for generator in generators):
        for tokens, generator in zip(new, generators):
            if not generator.is_done():
                generator.generate_next_token()
                tokens.append(int(generator.get_next_tokens()[0]))
    assert new == [case["new_ids"][0] for case in cases]
    del generator, generators, model


def test_generators_of_one_model_on_threads():
    import onnxruntime_genai as og

    model = model_on_device("nano-fp32", og)
    cases = cases_of("nano-fp32", "greedy")

    def work(thread):
        for turn in range(10):
            case = cases[(thread + turn) % len(cases)]
            assert greedy(og, model, case) == case["new_ids"][0]

    on_threads(4, work)
    del model


def test_two_models_on_threads():
    import onnxruntime_genai as og

    # GenAI 0.18 releases the first model's allocator when the second is created, so generators come after both.
    names = ["nano-fp32", "nano-fp16"]
    models = [model_on_device(name, og) for name in names]

    def work(thread):
        name, model = names[thread % 2], models[thread % 2]
        for turn in range(8):
            cases = cases_of(name, "greedy")
            case = cases[(thread + turn) % len(cases)]
            assert greedy(og, model, case) == case["new_ids"][0]

    on_threads(4, work)
    del models


def test_memory_does_not_grow_over_a_thousand_generations(tmp_path):
    import onnxruntime_genai as og

    cases = cases_of("nano-fp32", "greedy")

    def some(count, model):
        for turn in range(count):
            case = cases[turn % len(cases)]
            generator = generator_for(og, model, case["prompt_ids"], max_length=case["max_length"], do_sample=False)
            assert rest_of(generator) == case["new_ids"]
            del generator

    def peaks(count, check):
        """Returns the peaks that the backend counted in a session of `count` generations, by purpose."""
        file = tmp_path / f"memory-{count}"
        model = model_on_device("nano-fp32", og, entries={"ep.hip.memory_file": str(file)})
        some(60, model)
        before = resident_kib()
        some(count, model)
        grown = resident_kib() - before
        del model
        gc.collect()
        # A generator's cache takes 160 KiB: leaking one per generation would add up to 150 MiB.
        assert not check or grown < 32 * 1024
        (line,) = file.read_text().splitlines()
        return {purpose: held["peak"] for purpose, held in json.loads(line)["memory"].items()}

    few = peaks(10, check=False)
    assert few["constants"] > 0 and few["arena"] > 0
    assert peaks(1000, check=True) == few
