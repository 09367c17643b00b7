"""One HTTP request and its answer in plain ASGI, as the doors need them: headers, a bounded body, JSON answers, departures.

No web framework stands between: the hot route pays for what it uses (FACTS §1).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any

from starlette.types import Receive, Scope, Send

from gateway.doors.problems import Problem
from gateway.engine.alarms import Alarms
from gateway.ports import RequestFault, malformed
from gateway.wire import json

MAX_BODY = 1024 * 1024
BODY_TIMEOUT_S = 30.0
LISTEN_AFTER_S = 0.25
"""Most calls are answered before: only then is it worth a task to notice that the caller left."""

WHOLE = "gateway.whole"
"""Stands in a scope whose body has come already: to wait for it takes no time, and no timer, which costs more than the reading."""

Headers = Iterable[tuple[bytes, bytes]]
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?")
_TRACES = {b"x-request-id": _REQUEST_ID, b"traceparent": _TRACEPARENT}
_JSON = (b"content-type", b"application/json")
_PROBLEM = (b"content-type", b"application/problem+json")


class CallerLeft(Exception):
    """The connection ended before the request was whole; there is nobody to answer."""


def header(headers: Headers, name: bytes) -> bytes | None:
    """The first value of a header; `name` in lower case."""
    for known, value in headers:
        if known == name:
            return value
    return None


def trace_of(headers: Headers) -> dict[str, str]:
    """`traceparent` and `x-request-id` where they are well-formed; they are kept with the call and passed on."""
    return {name.decode(): value.decode() for name, value in headers if name in _TRACES and _TRACES[name].fullmatch(value)}


async def read_body(scope: Scope, receive: Receive, limit: int = MAX_BODY, timeout_s: float = BODY_TIMEOUT_S) -> bytes:
    """The whole body. Raises RequestFault `request.too_large` as soon as that is known, `request.malformed` when it doesn't arrive."""
    length = header(scope["headers"], b"content-length")
    if length is not None and length.isdigit() and int(length) > limit:
        raise _too_large(limit)
    return await (_collect(receive, limit) if WHOLE in scope else _collect_within(timeout_s, receive, limit))


async def _collect_within(timeout_s: float, receive: Receive, limit: int) -> bytes:
    try:
        async with asyncio.timeout(timeout_s):
            return await _collect(receive, limit)
    except TimeoutError:
        raise malformed(f"The body was not complete after {timeout_s:g} s.") from None


async def _collect(receive: Receive, limit: int) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise CallerLeft
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > limit:
            raise _too_large(limit)
    return body


def _too_large(limit: int) -> RequestFault:
    return RequestFault("request.too_large", f"The body is longer than {limit} bytes.")


def send_json(scope: Scope, send: Send, status: int, value: Any, headers: Sequence[tuple[bytes, bytes]] = ()) -> Awaitable[None]:
    """A whole JSON answer, with the request's id."""
    return _send(scope, send, status, json.dumps(value), [_JSON, *headers])


def send_problem(scope: Scope, send: Send, problem: Problem) -> Awaitable[None]:
    """An error answer (RFC 9457)."""
    return _send(scope, send, problem.status, json.dumps(problem.body), [_PROBLEM, *problem.headers])


async def _send(scope: Scope, send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    headers.append((b"content-length", str(len(body)).encode()))
    request_id = header(scope["headers"], b"x-request-id")
    if request_id is not None and _REQUEST_ID.fullmatch(request_id):
        headers.append((b"x-request-id", request_id))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


class Departure:
    """A future that is done once the caller has left; use as a context manager around the waiting, once the body is read."""

    def __init__(self, receive: Receive) -> None:
        self._loop = asyncio.get_running_loop()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._receive = receive
        self._listening: asyncio.Task[None] | None = None
        self._alarms = Alarms.of_loop()

    def __enter__(self) -> asyncio.Future[None]:
        self._alarm = self._alarms.after(LISTEN_AFTER_S, self._start)
        return self._gone

    def __exit__(self, *exc: object) -> None:
        self._alarms.take_back(self._alarm)
        if self._listening is not None:
            self._listening.cancel()

    def _start(self) -> None:
        self._listening = self._loop.create_task(self._listen())

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone.set_result(None)
