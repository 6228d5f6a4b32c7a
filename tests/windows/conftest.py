"""`cargo xtask windows` builds the files for Windows and runs these tests with their paths.

The program is copied away from the libraries, to a folder whose name has spaces and umlauts: with Python, the program
is somewhere else too. Sessions must not fall back to the CPU provider.
"""
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))

# Far more than any of them needs, also on a busy machine.
SECONDS = 600


def pytest_configure(config):
    if not os.path.isfile(os.environ.get("AMDGPU_EP_WINE", "")):
        raise pytest.UsageError("AMDGPU_EP_WINE is not a file; `cargo xtask windows` sets it")


def windows_path(path):
    """The path as Windows programs see it: Wine shows the whole file system as drive Z."""
    return "Z:" + str(path).replace("/", "\\")


@dataclass
class Windows:
    """Windows programs, run by Wine."""

    program: Path
    library: Path
    runtime: Path
    # A script that runs Windows' Python.
    interpreter: Path

    def command(self, *words):
        return [os.environ["AMDGPU_EP_WINE"], str(self.program), *map(str, words)]

    def environment(self, **more):
        return {**os.environ, "AMDGPU_EP_DRIVER": "host", "RUST_BACKTRACE": "0", **more}

    @property
    def libraries(self):
        return ["--ort", windows_path(self.runtime), "--library", windows_path(self.library)]

    def run(self, *words, text=None, status=0, **more):
        """Runs the program, and returns its standard output. Without a status, any is accepted."""
        return self.output(self.command(*words), text, status, **more)

    def python(self, *words, text=None):
        """Runs Windows' Python, and returns its standard output."""
        return self.output([str(self.interpreter), *map(str, words)], text, 0)

    def output(self, command, text, status, **more):
        done = subprocess.run(
            command, input=text, capture_output=True, encoding="utf-8", errors="replace", timeout=SECONDS,
            cwd=self.program.parent, env=self.environment(**more), check=False,
        )
        assert status in (None, done.returncode), f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="session")
def windows(tmp_path_factory):
    stage = Path(os.environ["AMDGPU_EP_WINDOWS_STAGE"])
    apart = tmp_path_factory.mktemp("a folder für Programme")
    program = Path(shutil.copy(stage / "bin" / "amdgpu-ep.exe", apart))
    runtime, interpreter = (Path(os.environ[f"AMDGPU_EP_WINDOWS_{name}"]) for name in ("ORT", "PYTHON"))
    return Windows(program, stage / "lib" / "amdgpu-ep.dll", runtime, interpreter)
