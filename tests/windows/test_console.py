"""Ctrl-C on a console of Windows."""
import json

from conftest import ROOT, windows_path

MODEL = ROOT / "demo" / "model"


def interrupted(windows, text, command, *words, typed=""):
    """Presses Ctrl-C when `text` appears, and returns the exit code and the output."""
    program = [windows_path(windows.program), command, windows_path(MODEL), *windows.libraries, "--profile", "hip", *words]
    return json.loads(windows.python(windows_path(ROOT / "tests" / "windows" / "console.py"), text, *program, text=typed))


def test_ctrl_c_ends_the_server_after_the_running_requests(windows):
    found = interrupted(windows, "note: ready", "serve", "--port", 0)
    assert found["code"] == 0, found
    assert "health: 200" in found["said"] and "note: stopping after the running requests" in found["said"], found


def test_ctrl_c_between_two_lines_of_a_conversation_does_not_end_it(windows):
    found = interrupted(windows, "Ctrl-C    stop the answer", "chat", "--greedy", typed="/help\n\f/stats\n/quit\n")
    assert found["code"] == 0, found
    assert "note: /quit or Ctrl-D ends the conversation" in found["said"] and "messages      0" in found["said"], found
