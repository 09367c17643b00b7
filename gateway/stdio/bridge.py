"""What a client says on stdio, said to a gateway's MCP door over HTTP, and back: both eras, for one client.

Messages go through as the bytes they are, so that stdio and Streamable HTTP are one door with one set of answers. What HTTP has beside messages
is added here: the headers that repeat a 2026-07-28 request, a session's id, the closing of a stream where a client cancels. A gateway that was
started anew is found again (`Link`), a session that it doesn't know is begun anew, and what got no answer is said once more, since a gateway
executes nothing twice. Each request gets exactly one answer, unless it was cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import httpx

from gateway.stdio.pipes import Closed
from gateway.upstreams.lines import Overlong
from gateway.wire import json, jsonrpc, mcp, mcp_client, mcp_headers, sse

log = logging.getLogger("gateway.stdio")

SESSION_HEADER: Final = "mcp-session-id"
MAX_IN_FLIGHT: Final = 1_000
MAX_EVENT: Final = 64 * 1024 * 1024
MAX_PAGES: Final = 100
NO_ANSWER: Final = -32000
_EVENTS: Final = "text/event-stream"
_ALWAYS: Final = {"content-type": "application/json", "accept": f"application/json, {_EVENTS}"}
_FAULTS: Final = (httpx.HTTPError, ConnectionError, json.JsonError, sse.SseError)
_EDGE: Final = 512
_VALUE: Final = rb'"id"\s*:\s*("[^"\\]{1,200}"|-?[0-9]{1,18})\s*'
_FIRST_ID: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?(?:"method"\s*:\s*"[^"\\]*"\s*,\s*)?' + _VALUE + rb",")
_LAST_ID: Final = re.compile(_VALUE + rb"\}\s*$")

Take = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Gateway:
    """Where a gateway's MCP endpoint is, and a client that sends the principal's key."""

    client: httpx.AsyncClient
    endpoint: str


class Link(Protocol):
    """The way to a gateway. `found`: the one that is spoken to now."""

    found: Gateway

    async def renew(self, lost: Gateway) -> None:
        """Find a gateway again, unless another one than `lost` was found meanwhile. Raises ConnectionError with the reason."""


@dataclass(slots=True)
class _Asked:
    """A request that waits. `modern`: of 2026-07-28. `silent`: it was cancelled, so nothing more is said about it."""

    id: jsonrpc.Id
    modern: bool
    task: asyncio.Task[None] | None = None
    silent: bool = False
    answered: bool = False


@dataclass(frozen=True, slots=True)
class _Session:
    """What was agreed on, and the `initialize` that it began with."""

    initialize: bytes
    id: str
    version: str


class Bridge:
    def __init__(self, link: Link, say: Take) -> None:
        self._link = link
        self._say = say
        self._session: _Session | None = None
        self._running: dict[jsonrpc.Id, _Asked] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._marks: dict[str, mcp_headers.Marked] = {}

    async def hear(self, line: bytes | Overlong) -> None:
        """One message of the client; what takes long goes on by itself. Raises Closed."""
        if isinstance(line, Overlong):
            await self._refuse(_id_in(line.head, line.tail), jsonrpc.INVALID_REQUEST, "The message is too long.")
            return
        if not line.strip():
            return
        try:
            message = json.parse(line)
        except json.JsonError as wrong:
            await self._refuse(_id_in(line, line[-_EDGE:]), jsonrpc.PARSE_ERROR, f"Parse error: {wrong}")
            return
        id = _request_id(message)
        if id is None:
            self._spawn(self._pass_on(line, message))
        elif message["method"] == "initialize":
            await self._ask(line, message, _Asked(id, False))
        elif len(self._running) >= MAX_IN_FLIGHT:
            await self._refuse(id, NO_ANSWER, f"{MAX_IN_FLIGHT} requests are in flight; wait for some of them.")
        else:
            asked = self._running[id] = _Asked(id, _version(message) is not None)
            asked.task = self._spawn(self._ask(line, message, asked))

    async def finish(self, patience_s: float) -> None:
        """Nothing more comes; what was asked may still be answered for a moment."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=patience_s)

    async def close(self) -> None:
        """The client has gone: end what runs, and the session."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            found = self._link.found
            try:
                await found.client.delete(found.endpoint, headers={SESSION_HEADER: self._session.id}, timeout=1)
            except httpx.HTTPError:
                pass  # its time runs out

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None and not isinstance(fault, Closed):
            log.error("a message was not passed on", exc_info=fault)

    async def _refuse(self, id: jsonrpc.Id | None, code: int, why: str) -> None:
        await self._say(json.dumps(jsonrpc.error(id, code, why)))

    # ---- one message ----------------------------------------------------------------------------------------------------

    async def _ask(self, line: bytes, message: dict[str, Any], asked: _Asked) -> None:
        """A request, until its answer has been said."""

        async def take(data: bytes) -> None:
            if not asked.silent:
                await self._say(_answer_to(asked, data))

        why = "The gateway answered with no message."
        try:
            await self._exchange(line, message, take)
        except Closed:
            raise
        except Exception as fault:  # whatever went wrong here, the client waits for an answer
            if not isinstance(fault, _FAULTS):
                log.error("a request was not passed on", exc_info=fault)
            why = f"The gateway gave no answer ({fault or type(fault).__name__}). Ask again: nothing is executed twice."
        finally:
            if self._running.get(asked.id) is asked:
                del self._running[asked.id]
        if not (asked.answered or asked.silent):
            await self._refuse(asked.id, NO_ANSWER, why)

    async def _pass_on(self, line: bytes, message: Any) -> None:
        """A notification, an answer to a question, a batch, or what is none of these: then the door says what is wrong with it."""
        method = message.get("method") if isinstance(message, dict) else None
        if method == "notifications/cancelled" and self._cancelled(message.get("params")):
            return
        try:
            await self._exchange(line, message, self._say if method is None else _nothing)
        except _FAULTS as fault:
            log.warning("a message that has no answer was lost: %s", fault or type(fault).__name__)

    def _cancelled(self, params: Any) -> bool:
        """Nothing more is said about a cancelled request. True if that is all: of 2026-07-28, the gateway learns it from the closed stream."""
        id: Any = params.get("requestId") if isinstance(params, dict) else None
        asked = self._running.get(id) if type(id) in (str, int) else None
        if asked is None:
            return self._session is None
        asked.silent = True
        if asked.modern and asked.task is not None:
            asked.task.cancel()
        return asked.modern

    # ---- HTTP -----------------------------------------------------------------------------------------------------------

    async def _exchange(self, line: bytes, message: Any, take: Take) -> None:
        """POST the message, and take what comes back. Raises httpx.HTTPError, ConnectionError."""
        for again in (False, True):
            found, begun = self._link.found, False
            try:
                async with found.client.stream("POST", found.endpoint, content=line, headers=self._headers(message)) as response:
                    begun = True
                    if again or not await self._put_right(response, message):
                        self._remember(response, line, message)
                        await _read(response, take)
                        return
            except httpx.TransportError:
                if begun or again:
                    raise
                await self._link.renew(found)

    def _headers(self, message: Any) -> dict[str, str]:
        version = _version(message)
        if version is not None:
            return _ALWAYS | _repeated(message, version, self._marks)
        if self._session is None or _is_initialize(message):
            return _ALWAYS
        return _ALWAYS | {SESSION_HEADER: self._session.id, mcp_headers.VERSION_HEADER: self._session.version}

    def _remember(self, response: httpx.Response, line: bytes, message: Any) -> None:
        """A session begins, in the revision that the client asked for, or in the newest that there is."""
        if (id := response.headers.get(SESSION_HEADER)) is not None and _is_initialize(message):
            asked = message["params"].get("protocolVersion") if isinstance(message.get("params"), dict) else None
            self._session = _Session(line, id, asked if asked in mcp.SESSION_VERSIONS else mcp.SESSION_VERSIONS[0])

    async def _put_right(self, response: httpx.Response, message: Any) -> bool:
        """Was the message refused for what only HTTP has, and is that right now? Then it is said again."""
        if response.status_code == 404 and _version(message) is None and self._session is not None:
            return await self._begin_anew(self._session, response)
        if response.status_code == 400 and _version(message) is not None and message["method"] == "tools/call":
            said = jsonrpc.read(json.parse(await response.aread()))
            mismatch = isinstance(said, jsonrpc.Response) and said.error is not None and said.error["code"] == jsonrpc.HEADER_MISMATCH
            return mismatch and await self._learn_marks(message)
        return False

    async def _begin_anew(self, session: _Session, response: httpx.Response) -> bool:
        """The gateway doesn't know the session any more, and a client on stdio can't know that."""
        await response.aread()
        if self._session is session:
            await self._exchange(session.initialize, json.parse(session.initialize), _nothing)
            initialized = jsonrpc.notification("notifications/initialized")
            await self._exchange(json.dumps(initialized), initialized, _nothing)
        return self._session is not session

    async def _learn_marks(self, message: dict[str, Any]) -> bool:
        """Which arguments of the tools are repeated in headers; a client on stdio repeats none."""
        params: dict[str, Any] = {"_meta": {name: value for name, value in message["params"]["_meta"].items() if name.startswith("io.")}}
        for _ in range(MAX_PAGES):
            pages: list[bytes] = []

            async def take(data: bytes, pages: list[bytes] = pages) -> None:
                pages.append(data)

            request = jsonrpc.request("marks", "tools/list", params)
            await self._exchange(json.dumps(request), request, take)
            said = jsonrpc.read(json.parse(pages[-1])) if pages else None
            if not isinstance(said, jsonrpc.Response) or said.error is not None:
                return False
            tools, cursor = mcp_client.tools_page(said.result)
            self._marks |= {tool["name"]: _marked(tool) for tool in tools}
            if cursor is None:
                return True
            params = params | {"cursor": cursor}
        return True


async def _nothing(data: bytes) -> None:
    """Nobody waits for it."""


async def _read(response: httpx.Response, take: Take) -> None:
    """Each message of an answer, as it comes. What isn't MCP's (a proxy's page) is no message."""
    kind = response.headers.get("content-type", "")
    if kind.startswith(_EVENTS):
        events = sse.Decoder(MAX_EVENT)
        async for chunk in response.aiter_bytes():
            for event in events.feed(chunk):
                await take(event.data)
    elif kind.startswith("application/json") and (body := await response.aread()):
        await take(body)


def _answer_to(asked: _Asked, data: bytes) -> bytes:
    """The message as it is said; an error that was found before the request was read gets the request's id. Raises RpcError, JsonError."""
    message = json.parse(data)
    said = jsonrpc.read(message)
    if not isinstance(said, jsonrpc.Response):
        return data
    asked.answered = True
    return json.dumps({**message, "id": asked.id}) if said.id is None else data


def _request_id(message: Any) -> jsonrpc.Id | None:
    """None for what is no request: nobody waits for an answer."""
    id: Any = message.get("id") if isinstance(message, dict) and "method" in message else None
    return id if type(id) in (str, int) else None


def _id_in(head: bytes, tail: bytes) -> jsonrpc.Id | None:
    """The id of a request that can't be read as a whole, where its ends show it."""
    found = _FIRST_ID.match(head) or _LAST_ID.search(tail)
    return json.parse(found[1]) if found else None


def _is_initialize(message: Any) -> bool:
    return isinstance(message, dict) and message.get("method") == "initialize"


def _version(message: Any) -> str | None:
    """The revision that a message of 2026-07-28 or later names in its envelope; None for one of the session era."""
    params = message.get("params") if isinstance(message, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    version = meta.get(mcp.META_VERSION) if isinstance(meta, dict) else None
    return version if isinstance(version, str) else None


def _repeated(message: dict[str, Any], version: str, marks: Mapping[str, mcp_headers.Marked]) -> dict[str, str]:
    """The headers of a 2026-07-28 request, as far as there can be any: the door says what is wrong with the others."""
    params, method = message["params"], message.get("method")
    headers = {mcp_headers.VERSION_HEADER: version, mcp_headers.METHOD_HEADER: str(method)}
    name = params.get(mcp_headers.NAMED_BY.get(str(method), ""))
    try:
        if isinstance(name, str):
            headers |= mcp_headers.mirrored(message, version, marks.get(name, {}))
    except (mcp_headers.HeaderError, AttributeError):
        pass
    return {header: mcp_headers.encoded(value) if header in _TEXTS else value for header, value in headers.items()}


_TEXTS: Final = (mcp_headers.VERSION_HEADER, mcp_headers.METHOD_HEADER)


def _marked(tool: Mapping[str, Any]) -> mcp_headers.Marked:
    try:
        return mcp_headers.marked_arguments(tool["inputSchema"])
    except mcp_headers.HeaderError:
        return {}
