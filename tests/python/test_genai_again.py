"""A second model in one process, as when a notebook cell runs again: the code of docs/genai.md with the Python
package."""
import gc
import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import LIBRARY, resident_kib

ROOT = Path(__file__).resolve().parents[2]
MODEL = str(ROOT / "demo" / "model")
PAGE = (ROOT / "docs" / "genai.md").read_text(encoding="utf-8")
CODE = re.search(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1]
# The cell without the deletion at its end.
OPEN_CODE = re.sub(r"^del .*\n", "", CODE, flags=re.MULTILINE)


@pytest.fixture
def og(monkeypatch, tmp_path):
    """GenAI with the library registered by our package, in a folder where `model` is the demo's model."""
    monkeypatch.syspath_prepend(str(ROOT / "python"))
    import amdgpu_ep
    import onnxruntime_genai

    monkeypatch.setattr(amdgpu_ep, "get_library_path", lambda: LIBRARY)
    monkeypatch.chdir(tmp_path)
    Path("model").symlink_to(MODEL)
    amdgpu_ep.register(onnxruntime_genai)
    return onnxruntime_genai


def objects(og):
    """Returns the objects that the page creates, by name."""
    config = og.Config(MODEL)
    config.clear_providers()
    config.append_provider("amdgpu")
    model = og.Model(config)
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=10, do_sample=False)
    generator = og.Generator(model, params)
    generator.append_tokens([1, 2, 3])
    while not generator.is_done():
        generator.generate_next_token()
    return {"config": config, "model": model, "params": params, "generator": generator}


@pytest.mark.parametrize("times", [2, 5])
def test_the_page_runs_again_in_one_process(og, capfd, times):
    assert OPEN_CODE != CODE, "the page deletes what it made"
    cells, said = {}, []
    for _ in range(times):
        exec(CODE, cells)
        said.append(capfd.readouterr().out)
    assert said[0].split() and said == [said[0]] * times


def test_a_live_generator_makes_the_next_model_an_error(og, capfd):
    cells = {}
    exec(OPEN_CODE, cells)
    first = capfd.readouterr().out
    with pytest.raises(RuntimeError, match="generator of another model is still alive(.|\n)*del generator"):
        exec(OPEN_CODE, cells)
    # The old generator is untouched.
    cells["generator"].rewind_to(0)
    cells["generator"].append_tokens([1, 2, 3])
    cells["generator"].generate_next_token()
    assert str(cells["generator"].get_next_tokens()[0]) == first.split()[0]
    del cells["generator"]
    exec(OPEN_CODE, cells)
    assert capfd.readouterr().out == first


def test_a_live_engine_makes_the_next_model_an_error(og):
    made = objects(og)
    del made["generator"]
    engine = og.Engine(made["model"])
    with pytest.raises(RuntimeError, match="still alive"):
        objects(og)
    del engine
    objects(og)


def test_a_generator_in_an_unreachable_cycle_is_collected(og):
    gc.disable()
    made = objects(og)
    made["itself"] = made
    del made
    objects(og)


def test_a_model_of_another_provider_may_be_created_at_any_time(og):
    made = objects(og)
    config = og.Config(MODEL)
    for other in (MODEL, config):
        assert og.Model(other).device_type == "CPU"
    config.append_provider("amdgpu")
    config.clear_providers()
    assert og.Model(config).device_type == "CPU"
    for late in ("append_provider", "set_provider_option", "overlay"):
        config = og.Config(MODEL)
        {
            "append_provider": lambda: config.append_provider("AMDGPUExecutionProvider"),
            "set_provider_option": lambda: config.set_provider_option("amdgpu", "profile", "hip"),
            "overlay": lambda: config.overlay(
                '{"model": {"decoder": {"session_options": {"provider_options": [{"amdgpu": {}}]}}}}'
            ),
        }[late]()
        with pytest.raises(RuntimeError, match="still alive"):
            og.Model(config)
    del made


def test_objects_may_be_deleted_in_any_order(og):
    for order in itertools.permutations(["config", "model", "params", "generator"]):
        made = objects(og)
        for name in order:
            del made[name]


def test_models_may_outlive_generators_and_make_new_ones(og):
    kept = []
    for _ in range(3):
        kept.append(objects(og))
        del kept[-1]["generator"]
    generators = [og.Generator(made["model"], made["params"]) for made in kept]
    for generator in generators:
        generator.append_tokens([1, 2, 3])
        generator.generate_next_token()
    assert len({int(generator.get_next_tokens()[0]) for generator in generators}) == 1
    del generator, generators, kept


def test_rounds_do_not_grow_the_process(og):
    for _ in range(20):
        objects(og)
    before = resident_kib()
    for _ in range(100):
        objects(og)
    assert resident_kib() - before < 4096


def test_without_the_package_an_error_is_logged_before_the_crash(monkeypatch, tmp_path):
    """Programs that name the library in AMDGPU_EP_PATH get no exception, but an error in the log."""
    monkeypatch.setenv("AMDGPU_EP_PATH", LIBRARY)
    (tmp_path / "model").symlink_to(MODEL)
    lines = [line for line in OPEN_CODE.splitlines() if "amdgpu_ep" not in line]
    code = "\n".join([*lines, "og.Model(config)", "import os; os._exit(0)"])
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "delete all generators before you create another model" in done.stderr, done
