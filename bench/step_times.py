"""The times of a run's steps, from the file that the hip backend writes for `ep.hip.profile_file`."""
import collections
import json
from pathlib import Path

ENTRY = "ep.hip.profile_file"


def show(record):
    """Prints the steps of the last run, grouped by kind and size, slowest first."""
    steps = json.loads(Path(record).read_text().splitlines()[-1])["times"]
    groups = collections.defaultdict(list)
    for step in steps:
        groups[step["step"], step["run_by"], step["bytes"], step["flops"]].append(step["micros"])
    total = sum(step["micros"] for step in steps)
    print(f"  {len(steps)} steps, {total:.1f} us one by one")
    for (step, run_by, size, flops), micros in sorted(groups.items(), key=lambda group: -sum(group[1])):
        each = sum(micros) / len(micros)
        rates = f"{size / each / 1e3:6.0f} GB/s {flops / each / 1e6:7.1f} Tflop/s" if each else ""
        print(f"  {sum(micros):9.1f} us = {len(micros):4} x {each:8.2f} us {rates}  {step} by {run_by}", flush=True)
