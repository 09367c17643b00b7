"""The ledger in one SQLite file: WAL, every commit on disk before it is answered, one process, one connection that writes.

* The writer's rows are executed on the event loop over the very connection that aiosqlite wraps; only the commit, which waits for the
  disk, goes to aiosqlite's thread. Never both at once: the writer awaits its commit.
* That thread needs the interpreter before and after, and a busy loop would keep it for Python's 5 ms each time, ten times what the disk
  takes; so threads of this process change places after half a millisecond. (A loop that slept while a commit was late was idle for a tenth.)
* SQLite before 3.51.3 can lose a WAL reset when two connections write. Here only one does; all others are read-only.
* The lock file keeps other gateways out. Another program that holds the database is waited for, off the loop, up to two seconds.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import aiosqlite

from gateway.core.run import stream_of
from gateway.ledger.checkpoint import Checkpoints
from gateway.ledger.ledger import StoreLedger
from gateway.ledger.lockfile import LockFile
from gateway.ledger.sql import migrations, statements
from gateway.ledger.states import Empty, Evolve, Fold
from gateway.ledger.store import CheckpointRow, EventRow, PayloadRow, Rows, UnfitRows
from gateway.ports import Clock, LedgerFault

_SQL: Final = statements("sqlite")
_MIGRATIONS: Final = migrations("sqlite")
_APPLICATION: Final = int.from_bytes(b"TCGW", "big")
_OLDEST: Final = (3, 38, 0)  # STRICT tables, and JSON by ->>
_ROWS: Final = 64  # what aiosqlite would fetch at once; nothing here iterates
_SWITCH_S: Final = 0.0005
_BUSY_S: Final = 2.0
_BUSY_RETRY_S: Final = 0.005


class _as_fault:
    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.Error | OSError | ValueError):  # aiosqlite raises ValueError once its connection is closed
            raise LedgerFault(f"{self._path}: {error}") from error


def _read_only(path: str) -> sqlite3.Connection:
    """Raises LedgerFault for what is no ledger of today's layout; only the writer migrates."""
    raw = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, isolation_level=None, timeout=1.0, check_same_thread=False)
    try:
        application, layout = _value(raw, "PRAGMA application_id"), _value(raw, "PRAGMA user_version")
        if application != _APPLICATION or layout != len(_MIGRATIONS):
            raise LedgerFault(f"{path}: no ledger of layout {len(_MIGRATIONS)} (application {application}, layout {layout})")
    except BaseException:
        raw.close()
        raise
    return raw


class SqliteReader:
    """Reads on a thread of their own."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: aiosqlite.Connection | None = None

    async def open(self) -> None:
        with _as_fault(self._path):
            raw = _read_only(self._path)
            self._connection = await aiosqlite.Connection(lambda: raw, _ROWS)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def hold_still(self) -> None:
        """See one moment from now on."""
        await self._fetch("BEGIN")
        await self._fetch("PRAGMA user_version")

    async def events(self, stream: str, after: int, limit: int) -> list[EventRow]:
        return [EventRow(*row) for row in await self._fetch(_SQL["events_from"], (stream, after + 1, limit))]

    async def checkpoint(self, stream: str) -> CheckpointRow | None:
        rows = await self._fetch(_SQL["checkpoint"], (stream,))
        return CheckpointRow(*rows[0]) if rows else None

    async def payload(self, stream: str, hash: str) -> bytes | None:
        rows = await self._fetch(_SQL["payload"], (stream, hash))
        return rows[0][0] if rows else None

    async def payloads(self, stream: str) -> list[PayloadRow]:
        return [PayloadRow(*row) for row in await self._fetch(_SQL["payloads"], (stream,))]

    async def policy_text(self, digest: str) -> str | None:
        rows = await self._fetch(_SQL["policy_text"], (digest,))
        return rows[0][0] if rows else None

    async def due(self, now: int, limit: int) -> list[str]:
        return [row[0] for row in await self._fetch(_SQL["due"], (now, limit))]

    async def in_flight(self) -> list[str]:
        return [row[0] for row in await self._fetch(_SQL["in_flight"])]

    async def due_calls(self, now: int, limit: int) -> list[str]:
        return [row[0] for row in await self._fetch(_SQL["due_calls"], (now, limit))]

    async def erasable(self, by: int, after: tuple[int, str], limit: int) -> list[tuple[int, str]]:
        return await self._fetch(_SQL["erasable"], (by, *after, limit))

    async def streams(self) -> list[str]:
        return [row[0] for row in await self._fetch(_SQL["streams"])]

    async def unshown(self) -> list[str]:
        return [row[0] for row in await self._fetch(_SQL["unshown"])]

    async def shown(self) -> tuple[int, int]:
        ((event, last),) = await self._fetch(_SQL["shown"])
        return event, last

    async def view(self, view: str, stream: str) -> list[tuple[Any, ...]]:
        return await self._fetch(_SQL[f"view_{view}"], (stream,))

    async def rows(self, view: str, where: Mapping[str, Any], limit: int, before: str | None) -> list[tuple[Any, ...]]:
        narrow = view == "calls" and where["stream"] is not None
        page = {"limit": limit, "before": before, "before_stream": before and stream_of(before)}
        return await self._fetch(_SQL["newest_calls_of_stream" if narrow else f"newest_{view}"], {**where, **page})

    async def _fetch(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        with _as_fault(self._path):
            if self._connection is None:
                raise LedgerFault(f"{self._path}: not open")
            return list(await self._connection.execute_fetchall(statement, values))


class SqliteStore:
    """One file, one process. See `store.Store`."""

    alone = True

    def __init__(self, path: str | Path, *, readonly: bool = False) -> None:
        self._path = os.path.realpath(path)  # one lock a file, whatever it is called
        self._readonly = readonly
        self._lock = LockFile(f"{self._path}.lock")
        self._raw: sqlite3.Connection
        self._writing: aiosqlite.Connection | None = None
        self._peek: sqlite3.Connection | None = None
        self.reader = SqliteReader(self._path)

    async def open(self) -> None:
        if sqlite3.sqlite_version_info < _OLDEST:
            raise LedgerFault(f"SQLite {sqlite3.sqlite_version} is too old; {'.'.join(map(str, _OLDEST))} or newer is needed")
        try:
            if not self._readonly:
                self._lock.take()
                await self._open_writing()
            await self.reader.open()
            with _as_fault(self._path):
                self._peek = _read_only(self._path)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await self.reader.close()
        if self._peek is not None:
            self._peek.close()
            self._peek = None
        if self._writing is not None:
            await self._writing.close()
            self._writing = None
        self._lock.release()

    async def _open_writing(self) -> None:
        with _as_fault(self._path):
            sys.setswitchinterval(_SWITCH_S)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
            raw = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, cached_statements=256)
            self._raw = raw
            self._writing = await aiosqlite.Connection(lambda: raw, _ROWS)
            _refuse_foreign(raw, self._path)
            _make_durable(raw, self._path)
            for script in _MIGRATIONS[_value(raw, "PRAGMA user_version") :]:
                raw.executescript(script)
            raw.execute("PRAGMA busy_timeout = 0")  # a wait on the loop would stop everything; `begin` waits off it

    async def begin(self, known: Mapping[str, int | None]) -> Sequence[EventRow]:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + _BUSY_S
        with _as_fault(self._path):
            while not self._begun():
                if loop.time() > give_up_at:
                    raise LedgerFault(f"{self._path}: another program has held the database for {_BUSY_S:g} s")
                await asyncio.sleep(_BUSY_RETRY_S)
        return ()

    def _begun(self) -> bool:
        try:
            self._raw.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            return False
        return True

    async def write(self, rows: Rows) -> None:
        try:
            self._put("add_event", rows.events)
            self._put("add_payload", rows.payloads)
            self._put("add_policy", rows.policies.items())
            self._put("put_checkpoint", rows.checkpoints)
            for view, changed in rows.views.items():
                self._put(f"put_{view}", changed.values())
            if rows.shows:
                self._raw.execute(_SQL["show"])
        except (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, ValueError, TypeError, OverflowError) as error:
            raise UnfitRows(str(error)) from error
        except sqlite3.Error as error:
            raise LedgerFault(f"{self._path}: {error}") from error

    def _put(self, statement: str, rows: Collection[Any]) -> None:
        if rows:
            self._raw.executemany(_SQL[statement], rows)

    async def commit(self) -> None:
        assert self._writing is not None
        with _as_fault(self._path):
            await self._writing.commit()

    async def rollback(self) -> None:
        with _as_fault(self._path):
            self._raw.rollback()

    async def erase(self, stream: str, most: int) -> int:
        with _as_fault(self._path):
            self._raw.execute("PRAGMA secure_delete = ON")  # what is deleted is overwritten
            try:
                return self._raw.execute(_SQL["erase"], (stream, most)).rowcount
            finally:
                self._raw.execute("PRAGMA secure_delete = OFF")

    async def clear(self, view: str) -> None:
        with _as_fault(self._path):
            self._raw.execute(_SQL[f"clear_{view}"])

    async def probe(self) -> None:
        await self.rollback()
        for statement in ("add_probe", "delete_probes"):
            await self.begin({})
            with _as_fault(self._path):
                self._raw.execute(_SQL[statement])
            await self.commit()

    async def recorded(self, stream: str, seq: int) -> str | None:
        rows = self._fetch(_SQL["event_id_at"], (stream, seq))
        return rows[0][0] if rows else None

    async def tail(self, stream: str, first: int, limit: int) -> list[EventRow]:
        return [EventRow(*row) for row in self._fetch(_SQL["events_from"], (stream, first, limit))]

    async def saved(self, stream: str) -> CheckpointRow | None:
        rows = self._fetch(_SQL["checkpoint"], (stream,))
        return CheckpointRow(*rows[0]) if rows else None

    def _fetch(self, statement: str, values: Sequence[Any]) -> list[Any]:
        """A point read on the loop: ten times as fast as asking a thread."""
        with _as_fault(self._path):
            if self._peek is None:
                raise LedgerFault(f"{self._path}: not open")
            return self._peek.execute(statement, values).fetchall()

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[SqliteReader]:
        reader = SqliteReader(self._path)
        await reader.open()
        try:
            await reader.hold_still()
            yield reader
        finally:
            await reader.close()


def _refuse_foreign(raw: sqlite3.Connection, path: str) -> None:
    application, version = _value(raw, "PRAGMA application_id"), _value(raw, "PRAGMA user_version")
    if application != _APPLICATION and _value(raw, "PRAGMA schema_version"):
        raise LedgerFault(f"{path}: an SQLite database, but no ledger")
    if version > len(_MIGRATIONS):
        raise LedgerFault(f"{path}: written by a newer gateway (layout {version}); this one knows layout {len(_MIGRATIONS)}")


def _make_durable(raw: sqlite3.Connection, path: str) -> None:
    """Set what durability rests on, and believe only what SQLite then reports."""
    raw.execute("PRAGMA journal_mode = WAL")
    raw.execute("PRAGMA synchronous = FULL")
    raw.execute("PRAGMA fullfsync = ON")  # where fsync alone doesn't reach the disk (macOS)
    raw.execute("PRAGMA trusted_schema = OFF")
    raw.execute("PRAGMA cache_size = -16384")
    raw.execute("PRAGMA journal_size_limit = 67108864")
    mode, synchronous = _value(raw, "PRAGMA journal_mode"), _value(raw, "PRAGMA synchronous")
    if (mode, synchronous) != ("wal", 2):
        raise LedgerFault(f"{path}: needs journal_mode wal and synchronous FULL here, got {mode} and {synchronous}")


def _value(raw: sqlite3.Connection, statement: str) -> Any:
    return raw.execute(statement).fetchone()[0]


class SqliteLedger(StoreLedger):
    """The ledger in a file. `readonly`: no lock, no writer; what is there now, also beside a running gateway."""

    def __init__(
        self,
        path: str | Path,
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
        super().__init__(SqliteStore(path, readonly=readonly), fold, clock, capacity=capacity, readonly=readonly)
