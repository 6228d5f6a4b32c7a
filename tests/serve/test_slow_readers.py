"""Clients that do not read what they asked for."""
import json
import socket
import threading
from urllib.parse import urlsplit

from serving import ENDLESS, STORY, wait_until


def connect(server):
    """A connection with a small buffer, whose client reads nothing."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    address = urlsplit(server.url)
    client.connect((address.hostname, address.port))
    return client


def request(method, path, body=b""):
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def settings(tmp_path, text):
    file = tmp_path / "serve.toml"
    file.write_text(text)
    return file


def test_a_client_that_does_not_read_loses_its_connection(start, tmp_path):
    server = start("demo=demo/model", "--config", settings(tmp_path, "write_seconds = 1\nmax_connections = 1"))
    with connect(server) as client:
        requests = request("GET", "/page/app.js") * 3000

        def send():
            try:
                client.sendall(requests)
            except OSError:
                pass  # The server has closed the connection.

        threading.Thread(target=send, daemon=True).start()
        wait_until(lambda: "GET /page/app.js" in server.log(), "the first request is answered")
        assert server.call("/health")[0] == 200, "the only connection is free again"


def test_a_client_that_does_not_read_frees_its_slots(start, tmp_path):
    server = start("demo=demo/model", "--config", settings(tmp_path, "write_seconds = 1"), "--log", "json")
    # Megabytes, more than all buffers on the way hold.
    body = {"messages": STORY, "n": 16, "logit_bias": ENDLESS, "stream": True, "logprobs": True, "top_logprobs": 20}
    with connect(server) as client:
        client.sendall(request("POST", "/v1/chat/completions", json.dumps(body).encode()))
        wait_until(lambda: '"complete":false' in server.log(), "the request ends without its whole answer")
        wait_until(lambda: set(server.slots()) == {"idle"}, "all slots are free")
