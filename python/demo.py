"""Shows the provider at work in ONNX Runtime: `cargo xtask demo` runs this.

It classifies a picture, `amdgpu-ep explain` shows where each node ran, and the language model of `demo/` answers
questions. On a machine without an AMD GPU, the script says so and continues with the host device, which provides the
same interface with plain memory and the CPU. Exits 0 only if all results were right.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import demo_picture
import numpy as np
import onnxruntime as ort

EP = "AMDGPUExecutionProvider"
ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "demo"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True, help="path of libamdgpu-ep.so")
    parser.add_argument("--command", required=True, help="path of the amdgpu-ep command")
    chosen = parser.parse_args()
    library = os.path.abspath(chosen.library)

    ort.register_execution_provider_library(EP, library)
    print(f"registered {os.path.basename(library)} in ONNX Runtime {ort.__version__}")
    devices = [device for device in ort.get_ep_devices() if device.ep_name == EP]
    if not devices:
        if os.environ.get("AMDGPU_EP_DRIVER"):
            print(f"no device with AMDGPU_EP_DRIVER={os.environ['AMDGPU_EP_DRIVER']}")
            return 1
        ort.unregister_execution_provider_library(EP)
        print("no AMD GPU was found here: continuing on the host device (AMDGPU_EP_DRIVER=host)\n", flush=True)
        os.environ["AMDGPU_EP_DRIVER"] = "host"
        # Start a new process, because the driver is chosen only once.
        os.execv(sys.executable, [sys.executable, *sys.argv])

    show_devices(devices)
    with tempfile.TemporaryDirectory() as folder:
        look = demo_picture.look(folder)
        good = picture(look, devices[0])
        ort.unregister_execution_provider_library(EP)
        good &= explain(chosen.command, library, look.model)
        good &= explain(chosen.command, library, DEMO / "model" / "model.onnx")
    good &= conversation(chosen.command, library)
    print("\nall results are correct" if good else "\nsome results are WRONG")
    return 0 if good else 1


def show_devices(devices):
    memory = ort.OrtDeviceMemoryType.DEFAULT
    rows = [("device", "arch", "driver", "memory", "vendor")]
    for device in devices:
        metadata = device.ep_metadata
        total = next((int(value) for key, value in metadata.items() if "memory" in key and value.isdigit()), 0)
        info = device.memory_info(memory)
        rows.append(
            (
                str(info.device_id),
                metadata.get("arch", "?"),
                metadata.get("driver", "?"),
                f"{total / 2**30:.1f} GiB",
                f"{info.device_vendor_id:#06x}",
            )
        )
    show("devices", rows)


def picture(look, device):
    """The top three classes, on the device and on the CPU provider alone."""
    options = ort.SessionOptions()
    options.add_provider_for_devices([device], {})
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = ort.InferenceSession(str(look.model), sess_options=options, enable_fallback=0)
    found = chances(session, look)
    wanted = chances(ort.InferenceSession(str(look.model), providers=["CPUExecutionProvider"]), look)
    rows = [("class", "chance", "on the CPU provider")]
    for number in np.argsort(found)[:-4:-1]:
        rows.append((look.names.get(int(number), f"class {number}"), f"{found[number]:.1%}", f"{wanted[number]:.1%}"))
    show(look.title, rows)
    nodes = Counter(part.ep_name for part in session.get_provider_graph_assignment_info() for _ in part.get_nodes())
    print("nodes after optimisation: " + ", ".join(f"{count} on {name}" for name, count in sorted(nodes.items())))
    return int(found.argmax()) == look.wanted and float(np.abs(found - wanted).max()) < 0.01


def chances(session, look):
    return session.run(None, look.feeds)[0].ravel().astype(np.float64)


def explain(command, library, model):
    print(f"\n$ amdgpu-ep explain {model.name}", flush=True)
    return subprocess.run([command, "explain", str(model), "--library", library, *runtime()]).returncode == 0


def conversation(command, library):
    """A story and questions about it; the answers must match the recorded ones."""
    print("\n$ amdgpu-ep chat demo/model --greedy")
    golden = max(json.loads((DEMO / "goldens.json").read_text()), key=lambda case: len(case["messages"]))
    messages = [message["content"] for message in golden["messages"]] + [golden["text"]]
    child = subprocess.Popen([command, "chat", str(DEMO / "model"), "--greedy", "--library", library, *runtime()],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    good = True
    for question, wanted in zip(messages[::2], messages[1::2]):
        print(f"> {question}", flush=True)
        child.stdin.write(f"{question}\n")
        child.stdin.flush()
        said = ""
        while (letter := child.stdout.read(1)) not in ("", "\n"):
            said += letter
            print(letter, end="", flush=True)
        print()
        good &= said == wanted
    child.stdin.close()
    return child.wait() == 0 and good


def runtime():
    """The command's option for this process's ONNX Runtime, if that is a single library."""
    found = next((Path(ort.__file__).parent / "capi").glob("libonnxruntime.so.*"), None)
    return ["--ort", str(found)] if found else []


def show(title, rows):
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    print(f"\n{title}")
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


if __name__ == "__main__":
    sys.exit(main())
