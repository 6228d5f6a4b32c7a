"""The processes that tests run in."""
import signal

import pytest
from fork_server import ForkServer

ENDS = {
    "assert os.environ == {**os.environ, 'ONE': '1'} and 'TWO' not in os.environ": 0,
    "assert 'onnx.helper' in sys.modules and 'onnxruntime' not in sys.modules": 0,
    "assert False": 1,
    "ctypes.string_at(0)": -signal.SIGSEGV,
    "atexit.register(os.abort)": -signal.SIGABRT,
    "time.sleep(600)": None,
}


def test_a_server_reports_how_each_process_ends(tmp_path, monkeypatch):
    monkeypatch.setenv("TWO", "2")
    server, file, output = ForkServer(tmp_path), tmp_path / "test_one.py", tmp_path / "output.txt"
    for line, wanted in ENDS.items():
        file.write_text(f"import atexit, ctypes, os, sys, time\n\n\ndef test_one():\n    {line}\n")
        seconds = 600 if wanted is not None else 2
        arguments = ["-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(file)]
        code = server.run(arguments, {"ONE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, output, seconds)
        assert code == wanted, f"{line}\n{output.read_text()}"


def test_a_server_that_has_ended_is_an_error(tmp_path):
    server = ForkServer(tmp_path)
    server.process.kill()
    server.process.wait()
    with pytest.raises((AssertionError, BrokenPipeError)):
        server.run([], {}, tmp_path / "output.txt", 600)
