"""Packs staged libraries and the command into a wheel: `cargo xtask dist` and the CI step `wheel` run this.

A wheel is a zip file with three metadata files. Nothing here is compiled against Python, so one wheel works with every
Python 3, and no build tool is needed. The same input gives the same bytes.
"""
import argparse
import base64
import hashlib
import re
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODULES = ("__init__.py", "__main__.py", "_genai.py")
NAME = "amdgpu_ep"
OLDEST_PYTHON = "3.10"

# The earliest time that a zip file can store.
TIME = (1980, 1, 1, 0, 0, 0)
PLAIN, EXECUTABLE = 0o100644, 0o100755


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--command", type=Path, required=True)
    parser.add_argument("--library", type=Path, action="append", required=True, help="may be repeated")
    parser.add_argument("--kernels", type=Path, help="folder of compiled kernels")
    parser.add_argument("--notices", type=Path, required=True, help="licences of the linked packages")
    parser.add_argument("--version", required=True)
    parser.add_argument("--platform", required=True, help="platform tag, such as manylinux_2_28_x86_64")
    parser.add_argument("--out", type=Path, required=True, help="folder for the wheel")
    arguments = parser.parse_args()

    tag = f"py3-none-{arguments.platform}"
    wheel = arguments.out / f"{NAME}-{arguments.version}-{tag}.whl"
    arguments.out.mkdir(parents=True, exist_ok=True)
    info = f"{NAME}-{arguments.version}.dist-info"
    with Wheel(wheel) as packed:
        for module in MODULES:
            packed.add(f"{NAME}/{module}", (ROOT / "python" / NAME / module).read_bytes())
        for folder, files in (("bin", [arguments.command]), ("lib", sorted(arguments.library))):
            for file in files:
                packed.add(f"{NAME}/{folder}/{file.name}", file.read_bytes(), EXECUTABLE)
        for file in sorted(arguments.kernels.rglob("*")) if arguments.kernels else []:
            if file.is_file():
                packed.add(f"{NAME}/lib/kernels/{file.relative_to(arguments.kernels).as_posix()}", file.read_bytes())
        licences = {name: ROOT / name for name in ("LICENSE-APACHE", "LICENSE-MIT")}
        licences["THIRD-PARTY-NOTICES.txt"] = arguments.notices
        for name, file in licences.items():
            packed.add(f"{info}/licenses/{name}", file.read_bytes())
        packed.add(f"{info}/METADATA", metadata(arguments.version, licences).encode())
        packed.add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: {NAME}\nRoot-Is-Purelib: false\nTag: {tag}\n".encode())
        packed.add(f"{info}/entry_points.txt", f"[console_scripts]\namdgpu-ep = {NAME}.__main__:main\n".encode())
        packed.add_record(f"{info}/RECORD")
    print(wheel)


def metadata(version, licences):
    home = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["repository"]
    head = [
        ("Metadata-Version", "2.4"),
        ("Name", NAME.replace("_", "-")),
        ("Version", version),
        ("Summary", "AMD GPUs for ONNX Runtime, as a plugin execution provider"),
        ("Keywords", "onnxruntime,amd,rocm,hip,gpu,inference"),
        ("License-Expression", "MIT OR Apache-2.0"),
        *(("License-File", name) for name in licences),
        ("Requires-Python", f">={OLDEST_PYTHON}"),
        ("Project-URL", f"Homepage, {home}"),
        ("Project-URL", f"Documentation, {home}/tree/main/docs"),
        ("Project-URL", f"Source, {home}"),
        ("Project-URL", f"Issues, {home}/issues"),
        ("Description-Content-Type", "text/markdown"),
    ]
    lines = [f"{field}: {value}" for field, value in head]
    return "\n".join([*lines, "", absolute((ROOT / "README.md").read_text(encoding="utf-8"), home)])


def absolute(page, home):
    """Makes a page's relative links absolute, so that they work outside the repository."""
    return re.sub(r"\]\((?!https?:|#)", f"]({home}/blob/main/", page)


class Wheel:
    """A zip file that collects the entries of RECORD. It gets its final name when it is complete."""

    def __init__(self, path):
        self.path = path
        self.draft = path.with_suffix(".part")
        self.records = []

    def __enter__(self):
        self.zip = zipfile.ZipFile(self.draft, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        return self

    def __exit__(self, kind, *_):
        self.zip.close()
        if kind is None:
            self.draft.replace(self.path)
        else:
            self.draft.unlink()

    def add(self, name, data, mode=PLAIN):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.records.append(f"{name},sha256={digest},{len(data)}")
        self.write(name, data, mode)

    def add_record(self, name):
        self.write(name, "\n".join([*self.records, f"{name},,", ""]).encode(), PLAIN)

    def write(self, name, data, mode):
        entry = zipfile.ZipInfo(name, TIME)
        entry.external_attr = mode << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, data)


if __name__ == "__main__":
    main()
