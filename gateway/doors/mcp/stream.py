"""The answer to one POST: JSON, or an event stream once something has to be said before the answer is there.

A stream always ends with the answer. Progress rises with each notification, whatever an upstream counts, and a heartbeat is progress too:
clients reset their patience on progress, not on SSE comments (FACTS §5).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from starlette.types import Scope, Send

from gateway.core.model import Json
from gateway.doors.http import send_json
from gateway.wire import json, mcp, sse

_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
_STEP: Final = 0.001
"""What a heartbeat adds: less than any upstream's own step, so that its next figure still rises."""
_LARGEST: Final = 1e12
_BACKLOG: Final = 64


class Stream:
    """`token` is the client's progress token; None for one that wants no progress: then the answer is JSON.

    `answer` ends it, exactly once. `progress` may be called by the engine at any time before.
    """

    def __init__(self, scope: Scope, send: Send, token: str | int | None, heartbeat_s: float) -> None:
        self._scope = scope
        self._send = send
        self._token = token
        self._heartbeat_s = heartbeat_s
        self._reached = 0.0
        self._unsent: deque[bytes] = deque(maxlen=_BACKLOG)
        self._sending: asyncio.Task[None] | None = None
        self._heart: asyncio.TimerHandle | None = None
        if token is not None:
            self._beat_later()

    def progress(self, params: Mapping[str, Json]) -> None:
        """Forward the params of an upstream's `notifications/progress` under the client's token."""
        total, message = params.get("total"), params.get("message")
        self._say(self._rise(params.get("progress")), total if _is_number(total) else None, message if isinstance(message, str) else None)

    async def answer(self, message: Mapping[str, Any]) -> None:
        """Send the final JSON-RPC message, after all that was said before."""
        if self._heart is not None:
            self._heart.cancel()
        if self._sending is None:
            await send_json(self._scope, self._send, 200, message)
            return
        await self._sending
        await self._send({"type": "http.response.body", "body": _event(message)})

    def _say(self, progress: float, total: float | None, message: str | None) -> None:
        assert self._token is not None
        self._unsent.append(_event(mcp.progress(self._token, progress, total, message)))
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._begin())
        elif self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._flush())
        self._beat_later()

    async def _begin(self) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await self._flush()

    async def _flush(self) -> None:
        while self._unsent:
            await self._send({"type": "http.response.body", "body": self._unsent.popleft(), "more_body": True})

    def _beat_later(self) -> None:
        if self._heart is not None:
            self._heart.cancel()
        self._heart = asyncio.get_running_loop().call_later(self._heartbeat_s, self._beat)

    def _beat(self) -> None:
        self._say(self._rise(None), None, "Still waiting.")

    def _rise(self, wanted: Json) -> float:
        small = _is_number(wanted) and self._reached < wanted <= _LARGEST
        self._reached = wanted if small else round(self._reached + _STEP, 3)
        return self._reached


def _is_number(value: Json) -> bool:
    return type(value) in (int, float)


def _event(message: Mapping[str, Any]) -> bytes:
    return sse.encode(json.dumps(message), event="message")
