"""Corrupted models and inputs in ONNX Runtime with the plugin enabled: each ends in a result or a readable error.

    python tests/corrupt_models.py --library libamdgpu-ep.so [--seed 1] [--count 2000] [--seconds 600] [--first 0] [--verbose]

The models are ONNX's node tests, random graphs, models compiled by the plugin and a few with absurd sizes. mutations.py
corrupts them: it changes bytes; replaces attributes, shapes, types, connections and values; and truncates, moves or
forges external data and saved partitions. Cases run in child processes with limited memory. A case that crashes or
hangs is run again without the plugin: if that ends the same way, ONNX Runtime is to blame. A bad case is kept in
target/corrupt-models/.
  sentence  fails with a meaningful error message
  runs      gives the CPU provider's result, or runs where the CPU provider cannot
  differs   gives other results, or only the plugin rejects it: the CPU provider reads out of bounds (an axis of 65 for
            three dimensions) and is not a reference; listed with --verbose
  theirs    ONNX Runtime crashes or hangs without the plugin too
  CRASH     the process crashes or hangs only with the plugin
  MUTE      the error message has fewer than five words
"""
import argparse
import collections
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))

import onnxruntime as ort
from isolation import words

import mutations
from absurd_models import absurd
from random_graphs import make
from corrupt_context import Compiled

NAME = "AMDGPUExecutionProvider"
KEPT = ROOT / "target" / "corrupt-models"
SECONDS_WITHOUT_A_WORD = 300
MEMORY_BYTES = 3 << 30
BAD = ("CRASH", "MUTE")


def plain_arrays(values):
    return all(isinstance(value, (np.ndarray, np.generic)) and value.dtype.isbuiltin == 1 for value in values)


class Bases:
    """The models to corrupt, as (model, inputs by name)."""

    def __init__(self):
        from onnx.backend.test.case.node import collect_testcases

        found = [case for case in collect_testcases(None) if case.model is not None and case.data_sets]
        self.cases = [case for case in found if plain_arrays(case.data_sets[0][0])]

    def node_test(self, rng):
        case = rng.choice(self.cases)
        model = onnx.ModelProto.FromString(case.model.SerializeToString())
        names = [value.name for value in model.graph.input]
        return model, {name: np.asarray(value) for name, value in zip(names, case.data_sets[0][0])}

    def random_graph(self, rng):
        maker = make(rng.randrange(1 << 30))
        return maker.model(), maker.feeds({"N": 2, "S": 3}, np.random.default_rng(rng.randrange(1 << 30)))

    def any(self, rng):
        return self.random_graph(rng) if rng.random() < 0.3 else self.node_test(rng)


def changed_bytes(rng, bases, folder):
    model, feeds = bases.any(rng)
    return mutations.data(model.SerializeToString(), rng), feeds


def changed_structure(rng, bases, folder):
    model, feeds = bases.any(rng)
    if rng.random() < 0.5:
        mutations.fix_inputs(model, feeds, rng)
    while not mutations.structure(model, rng):
        pass
    return model.SerializeToString(), feeds


def changed_values(rng, bases, folder):
    model, feeds = bases.node_test(rng)
    names = list(feeds)
    for name in rng.sample(names, rng.randint(min(1, len(names)), len(names))):
        feeds[name] = mutations.changed_values(feeds[name], rng)
    if rng.random() < 0.5:
        mutations.fix_inputs(model, feeds, rng)
    if rng.random() < 0.5:
        for value in model.graph.input:
            value.type.tensor_type.ClearField("shape")
        del model.graph.value_info[:]
    return model.SerializeToString(), feeds


def external_data(rng, bases, folder):
    model, feeds = bases.node_test(rng)
    mutations.fix_inputs(model, feeds, rng)
    for tensor in model.graph.initializer:
        if not tensor.raw_data:
            continue
        stored = tensor.raw_data[: rng.choice((len(tensor.raw_data), rng.randint(0, len(tensor.raw_data))))]
        (folder / "weights").write_bytes(stored)
        place = {"location": "weights", "offset": "0", "length": str(len(tensor.raw_data))}
        place["location"] = rng.choice(("weights", "weights", "gone", "../weights", "/etc/passwd", "", ".", "a\0b", "x" * 5000))
        place[rng.choice(("offset", "length"))] = rng.choice(("0", "1", "-1", str(1 << 62), str((1 << 64) + 1), "many", ""))
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in place.items():
            tensor.external_data.add(key=key, value=value.replace("\0", ""))
    return model.SerializeToString(), feeds


def saved_partition(rng, bases, folder):
    return bases.compiled.corrupted(rng, folder), bases.compiled.feeds()


def absurd_numbers(rng, bases, folder):
    model, feeds = absurd(rng)
    if rng.random() < 0.5:
        mutations.fix_inputs(model, feeds, rng)
    return model.SerializeToString(), feeds


FAMILIES = (
    changed_bytes, changed_structure, changed_structure, changed_values, changed_values, external_data, saved_partition, absurd_numbers,
)


def options(devices):
    result = ort.SessionOptions()
    result.log_severity_level = 4
    result.intra_op_num_threads = 1
    if devices:
        result.add_provider_for_devices(devices, {})
    return result


def attempt(path, feeds, devices):
    """The result of a model, as ("ran", outputs) or ("status", message)."""
    try:
        session = ort.InferenceSession(str(path), sess_options=options(devices), enable_fallback=0)
        wanted = {value.name for value in session.get_inputs()}
        return "ran", session.run(None, {name: value for name, value in feeds.items() if name in wanted})
    except Exception as error:
        return "status", f"{type(error).__name__}: {error}"


def difference(found, wanted):
    """The difference, or None. The comparison is loose: corrupted values are infinite, enormous or undefined, so only
    values that both sides define are compared."""
    for f, w in zip(found, wanted):
        if not isinstance(w, np.ndarray):
            continue
        if f.shape != w.shape or f.dtype != w.dtype:
            return f"{f.dtype}{list(f.shape)} instead of {w.dtype}{list(w.shape)}"
        if w.dtype.kind == "f":
            f, w = f.astype(np.float64), w.astype(np.float64)
            known = np.isfinite(w) & np.isfinite(f)
            scale = np.abs(w[known]).max(initial=1)
            off = known & (np.abs(f - w) > 1e-2 * scale)
            if off.any():
                return f"{f[off].reshape(-1)[:4]} instead of {w[off].reshape(-1)[:4]}"
        elif w.dtype.kind in "iub" and w.size and (f != w).mean() > 0.1:
            return f"{f[f != w][:4]} instead of {w[f != w][:4]}"
    return None


def verdict(ours, theirs):
    if ours[0] == "status":
        if len(ours[1].split()) < 5:
            return "MUTE", ours[1]
        return "differs" if theirs[0] == "ran" else "sentence", ours[1]
    found = difference(ours[1], theirs[1]) if theirs[0] == "ran" else None
    return ("differs", found) if found else ("runs", "")


def child(arguments):
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    say = lambda *line: print(json.dumps(line), flush=True)
    ort.set_default_logger_severity(4)
    # This script itself makes the compiled model that it corrupts later.
    os.environ["AMDGPU_EP_TRUST_OPTIONS"] = "1"
    ort.register_execution_provider_library(NAME, arguments.library)
    devices = [device for device in ort.get_ep_devices() if device.ep_name == NAME]
    assert devices, "the plugin offers no device"
    bases = Bases()
    bases.compiled = Compiled(options(devices), arguments.folder)
    for index in range(arguments.first, arguments.first + arguments.count):
        rng = mutations.generator(arguments.seed, index)
        family = FAMILIES[index % len(FAMILIES)]
        folder = Path(arguments.folder) / str(index)
        folder.mkdir(exist_ok=True)
        blob, feeds = family(rng, bases, folder)
        path = folder / "model.onnx"
        path.write_bytes(blob)
        np.savez(folder / "feeds.npz", **{name: value for name, value in feeds.items() if value.dtype != object})
        say("begin", index, family.__name__)
        if arguments.control:
            attempt(path, feeds, None)
            say("end", "control", "")
            continue
        ours = attempt(path, feeds, devices)
        say("control")
        what, note = verdict(ours, attempt(path, feeds, None))
        say("end", what, note[:600])
        if what not in BAD:
            shutil.rmtree(folder)


def run_child(arguments, folder, first, count, control=False):
    """Yields (index, family, verdict, note). The last one may be a CRASH; the remaining cases have not run then."""
    command = [sys.executable, __file__, "--child", "--library", arguments.library, "--folder", folder]
    command += ["--seed", str(arguments.seed), "--first", str(first), "--count", str(count)] + ["--control"] * control
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            begun, in_control = None, False
            for word, *rest in words(process, SECONDS_WITHOUT_A_WORD):
                if word == "begin":
                    begun, in_control = rest, False
                elif word == "control":
                    in_control = True
                else:
                    yield (*begun, *rest)
                    begun = None
            process.wait()
        finally:
            process.kill()
        errors.seek(0)
        said = errors.read()
    if process.returncode == 1:
        raise SystemExit(f"the child process failed:\n{said}")
    if begun is not None:
        what = "theirs" if in_control else "CRASH"
        yield (*begun, what, f"exit status {process.returncode}: {said[-500:]}")
    elif process.returncode != 0:
        raise SystemExit(f"the child failed outside a case:\n{said}")


def results(arguments, folder):
    first, end, stop = arguments.first, arguments.first + arguments.count, time.monotonic() + arguments.seconds
    while first < end and time.monotonic() < stop:
        for index, family, what, note in run_child(arguments, folder, first, end - first):
            first = index + 1
            if what == "CRASH":
                control = list(run_child(arguments, folder, index, 1, control=True))
                what = "theirs" if control and control[-1][2] == "CRASH" else "CRASH"
            yield index, family, what, note
            if time.monotonic() > stop:
                break


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, type=os.path.abspath)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600, help="start no case after this time")
    parser.add_argument("--verbose", action="store_true", help="print every error message")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--control", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child(arguments)
    shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir(parents=True)
    counts = collections.Counter()
    for index, family, what, note in results(arguments, str(KEPT)):
        counts[what] += 1
        if what in BAD or arguments.verbose and what != "runs":
            print(f"{what} --seed {arguments.seed} --first {index} --count 1 ({family}): {note}", flush=True)
    bad, total = sum(counts[what] for what in BAD), counts.total()
    shown = ", ".join(f"{counts[what]} {what}" for what in ("sentence", "runs", "differs", "theirs"))
    print(f"{total} corrupted models and inputs: {shown}, {bad} bad")
    return 1 if bad or not total else 0


if __name__ == "__main__":
    sys.exit(main())
