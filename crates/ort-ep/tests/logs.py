"""Events of the plugin in ONNX Runtime's log: at their own severity, and nothing that was not enabled.

usage: logs.py HOOKS_LIBRARY
"""
import gc
import os
import re
import subprocess
import sys
import tempfile

import onnxruntime as ort
from hooks_support import LIBRARY, fault, multiplies, register, session, unregister
from support import captured_stderr, mul_model, run_checks

os.environ["HOOKS_SPEAK"] = "1"
VERBOSE, INFO, WARNING, ERROR = range(4)
EVENTS = {
    "E": "an error of hooks number=1", "W": "a warning of hooks", "I": "an info of hooks", "V": "a debug of hooks",
}
# The levels in a file if no level is set.
WITHOUT_LEVEL = {"an info", "a warning", "an error"}
LINE = re.compile(r"\[([VIWEF]):onnxruntime:([^,]*), work\.rs:\d+ hooks::work\] (.*?)(?:\x1b\[m)?$", re.M)


def log_of(severity):
    """The log of a session with that severity, by the runtime's letter for the severity."""

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
    # A thread not started by the runtime uses the environment's logger.
    assert ("Default", "a warning of another thread") in found.get("W", []), text
    assert "a trace of hooks" not in text and "[TRACE" not in text and "[DEBUG" not in text, text


def quiet_then_loud_then_quiet():
    """The log of a session does not depend on which session reached the event first."""
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
    """Releasing a session logs nothing to released loggers, even at the most verbose level."""
    for _ in range(3):
        with fault("panic", "ep.drop"):
            _, text = log_of(VERBOSE)
        assert "ep.drop was told to panic" in text, text


def speaking(after="", **variables):
    """A separate process in which the plugin logs."""
    script = (
        "import sys; sys.argv = ['', sys.argv[1]]\n"
        "from hooks_support import *\n"
        "register(); multiplies(session(support.mul_model())); unregister()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    command = [sys.executable, "-c", script + after, LIBRARY]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)


def own_lines(text):
    """The level and the start of each line that the plugin wrote itself, with a UTC time to the millisecond."""
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    return re.findall(rf"^\[{stamp} (ERROR|WARN|INFO|DEBUG|TRACE) hooks::work\] (an? \w+) of hooks\b", text, re.M)


def the_log_variable_shows_what_the_runtime_drops():
    shown = {
        "": set(), "nonsense": set(), "info": {"an info"}, "debug": {"an info", "a debug"},
        "trace": {"an info", "a debug", "a trace"},
    }
    for level, wanted in shown.items():
        done = speaking(HOOKS_LOG=level)
        assert {text for _, text in own_lines(done.stderr)} == wanted, (level, done.stderr)
        # Events that the runtime shows are not shown twice.
        assert done.stderr.count("a warning of hooks") == 1, (level, done.stderr)
        # An unknown level is a warning.
        said = done.stderr.count('HOOKS_LOG is ignored: it is "nonsense", expected error, warn, info, debug, trace or off')
        assert said == (level == "nonsense"), (level, done.stderr)


def the_log_can_go_to_a_file():
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "log")
        for level, wanted in {"debug": {"an info", "a debug", "a warning", "an error"}, "": WITHOUT_LEVEL}.items():
            with open(file, "w") as before:
                before.write("what was here\n")
            done = speaking(HOOKS_LOG=level, HOOKS_LOG_FILE=file)
            with open(file) as log:
                assert log.readline() == "what was here\n"
                text = log.read()
            assert {said for _, said in own_lines(text)} == wanted, (level, text)
            assert not own_lines(done.stderr), done.stderr
        for wrong in (folder, os.path.join(folder, "missing", "log")):
            done = speaking(HOOKS_LOG="info", HOOKS_LOG_FILE=wrong)
            assert done.stderr.count(f"HOOKS_LOG_FILE is ignored: could not open {wrong}: ") == 1, done.stderr
            assert {said for _, said in own_lines(done.stderr)} == {"an info"}, done.stderr


def a_file_is_closed_with_the_library():
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "log")
        handles = (
            "import os; print([os.readlink(f'/proc/self/fd/{number}') for number in os.listdir('/proc/self/fd')\n"
            "    if os.path.exists(f'/proc/self/fd/{number}')])\n"
        )
        done = speaking(after=handles, HOOKS_LOG_FILE=file)
        assert os.path.getsize(file) and file not in done.stdout, done.stdout


register()
run_checks(
    quiet_then_loud_then_quiet, the_environment_decides_for_other_threads, a_session_that_goes_may_still_speak,
    the_log_variable_shows_what_the_runtime_drops, the_log_can_go_to_a_file, a_file_is_closed_with_the_library,
)
unregister()
