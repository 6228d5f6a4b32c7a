"""`amdgpu-ep chat` on a terminal: line editing, history, Ctrl-C to stop an answer, Ctrl-D to quit."""
import os
import pty
import select
import signal
from pathlib import Path

from command_support import COMMAND, onnxruntime_library
from support import LIBRARY

MODEL = Path(__file__).resolve().parents[2] / "demo" / "model"
# The model's token 32 is an A.
SAYS_A = ("--logit-bias", "32=1000")
PROMPT, HOME, UP, LEFT = "> ", "\x1b[H", "\x1b[A", "\x1b[D"
CTRL_C, CTRL_D = "\x03", "\x04"
# The longest wait for output: a test that waits longer has failed.
PATIENCE_SECONDS = 120


class Terminal:
    """Runs the command on its own terminal; stdout goes to the file `answers`, if given. The command is killed if it
    has not ended when the block does."""

    def __init__(self, *arguments, answers=None, term="xterm", name="chat"):
        command = [str(COMMAND), name, str(MODEL), "--ort", str(onnxruntime_library()), *arguments]
        environment = {**os.environ, "AMDGPU_EP_PATH": LIBRARY, "TERM": term}
        self.child, self.master = pty.fork()
        if self.child == 0:
            try:
                if answers is not None:
                    os.dup2(os.open(answers, os.O_WRONLY | os.O_CREAT), 1)
                os.execve(COMMAND, command, environment)
            finally:
                os._exit(127)  # after a failure, the child must not continue as a second pytest
        self.seen = ""

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        if self.child is not None:
            os.kill(self.child, signal.SIGKILL)
            self.reap()

    def reap(self):
        os.close(self.master)
        child, self.child = self.child, None
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def more(self, wanted):
        """Appends the next output to `seen`; an OSError means that the command has ended."""
        ready, _, _ = select.select([self.master], [], [], PATIENCE_SECONDS)
        assert ready, f"{wanted} never came, only {self.seen!r}"
        read = os.read(self.master, 4096)
        if not read:
            raise OSError("the terminal is closed")
        self.seen += read.decode(errors="replace")

    def wait_for(self, text):
        """Returns the output before `text`, and drops it together with `text`."""
        while text not in self.seen:
            try:
                self.more(repr(text))
            except OSError:
                raise AssertionError(f"it ended before {text!r} came: {self.seen!r}") from None
        before, _, self.seen = self.seen.partition(text)
        return before

    def type(self, keys):
        os.write(self.master, keys if isinstance(keys, bytes) else keys.encode())

    def end(self):
        """Types Ctrl-D after a prompt and returns the exit code. Before a prompt, the key would not reach the command,
        because the terminal treats it as the end of a line."""
        self.wait_for(PROMPT)
        self.type(CTRL_D)
        return self.ended()

    def ended(self):
        """Waits for the end, and returns the exit code."""
        try:
            while True:
                self.more("the end")
        except OSError:
            pass  # the terminal closes with the command
        return self.reap()


def test_control_characters_of_a_model_are_shown():
    # The model's token 215 is the escape character.
    escapes = ("--max-new-tokens", "3", "--logit-bias", "215=1000")
    with Terminal("hello", *escapes, name="generate", term="dumb") as terminal:
        assert terminal.ended() == 0
        assert "\\x1b" * 3 in terminal.seen and "\x1b" not in terminal.seen, terminal.seen
    with Terminal(*escapes, term="dumb") as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("hello\r")
        assert "\x1b" not in terminal.wait_for("\\x1b" * 3)
        terminal.wait_for(PROMPT)
        terminal.type("/history\r")
        assert "\x1b" not in terminal.wait_for("assistant: " + "\\x1b" * 3)
        assert terminal.end() == 0


def test_lines_are_edited_and_brought_back():
    with Terminal("--max-new-tokens", "4", *SAYS_A) as terminal:
        terminal.wait_for("/help lists the commands")
        terminal.wait_for(PROMPT)
        # Typed without the first character and with two letters swapped, then corrected.
        terminal.type("sttas" + LEFT + "\x7f" + LEFT + "a\x1b[C" + HOME + "/" + "\r")
        assert "there is no" not in terminal.wait_for("messages      0")
        terminal.wait_for(PROMPT)
        terminal.type("hello\r")
        terminal.wait_for(PROMPT)
        terminal.type(UP + UP + "\r")
        terminal.wait_for("messages      2")
        terminal.wait_for("last answer   4 tokens")
        assert terminal.end() == 0


def test_bytes_that_are_not_text_do_not_end_the_conversation():
    with Terminal() as terminal:
        terminal.wait_for(PROMPT)
        terminal.type(b"h\xe9l")
        terminal.wait_for("not valid UTF-8")
        terminal.wait_for(PROMPT)
        terminal.type("/stats\r")
        terminal.wait_for("messages      0")
        assert terminal.end() == 0


def test_ctrl_c_stops_the_answer_and_ctrl_d_ends():
    with Terminal("--max-new-tokens", "100000", *SAYS_A) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type(CTRL_C)
        terminal.wait_for("/quit or Ctrl-D ends the conversation")
        terminal.wait_for(PROMPT)
        terminal.type("hello\r")
        # The start of the answer, after the typed line.
        terminal.wait_for("\n")
        while not terminal.seen.strip("\r\n\x1b[?204hl"):
            terminal.more("the answer")
        terminal.type(CTRL_C)
        terminal.wait_for(PROMPT)
        terminal.type("/stats\r")
        terminal.wait_for("messages      2")
        # If the machine was faster than the key, the answer is complete.
        ending = terminal.wait_for("last prompt")
        assert "ended by cancelled" in ending or "ended by max_length" in ending, ending
        assert terminal.end() == 0


def test_only_answers_go_to_the_standard_output(tmp_path):
    for term in ("xterm", "dumb"):
        answers = tmp_path / term
        with Terminal("--max-new-tokens", "4", *SAYS_A, answers=answers, term=term) as terminal:
            terminal.wait_for(PROMPT)
            terminal.type("hello\r")
            terminal.wait_for(PROMPT)
            terminal.type("/quit\r")
            assert terminal.ended() == 0
        assert answers.read_bytes() == b"AAAA\n"
