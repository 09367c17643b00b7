"""Fixtures of the ledger's tests: a database in a fresh folder, and ledgers on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.core import streams
from gateway.ledger.ledger import StoreLedger
from gateway.ledger.postgres import PostgresLedger
from gateway.ledger.sqlite import SqliteLedger
from tests.ledger import tally
from tests.postgres_server import empty

Opened = Callable[..., AbstractAsyncContextManager[StoreLedger]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def opened(path: Path) -> Opened:
    """`async with opened() as ledger`: a ledger of tallies; each use opens the same database anew."""

    @asynccontextmanager
    async def opened(**options: Any) -> AsyncIterator[SqliteLedger]:
        given = {"empty": tally.empty, "evolve": tally.evolve, "clock": tally.SettableClock(), "states_of": "tests.ledger"} | options
        ledger = SqliteLedger(path, **given)
        await ledger.open()
        try:
            yield ledger
        finally:
            await ledger.close()

    return opened


@pytest.fixture(scope="module")
def database(new_database: Callable[[], str]) -> str:
    return new_database()


@pytest.fixture
def dsn(database: str) -> Iterator[str]:
    """The address of a PostgreSQL database without a ledger."""
    yield database
    empty(database)


@pytest.fixture
def opened_at() -> Callable[[str], Opened]:
    """`opened_at(dsn)` is like `opened`, in PostgreSQL."""

    def opened_at(dsn: str) -> Opened:
        @asynccontextmanager
        async def opened(**options: Any) -> AsyncIterator[PostgresLedger]:
            given = {"empty": tally.empty, "evolve": tally.evolve, "clock": tally.SettableClock(), "states_of": "tests.ledger"} | options
            ledger = PostgresLedger(dsn, **given)
            await ledger.open()
            try:
                yield ledger
            finally:
                await ledger.close()

        return opened

    return opened_at


@pytest.fixture
def opened_in_postgres(dsn: str, opened_at: Callable[[str], Opened]) -> Opened:
    return opened_at(dsn)


@pytest.fixture
def opened_for_runs(opened: Opened) -> Opened:
    """The same with the gateway's own states, which have views."""

    def opened_for_runs(**options: Any) -> AbstractAsyncContextManager[StoreLedger]:
        return opened(**({"empty": streams.empty, "evolve": streams.evolve, "states_of": "gateway.core"} | options))

    return opened_for_runs
