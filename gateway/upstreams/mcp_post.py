"""MCP messages over HTTP: each request a POST of its own, answered by JSON or by an event stream; the session, where the server has one.

A byte that left is never sent again: a stream that broke is taken up where the server can go on with it, else the fault says that the call
may have happened. A 404 for our session means that the server has not even looked at the request.
Source: 2025-11-25 and 2026-07-28, "Streamable HTTP".
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

from gateway.ports import UpstreamFault
from gateway.upstreams.credentials import NONE, Credentials
from gateway.upstreams.http_connection import Response as HttpResponse
from gateway.upstreams.http_dial import Origin
from gateway.upstreams.http_faults import decoded, retry_after_ms
from gateway.upstreams.http_pool import Pool
from gateway.upstreams.mcp_peer import Heard, Reply, Terms
from gateway.upstreams.mcp_stream import MAX_DEPTH, AnswerStream
from gateway.upstreams.sending import unsendable
from gateway.wire import jsonrpc, mcp, mcp_headers
from gateway.wire.json import JsonError, dumps, parse
from gateway.wire.jsonrpc import Id, Response, RpcError

SESSION: Final = "mcp-session-id"
ASIDE_S: Final = 2.0
"""How long a message without an answer may take to arrive."""
DAY_S: Final = 86_400.0
MAX_TRIES: Final = 3
MAX_EVENT: Final = 1024 * 1024

_SESSION_ID: Final = re.compile(r"[\x21-\x7e]{1,1024}")
_TOLD: Final = 2_000
_LEAST_PAUSE_S: Final = 0.1


class Endpoint:
    """Where an MCP server is, and what goes with every request to it: the upstream's credentials among it."""

    def __init__(self, url: str, credentials: Credentials = NONE) -> None:
        """Raises ValueError for a URL that names no host."""
        parts = urlsplit(url)
        self.origin = Origin.of(url)
        self.tokens = credentials.tokens
        query = "&".join(filter(None, (parts.query, credentials.query_text)))
        self._target = (parts.path or "/") + (f"?{query}" if query else "")
        own = {"host": self.origin.authority, "user-agent": "tool-call-gateway", "accept-encoding": "identity"}
        self._fixed = _lines(own | {name.lower(): value for name, value in credentials.headers.items()})

    def request(self, method: str, headers: Mapping[str, str], body: bytes | None = None) -> bytes:
        framing = {} if body is None else {"content-type": "application/json", "content-length": str(len(body))}
        return f"{method} {self._target} HTTP/1.1\r\n{self._fixed}{_lines({**headers, **framing})}\r\n".encode("ascii") + (body or b"")


def _lines(headers: Mapping[str, str]) -> str:
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])


class HttpTransport:
    """`gone` is called when the server doesn't know our session any more; whoever made the session sets it."""

    def __init__(self, endpoint: Endpoint, pool: Pool) -> None:
        self.version = mcp.VERSION_2026
        self.alone: Heard = _unheard
        self.gone: Callable[[], None] = _unmissed
        self._endpoint, self._pool = endpoint, pool
        self._session: str | None = None
        self._aside: set[asyncio.Task[None]] = set()

    async def ask(self, message: dict[str, Any], terms: Terms) -> Reply:
        stream = AnswerStream(message["id"], terms.heard or self.alone, terms.max_bytes)
        headers, body = self._headers(message, terms), dumps(message)
        whole = None
        try:
            whole = await self._exchange("POST", headers, terms.until, terms.max_bytes, body=body, stream=stream, fresh=terms.fresh)
        except UpstreamFault as fault:
            if not self._goes_on(stream) or fault.kind not in ("cut", "reset", "closed"):
                raise
        if message["method"] == "initialize":
            self._session = _session_in(stream.headers)
        if whole is not None and not stream.begun:
            return self._read(message["id"], whole, terms.max_bytes)
        return Reply(stream.response or await self._taken_up(stream, terms), 200)

    def say(self, message: dict[str, Any]) -> None:
        task = asyncio.get_running_loop().create_task(self.tell(message))
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)

    async def tell(self, message: dict[str, Any]) -> None:
        with suppress(UpstreamFault):
            await self._exchange("POST", self._headers(message), _now() + ASIDE_S, MAX_EVENT, body=dumps(message))

    def closing_cancels(self) -> bool:
        return self.version == mcp.VERSION_2026

    async def stand(self, opened: Callable[[], None]) -> bool:
        """The stream of what belongs to no request, until it ends; False if the server has none. Raises UpstreamFault."""
        stream = _Standing(self.alone, opened)
        whole = await self._exchange("GET", self._stream_headers(), _now() + DAY_S, MAX_EVENT, stream=stream)
        if whole.status == 404 and self._session is not None:
            self.gone()
        if whole.status >= 500:
            raise UpstreamFault("unavailable", f"status {whole.status}", status=whole.status)
        return stream.begun

    async def close(self) -> None:
        """End the session, if there is one, and see to it that what was said aside has left."""
        if self._session is not None:
            with suppress(UpstreamFault):
                await self._exchange("DELETE", self._headers(), _now() + ASIDE_S, MAX_EVENT)
        await asyncio.gather(*self._aside)

    # ---- requests -------------------------------------------------------------------------------------------------------

    def _headers(self, message: Mapping[str, Any] | None = None, terms: Terms | None = None) -> dict[str, str]:
        """Those of a message. Raises UpstreamFault `unsendable` for an argument that its header can't repeat."""
        headers = {"accept": "application/json, text/event-stream"}
        if message is not None and message.get("method") == "initialize":
            return headers
        if self.version == mcp.VERSION_2026 and message is not None and "method" in message:
            try:
                return headers | mcp_headers.mirrored(message, self.version, terms.marked if terms is not None else {})
            except mcp_headers.HeaderError as error:
                raise unsendable(str(error)) from None
        headers[mcp_headers.VERSION_HEADER] = self.version
        return headers | ({SESSION: self._session} if self._session is not None else {})

    def _stream_headers(self, after: str | None = None) -> dict[str, str]:
        return self._headers() | {"accept": "text/event-stream"} | ({} if after is None else {"last-event-id": after})

    async def _exchange(
        self,
        method: str,
        headers: dict[str, str],
        until: float,
        max_bytes: int,
        *,
        body: bytes | None = None,
        stream: AnswerStream | None = None,
        fresh: bool = False,
    ) -> HttpResponse:
        """The time that a token takes counts. One that is refused is given up; nothing goes out again for that."""
        tokens, bearer = self._endpoint.tokens, ""
        if tokens is not None:
            bearer = await tokens.bearer(max(0.0, until - _now()))
            headers = {**headers, "authorization": f"Bearer {bearer}"}
        left_s = until - _now()
        if left_s <= 0:
            raise UpstreamFault("connect_timeout", "no time was left to send it")
        request, tap = self._endpoint.request(method, headers, body), None if stream is None else stream.tap
        whole = await self._pool.request(request, round(left_s, 3), max_bytes, fresh=fresh, tap=tap)
        if tokens is not None and whole.status == 401:
            tokens.refused(bearer)
        return whole

    # ---- answers --------------------------------------------------------------------------------------------------------

    def _read(self, id: Id, whole: HttpResponse, max_bytes: int) -> Reply:
        status = whole.status
        if status == 404 and self._session is not None:
            self.gone()
            raise UpstreamFault("unavailable", "the session with the server had ended, so the request was refused unread", status=status)
        response = _response(id, decoded(whole.body, whole.headers, status, max_bytes))
        if response is None and status < 300:
            raise UpstreamFault("garbage", f"status {status} without an answer to the request", status=status)
        told = response or Response(id, None, {"code": status, "message": _said(whole)})
        return Reply(told, status, retry_after_ms(whole.headers) if status >= 400 else None)

    def _goes_on(self, stream: AnswerStream) -> bool:
        """Whether a stream that broke can be taken up."""
        return self.version != mcp.VERSION_2026 and stream.last_id is not None

    async def _taken_up(self, stream: AnswerStream, terms: Terms) -> Response:
        """Ask for the rest of a stream, as often as it ends; nothing is asked to be done again. Raises UpstreamFault `cut`, `timeout`."""
        failures = 0
        while self._goes_on(stream) and failures < MAX_TRIES:
            pause_s = max(stream.retry_ms / 1000, _LEAST_PAUSE_S)
            if _now() + pause_s >= terms.until:
                await asyncio.sleep(max(0.0, terms.until - _now()))
                raise UpstreamFault("timeout", "the stream ended, and the answer did not come in time")
            await asyncio.sleep(pause_s)
            try:
                await self._exchange("GET", self._stream_headers(stream.last_id), terms.until, terms.max_bytes, stream=stream)
            except UpstreamFault as fault:
                if fault.kind in ("timeout", "too_large", "garbage"):
                    raise
                failures += 1
                continue
            if stream.response is not None:
                return stream.response
            failures = 0 if stream.begun else MAX_TRIES
        raise UpstreamFault("cut", "the stream ended without the answer")


class _Standing(AnswerStream):
    """Tells when it is open."""

    def __init__(self, heard: Heard, opened: Callable[[], None]) -> None:
        super().__init__(None, heard, MAX_EVENT)
        self._opened = opened

    def tap(self, status: int, headers: Mapping[str, str]) -> Callable[[bytes], bool] | None:
        reader = super().tap(status, headers)
        if self.begun:
            self._opened()
        return reader


def _now() -> float:
    return asyncio.get_running_loop().time()


def _response(id: Id, body: bytes) -> Response | None:
    """The answer to this request; an error may leave its id out."""
    try:
        message = jsonrpc.read(parse(body, max_depth=MAX_DEPTH))
    except (JsonError, RpcError):
        return None
    fits = isinstance(message, Response) and (message.id == id or (message.id is None and message.error is not None))
    return message if isinstance(message, Response) and fits else None


def _said(whole: HttpResponse) -> str:
    """What a status without JSON-RPC tells a reader."""
    if 300 <= whole.status < 400:
        return f"status {whole.status}: a redirect to {whole.headers.get('Location', 'nowhere')[:500]}, which is not followed"
    text = whole.body[:_TOLD].decode("utf-8", "replace").strip()
    return f"status {whole.status}" + (f": {text}" if text else "")


def _session_in(headers: Mapping[str, str]) -> str | None:
    """Raises UpstreamFault `garbage` for a session id that the protocol doesn't allow."""
    session = headers.get("Mcp-Session-Id")
    if session is not None and not _SESSION_ID.fullmatch(session):
        raise UpstreamFault("garbage", "the server's session id has characters other than visible ASCII")
    return session


def _unheard(message: object) -> None:
    """Nobody is there yet."""


def _unmissed() -> None:
    """There was no session."""
