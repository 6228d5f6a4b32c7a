"""The wheel as a user gets it: its files, and its behaviour in an empty environment."""
import base64
import csv
import hashlib
import json
import os
import re
import subprocess
import tomllib
import zipfile

import pytest
from documents import CHECK
from environments import HOST, ROOT, Environment
from packaging.metadata import Metadata

def test_the_record_names_every_file_with_its_hash(wheel):
    with zipfile.ZipFile(wheel) as packed:
        record = next(name for name in packed.namelist() if name.endswith(".dist-info/RECORD"))
        rows = {row[0]: row[1:] for row in csv.reader(packed.read(record).decode().splitlines())}
        assert sorted(rows) == sorted(packed.namelist())
        assert rows.pop(record) == ["", ""]
        for name, (digest, size) in rows.items():
            data = packed.read(name)
            assert int(size) == len(data)
            assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def test_the_metadata_is_what_installers_expect(wheel):
    with zipfile.ZipFile(wheel) as packed:
        name = next(name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
        found = Metadata.from_email(packed.read(name), validate=True)
        packed_licences = {name.split("/")[-1] for name in packed.namelist() if "/licenses/" in name}
    assert (found.name, str(found.version)) == ("amdgpu-ep", wheel.stem.split("-")[1])
    assert set(found.license_files) == packed_licences and found.requires_dist is None


def test_links_in_the_metadata_work_without_the_repository(wheel):
    home = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["repository"]
    with zipfile.ZipFile(wheel) as packed:
        name = next(name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
        found = Metadata.from_email(packed.read(name), validate=True)
    assert set(found.project_urls) == {"Homepage", "Documentation", "Source", "Issues"}
    assert all(url.startswith(home) for url in found.project_urls.values())
    links = re.findall(r"\]\(([^)]+)\)", found.description)
    assert len(links) > 5 and [link for link in links if not link.startswith("https://")] == []
    pages = [link.removeprefix(f"{home}/blob/main/").split("#")[0] for link in links if link.startswith(home)]
    assert pages and [page for page in pages if not (ROOT / page).is_file()] == []


def test_the_wheel_contains_only_our_libraries(wheel, libraries):
    with zipfile.ZipFile(wheel) as packed:
        folders = {name.split("/")[0] for name in packed.namelist()}
        packed_libraries = {name.split("/")[-1] for name in packed.namelist() if ".so" in name}
        notices = next(name for name in packed.namelist() if name.endswith("licenses/THIRD-PARTY-NOTICES.txt"))
        assert "libloading" in packed.read(notices).decode()
    assert len(folders) == 2 and "amdgpu_ep" in folders
    assert packed_libraries == libraries


def test_auditwheel_agrees_with_the_tag_and_finds_no_foreign_library(wheel):
    command = [os.environ["AMDGPU_EP_WHEEL_AUDITOR"], "-m", "auditwheel", "show", "--json", wheel]
    shown = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert shown["overall_tag"] == wheel.stem.split("-")[-1]
    assert (shown["external_libs"], shown["pure"], shown["unsupported_isa"]) == ({}, False, False)
    assert set(shown["versioned_symbols"]) <= {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libdl.so.2", "libpthread.so.0"}


def test_installing_and_uninstalling_leaves_nothing(wheel, tmp_path):
    environment = Environment(tmp_path / "venv")
    before = environment.files()
    environment.install(wheel)
    assert len(environment.files() - before) > 10
    environment.python("-c", "import amdgpu_ep; amdgpu_ep.get_library_path()")
    environment.call([environment.bin / "amdgpu-ep", "--version"])
    environment.pip("uninstall", "--yes", "amdgpu-ep")
    assert environment.files() == before
    assert not [path for path in environment.folder.rglob("*amdgpu*")]


def test_nothing_is_installed_or_imported_beside_it(wheel, tmp_path):
    """ONNX Runtime comes in many packages: a dependency on one would install it beside another."""
    environment = Environment(tmp_path / "venv")
    environment.install(wheel)
    listed = json.loads(environment.pip("list", "--format", "json"))
    assert [package["name"].replace("_", "-") for package in listed] == ["amdgpu-ep"]
    script = "import amdgpu_ep; print(amdgpu_ep.get_ep_name(), amdgpu_ep.get_ep_names(), amdgpu_ep.get_library_path())"
    name, names, library = environment.python("-c", script).strip().split(" ", 2)
    assert name == "AMDGPUExecutionProvider" and names == "['AMDGPUExecutionProvider']"
    assert os.path.isfile(library) and str(environment.folder) in library


def test_the_package_has_a_version(wheel, tmp_path):
    environment = Environment(tmp_path / "venv")
    environment.install(wheel)
    assert environment.python("-c", "import amdgpu_ep; print(amdgpu_ep.__version__)").strip() == wheel.stem.split("-")[1]
    loaded = environment.python("-X", "importtime", "-c", "import amdgpu_ep, sys; print(*sys.modules)")
    assert not {"importlib.metadata", "ctypes", "onnxruntime"} & set(loaded.split()), "importing the package is cheap"


def test_our_libraries_open_no_network_connection(wheel, libraries, tmp_path):
    """No shipped library calls the functions that open a connection, and no module imports such a module."""
    with zipfile.ZipFile(wheel) as packed:
        files = [name for name in packed.namelist() if ".so" in name]
        modules = [name for name in packed.namelist() if name.endswith(".py")]
        packed.extractall(tmp_path)
    assert len(files) == len(libraries) and len(modules) > 2
    for name in files:
        symbols = subprocess.run(["nm", "-D", "--undefined-only", tmp_path / name], capture_output=True, text=True, check=True)
        called = {line.split()[-1].split("@")[0] for line in symbols.stdout.splitlines()}
        assert "malloc" in called and not called & {"socket", "connect", "getaddrinfo"}, name
    for name in modules:
        assert not re.search(r"\b(socket|urllib|http|requests)\b", (tmp_path / name).read_text()), name


def test_only_bench_serve_opens_network_connections():
    """The command listens (`serve`), and connects to the server that the user of `bench-serve` names."""
    connecting = re.compile(r"\b(TcpStream|TcpSocket|UdpSocket|UnixStream|lookup_host|ToSocketAddrs|hyper::client)\b")
    sources = [path for crate in ("cli", "serve", "textgen", "ort-client") for path in (ROOT / "crates" / crate / "src").rglob("*.rs")]
    assert len(sources) > 100
    found = {path.parent.name for path in sources if connecting.search(path.read_text().split("#[cfg(test)]")[0])}
    assert found == {"bench_serve"}


def test_a_session_runs_on_the_device_and_matches_numpy(release, model_folder):
    environment, _ = release
    script = "import amdgpu_ep, onnxruntime as ort\n"
    script += "amdgpu_ep.register(ort)\namdgpu_ep.register(ort)\noptions = ort.SessionOptions()\n"
    script += "options.add_provider_for_devices(amdgpu_ep.devices(), {'profile': 'hip'})\n"
    script += "session = ort.InferenceSession('model.onnx', sess_options=options, enable_fallback=0)\n"
    assert environment.python("-c", script + CHECK, cwd=model_folder, env=HOST).strip() == "AMDGPUExecutionProvider"


def test_without_a_gpu_there_are_no_devices(release):
    environment, _ = release
    script = "import amdgpu_ep; print(len(amdgpu_ep.devices()))"
    hidden = {"AMDGPU_EP_DRIVER": "amd", "HIP_VISIBLE_DEVICES": "-1", "ROCR_VISIBLE_DEVICES": "-1"}
    assert environment.python("-c", script, env=hidden).strip() == "0"


def test_registering_reports_other_failures(release, tmp_path):
    environment, _ = release
    script = "import amdgpu_ep, onnxruntime as ort\namdgpu_ep.get_library_path = lambda: '/nowhere/lib.so'\n"
    script += "try: amdgpu_ep.register(ort)\nexcept Exception as error: print(error)"
    assert "/nowhere/lib.so" in environment.python("-c", script)


# An untrusted session may not set this key: it makes the hip backend write a file.
WRITES = """
import amdgpu_ep, onnxruntime as ort, os, sys
amdgpu_ep.register(ort{arguments})
options = ort.SessionOptions()
options.add_session_config_entry("ep.hip.explain_file", "written")
options.add_provider_for_devices(amdgpu_ep.devices(), {{}})
session = ort.InferenceSession("model.onnx", sess_options=options, enable_fallback=0)
print(os.path.exists("written"))
"""


@pytest.mark.parametrize(
    ("arguments", "variables", "written"),
    [("", {}, False), ("", {"AMDGPU_EP_TRUST_OPTIONS": "1"}, True), (", trust_options=True", {}, True)],
    ids=["by default", "variable", "argument"],
)
def test_options_that_write_files_work_only_where_they_are_trusted(newest, model_folder, arguments, variables, written):
    told = newest.python("-c", WRITES.format(arguments=arguments), cwd=model_folder, env=HOST | variables)
    assert told.strip() == str(written)


def test_trusting_options_fails_with_a_library_that_does_not_support_it(newest):
    script = "import amdgpu_ep, onnxruntime as ort, sys\namdgpu_ep.get_library_path = lambda: 'libc.so.6'\n"
    script += "try: amdgpu_ep.register(ort, trust_options=True)\nexcept RuntimeError as error: print(error)"
    told = newest.python("-c", script)
    assert "libc.so.6 does not support trusting options" in told and "install amdgpu-ep again" in told


def test_the_command_finds_its_own_libraries_and_this_onnx_runtime(release, backends):
    environment, number = release
    for command in ([environment.bin / "amdgpu-ep"], [environment.bin / "python", "-m", "amdgpu_ep"]):
        # The host device is not an AMD GPU, which is what exit code 1 means.
        report = json.loads(environment.call([*command, "doctor", "--json"], env=HOST, code=1))
        assert str(environment.folder) in report["plugin"]["path"]
        assert {backend["name"] for backend in report["plugin"]["backends"]} == backends
        first = report["onnxruntime"]["libraries"][0]
        assert (first["version"], first["support"]) == (number, "supported")


def test_the_command_runs_a_model(release, model_folder):
    environment, _ = release
    command = [environment.bin / "amdgpu-ep", "run", "model.onnx", "--compare", "cpu", "--json"]
    report = json.loads(environment.call(command, cwd=model_folder, env=HOST))
    assert report["good"] is True and report["device_nodes"] == report["total_nodes"] > 0


def test_the_command_generates_text_on_the_device(newest, tiny_language_model):
    command = [newest.bin / "amdgpu-ep", "generate", "model", "a b", "--greedy", "--max-new-tokens", "4", "--json"]
    report = json.loads(newest.call(command, cwd=tiny_language_model, env=HOST))
    assert report["provider"].startswith("AMDGPUExecutionProvider"), report
