"""Tables on terminals of any width."""
import fcntl
import os
import pty
import struct
import termios

import pytest
from command_support import COMMAND


def on_terminal(columns, *words):
    """Returns the output of the command on a terminal with this many columns."""
    child, master = pty.fork()
    if child == 0:
        try:
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
            os.execve(COMMAND, [str(COMMAND), *words], {**os.environ, "AMDGPU_EP_DRIVER": "host", "TERM": "xterm"})
        finally:
            os._exit(127)  # after a failure, the child must not continue as a second pytest
    shown = b""
    try:
        while read := os.read(master, 4096):
            shown += read
    except OSError:
        pass  # the terminal closes with the command
    os.close(master)
    os.waitpid(child, 0)
    return shown.decode()


@pytest.mark.parametrize("columns", [0, 1, 5])
def test_output_for_a_terminal_of_unknown_width_breaks_between_words(columns):
    shown = on_terminal(columns, "doctor")
    assert "variable " in shown and "AMDGPU_EP_DRIVER" in shown, shown


def test_a_table_is_wrapped_to_the_terminal():
    lines = on_terminal(60, "doctor").replace("\r", "").split("\n")
    table = lines[lines.index("Environment") + 1:]
    assert all(len(line) <= 61 for line in table[:table.index("")]), lines


@pytest.mark.parametrize("answer, code, files", [("y\n", 0, 0), ("yes\n", 0, 0), ("n\n", 1, 1), ("\n", 1, 1)])
def test_clearing_the_cache_asks_first(tmp_path, answer, code, files):
    tmp_path.chmod(0o700)
    kernels = tmp_path / "cache" / "kernels"
    kernels.mkdir(parents=True, mode=0o700)
    (kernels / "matmul-0123456789abcdef0123456789abcdef.co").write_bytes(b"code")
    child, master = pty.fork()
    if child == 0:
        try:
            os.execv(COMMAND, [str(COMMAND), "cache", "clear", "--dir", str(tmp_path / "cache")])
        finally:
            os._exit(127)  # after a failure, the child must not continue as a second pytest
    shown = b""
    while b"[y/N] " not in shown:
        shown += os.read(master, 4096)
    assert b"Remove 1 file, 4 B below " in shown
    os.write(master, answer.encode())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
    os.close(master)
    assert len(list(kernels.iterdir())) == files
