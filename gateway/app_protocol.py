"""HTTP/1.1 connections with bounded heads: uvicorn's own protocol, but a head has a size, and a time in which it must arrive.

uvicorn bounds neither for httptools, so one client could hold connections open for nothing, or grow one head without end.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD = 64 * 1024
HEAD_TIMEOUT_S = 20.0


class HeadTooLarge(ValueError):
    """Raised inside the parser, which then refuses the request."""


class BoundedHttp(HttpToolsProtocol):
    """`_head`: bytes received of a head that isn't whole yet; None between heads."""

    _head: int | None = None
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer = self.loop.call_later(HEAD_TIMEOUT_S, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head is None:
            self._stop_timer()
            return
        self._head += len(data)
        if self._head > MAX_HEAD:
            self.transport.close()
        elif self._timer is None:
            self._timer = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.close)

    def on_message_begin(self) -> None:
        self._head = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head = None
        if len(self.url) + sum([len(name) + len(value) for name, value in self.headers]) > MAX_HEAD:
            raise HeadTooLarge
        super().on_headers_complete()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
