"""Fixtures for tests of deploy/ray: a real Ray cluster on this machine, and replicas on the host device."""
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "deploy/ray"
sys.path[:0] = [str(Path(__file__).parent), str(PACKAGE), str(ROOT / "tests/serve")]
pytest.register_assert_rewrite("cluster", "serving")

# Before the import of Ray, so that its processes get the same environment.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["PYTHONPATH"] = str(PACKAGE)


def pytest_sessionstart():
    for name in ("AMDGPU_EP_LIBRARY", "AMDGPU_EP_TEST_ORT"):
        path = os.environ.get(name)
        if not path or not os.path.isfile(path):
            raise pytest.UsageError(
                f"{name} is {path!r}, which is not a file; `cargo xtask test --only ray` builds it and sets this"
            )


@pytest.fixture(scope="session")
def ray_cluster():
    """Ray with one pretended GPU, for shares of it."""
    from cluster import Cluster

    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def application(ray_cluster):
    """Two replicas with half a GPU each."""
    with ray_cluster.application("pair", slots=4, num_gpus=0.5, min_replicas=2, max_replicas=2) as application:
        yield application
