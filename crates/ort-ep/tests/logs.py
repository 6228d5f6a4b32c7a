"""Events of the plugin in ONNX Runtime's log: at their own severity, and nothing where nobody asked.

usage: logs.py HOOKS_LIBRARY
"""
import gc
import os
import re
import subprocess
import sys

import onnxruntime as ort
from hooks_support import LIBRARY, fault, multiplies, register, session, unregister
from support import captured_stderr, mul_model, run_checks

os.environ["HOOKS_SPEAK"] = "1"
VERBOSE, INFO, WARNING, ERROR = range(4)
EVENTS = {
    "E": "an error of hooks number=1", "W": "a warning of hooks", "I": "an info of hooks", "V": "a debug of hooks",
}
LINE = re.compile(r"\[([VIWEF]):onnxruntime:([^,]*), work\.rs:\d+ hooks::work\] (.*?)(?:\x1b\[m)?$", re.M)


def log_of(severity):
    """What a session of that severity writes, by the runtime's letter for the severity."""

    def prepare(settings):
        settings.log_severity_level = severity
        settings.logid = "talker"

    with captured_stderr() as lines:
        running = session(mul_model(), prepare=prepare)
        multiplies(running)
        del running
        gc.collect()
    found = {}
    for letter, logger, text in LINE.findall(lines[0]):
        found.setdefault(letter, []).append((logger, text))
    return found, lines[0]


def expect(severity, letters):
    found, text = log_of(severity)
    ours = {letter: [said for said in lines if "another thread" not in said[1]] for letter, lines in found.items()}
    wanted = {letter: [("talker", EVENTS[letter])] for letter in letters}
    assert {letter: lines for letter, lines in ours.items() if lines} == wanted, text
    # A thread that the runtime did not call on has the environment's logger.
    assert ("Default", "a warning of another thread") in found.get("W", []), text
    assert "a trace of hooks" not in text and "[TRACE" not in text and "[DEBUG" not in text, text


def quiet_then_loud_then_quiet():
    """What one session shows does not depend on which session reached the event first."""
    expect(WARNING, "EW")
    expect(VERBOSE, "EWIV")
    expect(ERROR, "E")
    expect(INFO, "EWI")
    expect(WARNING, "EW")


def the_environment_decides_for_other_threads():
    unregister()
    ort.set_default_logger_severity(ERROR)
    register()
    found, text = log_of(WARNING)
    assert found["W"] == [("talker", EVENTS["W"])], text
    unregister()
    ort.set_default_logger_severity(WARNING)
    register()
    found, text = log_of(ERROR)
    assert found["W"] == [("Default", "a warning of another thread")], text


def a_session_that_goes_may_still_speak():
    """At the most talkative, releasing a session logs nothing to loggers that are gone."""
    for _ in range(3):
        with fault("panic", "ep.drop"):
            _, text = log_of(VERBOSE)
        assert "ep.drop was told to panic" in text, text


def the_log_variable_shows_what_the_runtime_drops():
    script = (
        "import sys; sys.argv = ['', sys.argv[1]]\n"
        "from hooks_support import *\n"
        "register(); multiplies(session(support.mul_model())); unregister()\n"
    )
    shown = {
        "": set(), "nonsense": set(), "info": {"an info"}, "debug": {"an info", "a debug"},
        "trace": {"an info", "a debug", "a trace"},
    }
    for level, wanted in shown.items():
        environment = {**os.environ, "HOOKS_LOG": level, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", script, LIBRARY]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        lines = re.findall(r"^\[(INFO|DEBUG|TRACE) hooks::work\] (an? \w+) of hooks$", done.stderr, re.M)
        assert {text for _, text in lines} == wanted, (level, done.stderr)
        # What the runtime shows is not shown twice.
        assert done.stderr.count("a warning of hooks") == 1, (level, done.stderr)


register()
run_checks(
    quiet_then_loud_then_quiet, the_environment_decides_for_other_threads, a_session_that_goes_may_still_speak,
    the_log_variable_shows_what_the_runtime_drops,
)
unregister()
