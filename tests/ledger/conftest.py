"""Fixtures of the ledger's tests: a database in a fresh folder, and ledgers on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.core import streams
from gateway.ledger.sqlite import SqliteLedger
from tests.ledger import tally

Opened = Callable[..., AbstractAsyncContextManager[SqliteLedger]]


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


@pytest.fixture
def opened_for_runs(opened: Opened) -> Opened:
    """The same with the gateway's own states, which have views."""

    def opened_for_runs(**options: Any) -> AbstractAsyncContextManager[SqliteLedger]:
        return opened(**({"empty": streams.empty, "evolve": streams.evolve, "states_of": "gateway.core"} | options))

    return opened_for_runs
