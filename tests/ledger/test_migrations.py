"""A ledger of an older layout is brought to today's when the gateway opens it: what the views then say is what the events say."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from gateway.core import streams
from gateway.core.events import HoldApproved
from tests.ledger.conformance import Opened, damage
from tests.ledger.runs import REQUIREMENT, RUN, admit, hold, life, open_run, settle, vote

pytestmark = pytest.mark.anyio

LIFE = [
    open_run(), admit(1, lease_until=90), admit(2, lease_until=70), settle(2), admit(3, lease_until=50), settle(3, "in_doubt"),
    admit(4, lease_until=40), admit(4, attempt=2, lease_until=60), replace(hold(5), requirements=({**REQUIREMENT, "execute": "at_once"},)),  # type: ignore[type-var]
    vote("user:mia", 5), HoldApproved(RUN, "call_r_5", "hold_r_1", 1_800_000_900_000),
]  # fmt: skip
BEFORE_DUE_CALLS = (
    "DROP INDEX calls_due", "DROP INDEX runs_closed", "CREATE INDEX calls_admitted ON calls (stream) WHERE state = 'admitted'",
    "ALTER TABLE calls DROP COLUMN due_at",
)  # fmt: skip
"""Back to the layout before it."""


async def back_in_sqlite(path: Path) -> None:
    with closing(sqlite3.connect(path)) as raw, raw:
        for statement in ("DROP TABLE shown", *BEFORE_DUE_CALLS, "PRAGMA user_version = 1"):
            raw.execute(statement)


async def back_in_postgres(dsn: str) -> None:
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "gateway"})
    for statement in (*BEFORE_DUE_CALLS, "UPDATE layout SET version = 3"):
        await connection.execute(statement)
    await connection.close()


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_calls_of_an_older_layout_are_due_when_their_events_say_so(store: str, request: pytest.FixtureRequest) -> None:
    opened: Opened = request.getfixturevalue("opened" if store == "sqlite" else "opened_in_postgres")

    def with_views() -> AbstractAsyncContextManager[Any]:
        return opened(empty=streams.empty, evolve=streams.evolve, states_of="gateway.core")

    async with with_views() as ledger:
        await life(ledger, *LIFE)
        due = await ledger.due_calls(2**60)
    back: Callable[[Any], Any] = back_in_sqlite if store == "sqlite" else back_in_postgres
    await back(request.getfixturevalue("path" if store == "sqlite" else "dsn"))
    async with with_views() as ledger:
        assert await ledger.due_calls(2**60) == due == ["call_r_4", "call_r_1", "call_r_5"]
        assert await damage(ledger) == []
