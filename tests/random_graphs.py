"""Compares random graphs of 3 to 30 operators on a backend with ONNX Runtime's CPU provider.

    python tests/random_graphs.py --library libhip-backend.so [--seed 1] [--count 300] [--first 0]

Every graph runs with graph optimisations off and on, with several run-time sizes in one session. If ONNX Runtime's own
optimisations change the CPU provider's result (1.31.1 does so when it merges a Pad of zeros into a MaxPool), that
result counts as right too. Integers and booleans must be equal. Floats must be within a tolerance relative to the
largest element, which is wider if half precision is involved. A model that gives different results or crashes the
process is kept in target/random-graphs/.
"""
import argparse
import os
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort

import graph_patterns  # noqa: F401, adds its operators to the table
from graph_maker import Dim, Maker
from graph_ops import TABLE

NAME = "RandomGraphsExecutionProvider"
KEPT = Path(__file__).resolve().parent.parent / "target" / "random-graphs"
TOLERANCE, COARSE_TOLERANCE = 5e-5, 4e-2
SIZES = ({"N": 1, "S": 4}, {"N": 5, "S": 7}, {"N": 2, "S": 1}, {"N": 5, "S": 7})
EMPTY = ({"N": 0, "S": 3},)
# ONNX Runtime's CPU provider (seen in 1.31.1) crashes the process when a recurrent operator gets an empty sequence.
# ONNX does not define the mean of an empty set, nor how later operators treat infinities, which are the maximum of an
# empty set. Regions need an image.
NEVER_EMPTY = {"LSTM", "GRU", "RNN", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceLogSumExp", "RoiAlign", "CropAndResize"}
N, S = Dim(1, ("N",)), Dim(1, ("S",))


OPTIONS = {}


def make(seed):
    m = Maker(seed, opset=[13, 14, 17, 18, 21, 23][seed % 6])
    shapes = [
        (N, Dim(4)),
        (N, S, Dim(8)),
        (N, Dim(m.random.choice([3, 4, 8])), Dim(6), Dim(8)),
        (N, Dim(6), S),
        (Dim(5), Dim(4)),
        (N, Dim(4), Dim(9)),
        (N,),
        (),
    ]
    m.input("f32", m.random.choice(shapes[:6]))
    for _ in range(m.random.randint(0, 3)):
        m.input(m.random.choice(["f32", "f32", "f16", "i64", "i32", "bool"]), m.random.choice(shapes))
    wanted = m.random.randint(3, 30)
    for _ in range(10 * wanted):
        if len(m.nodes) < wanted:
            m.random.choice(TABLE)(m)
    return m


def session(model, devices, optimised):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 2
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if devices:
        entries = {key: value for key, value in OPTIONS.items() if "." in key}
        for key, value in entries.items():
            options.add_session_config_entry(key, value)
        options.add_provider_for_devices(devices, {key: value for key, value in OPTIONS.items() if key not in entries})
    return ort.InferenceSession(model, sess_options=options, enable_fallback=0)


def placed(one):
    """The number of nodes on the device, and of all nodes."""
    counts = [(len(item.get_nodes()), item.ep_name == NAME) for item in one.get_provider_graph_assignment_info()]
    return np.array([sum(count for count, ours in counts if ours), sum(count for count, _ in counts)])


def difference(found, wanted, tolerance):
    """Describes how an output differs; None if it does not."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{found.dtype}{list(found.shape)} instead of {wanted.dtype}{list(wanted.shape)}"
    if found.dtype.kind != "f":
        count = int((found != wanted).sum())
        return f"{count} of {found.size} elements differ" if count else None
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(wanted)
    if not np.array_equal(found[~finite], wanted[~finite], equal_nan=True):
        return "infinities and NaNs differ"
    largest = max(np.abs(wanted[finite]).max(initial=0), 1)
    error = np.abs(found[finite] - wanted[finite]).max(initial=0) / largest
    return None if error <= tolerance else f"off by {error:.1e} of the largest element"


def check(m, devices, seed):
    """(faults, counts of nodes on the device and of all nodes, runs) of one graph."""
    model = m.model().SerializeToString()
    path = KEPT / f"{seed}.onnx"
    path.write_bytes(model)
    count, runs = np.array([0, 0]), 0
    try:
        reference = session(model, None, False)
        faults = []
        for optimised in (False, True):
            ours = session(model, devices, optimised)
            count = placed(ours)
            for sizes in SIZES if NEVER_EMPTY.intersection(node.op_type for node in m.nodes) else SIZES + EMPTY:
                feeds = m.feeds(sizes, np.random.default_rng(seed))
                wanted = results(reference, feeds)
                if wanted is None:
                    continue
                runs += 1
                wrong = differences(m, ours, wanted, feeds)
                if wrong and optimised:
                    wrong = differences(m, ours, results(session(model, None, True), feeds), feeds)
                faults += [f"optimised={optimised} {sizes} {fault}" for fault in wrong]
    except Exception as error:
        faults = [str(error)[:400]]
    if not faults:
        path.unlink()
    return faults, count, runs


def results(reference, feeds):
    """The CPU provider's results; None if it fails, because then it is not a reference."""
    try:
        return reference.run(None, feeds)
    except Exception:
        return None


def differences(m, ours, wanted, feeds):
    wrong = []
    for output, f, w in zip(ours.get_outputs(), ours.run(None, feeds), wanted):
        if fault := difference(f, w, COARSE_TOLERANCE if output.name in m.coarse else TOLERANCE):
            wrong.append(f"{output.name}: {fault}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, type=os.path.abspath)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="an option of the backend; with a dot in the key, a session-config entry")
    arguments = parser.parse_args()
    OPTIONS.update(option.split("=", 1) for option in arguments.option)
    KEPT.mkdir(parents=True, exist_ok=True)
    ort.register_execution_provider_library(NAME, arguments.library)
    devices = [device for device in ort.get_ep_devices() if device.ep_name == NAME]
    bad, nodes, runs = 0, np.array([0, 0]), 0
    for index in range(arguments.first, arguments.first + arguments.count):
        seed = arguments.seed * 1_000_000 + index
        faults, count, done = check(make(seed), devices, seed)
        nodes, runs = nodes + count, runs + done
        if faults:
            bad += 1
            print(f"WRONG --seed {arguments.seed} --first {index} --count 1 (target/random-graphs/{seed}.onnx)", flush=True)
            for fault in faults[:4]:
                print(f"    {fault}", flush=True)
    share = nodes[0] / max(nodes[1], 1)
    print(f"{arguments.count} graphs, {runs} runs, {nodes[1]} nodes, {share:.1%} of them on the device, {bad} bad")
    return 1 if bad or not runs else 0


if __name__ == "__main__":
    sys.exit(main())
