"""Hostile model folders: the build under test, sandboxes, and a summary of all outcomes."""
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from place import Place, compile_evil
from ways import Tools


def pytest_sessionstart():
    library = os.environ.get("AMDGPU_EP_LIBRARY")
    if not library or not os.path.isfile(library):
        raise pytest.UsageError(
            f"AMDGPU_EP_LIBRARY is {library!r}, which is not a file; `cargo xtask test --only hostile` builds it and sets this"
        )


@pytest.fixture(scope="session")
def tools(tmp_path_factory):
    return Tools(os.environ["AMDGPU_EP_LIBRARY"], compile_evil(tmp_path_factory.mktemp("evil")))


@pytest.fixture
def place(tmp_path, tools):
    yield Place(tmp_path / "sandbox", tools.evil, tools.library)


def pytest_terminal_summary(terminalreporter):
    counts, theirs, cases = Counter(), [], set()
    for reports in terminalreporter.stats.values():
        for report in reports:
            facts = dict(getattr(report, "user_properties", ()))
            if getattr(report, "when", "") != "call" or "way" not in facts:
                continue
            cases.add(facts.get("case"))
            counts["runs"] += 1
            counts[f"through {facts['way']}"] += 1
            for harm in ("loads", "writes", "aborts", "hangs", "theirs"):
                counts[harm] += int(facts.get(harm, 0))
            if int(facts.get("theirs", 0)):
                theirs.append(f"{facts['case']} in {facts['way']}: {facts.get('harm', '')}")
    if not counts["runs"]:
        return
    ways = ", ".join(f"{counts[way]} {way}" for way in sorted(counts) if way.startswith("through"))
    line = terminalreporter.write_line
    terminalreporter.section("hostile folders")
    line(f"{len(cases)} cases, {counts['runs']} runs ({ways})")
    line(f"{counts['loads']} loads, {counts['writes']} writes outside, {counts['aborts']} aborts, {counts['hangs']} hangs")
    line(f"{counts['theirs']} runs in which ONNX Runtime or GenAI does the same without the provider:")
    for row in sorted(theirs):
        line(f"  {row}")
