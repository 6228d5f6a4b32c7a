"""Steps in ONNX Runtime's profile."""
import json

from support import VERSION, network, path, run_checks, sample, session

# Names of primitives that the network's two partitions surely need.
WANTED = {"fused_matmul", "map"}


def steps(file):
    """Events of this backend, by where they are in the profile."""
    with open(file, encoding="utf-8") as opened:
        events = json.load(opened)
    ours = [event for event in events if event["cat"] == "Kernel"]
    runs = [event for event in events if event["name"] == "model_run"]
    return ours, runs


def profiled(settings):
    settings.enable_profiling = True
    settings.profile_file_prefix = path("session")


def a_session_profile_has_every_step():
    running = session(network(), prepare=profiled)
    for _ in range(3):
        running.run(None, sample())
    ours, runs = steps(running.end_profiling())
    if VERSION < (1, 25):
        assert not ours, ours
        return
    assert len(runs) == 3 and ours and len(ours) % 3 == 0, (len(ours), runs)
    assert {event["name"].split(" ")[0] for event in ours} >= WANTED, ours
    for event in ours:
        # Microseconds are cut off on both sides, so a step may seem to end one later than its run.
        inside = [run for run in runs if run["ts"] <= event["ts"] + 1
                  and event["ts"] + event["dur"] <= run["ts"] + run["dur"] + 1]
        assert len(inside) >= 1, (event, runs)
    # The product is part of the last node that was merged into it.
    (dense, *_) = [event for event in ours if event["name"].startswith("fused_matmul")]
    assert dense["args"]["op_name"] == "Clip" and dense["name"].endswith(" clip"), dense
    assert "f32[3, 6]" in dense["args"]["inputs"].replace("f32[1, 3, 6]", "f32[3, 6]"), dense
    # At least the three rows of six are read, and each number is multiplied and added once.
    assert int(dense["args"]["bytes"]) >= 4 * 3 * 6 and int(dense["args"]["flops"]) >= 2 * 3 * 6, dense
    # A session goes on without its profile.
    running.run(None, sample())


run_checks(a_session_profile_has_every_step)
