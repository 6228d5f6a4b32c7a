"""The files in deploy/. Nothing here needs a container engine or a cluster: the tests read the files, and run the command
lines and requests in them."""
import json
import re
import shlex
import shutil
import subprocess
import tomllib

import pytest
import yaml
from serving import COMMAND, ROOT, command, environment

FOLDER = ROOT / "deploy"
UNIT = (FOLDER / "amdgpu-ep.service").read_text()
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]["amdgpu-ep"]
PREDICTOR = yaml.safe_load((FOLDER / "kserve.yaml").read_text())["spec"]["predictor"]
SETTINGS = tomllib.loads((FOLDER / "serve.toml").read_text())


def of_unit(name):
    """The value of a setting of the service."""
    return re.search(rf"^{name}=(.*)$", UNIT, re.MULTILINE)[1]


def of_image():
    """The command line of the image without arguments."""
    return json.loads(re.search(r"^CMD (.*)$", (FOLDER / "Containerfile").read_text(), re.MULTILINE)[1])


COMMAND_LINES = {
    "Containerfile": of_image(),
    "compose.yaml": COMPOSE["command"],
    "amdgpu-ep.service": shlex.split(of_unit("ExecStart"))[1:],
    "kserve.yaml": PREDICTOR["containers"][0]["args"],
}


@pytest.fixture
def keys(tmp_path):
    """A file of API keys, as the command makes it."""
    file = tmp_path / "keys.txt"
    file.write_text(command("serve", "--hash-key", "me", stdin="a-long-random-key\n").stdout)
    return file


@pytest.mark.parametrize("file", COMMAND_LINES)
def test_command_lines_are_accepted(file, keys):
    words = list(COMMAND_LINES[file])
    assert words[0] == "serve"
    words[words.index("--config") + 1] = str(FOLDER / "serve.toml")
    if "--api-keys" in words:
        words[words.index("--api-keys") + 1] = str(keys)
    done = command(*words, "--check", "model=demo/model")
    assert done.returncode == 0, done.stderr
    wanted = [f"address  {SETTINGS['host']}:{SETTINGS['port']}", f"keys     {int('--api-keys' in words)}", "model    model"]
    assert all(line in done.stdout for line in wanted), done.stdout


def test_models_are_where_the_volumes_are_mounted():
    [model] = SETTINGS["models"]
    assert any(volume.endswith(f":{model['folder']}:ro") for volume in COMPOSE["volumes"])
    mounts = [mount["mountPath"] for mount in PREDICTOR["containers"][0]["volumeMounts"]]
    assert any(model["folder"].startswith(f"{mount}/") for mount in mounts)


def test_probes_ask_paths_that_answer(server):
    container = PREDICTOR["containers"][0]
    paths = {container[probe]["httpGet"]["path"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")}
    paths.add(re.search(r"http://127.0.0.1:8080(/\w+)", COMPOSE["healthcheck"]["test"][-1])[1])
    assert paths == {"/health", "/ready"}
    assert all(server.call(path)[0] == 200 for path in paths)


def test_ports_are_those_of_the_settings():
    port, container = SETTINGS["port"], PREDICTOR["containers"][0]
    assert COMPOSE["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert [entry["containerPort"] for entry in container["ports"]] == [port]
    assert all(container[probe]["httpGet"]["port"] == port for probe in ("startupProbe", "readinessProbe", "livenessProbe"))


def test_running_requests_can_end_before_the_server_is_killed():
    grace = [COMPOSE["stop_grace_period"].removesuffix("s"), of_unit("TimeoutStopSec"), PREDICTOR["terminationGracePeriodSeconds"]]
    assert all(int(seconds) > SETTINGS["drain_seconds"] for seconds in grace), grace


def test_the_image_has_the_newest_tested_runtime():
    [version] = re.findall(r"onnxruntime==\S+", (FOLDER / "Containerfile").read_text())
    assert version in (ROOT / "python/requirements-dev.txt").read_text().splitlines()


def test_environment_variables_are_known():
    known = (ROOT / "crates/cli/src/doctor/environment.md").read_text()
    for file in FOLDER.rglob("*"):
        if file.is_file() and file.suffix in ("", ".yaml", ".service", ".toml"):
            for name in set(re.findall(r"AMDGPU_EP_[A-Z_]+", file.read_text())):
                assert f"`{name}`" in known, f"{file.name}: {name}"


def test_systemd_accepts_the_service(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    # It checks that the program exists.
    unit = tmp_path / "amdgpu-ep.service"
    unit.write_text(UNIT.replace("/opt/amdgpu-ep/bin/amdgpu-ep", str(COMMAND)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", str(unit)], capture_output=True, text=True, env=environment()
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
