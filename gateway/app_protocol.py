"""HTTP/1.1 connections with bounds: uvicorn's own protocol, but a head has a size, a message a time, and a client a number of connections;
and an answer's head leaves together with its body.

uvicorn bounds none of them for httptools: one client could hold connections open for nothing, send a byte a minute, or never read what it
asked for. Proxies that are trusted may have any number, since they speak for many.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from functools import lru_cache
from typing import ClassVar
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from gateway.doors.http import WHOLE

MAX_HEAD = 64 * 1024
HEAD_TIMEOUT_S = 20.0
BODY_TIMEOUT_S = 40.0
"""Longer than the doors wait for a body themselves, so that they can still say so."""
STALL_TIMEOUT_S = 30.0
"""How long a client may leave what it was sent unread."""
PER_CLIENT = 512
"""Connections of one address."""

_TOO_MANY = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\nretry-after: 5\r\nconnection: close\r\n\r\n"


class HeadTooLarge(ValueError):
    """Raised inside the parser, which then refuses the request."""


class Together:
    """What answers are written to: a head is held until the first of its body comes, and goes alone only where that doesn't come at once.

    uvicorn writes them one after the other, and each write is a system call that wakes the client."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.is_closing = transport.is_closing
        self._transport = transport
        self._loop = loop
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data[:9] == b"HTTP/1.1 ":
            self._head = data
            self._loop.call_soon(self.flush)
            return
        self._transport.write(data)

    def flush(self) -> None:
        if self._head and not self.is_closing():
            self.write(b"")

    def close(self) -> None:
        self.flush()
        self._transport.close()


class BoundedHttp(HttpToolsProtocol):
    """`_head`: bytes received of a head that isn't whole yet; None outside of one. `_whole`: no message is under way. `_chunk`: how many bytes
    are being read now."""

    _open: ClassVar[WeakKeyDictionary[ServerState, Counter[str]]] = WeakKeyDictionary()
    _head: int | None = None
    _whole = True
    _chunk = 0
    _peer: str | None = None
    _timer: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._together = Together(transport, self.loop)
        self._timer = self.loop.call_later(HEAD_TIMEOUT_S, transport.close)
        if self.client is not None and not _is_among(self.client[0], tuple(self.config.forwarded_allow_ips or ())):
            self._peer = self.client[0]
            there = self._open.setdefault(self.server_state, Counter())
            there[self._peer] += 1
            if there[self._peer] > PER_CLIENT:
                transport.write(_TOO_MANY)
                transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self.resume_writing()
        if self._peer is not None:
            there = self._open[self.server_state]
            there[self._peer] -= 1
            if not there[self._peer]:
                del there[self._peer]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._chunk = len(data)
        super().data_received(data)
        if self._whole:
            self._stop_timer()
            return
        if self._head is not None:
            self._head += len(data)
            if self._head > MAX_HEAD:
                self.transport.close()
        if self._timer is None:
            self._timer = self.loop.call_later(BODY_TIMEOUT_S if self._head is None else HEAD_TIMEOUT_S, self.transport.close)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(STALL_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        super().resume_writing()

    # ---- from the parser ------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._head, self._whole = 0, False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        arrived, self._head = self._chunk + (self._head or 0), None
        self._stop_timer()
        if arrived > MAX_HEAD and len(self.url) + sum([len(name) + len(value) for name, value in self.headers]) > MAX_HEAD:
            raise HeadTooLarge
        super().on_headers_complete()
        self.cycle.transport = self._together  # type: ignore[assignment]

    def on_message_complete(self) -> None:
        self._whole = True
        self.scope[WHOLE] = True  # type: ignore[literal-required]
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._together.flush()
        super().on_response_complete()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@lru_cache(1024)
def _is_among(address: str, networks: tuple[str, ...]) -> bool:
    return any(ipaddress.ip_address(address) in ipaddress.ip_network(network) for network in networks)
