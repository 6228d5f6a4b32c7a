"""Runs a program on a pseudo-terminal, and finds characters in its output that a terminal would interpret."""
import os
import pty
import re
import select
import subprocess
import time

from ways import SECONDS, limited

# Sequences that the command itself sends: colours, the progress line and the line editor.
OWN = re.compile(r"\r\x1b\[2K|\x1b\[(?:\?(?:25|2004|2026)[hl]|\d*[ABCDGK]|0?J|(?:0|1|2|22|3[0-79]|9[0-7])?m)")
PROMPT = "> "
BIDI = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}


def show(place, words, typed=(), seconds=SECONDS):
    """The exit code and everything that reached the terminal; types one line after each prompt."""
    master, slave = pty.openpty()
    environment = {**place.environment(), "TERM": "xterm"}
    process = subprocess.Popen(
        [str(word) for word in words], stdin=slave, stdout=slave, stderr=slave,
        env=environment, cwd=place.cwd, preexec_fn=limited, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    seen, read, typed, deadline = b"", 0, list(typed), time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            if not select.select([master], [], [], 0.2)[0]:
                if process.poll() is not None:
                    break
                continue
            try:
                chunk = os.read(master, 1 << 16)
            except OSError:  # the other end is closed
                break
            seen += chunk
            if typed and OWN.sub("", seen[read:].decode(errors="replace")).rstrip("\r").endswith(PROMPT):
                read = len(seen)
                os.write(master, typed.pop(0).encode() + b"\r")
        process.wait(max(1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        pass
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(master)
    return process.returncode, seen.decode(errors="replace")


def acting(text, edits_lines):
    """Characters that a terminal interprets, except line ends, tabs and the command's own sequences."""
    rest = OWN.sub("", text).replace("\r\n", "\n")
    if edits_lines:
        rest = rest.replace("\r", "")  # the line editor returns to the start of the line
    return sorted({letter for letter in rest if is_acting(ord(letter))})


def is_acting(code):
    return code < 32 and chr(code) not in "\n\t" or 127 <= code < 160 or code in BIDI
