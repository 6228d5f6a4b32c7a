"""The ways to use a folder, and the outcome of each."""
import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from case import Case
from place import Place

CHILD = Path(__file__).with_name("child.py")
MEMORY_BYTES = 4 << 30
RESIDENT_BYTES = 2 << 30
SECONDS = 60
MAX_OUTPUT_BYTES = 256 << 10
# Output that indicates a crash instead of an error message.
CRASHES = ("panicked at", "RUST_BACKTRACE", "Traceback (most recent call last)", "core dumped", "AddressSanitizer")
ERROR_EXIT = 3  # the exit code of child.py
CAPABILITIES = (1, 2)  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, which let root read everything
PR_CAPBSET_DROP = 24


@dataclass
class Ended:
    code: int
    output: str
    errors: str
    seconds: float
    resident: int
    hung: bool
    changes: list[str]
    loads: str

    def everything(self):
        return self.output + self.errors

    def harm(self):
        """A short description of the harm done; empty if there was none."""
        found = []
        if self.hung:
            found.append(f"still running after {self.seconds:.0f} s")
        elif self.code < 0:
            found.append(f"ended by {signal.Signals(-self.code).name}")
        if self.loads:
            found.append("loaded the evil library")
        if self.changes:
            found.append("wrote " + " ".join(self.changes[:6]))
        return found


def limited():
    """Runs in the child: limits memory, disables core files, and makes permissions apply to root too."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.getuid() == 0:
        libc = ctypes.CDLL(None)
        for capability in CAPABILITIES:
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def run(place: Place, words, stdin="", seconds=SECONDS, cwd=None, **variables) -> Ended:
    """Runs a program in the sandbox; `None` removes a variable."""
    before = place.snapshot()
    environment = {key: value for key, value in {**place.environment(), **variables}.items() if value is not None}
    start = time.monotonic()
    process = subprocess.Popen(
        [str(word) for word in words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment, cwd=cwd or place.cwd, preexec_fn=limited,
    )  # fmt: skip
    hung = False
    outputs = {}
    readers = [threading.Thread(target=drain, args=(name, getattr(process, name), outputs)) for name in ("stdout", "stderr")]
    for reader in readers:
        reader.start()
    try:
        process.stdin.write(stdin.encode())
        process.stdin.close()
    except BrokenPipeError:
        pass
    deadline = start + seconds
    while True:
        reaped, status, usage = os.wait4(process.pid, os.WNOHANG)
        if reaped:
            break
        if time.monotonic() > deadline and not hung:
            hung = True
            process.kill()
        time.sleep(0.01)
    process.returncode = os.waitstatus_to_exitcode(status)
    for reader in readers:
        reader.join()
    loads = place.mark.read_text() if place.mark.exists() else ""
    return Ended(
        process.returncode, outputs["stdout"], outputs["stderr"], time.monotonic() - start,
        usage.ru_maxrss * 1024, hung, place.changes(before), loads,
    )  # fmt: skip


def drain(name, stream, outputs):
    """Reads to the end, but keeps only a limited amount."""
    kept = b""
    with stream:
        while chunk := stream.read(1 << 16):
            kept += chunk[: MAX_OUTPUT_BYTES + 1 - len(kept)]
    outputs[name] = kept.decode(errors="replace")


class Tools:
    """The command, the library and the interpreter of a build."""

    def __init__(self, library, evil):
        import onnxruntime

        self.library, self.evil = Path(library), evil
        self.command = self.library.parent.parent / "bin" / "amdgpu-ep"
        capi = Path(onnxruntime.__file__).parent / "capi"
        self.onnxruntime = next(path for path in capi.iterdir() if path.name.startswith("libonnxruntime.so."))

    def words(self, way, case: Case, place: Place):
        """The command line of a way, and its standard input."""
        ort = ("--ort", self.onnxruntime)
        tiny = place.model / "tiny.onnx"
        model = tiny if tiny.exists() else place.model / "model.onnx"
        match way:
            case "generate":
                chat = ["--chat"] if case.chat else []
                words = [self.command, "generate", place.model, "-", *chat, "--max-new-tokens", "2", *case.arguments]
                return [*words, *ort], case.prompt
            case "chat":
                words = [self.command, "chat", place.model, "--max-new-tokens", "2", *case.arguments]
                return [*words, *ort], f"{case.prompt}\n/stats\n/quit\n"
            case "explain" | "run":
                return [self.command, way, model, *ort], ""
            case "python" | "genai":
                return [sys.executable, CHILD, way, place.model, self.library], ""
        raise ValueError(way)

    def alone(self, way, case: Case, place: Place):
        """The same in Python or GenAI on the CPU provider, without our library."""
        return run(place, [sys.executable, CHILD, way, place.model], "", case.seconds, AMDGPU_EP_PATH=None, AMDGPU_EP_DRIVER=None)


def is_command(way):
    return way not in ("python", "genai")


def complaints(way, case: Case, ended: Ended):
    """Faults of the outcome other than harm."""
    text = ended.everything()
    found = [f"the output has {sign!r}" for sign in CRASHES if sign in text]
    if max(len(ended.output), len(ended.errors)) > MAX_OUTPUT_BYTES:
        found.append(f"it printed more than {MAX_OUTPUT_BYTES >> 10} KiB")
    if ended.hung or ended.code < 0:
        return found
    if is_command(way):
        found += command_complaints(case, ended)
    elif ended.code not in (0, ERROR_EXIT):
        found.append(f"it exited with {ended.code}")
    elif ended.code == ERROR_EXIT and len(ended.output.strip().partition(": ")[2]) < 10:
        found.append("the error message is empty")
    if case.refused and case.refused.lower() not in text.lower() and not (way in case.theirs):
        found.append(f"nothing names {case.refused}, which the folder must not set")
    return found


def command_complaints(case, ended):
    if ended.code not in (0, 2):
        yield f"it exited with {ended.code}"
    elif ended.code not in case.ends:
        yield f"it exited with {ended.code}, not {' or '.join(map(str, case.ends))}"
    # A model may use all available memory.
    if ended.resident > RESIDENT_BYTES and not case.name.startswith("model-"):
        yield f"it took {ended.resident >> 20} MiB"
    if ended.code == 2:
        if "error: " not in ended.errors:
            yield "it failed without a readable error"
        elif case.names and not any(name in ended.errors for name in case.names):
            yield f"the error names none of {', '.join(case.names)}"
