"""The connections to one origin: the warmest idle one is used first, one that closed is never used, a fresh one is never kept.

There is no limit and so no queue: calls in flight are bounded before they come here. Nothing is retried.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from gateway.ports import UpstreamFault
from gateway.upstreams.http_connection import Connection, Response, Tap
from gateway.upstreams.http_dial import Origin, dial

IDLE_S: Final = 60.0


class Pool:
    """`tls`: the context, for an origin that is `secure`."""

    def __init__(self, origin: Origin, tls: ssl.SSLContext | None, connect_s: float, *, idle_s: float = IDLE_S) -> None:
        self._loop = asyncio.get_running_loop()
        self._origin, self._tls, self._connect_s, self._idle_s = origin, tls, connect_s, idle_s
        self._idle: dict[Connection, float] = {}
        """Since when on the loop's clock; the longest idle one first."""
        self._all: set[Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    async def request(
        self, request: bytes, within_s: float, max_bytes: int, *, fresh: bool = False, bodiless: bool = False, tap: Tap | None = None
    ) -> Response:
        """One request on a warm connection, or on one of its own, within `within_s` in all. Raises UpstreamFault."""
        until = self._loop.time() + within_s
        connection = self._idle.popitem()[0] if self._idle and not fresh else await self._connect(until, fresh)
        return await connection.exchange(request, until, within_s, max_bytes, bodiless=bodiless, tap=tap)

    async def _connect(self, until: float, fresh: bool) -> Connection:
        idle = Connection.close if fresh else self._put
        try:
            async with asyncio.timeout_at(min(until, self._loop.time() + self._connect_s)):
                connection = await dial(self._origin, self._tls, lambda: Connection(idle, self._drop))
        except TimeoutError:
            raise UpstreamFault("connect_timeout", "no connection in time") from None
        self._all.add(connection)
        if self._closed:
            connection.close()
            raise UpstreamFault("unavailable", "the upstream is closed")
        return connection

    def _put(self, connection: Connection) -> None:
        self._idle[connection] = self._loop.time()
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._idle_s, self._close_idle)

    def _drop(self, connection: Connection) -> None:
        self._idle.pop(connection, None)
        self._all.discard(connection)

    def _close_idle(self) -> None:
        """Close what has been idle too long, and come back when the next one may have been."""
        now, self._sweep = self._loop.time(), None
        for connection in [each for each, since in self._idle.items() if since + self._idle_s <= now]:
            connection.close()
        if self._idle:
            self._sweep = self._loop.call_at(next(iter(self._idle.values())) + self._idle_s, self._close_idle)

    async def close(self) -> None:
        """Close all connections; requests under way end with a fault."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self._all):
            connection.close()
        await asyncio.sleep(0)
