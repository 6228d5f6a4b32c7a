"""A replica: a server as a child process, and the requests that are streamed through it."""
import asyncio
import json
import os
import time

import aiohttp
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse

from .child import LOG, Child
from .settings import Settings

# Headers that belong to one connection, or that the client library sets.
OF_CONNECTION = {
    "connection", "content-length", "host", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
    "transfer-encoding", "upgrade",
}
# Streams of these endpoints may end with an error in OpenAI's form. Others are cut off.
OPENAI_STREAMS = ("/v1/chat/completions", "/v1/completions")
# After the death of the server: the longest time for its clients to get their errors, and the time until Ray has sent them.
LAST_EVENTS_SECONDS = 5
SENT_SECONDS = 1


class Replica:
    """Ray Serve creates one instance in each replica."""

    def __init__(self, settings: dict):
        settings = Settings(**settings)
        self.session, self.ongoing = None, 0
        self.child = Child(settings.command_line(), settings.drain_seconds, self.leave)
        self.child.wait_until_ready(settings.start_seconds)

    def leave(self):
        """Ends the replica after the death of its server. Ray then sends requests to others at once, and replaces it."""
        end = time.monotonic() + LAST_EVENTS_SECONDS
        while self.ongoing and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(SENT_SECONDS)
        os._exit(1)

    async def check_health(self):
        """A replica is unhealthy if its server does not answer, or if a model has stopped by a fault."""
        if not await asyncio.to_thread(self.child.answers, "/ready"):
            raise RuntimeError("amdgpu-ep serve is not ready")

    async def __del__(self):
        if self.session:
            await self.session.close()
        await asyncio.to_thread(self.child.stop)

    async def __call__(self, request: Request):
        if self.session is None:
            connector = aiohttp.TCPConnector(limit=0)
            self.session = aiohttp.ClientSession(
                connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)
            )
        path = request.scope["path"].removeprefix(request.scope.get("root_path", "").rstrip("/"))
        url = self.child.url + path + (f"?{request.url.query}" if request.url.query else "")
        headers = [(name, value) for name, value in request.headers.items() if name not in OF_CONNECTION]
        try:
            response = await self.session.request(
                request.method, url, data=await request.body(), headers=headers, allow_redirects=False
            )
        except aiohttp.ClientError as error:
            LOG.warning("amdgpu-ep serve could not be reached: %s", error)
            return JSONResponse(failure("the server of this replica has ended; try again"), 503, {"Retry-After": "1"})
        kept = {name: value for name, value in response.headers.items() if name.lower() not in OF_CONNECTION}
        return StreamingResponse(self.stream(response, path), response.status, kept)

    async def stream(self, response, path):
        """Passes an answer on as it arrives. If the server dies, a stream of events ends with an error."""
        last = b""
        self.ongoing += 1
        try:
            async for piece in response.content.iter_any():
                last = piece
                yield piece
        except aiohttp.ClientError as error:
            LOG.warning("an answer was cut off: %s", error)
            is_between_events = last.endswith(b"\n\n") or not last
            if not (path in OPENAI_STREAMS and response.content_type == "text/event-stream" and is_between_events):
                raise
            yield f"data: {json.dumps(failure('the server has ended before the answer was complete'))}\n\n".encode()
        finally:
            # Also when the client has gone away: the server then frees the slot.
            response.close()
            self.ongoing -= 1


def failure(message):
    """An error in OpenAI's form."""
    return {"error": {"message": message, "type": "server_error", "param": None, "code": "replica_failed"}}
