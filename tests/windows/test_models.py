"""Real models in Windows' ONNX Runtime on our provider, compared with recorded results and with ONNX Runtime's CPU
provider on Linux."""
import json
from pathlib import PureWindowsPath

import comparison
import models
import numpy as np
import onnxruntime
import packaged_models
import pytest
from conftest import ROOT, windows_path

NO_FALLBACK = ["--option", "session.disable_cpu_ep_fallback=1"]

# Models with nodes that our provider declines. All others must run without the CPU provider.
PARTLY_ELSEWHERE = ("rl_sorter", "silero_vad")


def all_models():
    return packaged_models.models(ROOT / "target" / "packaged-models", []) + models.collection()


def outputs_of(windows, model, folder, *options):
    """The model's outputs on our provider, and the command's report."""
    feeds, results = folder / "feeds.npz", folder / "Ergebnisse für Wünsche"
    np.savez(feeds, **model["feeds"])
    words = ["run", windows_path(model["path"]), *windows.libraries, "--profile", "hip", *options]
    words += ["--input", windows_path(feeds), "--output", windows_path(results), "--json"]
    report = json.loads(windows.run(*words))
    files = {output["name"]: results / PureWindowsPath(output["file"]).name for output in report["outputs"]}
    return {name: np.load(file) for name, file in files.items()}, report


def expected_of(model, optimised=True):
    """The outputs on Linux's CPU provider. Those that are not recorded are random, if any are."""
    session = models.session(onnxruntime, model["path"], None, optimised)
    outputs = models.full(models.runner(session)(model["feeds"]))
    return {name: value for name, value in outputs.items() if name in model.get("golden", outputs)}


@pytest.mark.parametrize("model", all_models(), ids=lambda model: model["id"])
def test_model_gives_the_results_of_linux(windows, model, tmp_path):
    if any("tensor" not in output.type.split("(")[0] for output in models.session(onnxruntime, model["path"], None).get_outputs()):
        pytest.skip("the command writes tensors only, and this model returns sequences")
    is_partly_elsewhere = model["id"] in PARTLY_ELSEWHERE
    outputs, report = outputs_of(windows, model, tmp_path, *([] if is_partly_elsewhere else NO_FALLBACK))
    assert report["driver"] == "host", report
    assert 0 < report["device_nodes"] < report["total_nodes"] + (not is_partly_elsewhere), report
    for wanted in [model.get("golden"), expected_of(model)]:
        if wanted is None:
            continue
        found = comparison.compared(outputs, wanted)
        right = comparison.passes(found, model["tol"])
        if not right and model["id"] in models.UNFUSED:
            found = comparison.compared(outputs, expected_of(model, optimised=False))
            right = comparison.passes(found, model["tol"])
        assert right, f"{model['id']}: {comparison.worst(found)}"
