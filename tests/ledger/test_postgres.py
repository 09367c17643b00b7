"""The PostgreSQL store: the conformance suite, and what only several processes and a server of its own can show."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.ledger.postgres import PostgresLedger
from tests.ledger import tally
from tests.ledger.conformance import *  # noqa: F403
from tests.ledger.conformance import Opened
from tests.postgres_server import empty


@pytest.fixture(scope="module")
def database(new_database: Callable[[], str]) -> str:
    return new_database()


@pytest.fixture
def dsn(database: str) -> Iterator[str]:
    """A database without a ledger."""
    yield database
    empty(database)


@pytest.fixture
def opened(dsn: str) -> Opened:
    """As for SQLite: each use opens the same database anew."""

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
