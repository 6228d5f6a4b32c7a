"""Runs ONNX's own node tests in ONNX Runtime with a plugin as the preferred provider, and reports the result of each.

    python conformance.py --library libhip-backend.so [--only Conv,MaxPool] [--report report.json] [--verbose]
    python conformance.py --library libmigraphx-backend.so --option target=ref

A test is usable if ONNX Runtime's CPU provider gets it right. With the plugin first and graph optimisations off, it is
  placed    right, with every node on the plugin
  partly    right, with some nodes elsewhere
  declined  right, with every node elsewhere
  WRONG     the plugin claimed nodes and the result is wrong
  ERROR     the plugin claimed nodes and the session or the run failed
  CRASH     the process crashed or timed out
Tests run in child processes, so that a crash affects only one test.
"""
import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort

import raw_values
from isolation import words

NAME = "ConformanceExecutionProvider"
BAD = ("WRONG", "ERROR", "CRASH")
# Emulated devices may need more time: set `AMDGPU_EP_TEST_SECONDS`.
SECONDS_WITHOUT_A_WORD = int(os.environ.get("AMDGPU_EP_TEST_SECONDS", "300"))


def cases(only):
    """The node tests, each with the operator it tests; an expanded function counts for the function."""
    from onnx.backend.test.case.node import collect_testcases

    found = collect_testcases(None)
    found = [case for case in found if case.model is not None and case.data_sets]
    plain_tests = {case.name: case for case in found}
    for case in found:
        about = plain_tests.get(case.name.split("_expanded")[0], case)
        function = about.name.removeprefix("test_").split("_")[0]
        nodes = about.model.graph.node
        node = next((node for node in nodes if node.op_type.lower() == function), nodes[0])
        case.domain, case.op = node.domain, node.op_type
    return [case for case in found if not only or case.op in only or case.name in only]


def plain(value):
    """A test's value in the form that ONNX Runtime's Python API accepts and returns."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def feeds(case, inputs):
    names = [value.name for value in case.model.graph.input]
    return {name: plain(value) for name, value in zip(names, inputs)}


def same(found, wanted, rtol, atol):
    if isinstance(wanted, (list, tuple)):
        return len(found) == len(wanted) and all(same(f, w, rtol, atol) for f, w in zip(found, wanted))
    if wanted is None or isinstance(wanted, dict):
        return found == wanted
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    if found.dtype.kind in "OUS" or found.dtype == bool:
        return bool((found == wanted).all())
    return np.allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=rtol, atol=atol, equal_nan=True)


def results(session, given, raw_outputs):
    if not raw_outputs and not any(map(raw_values.is_raw, given.values())):
        return session.run(None, given)
    names = [output.name for output in session.get_outputs()]
    given = {name: raw_values.to_ort(value) for name, value in given.items()}
    return [raw_values.from_ort(value) for value in session.run_with_ort_values(names, given)]


OPTIONS = {}


def run(case, devices):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if devices:
        entries = {key: value for key, value in OPTIONS.items() if "." in key}
        for key, value in entries.items():
            options.add_session_config_entry(key, value)
        options.add_provider_for_devices(devices, {key: value for key, value in OPTIONS.items() if key not in entries})
    session = ort.InferenceSession(case.model.SerializeToString(), sess_options=options, enable_fallback=0)
    placed = collections.Counter()
    for item in session.get_provider_graph_assignment_info():
        placed[item.ep_name == NAME] += len(item.get_nodes())
    right = True
    for inputs, outputs in case.data_sets:
        found = results(session, feeds(case, inputs), any(raw_values.is_raw(plain(value)) for value in outputs))
        right = right and all(same(f, plain(w), case.rtol, case.atol) for f, w in zip(found, outputs))
    return right, placed[True], placed[False]


def verdict(case, devices):
    try:
        right, _, _ = run(case, None)
    except Exception as error:  # without a CPU result there is no reference
        return "unusable", str(error)[:200]
    if not right:
        return "unusable", "the CPU provider's result is outside the test's tolerance"
    try:
        right, ours, others = run(case, devices)
    except Exception as error:
        return "ERROR", str(error)[:400]
    if not right:
        return ("WRONG", "") if ours else ("unusable", "wrong without the plugin")
    return ("placed" if not others else "partly" if ours else "declined"), ""


def child(arguments):
    ort.register_execution_provider_library(NAME, arguments.library)
    devices = [device for device in ort.get_ep_devices() if device.ep_name == NAME]
    assert devices, "the plugin offers no device"
    for case in cases(arguments.only)[arguments.first :]:
        print(json.dumps(["begin", case.name, case.domain, case.op]), flush=True)
        print(json.dumps(["end", *verdict(case, devices)]), flush=True)


def children(arguments):
    """Yields (name, domain, op, verdict, note) for each test; if a child dies, the next one continues."""
    total, first = len(cases(arguments.only)), 0
    while first < total:
        interpreter = os.environ.get("AMDGPU_EP_TEST_PYTHON", sys.executable)
        command = [interpreter, __file__, "--library", arguments.library, "--first", str(first)]
        command += [word for option in arguments.option for word in ("--option", option)]
        command += ["--only", ",".join(arguments.only)] if arguments.only else []
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
            begun = None
            for word, *rest in words(process, SECONDS_WITHOUT_A_WORD):
                if word == "begin":
                    begun = rest
                else:
                    yield (*begun, *rest)
                    first, begun = first + 1, None
            process.wait()
            errors.seek(0)
            said = errors.read()
        if begun is not None:
            yield (*begun, "CRASH", f"exit status {process.returncode}: {said[-300:]}")
            first += 1
        elif process.returncode != 0:
            raise SystemExit(f"the child process failed before the first test:\n{said}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, type=os.path.abspath)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="an option of the plugin; with a dot in the key, a session-config entry")
    parser.add_argument("--report", help="write every verdict to this JSON file")
    parser.add_argument("--verbose", action="store_true", help="also list declined tests")
    parser.add_argument("--first", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    OPTIONS.update(option.split("=", 1) for option in arguments.option)
    if arguments.first is not None:
        return child(arguments)
    results = list(children(arguments))
    if arguments.report:
        with open(arguments.report, "w") as file:
            json.dump([dict(zip(("test", "domain", "op", "verdict", "note"), row)) for row in results], file, indent=1)
    table = collections.defaultdict(collections.Counter)
    for name, domain, op, what, note in results:
        op = f"{domain}:{op}" if domain else op
        table[op][what] += 1
        if what in BAD or arguments.verbose and what == "declined":
            print(f"{what:8} {name}: {note}")
    columns = ["placed", "partly", "declined", "WRONG", "ERROR", "CRASH", "unusable"]
    print(f"\n{'op':32}" + "".join(f"{column:>10}" for column in columns))
    for op in sorted(table):
        print(f"{op:32}" + "".join(f"{table[op][column] or '':>10}" for column in columns))
    totals = collections.Counter(what for _, _, _, what, _ in results)
    print(f"{'all':32}" + "".join(f"{totals[column]:>10}" for column in columns))
    bad = sum(totals[what] for what in BAD)
    print(f"\n{totals['placed']} of {len(results) - totals['unusable']} usable tests run entirely on the device, {bad} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
