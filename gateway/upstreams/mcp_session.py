"""One conversation with an MCP server over lines, in either era: ids, answers, progress, cancels. It knows nothing of processes.

Each request has its own id and any number may be in flight. Whatever can't be read is logged and skipped, unless it shows which request
it was meant to answer: then that request has its fault at once instead of at its deadline.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from gateway.core.model import Json
from gateway.ports import Answer, Dispatch, UpstreamFault
from gateway.upstreams.lines import Foreign, Overlong
from gateway.upstreams.mcp_calls import CLIENT_INFO, answer_of, call_message
from gateway.upstreams.sending import refuse_way, seconds_left
from gateway.wire import jsonrpc, mcp, mcp_client
from gateway.wire.json import JsonError, dumps, parse
from gateway.wire.jsonrpc import Id, Notification, Request, Response, RpcError
from gateway.wire.mcp_client import Dialect, PeerError

MAX_DEPTH: Final = 128
MAX_PAGES: Final = 1_000
LIST_S: Final = 30.0

_FIRST_ID: Final = re.compile(rb'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*([0-9]{1,18})\s*,')
_LAST_ID: Final = re.compile(rb'"id"\s*:\s*([0-9]{1,18})\s*\}\s*\Z')

Progress = Callable[[Mapping[str, Json]], None]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A request in flight. The future gets the response and how many bytes it came in."""

    future: asyncio.Future[tuple[Response, int]]
    progress: Progress | None = None


class Session:
    """`write` is set by whoever owns the pipe; it raises UpstreamFault `unavailable` if nothing of a line can leave."""

    def __init__(self, foreign: Foreign) -> None:
        self.write: Callable[[bytes], None] = _not_connected
        self._foreign = foreign
        self._ids = count(1)
        self._waiting: dict[Id, _Waiting] = {}
        self._dialect = Dialect(mcp.VERSION_2026, CLIENT_INFO)
        self._tools: list[dict[str, Any]] | None = None
        self._changes = 0

    # ---- what the upstream asks for -------------------------------------------------------------------------------------

    async def greet(self, *, probe: bool, patience_s: float) -> None:
        """Find out the era: `server/discover`, unless `probe` is off; without a 2026 answer, or any in time, `initialize`.

        Raises UpstreamFault. The caller bounds the time.
        """
        asked: dict[str, asyncio.Future[tuple[Response, int]]] = {}
        try:
            if probe:
                asked["discover"] = self._post(mcp_client.discover(next(self._ids), CLIENT_INFO))
                await asyncio.wait(asked.values(), timeout=patience_s)
            if not _speaks_2026(asked):
                asked["initialize"] = self._post(mcp_client.initialize(next(self._ids), CLIENT_INFO))
                await asyncio.wait(asked.values(), return_when=asyncio.FIRST_COMPLETED)
            if not _speaks_2026(asked):
                self._dialect = Dialect(mcp_client.agreed_version((await asked["initialize"])[0]), CLIENT_INFO)
                self._say(mcp_client.initialized())
        except PeerError as error:
            raise UpstreamFault("garbage", str(error)) from None
        finally:
            for future in asked.values():
                future.cancel()

    async def tools(self) -> list[dict[str, Any]]:
        """All pages; read again only after the server said that they changed. Raises UpstreamFault."""
        if self._tools is not None:
            return self._tools
        changes = self._changes
        tools = await self._all_pages()
        if changes == self._changes:
            self._tools = tools
        return tools

    async def call(self, dispatch: Dispatch) -> Answer:
        refuse_way(dispatch, "header", "header_quoted")
        seconds = seconds_left(dispatch.remaining_ms)
        response, size = await self._ask(call_message(self._dialect, next(self._ids), dispatch), seconds, dispatch.client.progress)
        if size > dispatch.max_bytes:
            raise UpstreamFault("too_large", f"the answer is longer than {dispatch.max_bytes} bytes")
        return answer_of(response)

    def end(self, why: str) -> None:
        """Nothing more will come: what is in flight may have happened."""
        self.write = _not_connected
        for waiting in self._waiting.values():
            if not waiting.future.done():
                waiting.future.set_exception(UpstreamFault("closed", f"{why} before it answered"))

    # ---- lines in -------------------------------------------------------------------------------------------------------

    def hear(self, line: bytes | Overlong) -> None:
        """One line of the server's output."""
        try:
            if isinstance(line, Overlong):
                raise JsonError("too long")
            message = jsonrpc.read(parse(line, max_depth=MAX_DEPTH))
        except (JsonError, RpcError):
            self._lost(line)
            return
        if isinstance(message, Response):
            self._answered(message, len(line))
        elif isinstance(message, Request):
            self._say(mcp_client.answer_to(message))
        else:
            self._noticed(message)

    def _answered(self, response: Response, size: int) -> None:
        waiting = self._waiting.get(response.id) if response.id is not None else None
        if waiting is not None and not waiting.future.done():
            waiting.future.set_result((response, size))

    def _noticed(self, notification: Notification) -> None:
        if notification.method == "notifications/tools/list_changed":
            self._tools = None
            self._changes += 1
        elif notification.method == "notifications/progress":
            token = notification.params.get("progressToken")
            waiting = self._waiting.get(token) if type(token) is int else None
            if waiting is not None and waiting.progress is not None:
                waiting.progress(notification.params)

    def _lost(self, line: bytes | Overlong) -> None:
        """A line that is no message: if it was an answer, it shows whose, at its beginning or its end."""
        self._foreign.write(logging.WARNING, "stdout, not understood", line)
        kind = "too_large" if isinstance(line, Overlong) else "garbage"
        head, tail = (line.head, line.tail) if isinstance(line, Overlong) else (line, line[-100:])
        found = _FIRST_ID.match(head) or _LAST_ID.search(tail)
        waiting = self._waiting.get(int(found[1])) if found else None
        if waiting is not None and not waiting.future.done():
            waiting.future.set_exception(UpstreamFault(kind, "the answer can't be read"))

    # ---- lines out ------------------------------------------------------------------------------------------------------

    async def _ask(self, message: dict[str, Any], seconds: float, progress: Progress | None = None) -> tuple[Response, int]:
        """Wait for the answer; a cancel or the deadline tells the server, and is not waited for any longer."""
        future = self._post(message, progress)
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            self._say(mcp_client.cancelled(message["id"], "the deadline has passed"))
            raise UpstreamFault("timeout", f"no answer within {round(seconds * 1000)} ms") from None
        except asyncio.CancelledError:
            self._say(mcp_client.cancelled(message["id"], "the caller cancelled it"))
            raise

    def _post(self, message: dict[str, Any], progress: Progress | None = None) -> asyncio.Future[tuple[Response, int]]:
        """Raises UpstreamFault `unavailable` if nothing of it left."""
        self.write(dumps(message) + b"\n")
        future: asyncio.Future[tuple[Response, int]] = asyncio.get_running_loop().create_future()
        self._waiting[message["id"]] = _Waiting(future, progress)
        future.add_done_callback(lambda done: self._forget(message["id"], done))
        return future

    def _forget(self, id: Id, done: asyncio.Future[tuple[Response, int]]) -> None:
        del self._waiting[id]
        if not done.cancelled():
            done.exception()  # seen: nobody may be waiting any more

    def _say(self, message: dict[str, Any]) -> None:
        with suppress(UpstreamFault):
            self.write(dumps(message) + b"\n")

    async def _all_pages(self) -> list[dict[str, Any]]:
        tools: list[dict[str, Any]] = []
        cursor, seen = None, set[str]()
        while len(seen) < MAX_PAGES:
            page, cursor = await self._page(cursor)
            tools += page
            if cursor is None:
                return tools
            if cursor in seen:
                break
            seen.add(cursor)
        raise UpstreamFault("garbage", "tools/list does not come to an end")

    async def _page(self, cursor: str | None) -> tuple[list[dict[str, Any]], str | None]:
        response, _ = await self._ask(self._dialect.list_tools(next(self._ids), cursor), LIST_S)
        if response.error is not None:
            if response.error["code"] == jsonrpc.METHOD_NOT_FOUND:
                return [], None
            raise UpstreamFault("garbage", f"tools/list was refused: {response.error['code']}")
        try:
            return mcp_client.tools_page(response.result)
        except PeerError as error:
            raise UpstreamFault("garbage", str(error)) from None


def _speaks_2026(asked: Mapping[str, asyncio.Future[tuple[Response, int]]]) -> bool:
    """Has `discover` been answered by a 2026 server? Raises the fault if the server is gone."""
    discovered = asked.get("discover")
    return discovered is not None and discovered.done() and mcp_client.speaks_2026(discovered.result()[0])


def _not_connected(line: bytes) -> None:
    raise UpstreamFault("unavailable", "the process is not running")
