"""The ledger in PostgreSQL, for several processes: one path, under locks, on the primary.

* A batch locks its streams in one order (an advisory lock a stream), reads what others appended past what is at hand, decides, writes with one
  statement, commits. Processes wait for each other's commit; none ever tries again.
* The writer's connection is its own. Point reads that a caller waits for and long reads have a pool each, so that neither delays the other.
* A commit without an answer ends its connection; whether it happened is asked under the same lock, which the server holds until it knows.
* A process that stops in a transaction loses its locks after 3 s, and its batch with them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import Any, Final

import asyncpg

from gateway.ledger.checkpoint import Checkpoints
from gateway.ledger.postgres_connection import READING, SQL, STATEMENT_S, WRITING, Server
from gateway.ledger.postgres_hints import Hints
from gateway.ledger.postgres_reader import PostgresReader
from gateway.ledger.shared import SharedLedger
from gateway.ledger.sql import migrations
from gateway.ledger.states import Empty, Evolve, Fold
from gateway.ledger.store import PAGE, CheckpointRow, EventRow, Rows, UnfitRows
from gateway.ports import Clock, LedgerFault

_MIGRATIONS: Final = migrations("postgres")
_WRITE: Final = SQL["write"]
_UNFIT: Final = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, asyncpg.ProgramLimitExceededError)
_COMMIT_S: Final = 10.0
_LONG_S: Final = 90.0
_POINTS: Final = 4
_LONG: Final = 4
_PROBE_BYTES: Final = 65_536


def _keys(streams: Iterable[str]) -> list[int]:
    """What stands for streams in the table of locks; two streams with one key only wait for each other."""
    return sorted({int.from_bytes(blake2b(stream.encode(), digest_size=8).digest(), "big", signed=True) for stream in streams})


class PostgresStore:
    """One database, any number of processes. See `store.Store` and `shared.SharedStore`."""

    reader: PostgresReader

    def __init__(self, dsn: str, *, readonly: bool = False) -> None:
        self._server = Server(dsn)
        self._readonly = readonly
        self._hints = Hints(self._server)
        self._writing: asyncpg.Connection | None = None
        self._pools: list[asyncpg.Pool] = []
        self._points: PostgresReader
        self._written: set[str] = set()

    @property
    def heard(self) -> Callable[[str], None]:
        return self._hints.heard

    @heard.setter
    def heard(self, heard: Callable[[str], None]) -> None:
        self._hints.heard = heard

    # ---- life -----------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        try:
            connection = await self._server.connect(READING if self._readonly else WRITING)
            try:
                with self._server.faults():
                    await self._checked(connection)
            finally:
                connection.terminate()
            self._points = await self._pooled(WRITING, _POINTS, STATEMENT_S)
            self.reader = await self._pooled(READING, _LONG, _LONG_S)
            if not self._readonly:
                self._hints.start()
        except BaseException:
            await self.close()
            raise

    async def _pooled(self, settings: Mapping[str, str], most: int, patience_s: float) -> PostgresReader:
        pool = await self._server.pool(settings, most, patience_s)
        self._pools.append(pool)
        return PostgresReader(pool.fetch, self._server.faults)

    async def close(self) -> None:
        await self._hints.stop()
        for pool in self._pools:
            pool.terminate()
        if self._writing is not None:
            self._writing.terminate()

    async def _checked(self, connection: asyncpg.Connection) -> None:
        """Refuse what is no ledger, or none that this code knows; only the writer migrates."""
        async with connection.transaction():
            if not self._readonly:
                await connection.execute(SQL["lock"].text, _keys(["the layout"]))
            ours, used = await connection.fetchrow(SQL["found"].text)
            if used and not ours:
                raise LedgerFault("the schema `gateway` of this database holds something that is no ledger")
            layout = await connection.fetchval(SQL["version"].text) if ours else 0
            if layout > len(_MIGRATIONS):
                raise LedgerFault(f"written by a newer gateway (layout {layout}); this one knows layout {len(_MIGRATIONS)}")
            if self._readonly and layout != len(_MIGRATIONS):
                raise LedgerFault(f"no ledger of layout {len(_MIGRATIONS)} (layout {layout}); a gateway that serves makes one")
            for number, script in enumerate(_MIGRATIONS[layout:], layout + 1):
                await connection.execute(script)
                await connection.execute(SQL["set_version"].text, number)

    async def _connected(self) -> asyncpg.Connection:
        """The writer's connection, made anew if it was lost between two batches."""
        if self._writing is None or self._writing.is_closed():
            connection = await self._server.connect()
            if not await connection.fetchval(SQL["make_durable"].text):
                connection.terminate()
                raise LedgerFault("the server runs with fsync = off: what it has acknowledged could be lost")
            self._writing = connection
        return self._writing

    # ---- the writer's ---------------------------------------------------------------------------------------------------

    async def begin(self, known: Mapping[str, int | None]) -> Sequence[EventRow]:
        with self._server.faults():
            connection = await self._connected()
            self._written.clear()
            await connection.execute("BEGIN")
            await connection.execute(SQL["lock"].text, _keys(known))
            at_hand = {stream: seq for stream, seq in known.items() if seq is not None}
            return await _past(connection.fetch, at_hand) if at_hand else ()

    async def write(self, rows: Rows) -> None:
        assert self._writing is not None
        values: dict[str, Sequence[Any]] = {view: list(changed.values()) for view, changed in rows.views.items()}
        values |= {"events": rows.events, "payloads": rows.payloads, "policies": list(rows.policies.items()), "checkpoints": rows.checkpoints}
        with self._server.faults():
            try:
                await self._writing.execute(_WRITE.text, *(values.get(name, ()) for name in _WRITE.names))
            except _UNFIT as error:
                raise UnfitRows(str(error)) from error
        self._written.update(row.stream for row in rows.events)

    async def commit(self) -> None:
        """No cancel is sent when it takes too long: a server that waits for its standby would take that for leave not to."""
        connection = self._writing
        assert connection is not None
        late = asyncio.get_running_loop().call_later(_COMMIT_S, connection.terminate)
        try:
            with self._server.faults():
                said = await connection.execute("COMMIT", timeout=2 * _COMMIT_S)
                if said != "COMMIT":
                    raise LedgerFault(f"the server answered COMMIT with {said}")
        except LedgerFault:
            connection.terminate()
            raise
        finally:
            late.cancel()
        self._hints.tell(self._written)

    async def rollback(self) -> None:
        connection = self._writing
        if connection is not None and not connection.is_closed() and connection.is_in_transaction():
            try:
                with self._server.faults():
                    await connection.execute("ROLLBACK")
            except LedgerFault:
                connection.terminate()

    async def clear(self, view: str) -> None:
        assert self._writing is not None
        with self._server.faults():
            await self._writing.execute(SQL["keep_out"].text)
            await self._writing.execute(SQL[f"clear_{view}"].text)

    async def probe(self) -> None:
        await self.rollback()
        with self._server.faults():
            connection = await self._connected()
            await connection.execute(SQL["add_probe"].text, os.urandom(_PROBE_BYTES))
            await connection.execute(SQL["delete_probes"].text)

    async def recorded(self, stream: str, seq: int) -> str | None:
        try:
            with self._server.faults():
                connection = await self._connected()
                await connection.execute("BEGIN")
                await connection.execute(SQL["lock"].text, _keys([stream]))
                found: str | None = await connection.fetchval(SQL["event_id_at"].text, stream, seq)
                return found
        finally:
            await self.rollback()

    # ---- anybody's ------------------------------------------------------------------------------------------------------

    async def past(self, known: Mapping[str, int]) -> Sequence[EventRow]:
        with self._server.faults():
            return await _past(self._pools[0].fetch, known)

    async def tail(self, stream: str, first: int, limit: int) -> list[EventRow]:
        return await self._points.events(stream, first - 1, limit)

    async def saved(self, stream: str) -> CheckpointRow | None:
        return await self._points.checkpoint(stream)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[PostgresReader]:
        connection = await self._server.connect(READING)
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                yield PostgresReader(connection.fetch, self._server.faults)
        finally:
            connection.terminate()


async def _past(fetch: Callable[..., Any], known: Mapping[str, int]) -> list[EventRow]:
    return [EventRow(*row) for row in await fetch(SQL["past"].text, list(known), list(known.values()), PAGE)]


class PostgresLedger(SharedLedger):
    """The ledger in a database. `dsn`: postgresql://…, may hold a password. `readonly`: no writer; what is there now."""

    def __init__(
        self,
        dsn: str,
        *,
        empty: Empty,
        evolve: Evolve,
        clock: Clock,
        fold_version: int = 1,
        states_of: str = "gateway.core",
        capacity: int = 10_000,
        readonly: bool = False,
    ) -> None:
        fold = Fold(empty, evolve, fold_version, Checkpoints(states_of))
        super().__init__(PostgresStore(dsn, readonly=readonly), fold, clock, capacity=capacity, readonly=readonly)
