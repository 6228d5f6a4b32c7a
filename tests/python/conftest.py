"""Runs every test in its own process.

The library under test lives in the process that loads it. A crash, a leaked registration or a changed environment must
not affect the next test, and a crash at interpreter exit must fail the test that caused it. So the outer pytest starts
one inner pytest per test and adopts its result.
"""
import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

# Otherwise a failed assertion in one of these modules does not show the values.
pytest.register_assert_rewrite(*(file.stem for file in Path(__file__).parent.glob("*.py") if file.stem != "conftest"))

import onnxruntime
from fork_server import ForkServer

CHILD = "AMDGPU_EP_TEST_CHILD"
# For tests that hang. The slowest test takes seconds, but the machine may be busy, and emulated devices take longer.
TIMEOUT_SECONDS = int(os.environ.get("AMDGPU_EP_TEST_SECONDS", "900"))
NOTHING_RAN = 5


def pytest_configure(config):
    config.addinivalue_line("markers", "environment(**variables): variables of the test's process; None removes one")
    config.addinivalue_line("markers", "since(version): skip in ONNX Runtime releases older than this")


def pytest_report_header():
    return [
        f"onnxruntime {onnxruntime.__version__}, library {os.environ.get('AMDGPU_EP_LIBRARY', '(not set)')}",
        f"MIGraphX {os.environ.get('AMDGPU_EP_TEST_MIGRAPHX', '(not set)')}",
    ]


def pytest_sessionstart():
    wanted = os.environ.get("AMDGPU_EP_TEST_ORT_VERSION")
    if wanted and wanted != onnxruntime.__version__:
        raise pytest.UsageError(f"onnxruntime {wanted} was requested, but {onnxruntime.__version__} is on the path")
    library = os.environ.get("AMDGPU_EP_LIBRARY")
    if not library or not os.path.isfile(library):
        raise pytest.UsageError(
            f"AMDGPU_EP_LIBRARY is {library!r}, which is not a file; `cargo xtask test --only ort` builds it and sets this"
        )


def pytest_collection_modifyitems(items):
    release = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
    for item in items:
        for marker in item.iter_markers("since"):
            if release < tuple(int(part) for part in marker.args[0].split(".")):
                item.add_marker(pytest.mark.skip(reason=f"needs ONNX Runtime {marker.args[0]}"))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if CHILD in os.environ:
        return None
    results = pyfuncitem.config.rootpath / "target" / "test-results"
    results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="child-", dir=results, ignore_cleanup_errors=True) as folder:
        run_child(pyfuncitem, Path(folder))
    return True


def run_child(pyfuncitem, folder):
    """Runs the test in its own process, whose files go to `folder`: all processes of a user share pytest's usual place,
    and remove each other's files there."""
    outcome = folder / "outcome.txt"
    arguments = ["--quiet", "--no-header", "-p", "no:cacheprovider", "--basetemp", str(folder / "files")]
    arguments += ["--rootdir", str(pyfuncitem.config.rootpath), str(pyfuncitem.path) + node_suffix(pyfuncitem)]
    code, output = process(arguments, environment_of(pyfuncitem, outcome), pyfuncitem.config.rootpath, folder)
    if code is None:
        pytest.fail(f"still running after {TIMEOUT_SECONDS} s\n{output}", pytrace=False)
    skipped = outcome.read_text() if outcome.exists() else ""
    if code != 0 or "passed" not in output and not skipped:
        pytest.fail(f"the test's process ended with {code}\n{output}", pytrace=False)
    if skipped:
        pytest.skip(skipped)
    print(output)


def process(arguments, environment, root, folder):
    """Runs pytest in a process of its own; returns its exit code, None if it hangs, and its output."""
    interpreter, output = os.environ.get("AMDGPU_EP_TEST_PYTHON"), folder / "output.txt"
    if interpreter is None and hasattr(os, "fork"):
        code = fork_server(root).run(arguments, environment, output, TIMEOUT_SECONDS)
        return code, output.read_text(errors="replace")
    command = [interpreter or sys.executable, "-X", "faulthandler", "-m", "pytest", *arguments]
    with output.open("w") as file:
        try:
            done = subprocess.run(command, env=environment, cwd=root, stdout=file, stderr=file, timeout=TIMEOUT_SECONDS)
            code = done.returncode
        except subprocess.TimeoutExpired:
            code = None
    return code, output.read_text(errors="replace")


@functools.cache
def fork_server(root):
    return ForkServer(root)


def node_suffix(item):
    return "::" + item.nodeid.split("::", 1)[1]


def environment_of(item, outcome):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("AMDGPU_EP_", "ORT_AMDGPU_"))}
    tests = ("LIBRARY", "TEST_BACKENDS", "TEST_EXAMPLES", "TEST_STRESS_SECONDS", "TEST_PYTHON", "TEST_REAL_HIP")
    tests += ("SIMULATE", "SIMULATE_DIR", "SIMULATE_TEXTS")
    # Locations of the vendors' libraries, and of precompiled kernels.
    places = ("HIP_LIBRARY", "CUDA_LIBRARY_PATH", "KERNEL_PATH")
    # Compilation for GPUs takes longer than most tests.
    if "AMDGPU_EP_TEST_DRIVER" in os.environ:
        places += ("CACHE_DIR",)
    for kept in (f"AMDGPU_EP_{name}" for name in (*tests, *places)):
        if kept in os.environ:
            environment[kept] = os.environ[kept]
    environment["AMDGPU_EP_DRIVER"] = os.environ.get("AMDGPU_EP_TEST_DRIVER", "host")
    # Tests trust the options that they set themselves.
    environment["AMDGPU_EP_TRUST_OPTIONS"] = "1"
    if "AMDGPU_EP_TEST_MIGRAPHX" in os.environ and "migraphx" in item.path.name:
        environment["AMDGPU_EP_MIGRAPHX_LIBRARY"] = os.environ["AMDGPU_EP_TEST_MIGRAPHX"]
    for marker in reversed(list(item.iter_markers("environment"))):
        for key, value in marker.kwargs.items():
            environment.pop(key, None)
            if value is not None:
                environment[key] = value
    environment[CHILD] = str(outcome)
    # Plugins that distribute tests among processes are not needed here, and would take a fifth of the start-up time.
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    return environment


@pytest.fixture
def folder(tmp_path):
    from backends_support import Folder

    return Folder(tmp_path)


def pytest_runtest_logreport(report):
    """In the child: reports a skip to the outer pytest, which the exit code alone would hide."""
    if CHILD in os.environ and report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        Path(os.environ[CHILD]).write_text(reason.removeprefix("Skipped: "))
