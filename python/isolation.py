"""Child processes that report line by line, so that a crash or a hang affects only one test."""
import json
import queue
import threading


def words(process, seconds):
    """Yields the child's lines, parsed as JSON, until it exits; kills it if it is silent for `seconds`."""
    lines = queue.Queue()

    def read():
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=seconds)
        except queue.Empty:
            process.kill()
            return
        if line is None:
            return
        yield json.loads(line)
