"""One HTTP/1.1 connection: one request at a time, its one response, and whether the next may follow.

`exchange` writes the whole request at once and never again: its faults say that a byte may have left, but for a connection that was
already lost. The response is read within a deadline, a bound on the body and a bound on all that is no body. Only a whole response
with nothing behind it leaves the connection open; bytes that nobody asked for close it. A body may also be read as it comes, by a `Tap`.
Source: RFC 9112 §6.3 (where a body ends), §9.3 (persistence); RFC 9110 §15.2 (interim responses).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from gateway.ports import UpstreamFault
from gateway.upstreams.http_faults import too_large

MAX_HEAD: Final = 65_536
"""Bytes of the head with all interim responses before it; the trailers and each chunk's frame have as much again."""


LINGER_S: Final = 1.0
"""How long a body that was read as it came may go on after its reader had enough, before the connection closes."""


class Response(NamedTuple):
    """`headers`: names as in `Content-Type`; of equal ones the first. `body`: unframed, but encoded as the head says."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Reader = Callable[[bytes], bool]
"""Takes the next piece of a body; True when it needs no more. May raise UpstreamFault, which ends the response."""

Tap = Callable[[int, Mapping[str, str]], Reader | None]
"""Status and headers -> who reads the body as it comes; None: it is collected. The reader bounds what it takes, not `max_bytes`."""


class Connection(asyncio.Protocol):
    """`idle` is called when the next request may follow, `lost` when none ever may (perhaps twice)."""

    def __init__(self, idle: Callable[[Connection], None], lost: Callable[[Connection], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle, self._lost = idle, lost
        self._transport: asyncio.Transport
        self._raw: dict[bytes, bytes] = {}
        self.on_header = self._raw.setdefault  # for the parser; of equal ones the first
        self._parser = HttpResponseParser(self)
        self._waiter: asyncio.Future[Response] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = math.inf
        self._status = 0
        self._reader: Reader | None = None

    async def exchange(
        self, request: bytes, until: float, within_s: float, max_bytes: int, *, bodiless: bool = False, tap: Tap | None = None
    ) -> Response:
        """Send a whole request; its response has until `until` on the loop's clock, in messages `within_s`.

        `bodiless`: the request is a HEAD. What `tap` reads as it comes is not in the response, which is given when its reader has enough or
        the body ends. Raises UpstreamFault; then, and when cancelled, the connection closes at once.
        """
        if self._transport.is_closing():
            self.close()
            raise UpstreamFault("unreachable", "the connection closed before the request was sent")
        self._max_bytes, self._bodiless, self._tap, self._reader = max_bytes, bodiless, tap, None
        self._room, self._status, self._body = MAX_HEAD, 0, bytearray()
        self._whole = self._reusable = self._until_close = False
        self._raw.clear()
        waiter: asyncio.Future[Response] = self._loop.create_future()
        self._waiter = waiter
        self._until, self._within_s = until, within_s
        if until < self._wakes_at:
            self._set_timer()
        self._transport.write(request)
        try:
            return await waiter
        finally:
            if self._waiter is waiter:  # else it is the next request's already, which came before we did
                self._waiter = None
                self.close()
            del waiter  # it holds its fault, which holds this frame

    def close(self) -> None:
        """At once. A request under way ends with the fault `closed`."""
        self._fail("closed", "the connection was closed on our side")

    def _set_timer(self) -> None:
        """Where none wakes early enough. One outlives its request, since making one takes long: it wakes for the next, and is set anew."""
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at, self._timer = self._until, self._loop.call_at(self._until, self._wake)

    def _wake(self) -> None:
        woke_at, self._wakes_at = self._wakes_at, math.inf
        if self._waiter is not None and self._until <= woke_at:
            self._fail("timeout", f"no whole answer within {self._within_s} s")
        elif self._waiter is not None:
            self._set_timer()

    def _fail(self, kind: str, message: str) -> None:
        self._end(UpstreamFault(kind, message, status=self._status or None))

    def _end(self, fault: UpstreamFault) -> None:
        waiter, self._waiter = self._waiter, None
        self._lost(self)
        self._transport.abort()
        if waiter is not None and not waiter.done():
            waiter.set_exception(fault)

    def _finish(self) -> None:
        waiter, self._waiter = self._waiter, None
        if self._reusable and not self._transport.get_write_buffer_size():
            self._idle(self)
        else:
            self.close()
        if waiter is not None and not waiter.done():
            waiter.set_result(Response(self._status, self._headers, bytes(self._body)))

    def _let_go(self) -> None:
        """Its reader has enough: answer, and let the rest of the body pass, so that the connection stays warm."""
        waiter, rest = self._waiter, self._loop.create_future()
        self._waiter, self._reader = rest, _unread
        self._until, self._within_s = self._loop.time() + LINGER_S, LINGER_S
        if self._until < self._wakes_at:
            self._set_timer()
        rest.add_done_callback(asyncio.Future.exception)  # seen: nobody waits for it
        if waiter is not None and not waiter.done():
            waiter.set_result(Response(self._status, self._headers, b""))

    # ---- from the transport ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        while self._waiter is not None and data:
            piece, data = data[: self._room], data[self._room :]
            self._room -= len(piece)
            try:
                self._parser.feed_data(piece)
            except (HttpParserError, HttpParserUpgrade) as error:
                self._broken(error)
            if self._whole and self._waiter is not None:
                self._reusable = self._reusable and not data
                return self._finish()
            if self._room <= 0:
                self._fail("garbage", f"the response's head, or what frames its body, is longer than {MAX_HEAD} bytes")
        if data:
            self.close()
        return None

    def _broken(self, error: Exception) -> None:
        self._reusable = False
        if not self._whole:
            self._fail("garbage", f"the response is no valid HTTP: {error}"[:200])

    def eof_received(self) -> None:
        self._ended(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._ended(error)
        if self._timer is not None:
            self._timer.cancel()
        del self._parser  # which holds this protocol in turn

    def _ended(self, error: Exception | None) -> None:
        if error is not None:
            self._fail("reset", f"the connection broke: {error}"[:200])
        elif self._waiter is None:
            self.close()
        elif self._until_close:
            self._finish()
        elif self._status or self._room < MAX_HEAD:
            self._fail("cut", "the response broke off")
        else:
            self._fail("closed", "the connection closed without a response")

    # ---- from the parser ------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._reusable = False  # decided at the response's end; after that, there is something behind it

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._status:
            return
        if status < 200:
            if status < 100:
                self._fail("garbage", f"the response has the status {status}")
            return  # the parser itself refuses to go on after a 101
        self._status, self._room, self._whole = status, MAX_HEAD, self._bodiless
        self._headers: dict[str, str] = {}
        for name, value in self._raw.items():
            self._headers.setdefault(name.decode("latin-1").title(), value.decode("latin-1").rstrip(" \t"))
        coding = self._headers.get("Transfer-Encoding")
        self._until_close = coding is None and "Content-Length" not in self._headers
        if coding is not None and coding.lower() != "chunked":
            self._fail("garbage", f"the response is transferred as {coding[:32]!r}, which was not asked for")
        if self._tap is not None:
            self._reader = self._tap(status, self._headers)

    def on_chunk_header(self) -> None:
        self._room = MAX_HEAD

    def on_body(self, piece: bytes) -> None:
        if self._whole:
            return None
        if not self._status:
            self._fail("garbage", "an interim response has a body")
        self._room = MAX_HEAD
        if self._reader is not None:
            return self._read(self._reader, piece)
        self._body += piece
        if len(self._body) > self._max_bytes:
            self._end(too_large(self._status, self._max_bytes))
        return None

    def _read(self, reader: Reader, piece: bytes) -> None:
        try:
            enough = self._waiter is not None and reader(piece)
        except UpstreamFault as fault:
            self._end(fault)
        else:
            if enough:
                self._let_go()

    def on_message_complete(self) -> None:
        if not self._status:
            self._raw.clear()  # those of an interim response
        elif not self._whole:
            self._whole, self._reusable = True, self._parser.should_keep_alive()


def _unread(piece: bytes) -> bool:
    return False
