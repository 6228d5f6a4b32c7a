"""Text generation with ONNX Runtime GenAI: the golden tokens of the tiny models, with our device memory."""
import json

import onnxruntime as ort
import pytest
from backends_support import Folder
from genai_support import (
    GOLDENS,
    cases_of,
    folder_of,
    generate,
    generator_for,
    greedy,
    model_on_device,
    rest_of,
    shares_its_cache,
)
from support import EP, LIBRARY, ON_HOST, options_for, registered

pytestmark = pytest.mark.environment(AMDGPU_EP_PATH=LIBRARY)


def assert_padded_batches(og, model, name):
    for case in cases_of(name, "greedy_batch_right_padded"):
        pad = GOLDENS[name]["pad_token_id"]
        generator = generator_for(og, model, case["prompt_ids"], pad, max_length=case["max_length"], do_sample=False)
        # A finished row continues with padding until all rows have finished.
        found = [row[: len(wanted)] for row, wanted in zip(rest_of(generator), case["new_ids"])]
        assert found == case["new_ids"]
        del generator


@pytest.mark.parametrize("backend", ["hip", "none"])
@pytest.mark.parametrize("name", GOLDENS)
def test_golden_tokens(name, backend, tmp_path, monkeypatch):
    """With the hip backend, which takes nodes, and without any backend, so that no node is taken."""
    import onnxruntime_genai as og

    if backend == "none":
        monkeypatch.setenv("AMDGPU_EP_PATH", Folder(tmp_path, hip=False).library)
    if not shares_its_cache(name):
        pytest.skip("GenAI takes only models with a shared key/value buffer on this provider, and this one has none")
    record = tmp_path / "explain"
    model = model_on_device(name, og, entries={"ep.hip.explain_file": str(record)})
    assert model.device_type.upper() == "AMDGPU"
    for case in cases_of(name, "greedy"):
        assert greedy(og, model, case) == case["new_ids"][0]
    # Recorded samples in half precision depend on the last bits of logits, which differ on a GPU: see the sampling test
    # below.
    kinds = ("greedy_penalty", "sample") if ON_HOST or "fp16" not in name else ("greedy_penalty",)
    for case in cases_of(name, *kinds):
        sampling = {"do_sample": case["kind"] == "sample", **case["options"]}
        new = generate(og, model, case["prompt_ids"][0], max_length=case["max_length"], **sampling)
        assert new == case["new_ids"][0], case["options"]
    if backend == "hip":
        # ONNX Runtime's own attention refuses batches with a fixed-length cache.
        assert_padded_batches(og, model, name)
        assert_whole(record)
    del model


@pytest.mark.parametrize("name", GOLDENS)
def test_golden_tokens_with_only_the_logits_of_last_tokens(name, tmp_path):
    import onnxruntime_genai as og

    if not shares_its_cache(name):
        pytest.skip("GenAI takes only models with a shared key/value buffer on this provider, and this one has none")
    record = tmp_path / "explain"
    model = model_on_device(name, og, entries={"ep.hip.explain_file": str(record), "ep.hip.last_logits": "on"})
    for case in cases_of(name, "greedy"):
        assert greedy(og, model, case) == case["new_ids"][0]
    assert_padded_batches(og, model, name)
    del model
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert [line["passes"].get("last-rows") for line in lines if "passes" in line] == [1]


def test_all_logits_of_a_prompt_can_be_read_unless_the_session_says_otherwise():
    import numpy as np
    import onnxruntime_genai as og

    prompt = [5, 60, 7, 81, 9]
    models = [og.Model(str(folder_of("nano-fp32"))), model_on_device("nano-fp32", og)]
    wanted, found = [logits_of_prompt(og, model, prompt) for model in models]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    promised = model_on_device("nano-fp32", og, entries={"ep.hip.last_logits": "on"})
    found = logits_of_prompt(og, promised, prompt)
    np.testing.assert_allclose(found[0, -1], wanted[0, -1], rtol=1e-4, atol=1e-4)
    assert found.shape == wanted.shape and not found[0, :-1].any()
    del models, promised


def logits_of_prompt(og, model, prompt):
    generator = generator_for(og, model, [prompt], max_length=20, do_sample=False)
    return generator.get_output("logits").copy()


@pytest.mark.parametrize("name", ["nano-fp32", "nano-fp16", "nano-int4"])
def test_draws_are_those_of_the_cpu_provider_from_the_same_logits(name):
    import numpy as np
    import onnxruntime_genai as og

    def draw(model, case, given=()):
        """Returns a model's logits, and the tokens sampled from them or from the given ones."""
        search = {"max_length": case["max_length"], "do_sample": True, **case["options"]}
        generator, made, tokens = generator_for(og, model, case["prompt_ids"], **search), [], []
        while not generator.is_done():
            made.append(generator.get_logits().copy())
            if given:
                generator.set_logits(given[len(tokens)])
            generator.generate_next_token()
            tokens.append(int(generator.get_next_tokens()[0]))
        return made, tokens

    reference, model = og.Model(str(folder_of(name))), model_on_device(name, og)
    for case in cases_of(name, "sample"):
        logits, tokens = draw(model, case)
        wanted, same = draw(reference, case, logits)
        assert tokens == same, case["options"]
        np.testing.assert_allclose(logits, wanted, rtol=0, atol=0.06 if "fp16" in name else 1e-3)
    del model


def assert_whole(record):
    """Checks that one partition has all nodes, and that the number of plans does not grow with the tokens."""
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    graphs = [line for line in lines if line.get("nodes")]
    assert [graph["partitions"] for graph in graphs] == [1]
    assert [node for node in graphs[0]["nodes"] if not node["placed"]] == []
    # A plan per shape of a prompt and of a step: three single prompts with three cache lengths, and a batch. A GPU also
    # makes four plans when the session is created.
    assert sum("steps" in line for line in lines) <= (8 if ON_HOST else 12)


def test_runtime_assigns_every_node_to_us():
    with registered() as found:
        for name in GOLDENS:
            options = options_for(found[:1])
            options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
            model = str(folder_of(name) / "model.onnx")
            session = ort.InferenceSession(model, sess_options=options, enable_fallback=0)
            parts = session.get_provider_graph_assignment_info()
            assert [part.ep_name for part in parts] == [EP], name
            del parts, session


def test_rewinding_to_the_start_repeats_the_tokens():
    import numpy as np
    import onnxruntime_genai as og

    model = model_on_device("nano-fp32", og)
    case = cases_of("nano-fp32", "greedy")[0]
    generator = generator_for(og, model, case["prompt_ids"], max_length=case["max_length"], do_sample=False)
    for _ in range(3):
        assert rest_of(generator) == case["new_ids"]
        generator.rewind_to(0)
        generator.append_tokens(np.array(case["prompt_ids"][0], np.int32))
    del generator, model


def test_rewinding_into_the_middle_repeats_the_rest():
    import onnxruntime_genai as og

    model = model_on_device("nano-fp32", og)
    case = cases_of("nano-fp32", "greedy")[0]
    length = len(case["prompt_ids"][0])
    generator = generator_for(og, model, case["prompt_ids"], max_length=case["max_length"], do_sample=False)
    assert rest_of(generator) == case["new_ids"]
    generator.rewind_to(length + 5)
    # The token at the rewind position is read again, but not reported.
    assert rest_of(generator) == [case["new_ids"][0][6:]]
    del generator, model


@pytest.mark.parametrize("name", ["nano-fp32", "nano-fp16", "nano-int4", "nano-fp32-window8"])
def test_prompts_of_any_length_give_the_tokens_of_the_cpu_provider(name):
    import onnxruntime_genai as og

    reference, model = og.Model(str(folder_of(name))), model_on_device(name, og)
    for length in (1, 2, 63, 130, 250):
        prompt = [(7 * at * at + 13 * at + 65) % 256 for at in range(length)]
        search = {"max_length": length + 6, "do_sample": False}
        assert generate(og, model, prompt, **search) == generate(og, reference, prompt, **search)
    del model


@pytest.mark.environment(AMDGPU_EP_HOST_STREAMS="threads")
@pytest.mark.parametrize("name", ["nano-fp32", "nano-fp16"])
def test_golden_tokens_with_stream_work_on_threads(name):
    if not ON_HOST:
        pytest.skip("the host driver alone has threads for the work of streams")
    import onnxruntime_genai as og

    model = model_on_device(name, og)
    for case in cases_of(name, "greedy"):
        assert greedy(og, model, case) == case["new_ids"][0]
    del model


@pytest.mark.environment(AMDGPU_EP_HOST_DEVICES="2")
def test_golden_tokens_where_two_devices_are_offered():
    """GenAI passes every device of the provider to the session."""
    if not ON_HOST:
        pytest.skip("the host driver alone has as many devices as it is told")
    import onnxruntime_genai as og

    model = model_on_device("nano-fp32", og)
    case = cases_of("nano-fp32", "greedy")[0]
    assert greedy(og, model, case) == case["new_ids"][0]
    del model


@pytest.mark.parametrize("spelling", ["AMDGPU", "AMDGPUExecutionProvider", "amdgpuexecutionprovider"])
def test_provider_names_of_genai(spelling):
    import onnxruntime_genai as og

    config = og.Config(str(folder_of("nano-fp32")))
    config.clear_providers()
    config.append_provider(spelling)
    model = og.Model(config)
    case = cases_of("nano-fp32", "greedy")[0]
    assert greedy(og, model, case) == case["new_ids"][0]
    del model


def test_provider_option_reaches_the_parser():
    import onnxruntime_genai as og

    model = model_on_device("nano-fp32", og, [("profile", "hip")])
    del model
    with pytest.raises(Exception, match="turbo"):
        model_on_device("nano-fp32", og, [("profile", "turbo")])
