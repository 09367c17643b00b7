"""A ledger of an older layout is brought to today's when the gateway opens it: what the views then say is what the events say."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.core.events import HoldApproved
from gateway.ledger.sql import migrations
from gateway.ledger.verify import verify
from gateway.ledger.views import COLUMNS
from tests.ledger.conformance import Opened
from tests.ledger.runs import REQUIREMENT, RUN, admit, hold, life, open_run, settle, vote

pytestmark = pytest.mark.anyio

LIFE = [
    open_run(), admit(1, lease_until=90), admit(2, lease_until=70), settle(2), admit(3, lease_until=50), settle(3, "in_doubt"),
    admit(4, lease_until=40), admit(4, attempt=2, lease_until=60), replace(hold(5), requirements=({**REQUIREMENT, "execute": "at_once"},)),  # type: ignore[type-var]
    vote("user:mia", 5), HoldApproved(RUN, "call_r_5", "hold_r_1", 1_800_000_900_000),
]  # fmt: skip


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as raw, raw:
        yield raw


def in_layout_1(path: Path) -> None:
    """The same events and views as a gateway of the first layout left them."""
    today = path.rename(path.with_name("today.db"))
    with opened(path) as raw:
        raw.executescript(migrations("sqlite")[0])
        raw.execute("ATTACH ? AS today", (str(today),))
        for table in ("events", "payloads", "runs", "holds", "votes"):
            raw.execute(f"INSERT INTO {table} SELECT * FROM today.{table}")
        raw.execute(f"INSERT INTO calls SELECT {', '.join(name for name in COLUMNS['calls'] if name != 'due_at')} FROM today.calls")


async def test_calls_of_the_first_layout_are_due_when_their_events_say_so(path: Path, opened_for_runs: Opened) -> None:
    async with opened_for_runs() as ledger:
        await life(ledger, *LIFE)
        due = await ledger.due_calls(2**60)
    in_layout_1(path)
    async with opened_for_runs() as ledger:
        assert await ledger.due_calls(2**60) == due == ["call_r_4", "call_r_1", "call_r_5"]
        assert (await verify(ledger)).problems == []


def schema(path: Path) -> list[Any]:
    with opened(path) as raw:
        return sorted(raw.execute("SELECT type, name, tbl_name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'"))


async def test_a_fresh_ledger_has_the_tables_of_a_migrated_one(path: Path, opened_for_runs: Opened) -> None:
    async with opened_for_runs():
        fresh = schema(path)
    in_layout_1(path)
    async with opened_for_runs():
        assert schema(path) == fresh
