"""Starts Ray and the application, and finds their processes."""
import contextlib
import os
import socket
import urllib.request

import openai
import psutil
import ray
import serving
from ray import serve
from serving import COMMAND, ROOT, environment, parsed, wait_until

# Ray takes long to replace a replica if the machine is busy.
serving.TIMEOUT_SECONDS = TIMEOUT_SECONDS = 600
MODEL = f"demo={ROOT / 'demo/model'}"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Cluster:
    """A Ray cluster of this process."""

    def __enter__(self):
        kept = dict(os.environ)
        # The staged command is found on PATH, as an installed one would be.
        variables = environment(
            ORT_DYLIB_PATH=os.environ["AMDGPU_EP_TEST_ORT"], PATH=f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"
        )
        os.environ.clear()
        os.environ.update(variables)
        self.port = free_port()
        try:
            ray.init(address="local", num_cpus=4, num_gpus=1, include_dashboard=False, log_to_driver=False)
            serve.start(http_options={"host": "127.0.0.1", "port": self.port})
        finally:
            os.environ.clear()
            os.environ.update(kept)
        return self

    def __exit__(self, *_):
        serve.shutdown()
        ray.shutdown()

    @contextlib.contextmanager
    def application(self, name, **settings):
        """Runs the application under a path of its name."""
        from amdgpu_ep_ray import Settings, application

        running = Application(self.port, name)
        serve.run(application(Settings(model=MODEL, **settings)), name=name, route_prefix=f"/{name}")
        yield running
        serve.delete(name)


class Application:
    """A running application."""

    def __init__(self, port, name):
        self.url, self.name = f"http://127.0.0.1:{port}/{name}", name
        self.earlier = {server.pid for server in all_servers()}

    def servers(self):
        """The servers of the replicas that can be used."""
        return [server for server in all_servers() if server.pid not in self.earlier and is_ready(server)]

    def client(self):
        """The `openai` package's client, which does not retry."""
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=TIMEOUT_SECONDS)

    def is_whole(self, count):
        """Whether `count` replicas run, by Ray's count too."""
        deployment = serve.status().applications[self.name].deployments["amdgpu-ep"]
        return deployment.replica_states == {"RUNNING": count} and len(self.servers()) == count

    def wait_until_whole(self, count):
        wait_until(lambda: self.is_whole(count), f"{count} replicas run: {serve.status()}")


def all_servers():
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if "serve" in process.cmdline() and MODEL in process.cmdline() and process.name() == "amdgpu-ep":
                found.append(process)
    return found


def call(server, path):
    """Asks the server of a replica directly."""
    [port] = {entry.laddr.port for entry in server.net_connections("tcp") if entry.status == psutil.CONN_LISTEN}
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=TIMEOUT_SECONDS) as response:
        return parsed(response.read())


def is_ready(server):
    with contextlib.suppress(psutil.Error, ValueError, OSError):
        return call(server, "/ready")["status"] == "ready"
    return False


def slots(server):
    """The states of a server's slots."""
    return [slot["state"] for slot in call(server, "/slots")[0]["slots"]]


def is_busy(server):
    return any(state != "idle" for state in slots(server))
