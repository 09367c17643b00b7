"""The ledger in PostgreSQL, for several processes: one path, under locks, on the primary.

* A batch locks its streams in one order (an advisory lock a stream) and gets what others appended past what is at hand, in one round trip;
  decides; writes, commits and lets go in a second one. Processes wait for each other's commit; none ever tries again.
* The locks go before the disk is waited for, so one may read what isn't durable yet. It is, once a later commit or `durable` has returned.
* After a lost connection all that was at hand is forgotten: a server that came back may not have it all.
* The writer's connection is its own. Point reads that a caller waits for and long reads have a pool each, so that neither delays the other.
* A commit without an answer ends its connection; whether it happened is asked under the same lock, which the server holds until it knows.
* A process that stops between the two loses its session after 3 s, and with it its locks and its batch.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from hashlib import blake2b
from typing import Any, Final

import asyncpg

from gateway.ledger.checkpoint import Checkpoints
from gateway.ledger.postgres_connection import POINTS, READING, SQL, STATEMENT_S, WRITING, Server, end, names
from gateway.ledger.postgres_hints import Hints
from gateway.ledger.postgres_reader import PostgresReader
from gateway.ledger.shared import SharedLedger
from gateway.ledger.sql import migrations
from gateway.ledger.states import Empty, Evolve, Fold
from gateway.ledger.store import PAGE, CheckpointRow, EventRow, Rows, UnfitRows
from gateway.ledger.views import COLUMNS
from gateway.ports import Clock, LedgerFault

_LOG: Final = logging.getLogger("gateway.ledger")
_MIGRATIONS: Final = migrations("postgres")
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

    alone = False
    reader: PostgresReader

    def __init__(self, dsn: str, *, readonly: bool = False) -> None:
        self.lost: Callable[[], None] = lambda: None
        self._server = Server(dsn)
        self._readonly = readonly
        self._hints = Hints(self._server)
        self._writing: asyncpg.Connection | None = None
        self._pools: list[asyncpg.Pool] = []
        self._points: PostgresReader
        self._rows = Rows()
        self._keeps = False  # locks
        self._read = self._safe = 0  # events of others, and how many of them are durable for sure

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
                await end(connection)
            self._points = await self._pooled(POINTS, _POINTS, STATEMENT_S)
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
        for one in (*self._pools, self._writing):
            if one is not None:
                await end(one)

    async def _checked(self, connection: asyncpg.Connection) -> None:
        """Refuse what is no ledger, or none that this code knows; only the writer migrates."""
        async with connection.transaction():
            if not self._readonly:
                await connection.execute(SQL["layout_alone"].text)
            ours, used = await connection.fetchrow(SQL["found"].text)
            if used and not ours:
                raise LedgerFault("the schema `gateway` of this database holds something that is no ledger")
            layout = await connection.fetchval(SQL["version"].text) if ours else 0
            if layout > len(_MIGRATIONS):
                raise LedgerFault(f"written by a newer gateway (layout {layout}); this one knows layout {len(_MIGRATIONS)}")
            if self._readonly and layout != len(_MIGRATIONS):
                raise LedgerFault(f"no ledger of layout {len(_MIGRATIONS)} (layout {layout}); a gateway that serves makes one")
            if not self._readonly and not await connection.fetchval(SQL["is_durable"].text):
                raise LedgerFault("the server runs with fsync = off: what it has acknowledged could be lost")
            for number, script in enumerate(_MIGRATIONS[layout:], layout + 1):
                await connection.execute(script)
                await connection.execute(SQL["set_version"].text, number)

    async def _connected(self) -> asyncpg.Connection:
        """The writer's connection, made anew if it was lost."""
        if self._writing is None or self._writing.is_closed():
            self._writing = await self._server.connect()
            self.lost()
        return self._writing

    # ---- the writer's ---------------------------------------------------------------------------------------------------

    async def begin(self, known: Mapping[str, int | None]) -> Sequence[EventRow]:
        before, connection = self._writing, await self._connected()
        return await self._begin(connection, known if connection is before else dict.fromkeys(known))

    async def _begin(self, connection: asyncpg.Connection, known: Mapping[str, int | None]) -> Sequence[EventRow]:
        self._keeps, self._rows = True, Rows()
        at_hand = {stream: seq for stream, seq in known.items() if seq is not None}
        with self._server.faults():
            rows = _events(await connection.fetch(SQL["begin_batch"].text, _keys(known), names(at_hand), list(at_hand.values()), PAGE))
        self._read += len(rows)
        return rows

    async def write(self, rows: Rows) -> None:
        """Goes with the commit; a rebuild, which has a transaction open, writes at once."""
        assert self._writing is not None
        if self._writing.is_in_transaction():
            with self._server.faults(), _rows_that_fit():
                await self._writing.execute(SQL["put"].text, *_values(rows))
        else:
            self._rows = rows

    async def commit(self) -> None:
        """No cancel is sent when it takes too long: a server that waits for its standby would take that for leave not to."""
        connection = self._writing
        assert connection is not None
        read, late = self._read, asyncio.get_running_loop().call_later(_COMMIT_S, connection.terminate)
        try:
            with self._server.faults(), _rows_that_fit():
                if connection.is_in_transaction():
                    await connection.execute("COMMIT", timeout=2 * _COMMIT_S)
                    await connection.execute(SQL["release"].text)
                else:
                    await connection.execute(SQL["end_batch"].text, *_values(self._rows), timeout=2 * _COMMIT_S)
        except LedgerFault:
            connection.terminate()
            raise
        finally:
            late.cancel()
        self._keeps, self._safe = False, max(self._safe, read)
        self._hints.tell({row.stream for row in self._rows.events})
        if self._rows.checkpoints:
            await self._keep(self._rows.checkpoints)

    async def _keep(self, checkpoints: Sequence[CheckpointRow]) -> None:
        """Big, and disposable: not under the locks, where other processes would wait for them."""
        try:
            with self._server.faults():
                await self._pools[0].execute(SQL["put_checkpoints"].text, checkpoints)
        except LedgerFault as fault:
            _LOG.warning("checkpoints were not written: %s", fault)

    async def rollback(self) -> None:
        connection = self._writing
        if connection is None or connection.is_closed() or not self._keeps:
            return
        try:
            with self._server.faults():
                if connection.is_in_transaction():
                    await connection.execute("ROLLBACK")
                await connection.execute(SQL["release"].text)
            self._keeps = False
            await self.durable()
        except LedgerFault:
            connection.terminate()
            raise

    async def erase(self, stream: str, most: int) -> int:
        assert self._writing is not None
        with self._server.faults():
            await self._writing.execute("BEGIN")
            return len(await self._writing.fetch(SQL["erase"].text, stream, most))

    async def clear(self, view: str) -> None:
        assert self._writing is not None
        with self._server.faults():
            await self._writing.execute("BEGIN")
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
            rows = await self._begin(await self._connected(), {stream: seq - 1})
            return rows[0].event_id if rows else None
        finally:
            await self.rollback()

    # ---- anybody's ------------------------------------------------------------------------------------------------------

    async def past(self, known: Mapping[str, int]) -> Sequence[EventRow]:
        with self._server.faults():
            rows = _events(await self._pools[0].fetch(SQL["past"].text, names(known), list(known.values()), PAGE))
        self._read += len(rows)
        return rows

    async def durable(self) -> None:
        if self._read > self._safe:
            read = self._read
            with self._server.faults():
                await self._pools[0].execute(SQL["flush"].text)
            self._safe = max(self._safe, read)

    async def tail(self, stream: str, first: int, limit: int) -> list[EventRow]:
        rows = await self._points.events(stream, first - 1, limit)
        self._read += len(rows)
        return rows

    async def saved(self, stream: str) -> CheckpointRow | None:
        return await self._points.checkpoint(stream)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[PostgresReader]:
        connection = await self._server.connect(READING)
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                await connection.execute(SQL["version"].text)  # the moment is that of the first statement
                yield PostgresReader(connection.fetch, self._server.faults)
        finally:
            await end(connection)


@contextmanager
def _rows_that_fit() -> Iterator[None]:
    try:
        yield
    except _UNFIT as error:
        raise UnfitRows(str(error)) from error


def _events(records: Iterable[Any]) -> list[EventRow]:
    return [EventRow(*record) for record in records]


def _values(rows: Rows) -> list[Sequence[Any]]:
    """What the procedures `put` and `end_batch` take, in order."""
    views = (list(rows.views.get(view, {}).values()) for view in COLUMNS)
    return [rows.events, rows.payloads, list(rows.policies.items()), *views]


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
