"""One folder: its reference, GenAI, textgen, and where its nodes run."""
import fcntl
import hashlib
import json
import multiprocessing
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx

from families import make, plain
from families.catalogue import FAMILIES
from families.judge import nearness, verdict
from families.prompts import PROMPTS, STEPS
from families.variants import Build, build_of, reference_of

TESTS = Path(__file__).resolve().parent.parent
SECONDS = 600
# What ONNX Runtime says of graphs that no provider could run.
INVALID = re.compile(r"does not exist in the graph|does not match expected type")
EXTENTS = {"sequence_length": 4, "past_sequence_length": 4, "total_sequence_length": 8, "kv_cache_dim": 16, "num_frames": 64}


def in_child(work, arguments, log):
    """Runs `work` in a process of its own. Returns why it failed, or None."""

    def run():
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        work(*arguments)

    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    child.join(SECONDS)
    if child.is_alive():
        child.kill()
        return f"no end after {SECONDS} s"
    if child.exitcode == 0:
        return None
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else f"exit code {child.exitcode}"


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"error|RuntimeError|Exception|onnxruntime_genai", line)]
    return (errors or lines or ["no message"])[-1]


class Checker:
    """Builds folders under `out` and runs them on the host device."""

    def __init__(self, out, command, library):
        self.out, self.command, self.name = out, str(command), ""
        for part in ("models", "built", "plain", "results", "logs"):
            (out / part).mkdir(parents=True, exist_ok=True)
        import onnxruntime

        self.runtime = str(next((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*")))
        self.environment = {**os.environ, "AMDGPU_EP_DRIVER": "host", "AMDGPU_EP_PATH": str(library),
                            "PYTHONPATH": str(TESTS)}

    def call(self, *command):
        try:
            done = subprocess.run(
                command, env=self.environment, capture_output=True, text=True, errors="replace", timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return None, f"no end after {SECONDS} s"
        return (done.stdout, None) if done.returncode == 0 else (None, last_line(done.stderr))

    def source(self, family):
        """The model of transformers, and why it could not be made."""
        folder, log = self.out / "models" / family, self.out / "logs" / f"{family}.log"
        folder.mkdir(exist_ok=True)
        return folder, self.once(folder, make.model_folder, (family, folder), log)

    def once(self, folder, work, arguments, log):
        """Runs `work` unless it made the folder before; another process may be doing so now. Returns why it failed."""
        done = folder.with_name(f"{folder.name}.done")
        with folder.with_name(f"{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            why = None if done.exists() else in_child(work, arguments, log)
            if why is None:
                done.touch()
        return why

    def built(self, build):
        """The folder of a build, and why it could not be made."""
        key = hashlib.sha256(repr(sorted(build.options.items())).encode()).hexdigest()[:8]
        name = f"{build.family}.{build.provider}-{build.precision}-{key}"
        folder, log = self.out / "built" / name, self.out / "logs" / f"{name}.log"
        source, why = self.source(build.family)
        return folder, why or self.once(folder, make.genai_folder, (build, source, folder), log)

    def genai(self, folder, provider, shared=False):
        """The cases of a folder through GenAI, and why it did not end well."""
        result = self.out / "results" / f"{self.name}.{provider}.json"
        result.unlink(missing_ok=True)
        given = [str(folder), provider, str(result), *(["shared"] if shared else [])]
        _, why = self.call(sys.executable, "-m", "families.generate", *given)
        return json.loads(result.read_text())["cases"] if result.exists() else {}, why

    def reference(self, build):
        """The cases that a folder is compared with, one or two of them, and why a folder counts as invalid."""
        wanted, sources, invalid = reference_of(build), [], None
        if wanted.build is not None:
            folder, why = self.built(wanted.build)
            if why is None and (wanted.as_floats or wanted.plain_experts):
                copy = self.out / "plain" / self.name
                plain.copy(folder, copy, wanted.as_floats, wanted.plain_experts)
                folder = copy
            cases, why = self.genai(folder, "cpu") if why is None else ({}, why)
            invalid = why if why and INVALID.search(why) else None
            sources += [cases] if "tokens" in cases.get("short", {}) else []
        name = "short-cache.json" if wanted.short_cache else "reference.json"
        path = self.out / "models" / build.family / name
        if path.exists() and (wanted.short_cache or not build.is_quantised):
            sources.append(json.loads(path.read_text())["cases"])
        return sources, invalid

    def placement(self, folder):
        """Nodes on the device, all nodes, and partitions of a folder's graphs."""
        device = total = partitions = 0
        for graph in sorted(folder.glob("*.onnx")):
            text, why = self.call(self.command, "explain", "--ort", self.runtime, "--json", str(graph))
            if why:
                return {"error": f"{graph.name}: {why}"}
            found = json.loads(text)
            device, total = device + found["device_nodes"], total + found["total_nodes"]
            partitions = max(partitions, found["partitions"])
        return {"device": device, "total": total, "partitions": partitions}

    def graphs(self, build, folder):
        """Compares the outputs of every graph with the CPU provider's; why they differ, by graph."""
        wrong = {}
        for graph in sorted(folder.glob("*.onnx")):
            inputs = onnx.load(graph, load_external_data=False).graph.input
            named = {axis.dim_param for value in inputs for axis in value.type.tensor_type.shape.dim}
            command = [self.command, "run", "--ort", self.runtime, str(graph), "--compare", "cpu"]
            command += [part for name, extent in EXTENTS.items() if name in named for part in ("--dim", f"{name}={extent}")]
            if any(value.name == "attention_mask" for value in inputs):
                mask = self.out / "results" / f"{self.name}.mask.npy"
                np.save(mask, np.ones((1, EXTENTS["total_sequence_length"]), np.int64))
                command += ["--input", f"attention_mask={mask}"]
            if build.is_quantised:
                command += ["--tolerance", "0.05"]
            _, why = self.call(*command)
            if why:
                wrong[graph.name] = why
        return wrong

    def textgen(self, folder, text):
        text, why = self.call(
            self.command, "generate", "--ort", self.runtime, str(folder), text, "--greedy", "--json",
            "--max-new-tokens", str(STEPS))
        if why:
            return None, why
        found = json.loads(text)
        if not found["provider"].startswith("AMDGPU"):
            return None, f"it ran on {found['provider']}"
        return found["tokens"][:STEPS], None

    def check(self, family, variant):
        """The row of a folder."""
        build, self.name = build_of(family, variant), f"{family}.{variant}"
        row = {"family": family, "variant": variant, "counts": True, "option": build.needs_shared_caches}
        folder, why = self.built(build)
        if why:
            return {**row, "counts": False, "why": [f"not built: {why}"]}
        row["placement"] = self.placement(folder)
        if not build.generates:
            wrong = self.graphs(build, folder)
            return {**row, "right": not wrong, "why": [f"{graph}: {why}" for graph, why in wrong.items()]}
        sources, invalid = self.reference(build)
        if invalid:
            return {**row, "counts": False, "why": [f"invalid: {invalid}"]}
        why = self.compare(build, folder, sources)
        return {**row, "right": not why, "why": why}

    def compare(self, build: Build, folder, sources):
        """What is wrong with a folder, through GenAI and through textgen."""
        near, is_mixture = nearness(build), FAMILIES[build.family].experts is not None

        def judged(case, tokens, scores):
            known = [source[case] for source in sources if "tokens" in source.get(case, {})]
            found = [verdict(wanted, tokens, scores, near, is_mixture) for wanted in known]
            return next((one for one in found if one[0]), (found or [(False, "no reference")])[0])

        cases, failed = self.genai(folder, "amdgpu", build.needs_shared_caches)
        wrong, states = [], {}
        for case in PROMPTS:
            found = cases.get(case, {})
            if "tokens" not in found:
                wrong.append(f"GenAI, {case}: {found.get('error') or failed}")
                continue
            states[case] = judged(case, found["tokens"][0], found["scores"])
            if not states[case][0]:
                wrong.append(f"GenAI, {case}: {states[case][1]}")
        wrong += self.batch(cases, sources, judged, failed)
        for case, text in PROMPTS.items():
            tokens, why = self.textgen(folder, text)
            if why is None and case in states and tokens == cases[case]["tokens"][0]:
                is_right, why = states[case]
            elif why is None:
                is_right, why = judged(case, tokens, None)
            else:
                is_right = False
            if not is_right:
                wrong.append(f"textgen, {case}: {why}")
        return wrong

    def batch(self, cases, sources, judged, failed):
        """What is wrong with the batch. It does not count where GenAI's CPU provider refuses it or gets it wrong too."""
        names = list(PROMPTS)
        known = [source for source in sources if "batch" in source]
        rows = cases.get("batch", {}).get("tokens")
        for source in known:
            theirs = source["batch"].get("tokens")
            if theirs is None or not all(judged(name, theirs[at], None)[0] for at, name in enumerate(names)):
                return []
        if rows is None:
            return [f"GenAI, batch: {cases.get('batch', {}).get('error') or failed}"]
        wrong = []
        for at, name in enumerate(names):
            if cases.get(name, {}).get("tokens", [None])[0] != rows[at]:
                is_right, why = judged(name, rows[at], None)
                wrong += [] if is_right else [f"GenAI, batch, {name}: {why}"]
        return wrong
