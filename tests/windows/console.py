"""Runs a program on a console of its own and presses Ctrl-C there. For Windows' Python: only Windows has such consoles.

    python console.py TEXT PROGRAM ARGUMENT...

Ctrl-C is pressed when TEXT appears in the program's output. Standard input is passed on: the part before a form feed at
once, the rest after the note with which the program answers Ctrl-C. Prints a JSON document with the exit code and the output.
"""
import ctypes
import json
import subprocess
import sys
import urllib.request

CTRL_C = 0


def press_ctrl_c(kernel):
    # This program must survive; children that exist already are not affected.
    kernel.SetConsoleCtrlHandler(None, True)
    if not kernel.GenerateConsoleCtrlEvent(CTRL_C, 0):
        raise ctypes.WinError()


def main():
    text, *command = sys.argv[1:]
    kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    kernel.FreeConsole()
    if not kernel.AllocConsole():
        raise ctypes.WinError()
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace",
    )
    before, _, after = sys.stdin.read().partition("\f")
    process.stdin.write(before)
    process.stdin.flush()
    said = ""
    while text not in said and (line := process.stdout.readline()):
        said += line
        # A server handles a request before it is interrupted.
        if line.startswith("note: listening on "):
            with urllib.request.urlopen(line.split()[-1] + "/health", timeout=60) as answer:
                said += f"health: {answer.status}\n"
    press_ctrl_c(kernel)
    while line := process.stdout.readline():
        said += line
        if line.startswith("note: "):
            break
    rest, _ = process.communicate(after)
    print(json.dumps({"code": process.returncode, "said": said + rest}))


main()
