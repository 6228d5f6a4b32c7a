"""A sandbox for one run: a model folder, the targets of hostile paths, and every folder that a process writes to.

    model/   the folder under test: a copy of the demo model, which the case then changes
    target/  where hostile paths lead: a secret, a good model, and nothing else
    evil/    a library that records when it is loaded
    home/, cache/, tmp/, cwd/  the process's own folders; only cache/ may change
"""
import hashlib
import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "demo" / "model"
MARK_VARIABLE = "HOSTILE_MARK"

EVIL_SOURCE = """
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void mark(const char *who) {
    const char *path = getenv("HOSTILE_MARK");
    int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (file >= 0) {
        (void)!write(file, who, strlen(who));
        close(file);
    }
}

__attribute__((constructor)) static void loaded(void) { mark("loaded\\n"); }
void *CreateEpFactories() { mark("CreateEpFactories\\n"); abort(); }
void *RegisterCustomOps() { mark("RegisterCustomOps\\n"); abort(); }
void *OrtGetApiBase() { mark("OrtGetApiBase\\n"); abort(); }
"""


def compile_evil(folder):
    """Builds the library with the system's C compiler."""
    source, library = Path(folder, "evil.c"), Path(folder, "libevil.so")
    source.write_text(EVIL_SOURCE)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-w", "-o", library, source], check=True)
    return library


class Place:
    """The sandbox, with helpers to change the model folder."""

    def __init__(self, root, evil, umbrella):
        self.root, self.umbrella = Path(root), Path(umbrella)
        for name in ("target", "evil", "home", "cache", "tmp", "cwd"):
            (self.root / name).mkdir(parents=True)
        self.model, self.target, self.cwd = (self.root / name for name in ("model", "target", "cwd"))
        self.mark = self.root / "mark"
        # ONNX Runtime itself creates this file, with every model.
        self.telemetry = self.root / "tmp" / ".ses"
        self.evil = self.root / "evil" / "libevil.so"
        shutil.copy(evil, self.evil)
        shutil.copytree(DEMO, self.model)
        (self.target / "secret.txt").write_text("this must not appear in a prompt\n")
        shutil.copy(DEMO / "model.onnx", self.target / "outside.onnx")
        shutil.copy(DEMO / "tokenizer.json", self.target)

    def read(self, name):
        return json.loads((self.model / name).read_text())

    def write(self, name, content):
        """Writes bytes and strings as they are, everything else as JSON."""
        path = self.model / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))

    def edit(self, name, change):
        """Rewrites a JSON file after `change(document)`."""
        document = self.read(name)
        change(document)
        self.write(name, document)

    def options(self, values, provider=None):
        """Adds session options, or options of a provider; placeholders such as `{target}` become this sandbox's
        paths."""

        def change(document):
            options = document["model"]["decoder"]["session_options"]
            filled = {key: self.fill(value) for key, value in values.items()}
            if provider:
                options["provider_options"] = [{provider: filled}]
            else:
                options.update(filled)

        self.edit("genai_config.json", change)

    def fill(self, value):
        if not isinstance(value, str):
            return value
        names = ("root", "model", "target", "evil", "umbrella")
        for name in names:
            value = value.replace("{" + name + "}", str(getattr(self, name)))
        return value

    def replace(self, name):
        """Removes a file of the folder and returns its path."""
        path = self.model / name
        path.unlink(missing_ok=True)
        return path

    def environment(self):
        """The environment of the process, which inherits only PATH from the caller."""
        return {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "LANG": "C.UTF-8",
            "HOME": str(self.root / "home"),
            "XDG_CACHE_HOME": str(self.root / "cache"),
            "TMPDIR": str(self.root / "tmp"),
            "AMDGPU_EP_DRIVER": "host",
            "AMDGPU_EP_PATH": str(self.umbrella),
            "MALLOC_ARENA_MAX": "2",  # address space is limited, and every arena reserves 64 MiB of it
            MARK_VARIABLE: str(self.mark),
        }

    def snapshot(self):
        """A fingerprint of each file in the sandbox, except the cache and the mark, to detect changes."""
        found = {}
        for folder, folders, files in os.walk(self.root, followlinks=False):
            if Path(folder) == self.root:
                folders.remove("cache")
            for name in folders + files:
                path = Path(folder, name)
                if path not in (self.mark, self.telemetry):
                    found[str(path.relative_to(self.root))] = fingerprint(path)
        return found

    def changes(self, before):
        after = self.snapshot()
        made = [f"+{name}" for name in after if name not in before]
        gone = [f"-{name}" for name in before if name not in after]
        return sorted(made + gone + [f"!{name}" for name in before if after.get(name, before[name]) != before[name]])


def fingerprint(path):
    facts = path.lstat()
    if stat.S_ISREG(facts.st_mode) and facts.st_size < 1 << 20:
        try:
            return hashlib.sha256(path.read_bytes()).hexdigest()
        except PermissionError:
            pass
    size = facts.st_size if stat.S_ISREG(facts.st_mode) else 0
    return (stat.S_IFMT(facts.st_mode), size, facts.st_mtime_ns if stat.S_ISREG(facts.st_mode) else 0)
