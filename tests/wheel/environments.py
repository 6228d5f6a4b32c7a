"""Empty Python environments, and programs in them that see only what is installed there."""
import functools
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOST = {"AMDGPU_EP_DRIVER": "host"}


@functools.cache
def pip():
    """A pip that installs into other environments: this environment's, or the base Python's if Debian left it out."""
    for python in (sys.executable, os.environ.get("PYTHON", "python3")):
        command = [python, "-m", "pip"]
        if subprocess.run([*command, "--version"], capture_output=True).returncode == 0:
            return command
    raise RuntimeError("pip was not found")


class Environment:
    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True)
        self.bin = folder / "bin"
        self.call([sys.executable, "-m", "venv", "--without-pip", folder])

    def install(self, *what):
        self.pip("install", "--quiet", "--no-compile", "--only-binary", ":all:", *what)

    def pip(self, command, *arguments):
        patient = ["--disable-pip-version-check", "--retries", "10", "--timeout", "60"]
        return self.call([*pip(), *patient, "--python", self.bin / "python", command, *arguments])

    def python(self, *arguments, **call):
        return self.call([self.bin / "python", "-X", "faulthandler", *arguments], **call)

    def call(self, command, cwd=None, env=(), code=0):
        """The output of a program, which must exit with `code`. It sees none of our variables except those in `env`."""
        mine = ("AMDGPU_EP_", "ORT_", "PYTHON", "VIRTUAL_ENV")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(mine)}
        environment.update(env)
        done = subprocess.run(command, cwd=cwd or self.folder, env=environment, capture_output=True, text=True)
        assert done.returncode == code, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def files(self):
        """The installed files, without Python's caches."""
        files = (path.relative_to(self.folder) for path in self.folder.rglob("*"))
        return {str(file) for file in files if "__pycache__" not in file.parts}
