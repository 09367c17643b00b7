"""Names of streams with news, from process to process, by LISTEN and NOTIFY: hints, so a lost one is no fault.

They are sent after the commit, on a connection of their own, and gathered: a NOTIFY inside the commit would make the commits of all processes
wait for one lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

import asyncpg

from gateway.ledger.postgres_connection import SQL, Server, names
from gateway.ports import LedgerFault

_LOG: Final = logging.getLogger("gateway.ledger")
_CHANNEL: Final = "gateway"
_GATHER_S: Final = 0.01
_AGAIN_S: Final = 1.0


class Hints:
    """Tells and hears from `start` to `stop`; connects again by itself. `heard` gets what other processes told."""

    def __init__(self, server: Server) -> None:
        self.heard: Callable[[str], None] = lambda stream: None
        self._server = server
        self._news: set[str] = set()
        self._wake = asyncio.Event()
        self.listening = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="ledger hints")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def tell(self, streams: Iterable[str]) -> None:
        if self.listening.is_set():
            self._news.update(streams)
            self._wake.set()

    async def _run(self) -> None:
        while True:
            try:
                connection = await self._server.connect()
                try:
                    with self._server.faults():
                        await self._talk(connection)
                finally:
                    self.listening.clear()
                    connection.terminate()
            except LedgerFault as fault:
                _LOG.warning("other processes' news come late: %s", fault)
            await asyncio.sleep(_AGAIN_S)

    async def _talk(self, connection: asyncpg.Connection) -> None:
        me = connection.get_server_pid()
        connection.add_termination_listener(lambda _: self._wake.set())
        await connection.add_listener(_CHANNEL, lambda _, sender, channel, stream: sender != me and self.heard(stream))
        self.listening.set()
        while not connection.is_closed():
            await self._wake.wait()
            self._wake.clear()
            news, self._news = self._news, set()
            if news:
                await connection.execute(SQL["tell"].text, names(news))
                await asyncio.sleep(_GATHER_S)
