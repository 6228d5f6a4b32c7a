"""Several generations at once, and many one after the other."""
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

    # GenAI 0.18 gives up its first model's allocator when the second is made, so generators come after both.
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


def test_memory_does_not_grow_over_generations():
    import onnxruntime_genai as og

    model = model_on_device("nano-fp32", og)
    cases = cases_of("nano-fp32", "greedy")

    def some(count):
        for turn in range(count):
            case = cases[turn % len(cases)]
            generator = generator_for(og, model, case["prompt_ids"], max_length=case["max_length"], do_sample=False)
            assert rest_of(generator) == case["new_ids"]
            del generator

    some(60)
    before = resident_kib()
    some(240)
    # A cache of these generators has 160 KiB: one that stayed in each would be 37 MiB.
    assert resident_kib() - before < 4 * 1024
    del model
