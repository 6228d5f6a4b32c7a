"""Runs tests in forked processes, which start with pytest, numpy and onnx imported: most of the time of a short test.

ONNX Runtime is not imported here, because it starts a thread, and a forked process would lack it.

    python fork_server.py    reads one job per line from standard input, and answers with its exit code
"""
import json
import os
import select
import signal
import subprocess
import sys


class ForkServer:
    """A server that runs in a folder, in an interpreter like this one."""

    def __init__(self, folder):
        command = [sys.executable, "-X", "faulthandler", __file__]
        self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, arguments, environment, output, seconds):
        """Runs pytest with its output in a file, and returns its exit code; None if it is still running after `seconds`."""
        job = {"arguments": arguments, "environment": environment, "output": str(output), "seconds": seconds}
        print(json.dumps(job), file=self.process.stdin, flush=True)
        # The alarm ends the test; this is for a server that hangs.
        if not select.select([self.process.stdout], [], [], seconds + 60)[0]:
            self.process.kill()
        answer = self.process.stdout.readline()
        assert answer, f"the server of forked tests ended with {self.process.wait()}"
        return None if int(answer) == -signal.SIGALRM else int(answer)


def serve():
    """Returns the arguments of each job in a process of its own, and in the server None when there are no more jobs."""
    while line := sys.stdin.readline():
        job = json.loads(line)
        child = os.fork()
        if not child:
            become(job)
            return job["arguments"]
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    return None


def become(job):
    """Takes over the environment, output and time limit of a job, and closes the server's pipes."""
    # Ends the process even in native code, also if the program that started the server ignores the signal.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    signal.alarm(job["seconds"])
    os.environ.clear()
    os.environ.update(job["environment"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(output)


if __name__ == "__main__":
    import numpy  # noqa: F401
    import onnx.helper
    import onnx.numpy_helper  # noqa: F401
    import pytest

    work = serve()
    # The process ends like any interpreter, so that a crash at its exit fails the test.
    sys.exit(0 if work is None else pytest.main(work))
