"""Real models through the hip backend: right answers, how much runs on the device, and speed beside the CPU provider.

    python tests/models.py --library libhip-backend.so [--only silero_vad,…] [--bench]

Needs the model collection that stands beside the repository (../shared); without it there is nothing to do, and it says so.
"""
import argparse
import collections
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
NAME = "ModelsExecutionProvider"


def collection():
    """The models, made under target/ once; `light` ones get weights that tell right from wrong."""
    folder = ROOT / "target" / "models"
    tools = SHARED / "tools"
    if not (folder / "manifest.json").exists():
        subprocess.run([sys.executable, tools / "get_models.py", folder], check=True, stdout=subprocess.DEVNULL)
    models = json.loads((folder / "manifest.json").read_text())["models"]
    for model in models:
        model["path"] = folder / model["file"]
        if model["id"].startswith("light_"):
            reseeded = folder / f"reseeded_{model['file']}"
            if not reseeded.exists():
                subprocess.run([sys.executable, tools / "reseed_light.py", model["path"], reseeded], check=True)
            model["path"] = reseeded
    return models


def session(ort, path, devices):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 2
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if devices:
        options.add_provider_for_devices(devices, {})
    return ort.InferenceSession(str(path), sess_options=options, enable_fallback=0)


def medians(sessions, feeds, seconds):
    """Median time of one run of each session, in turn."""
    times = [[] for _ in sessions]
    for one in sessions:
        one.run(None, feeds)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 3:
        for one, list_ in zip(sessions, times):
            start = time.perf_counter()
            one.run(None, feeds)
            list_.append(time.perf_counter() - start)
    return [statistics.median(list_) for list_ in times]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, type=os.path.abspath)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--bench", action="store_true", help="measure speed too")
    arguments = parser.parse_args()
    if not SHARED.is_dir():
        print("skipped: there is no ../shared with models and goldens")
        return 0
    sys.path.insert(0, str(SHARED / "tools"))
    import make_golden
    import onnxruntime as ort

    models = [model for model in collection() if not arguments.only or model["id"] in arguments.only]
    ort.register_execution_provider_library(NAME, arguments.library)
    devices = [device for device in ort.get_ep_devices() if device.ep_name == NAME]
    print(f"{'model':22}{'ours':>7}{'others':>8}{'parts':>7}{'error':>10}{'cosine':>9}  {'':6}{'ms':>9}{'CPU ms':>9}{'speed':>7}")
    bad, ratios = [], []
    for model in models:
        feeds, golden = make_golden.load_golden(make_golden.GOLDEN / f"{model['id']}.npz")
        note, speed = "", ""
        try:
            ours = session(ort, model["path"], devices)
            names = [output.name for output in ours.get_outputs()]
            placed = collections.Counter()
            for item in ours.get_provider_graph_assignment_info():
                placed[item.ep_name == NAME] += len(item.get_nodes())
                placed["parts"] += item.ep_name == NAME
            outputs = make_golden.flatten(dict(zip(names, ours.run(names, feeds))))
            if model["id"].startswith("light_"):
                reference = session(ort, model["path"], None)
                wanted = make_golden.flatten(dict(zip(names, reference.run(names, feeds))))
                golden = {name: {"full": value} for name, value in wanted.items()}
            found = make_golden.compare_to_golden(outputs, golden)
            right = make_golden.passes(found, model["tol"])
            _, relative, cosine = make_golden.worst(found)
            if arguments.bench:
                mine, theirs = medians([ours, session(ort, model["path"], None)], feeds, 2.0)
                ratios.append(theirs / mine)
                speed = f"{mine * 1e3:9.2f}{theirs * 1e3:9.2f}{theirs / mine:7.2f}"
        except Exception as error:
            right, relative, cosine, placed = False, float("nan"), float("nan"), collections.Counter()
            note = f"  {str(error)[:300]}"
        if not right:
            bad.append(model["id"])
        state = "ok" if right else "WRONG"
        print(f"{model['id']:22}{placed[True]:7}{placed[False]:8}{placed['parts']:7}{relative:10.1e}{cosine:9.5f}  {state:6}{speed}{note}")
    if ratios:
        print(f"\ngeometric mean of the speeds {statistics.geometric_mean(ratios):.2f}, lowest {min(ratios):.2f} (1 = the CPU provider)")
    print(f"\n{len(models) - len(bad)} of {len(models)} models are right" + (f"; wrong: {', '.join(bad)}" if bad else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
