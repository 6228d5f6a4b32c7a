"""A server as a child process."""
import collections
import logging
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

LOG = logging.getLogger("ray.serve")
WITH_PARENT = Path(__file__).with_name("with_parent.py")
# Lines of the log that are repeated in an error.
TAIL = 20
PAUSE_SECONDS = 0.1
# The time between the end of the requests and the end of the process.
STOP_SECONDS = 10


class Child:
    """Starts a server, follows its log, and calls `on_death` if it ends without being stopped."""

    def __init__(self, words, drain_seconds, on_death):
        self.words, self.drain_seconds, self.on_death = words, drain_seconds, on_death
        self.url = self.process = None
        self.tail = collections.deque(maxlen=TAIL)
        self.is_ready = self.is_stopping = False
        self.listens, self.has_ended = threading.Event(), threading.Event()
        # The kernel ends the server with the thread that started it, so that thread stays.
        self.thread = threading.Thread(target=self.follow, name="amdgpu-ep", daemon=True)
        self.thread.start()

    def follow(self):
        try:
            self.process = subprocess.Popen(
                [sys.executable, str(WITH_PARENT), str(os.getpid()), *self.words],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
            )
            for line in self.process.stderr:
                line = line.rstrip()
                self.tail.append(line)
                LOG.info("amdgpu-ep: %s", line)
                if not self.url and "listening on " in line:
                    self.url = line.split("listening on ")[1]
                    self.listens.set()
            self.process.wait()
        finally:
            self.has_ended.set()
            self.listens.set()
        if self.is_ready and not self.is_stopping:
            LOG.error("%s", self.ended())
            self.on_death()

    def ended(self):
        code = self.process.returncode if self.process else None
        return f"amdgpu-ep serve has ended with code {code}:\n" + "\n".join(self.tail)

    def wait_until_ready(self, seconds):
        """Waits until the models can be used. If that takes too long, the server is stopped."""
        end = time.monotonic() + seconds
        self.listens.wait(seconds)
        while not self.has_ended.is_set():
            if self.url and self.answers("/ready"):
                self.is_ready = True
                return
            if time.monotonic() > end:
                self.stop()
                raise TimeoutError(f"amdgpu-ep serve was not ready after {seconds} s:\n" + "\n".join(self.tail))
            time.sleep(PAUSE_SECONDS)
        raise RuntimeError(self.ended())

    def answers(self, path):
        """Whether the server answers a path with status 200."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as response:
                return response.status == 200
        except (OSError, urllib.error.HTTPError):
            return False

    def stop(self):
        """Lets running requests end, then ends the process."""
        self.is_stopping = True
        if self.process and self.process.poll() is None:
            self.process.terminate()
            if not self.has_ended.wait(self.drain_seconds + STOP_SECONDS):
                self.process.kill()
                self.has_ended.wait()
