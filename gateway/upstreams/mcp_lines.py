"""Requests and answers of MCP over lines: ids, progress, what can't be read. It knows nothing of processes.

Each request has its own id and any number may be in flight. Whatever can't be read is logged by its hash and skipped, unless it shows which
request it was meant to answer: then that request has its fault at once instead of at its deadline. A pipe doesn't say which request a
question of the server's belongs to: with one call in flight it is that one's, with more it is nobody's, lest it reach the wrong client.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from gateway.ports import UpstreamFault
from gateway.upstreams.lines import Foreign, Overlong
from gateway.upstreams.mcp_attendant import LOG, PROGRESS
from gateway.upstreams.mcp_peer import Heard, Reply, Terms
from gateway.wire import jsonrpc, mcp
from gateway.wire.json import JsonError, dumps, parse
from gateway.wire.jsonrpc import Id, Notification, Request, Response, RpcError

MAX_DEPTH: Final = 128
UNASKED_BYTES: Final = 1024 * 1024
"""How long a line may be that answers no request."""

_FIRST_ID: Final = re.compile(rb'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*([0-9]{1,18})\s*,')
_LAST_ID: Final = re.compile(rb'"id"\s*:\s*([0-9]{1,18})\s*\}\s*\Z')


@dataclass(frozen=True, slots=True)
class _Waiting:
    future: asyncio.Future[Reply]
    terms: Terms


class LineTransport:
    """`write` is set by whoever owns the pipe; it raises UpstreamFault `unavailable` if nothing of a line can leave. `alone` gets what the
    server says when nobody is there for it; the peer sets it."""

    def __init__(self, foreign: Foreign) -> None:
        self.version = mcp.VERSION_2026
        self.write: Callable[[bytes], None] = _not_connected
        self.alone: Heard = _unheard
        self._foreign = foreign
        self._waiting: dict[Id, _Waiting] = {}

    # ---- out ------------------------------------------------------------------------------------------------------------

    async def ask(self, message: dict[str, Any], terms: Terms) -> Reply:
        """Raises UpstreamFault `unavailable` if nothing of it left."""
        self.write(dumps(message) + b"\n")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Reply] = loop.create_future()
        self._waiting[message["id"]] = _Waiting(future, terms)
        began = loop.time()
        try:
            async with asyncio.timeout_at(terms.until):
                return await future
        except TimeoutError:
            raise UpstreamFault("timeout", f"no answer within {round((terms.until - began) * 1000)} ms") from None
        finally:
            del self._waiting[message["id"]], future  # which holds its fault, which holds this frame

    def say(self, message: dict[str, Any]) -> None:
        with suppress(UpstreamFault):
            self.write(dumps(message) + b"\n")

    async def tell(self, message: dict[str, Any]) -> None:
        self.say(message)

    def closing_cancels(self) -> bool:
        return False

    def end(self, why: str) -> None:
        """Nothing more will come: what is in flight may have happened."""
        self.write = _not_connected
        for waiting in self._waiting.values():
            _fail(waiting, "closed", f"{why} before it answered")

    # ---- in -------------------------------------------------------------------------------------------------------------

    def hear(self, line: bytes | Overlong) -> None:
        """One line of the server's output. What is longer than anything that was asked for may be is not even parsed."""
        longest = max((waiting.terms.max_bytes for waiting in self._waiting.values()), default=0)
        if isinstance(line, Overlong) or len(line) > max(longest, UNASKED_BYTES):
            self._lost(line, "too_large")
            return
        try:
            message = jsonrpc.read(parse(line, max_depth=MAX_DEPTH))
        except (JsonError, RpcError):
            self._lost(line, "garbage")
            return
        if isinstance(message, Response):
            self._answered(message, len(line))
        else:
            (self._who_is_meant(message) or self.alone)(message)

    def _answered(self, response: Response, size: int) -> None:
        waiting = self._waiting.get(response.id) if response.id is not None else None
        if waiting is None or waiting.future.done():
            return
        if size > waiting.terms.max_bytes:
            _fail(waiting, "too_large", f"the answer is longer than {waiting.terms.max_bytes} bytes")
        else:
            waiting.future.set_result(Reply(response))

    def _who_is_meant(self, message: Request | Notification) -> Heard | None:
        if message.method == PROGRESS and isinstance(message, Notification):
            token = message.params.get("progressToken")
            waiting = self._waiting.get(token) if type(token) is int else None
            return waiting.terms.heard if waiting is not None else _unheard
        if isinstance(message, Request) or message.method == LOG:
            present = [waiting.terms.heard for waiting in self._waiting.values() if waiting.terms.heard is not None]
            return present[0] if len(present) == 1 else None
        return None

    def _lost(self, line: bytes | Overlong, kind: str) -> None:
        """A line that is no message: if it was an answer, it shows whose, at its beginning or its end."""
        self._foreign.unread(logging.WARNING, "stdout, not understood", line)
        head, tail = (line.head, line.tail) if isinstance(line, Overlong) else (line[:512], line[-512:])
        found = _FIRST_ID.match(head) or _LAST_ID.search(tail)
        waiting = self._waiting.get(int(found[1])) if found else None
        if waiting is not None:
            _fail(waiting, kind, "the answer is too long to be read" if kind == "too_large" else "the answer can't be read")


def _fail(waiting: _Waiting, kind: str, message: str) -> None:
    if not waiting.future.done():
        waiting.future.set_exception(UpstreamFault(kind, message))


def _unheard(message: Request | Notification) -> None:
    """What was meant for somebody who isn't there any more."""


def _not_connected(line: bytes) -> None:
    raise UpstreamFault("unavailable", "the process is not running")
