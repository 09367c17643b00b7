"""The answer to one POST: JSON, or an event stream once something has to be said before the answer is there.

A stream always ends with the answer. Progress rises with each notification, whatever an upstream counts, and a heartbeat is progress too:
clients reset their patience on progress, not on SSE comments (FACTS §5); a comment only keeps the connection of one without a token.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.types import Scope, Send

from gateway.core.model import Json
from gateway.doors.http import send_json
from gateway.wire import json, jsonrpc, mcp, sse

_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
_STEP: Final = 0.001
"""What a heartbeat adds: less than any upstream's own step, so that its next figure still rises."""
_LARGEST: Final = 1e12
_BACKLOG: Final = 64


class Line:
    """What is written to one client, in order. `headers` go with it, whichever form it takes. After `end` nothing more is said.

    A client that reads slowly must not cost memory: of what isn't sent yet, nothing stands twice, and only the newest of what may be lost.
    """

    def __init__(self, scope: Scope, send: Send, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self.ended = False
        self._scope = scope
        self._send = send
        self._headers = list(headers)
        self._unsent: deque[tuple[bytes, bool]] = deque()
        self._sending: asyncio.Task[None] | None = None

    @property
    def begun(self) -> bool:
        return self._sending is not None

    def say(self, message: Mapping[str, Any], lossy: bool = False) -> None:
        """A message before the answer: the stream begins, if it hasn't."""
        self._write(sse.encode(json.dumps(message), event="message"), lossy)

    def keep(self) -> None:
        """Show that somebody is there."""
        self._write(sse.comment(), True)

    async def accept(self) -> None:
        """There is no answer: 202."""
        self.ended = True
        await self._send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0"), *self._headers]})
        await self._send({"type": "http.response.body", "body": b""})

    async def end(self, answer: Mapping[str, Any] | list[Any], status: int = 200, more: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """The final JSON-RPC message (a batch's list of them), after all that was said before; `status` and `more` are for JSON. Once."""
        if self.ended:
            return
        self.ended = True
        if self._sending is None:
            await send_json(self._scope, self._send, status, answer, [*self._headers, *more])
            return
        await self._sending
        answers = answer if isinstance(answer, list) else [answer]
        last = b"".join(sse.encode(json.dumps(one), event="message") for one in answers)
        await self._send({"type": "http.response.body", "body": last})

    def _write(self, event: bytes, lossy: bool) -> None:
        if self.ended or (event, lossy) in self._unsent:
            return
        if lossy and len(self._unsent) >= _BACKLOG:
            oldest = next((place for place, (_, may_go) in enumerate(self._unsent) if may_go), None)
            if oldest is not None:
                del self._unsent[oldest]
        self._unsent.append((event, lossy))
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._begin())
        elif self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._flush())

    async def _begin(self) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *self._headers]})
        await self._flush()

    async def _flush(self) -> None:
        while self._unsent:
            await self._send({"type": "http.response.body", "body": self._unsent.popleft()[0], "more_body": True})


class Stream:
    """One request's part of a line. `token` is the client's progress token; None for one that wants no progress.

    `stop` comes with the answer, exactly once. `progress` may be called by the engine at any time before, and later too.
    """

    def __init__(self, line: Line, token: str | int | None, heartbeat_s: float) -> None:
        self.line = line
        self.token = token
        self._heartbeat_s = heartbeat_s
        self._reached = 0.0
        self._heart: asyncio.TimerHandle | None = None
        self._stopped = False
        if token is not None:
            self._beat_later()

    def progress(self, params: Mapping[str, Json]) -> None:
        """Forward the params of an upstream's `notifications/progress` under the client's token."""
        total, message = params.get("total"), params.get("message")
        self._say(self._rise(params.get("progress")), total if _is_number(total) else None, message if isinstance(message, str) else None)

    def log(self, params: Mapping[str, Json]) -> None:
        """Forward the params of an upstream's `notifications/message`."""
        self.say(jsonrpc.notification("notifications/message", dict(params)), lossy=True)

    def say(self, message: Mapping[str, Any], lossy: bool = False) -> None:
        """Anything else before the answer; from then on the line is kept open."""
        if not self._stopped:
            self.line.say(message, lossy)
            self._beat_later()

    def stop(self) -> None:
        self._stopped = True
        if self._heart is not None:
            self._heart.cancel()

    def _say(self, progress: float, total: float | None, message: str | None) -> None:
        if self.token is not None:
            self.say(mcp.progress(self.token, progress, total, message), lossy=True)

    def _beat_later(self) -> None:
        if self._heart is not None:
            self._heart.cancel()
        self._heart = asyncio.get_running_loop().call_later(self._heartbeat_s, self._beat)

    def _beat(self) -> None:
        if self.token is not None:
            self._say(self._rise(None), None, "Still waiting.")
        else:
            self.line.keep()
            self._beat_later()

    def _rise(self, wanted: Json) -> float:
        small = _is_number(wanted) and self._reached < wanted <= _LARGEST
        self._reached = wanted if small else round(self._reached + _STEP, 3)
        return self._reached


def _is_number(value: Json) -> bool:
    return type(value) in (int, float)
