"""A short form of the soak test; `python tests/serve/soak.py --seconds 600` is the long one."""
import os

import pytest
from soak import soak


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the memory of the server is read from /proc")
def test_answers_stay_right_under_load_and_faults():
    soak(seconds=8, clients=8, count=10)
