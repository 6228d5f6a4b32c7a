"""Steps in ONNX Runtime's profile."""
import json

from support import VERSION, network, path, run_checks, sample, session

# Primitives that the network's two partitions certainly need.
WANTED = {"fused_matmul", "map"}


def steps(file):
    """The events of this backend and of runs in a profile."""
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
    ours.sort(key=lambda event: event["ts"])
    # The runtime reads its clock just before it calls the plugin, which then reads its own. All steps appear too early
    # by the time in between.
    each = len(ours) // 3
    early = max(0, *(run["ts"] - event["ts"] for run, event in zip(runs, ours[::each])))
    for at, event in enumerate(ours):
        run, start = runs[at // each], event["ts"] + early
        # Microseconds are truncated on both sides, so a step may appear to end slightly after its run.
        assert run["ts"] <= start and start + event["dur"] <= run["ts"] + run["dur"] + 2, (event, early, runs)
    # The matrix product is attributed to the last node that was fused into it.
    (dense, *_) = [event for event in ours if event["name"].startswith("fused_matmul")]
    assert dense["args"]["op_name"] == "Clip" and dense["name"].endswith(" clip"), dense
    assert "f32[3, 6]" in dense["args"]["inputs"].replace("f32[1, 3, 6]", "f32[3, 6]"), dense
    # At least three rows of six are read, and each number is multiplied and added once.
    assert int(dense["args"]["bytes"]) >= 4 * 3 * 6 and int(dense["args"]["flops"]) >= 2 * 3 * 6, dense
    # The session still runs after profiling has ended.
    running.run(None, sample())


run_checks(a_session_profile_has_every_step)
