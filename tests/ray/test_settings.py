"""The settings of the application, without a cluster."""
import os
import signal
import subprocess
import sys

import pytest
import yaml
from conftest import PACKAGE
from pydantic import ValidationError
from serving import wait_until


def settings(**values):
    from amdgpu_ep_ray import Settings

    return Settings(**{"model": "/models/a", **values})


@pytest.mark.parametrize(
    "num_gpus, slots, max_length, wanted",
    [
        (1, 8, None, (8, None)),
        (0, 8, 100, (8, 100)),
        (0.5, 8, None, (4, None)),
        (0.3, 8, 4096, (2, 4096)),
        (0.25, 2, 4096, (1, 2048)),
    ],
)
def test_slots_and_lengths_follow_the_share_of_the_gpu(num_gpus, slots, max_length, wanted):
    assert settings(num_gpus=num_gpus, slots=slots, max_length=max_length).share() == wanted


@pytest.mark.parametrize(
    "values, wanted",
    [
        ({"num_gpus": 2}, "num_gpus"),
        ({"num_gpus": 0.25, "slots": 2}, "set max_length, or more slots"),
        ({"model": "models/a"}, "no absolute path"),
        ({"model": "a=models/a"}, "no absolute path"),
        ({"min_replicas": 3}, "more than max_replicas"),
        ({"slot": 3}, "slot"),
    ],
)
def test_wrong_settings_are_named(values, wanted):
    with pytest.raises(ValidationError, match=wanted):
        settings(**values)


def test_models_may_have_names_and_folders_equals_signs():
    for model in ("/models/a", "a=/models/a", "/models/a=b"):
        assert settings(model=model).model == model


def test_strings_of_the_command_line_are_accepted():
    given = settings(num_gpus="0.5", slots="6", session_affinity="true", arguments="--require-gpu --log off")
    assert (given.share().slots, given.session_affinity) == (3, True)
    assert given.arguments == ["--require-gpu", "--log", "off"]


def test_the_command_is_found_on_the_path_or_in_the_wheel(monkeypatch, tmp_path):
    from amdgpu_ep_ray.settings import command

    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="install its wheel"):
        command()
    (tmp_path / "amdgpu_ep").mkdir()
    (tmp_path / "amdgpu_ep" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert command() == [sys.executable, "-m", "amdgpu_ep"]
    program = tmp_path / "amdgpu-ep"
    program.touch(mode=0o755)
    assert command() == [str(program)]


def test_the_configuration_is_valid():
    from amdgpu_ep_ray import Settings, application
    from ray.serve.schema import ServeDeploySchema

    document = yaml.safe_load((PACKAGE / "config.yaml").read_text())
    [one] = ServeDeploySchema(**document).applications
    assert one.import_path == "amdgpu_ep_ray:application"
    application(Settings(**one.args))


def test_serve_build_writes_a_configuration(tmp_path):
    file = tmp_path / "config.yaml"
    variables = {"RAY_AMDGPU_EP_MODEL": "/models/a", "RAY_AMDGPU_EP_NUM_GPUS": "0.5", "RAY_AMDGPU_EP_MAX_REPLICAS": "4"}
    program = f"{os.path.dirname(sys.executable)}/serve"
    done = subprocess.run(
        [program, "build", "--app-dir", PACKAGE, "amdgpu_ep_ray.environment:app", "--output-path", file],
        capture_output=True, text=True, env={**os.environ, **variables},
    )
    assert done.returncode == 0, done.stderr
    [deployment] = yaml.safe_load(file.read_text())["applications"][0]["deployments"]
    assert deployment["ray_actor_options"]["num_gpus"] == 0.5
    assert deployment["max_ongoing_requests"] == 8
    scaling = deployment["autoscaling_config"]
    assert (scaling["max_replicas"], scaling["target_ongoing_requests"]) == (4, 4)


def test_a_program_ends_with_the_process_that_started_it(tmp_path):
    script = "import os, subprocess, sys; subprocess.run([sys.executable, sys.argv[1], str(os.getpid()), '/bin/sleep', '1000'])"
    parent = subprocess.Popen([sys.executable, "-c", script, PACKAGE / "amdgpu_ep_ray/with_parent.py"])
    children = f"/proc/{parent.pid}/task/{parent.pid}/children"
    programs = []

    def has_started():
        programs[:] = open(children).read().split()
        return programs and open(f"/proc/{programs[0]}/comm").read() == "sleep\n"

    wait_until(has_started, "the program runs")
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_until(lambda: not os.path.exists(f"/proc/{programs[0]}") or is_zombie(programs[0]), "the program ends")


def is_zombie(process):
    with open(f"/proc/{process}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] == "Z"
