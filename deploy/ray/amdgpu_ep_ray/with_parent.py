"""Runs a program that ends with the process that started it: `with_parent.py PARENT_PID PROGRAM ARGUMENT...`

A replica that is killed cannot stop its server, so the kernel does. The signal is sent when the *thread* that started this
process ends. A setting in the child, before it becomes the program, is safer than code between fork and exec in a process
with threads.
"""
import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main():
    parent, program = int(sys.argv[1]), sys.argv[2:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        sys.exit(f"error: prctl failed: {os.strerror(ctypes.get_errno())}")
    # The parent may have ended before the call.
    if os.getppid() == parent:
        os.execv(program[0], program)


main()
