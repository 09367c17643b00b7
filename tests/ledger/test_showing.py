"""Rows of views follow their events: soon, before anybody reads, and after a crash. PostgreSQL writes them with the events."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from gateway.core import streams
from gateway.ledger.checkpoint import Checkpoints
from gateway.ledger.ledger import StoreLedger
from gateway.ledger.sqlite import SqliteLedger
from gateway.ledger.states import Fold
from gateway.ledger.verify import verify
from gateway.ports import Decision, LedgerFault
from gateway.system import SystemClock
from tests.ledger.conformance import Opened
from tests.ledger.runs import RUN, admit, life, open_run, settle
from tests.ledger.stores import FaultyStore
from tests.ledger.tally import SettableClock
from tests.waiting import eventually, until

pytestmark = pytest.mark.anyio


def states(path: Path) -> dict[str, str]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as raw:
        return dict(raw.execute("SELECT call, state FROM calls"))


def crashed(path: Path) -> Path:
    """The file as a kill leaves it: with its log, without a close."""
    copy = path.with_name("crashed.db")
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    return copy


@asynccontextmanager
async def ledger_at(path: Path, **options: Any) -> AsyncIterator[SqliteLedger]:
    ledger = SqliteLedger(path, empty=streams.empty, evolve=streams.evolve, clock=SettableClock(), states_of="gateway.core", **options)
    await ledger.open()
    try:
        yield ledger
    finally:
        await ledger.close()


async def test_a_call_is_shown_as_it_is_then_soon_and_unasked(path: Path, opened_for_runs: Opened) -> None:
    async with opened_for_runs() as ledger:
        await life(ledger, open_run(), admit(1), settle(1))
        assert states(path) == {}
        await until(lambda: states(path) == {"call_r_1": "succeeded"}, "the call's row")
        await life(ledger, admit(2))
        await until(lambda: len(states(path)) == 2, "the next call's row")


async def test_whoever_asks_sees_what_was_recorded(opened_for_runs: Opened) -> None:
    async with opened_for_runs() as ledger:
        await life(ledger, open_run(), admit(1, lease_until=70))
        assert [row["call"] for row in await ledger.rows("calls", {"state": "admitted"})] == ["call_r_1"]
        await life(ledger, admit(2, lease_until=60))
        assert await ledger.due_calls(80) == ["call_r_2", "call_r_1"]
        await life(ledger, settle(2))
        assert (await ledger.in_flight(), await ledger.due_calls(80)) == ([RUN], ["call_r_1"])


async def test_whoever_reads_beside_the_gateway_sees_what_was_recorded_before(path: Path, opened_for_runs: Opened) -> None:
    async with opened_for_runs() as ledger, opened_for_runs(readonly=True) as beside:
        await life(ledger, open_run(), admit(1))
        assert [row["state"] for row in await beside.rows("calls", {})] == ["admitted"]
        await life(ledger, settle(1))
        assert [row["state"] for row in await beside.rows("calls", {})] == ["succeeded"]


async def test_where_no_call_waits_all_is_shown_at_once(path: Path, opened_for_runs: Opened) -> None:
    async with opened_for_runs() as ledger:
        await life(ledger, open_run())
        assert await ledger.store.reader.unshown() == []
        await life(ledger, admit(1))
        assert await ledger.store.reader.unshown() == [RUN]
        await ledger.show()
        await life(ledger, open_run("run_r.2", parent=RUN))
        assert await ledger.store.reader.unshown() == []


async def test_a_showing_whose_commit_only_seemed_to_fail_disturbs_nobody(path: Path) -> None:
    store = FaultyStore(path)
    ledger = StoreLedger(store, Fold(streams.empty, streams.evolve, 1, Checkpoints("gateway.core")), SystemClock(), capacity=9, readonly=False)
    await ledger.open()
    await life(ledger, open_run(), admit(1))
    store.fail = "after"
    await ledger.show()
    assert (states(path), await store.reader.unshown()) == ({"call_r_1": "admitted"}, [])
    await life(ledger, settle(1))
    store.fail = ""
    await ledger.close()


async def test_a_batch_without_events_that_shows_nothing_is_not_taken_for_durable(path: Path) -> None:
    store = FaultyStore(path)
    ledger = StoreLedger(store, Fold(streams.empty, streams.evolve, 1, Checkpoints("gateway.core")), SystemClock(), capacity=9, readonly=False)
    await ledger.open()
    await life(ledger, open_run())
    store.fail = "before"
    with pytest.raises(LedgerFault):
        await ledger.transact((RUN,), lambda states, now: Decision((), None, policies={"digest": "text"}))
    store.fail = ""
    await ledger.close()
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("SELECT * FROM policies").fetchall() == []


async def test_closing_shows_the_rest(path: Path, opened_for_runs: Opened) -> None:
    async with opened_for_runs() as ledger:
        await life(ledger, open_run(), admit(1), settle(1), admit(2))
    assert states(path) == {"call_r_1": "succeeded", "call_r_2": "admitted"}


async def test_what_a_crash_kept_from_being_shown_is_shown_after_the_next_start(path: Path, opened_for_runs: Opened) -> None:
    async with opened_for_runs() as ledger:
        await life(ledger, open_run(), admit(1), admit(2))
        assert len(await ledger.rows("calls", {})) == 2
        await life(ledger, settle(1), admit(3))
        copy = crashed(path)
    async with ledger_at(copy, readonly=True) as found:
        assert (await verify(found)).problems == []
    assert states(copy) == {"call_r_1": "admitted", "call_r_2": "admitted"}
    async with ledger_at(copy) as again:
        assert states(copy) == {"call_r_1": "succeeded", "call_r_2": "admitted", "call_r_3": "admitted"}
        assert await again.store.reader.unshown() == []


async def test_a_row_that_no_view_takes_is_left_out_alone(opened_for_runs: Opened) -> None:
    async with opened_for_runs() as ledger:
        await life(ledger, open_run(), admit(1), admit(2, turn=2**63), admit(3))
        assert {row["call"] for row in await ledger.rows("calls", {})} == {"call_r_1", "call_r_3"}
        await life(ledger, settle(2))
        assert (await ledger.state(RUN)).calls["call_r_2"].state == "succeeded"


@pytest.fixture
def store(path: Path) -> FaultyStore:
    return FaultyStore(path)


@pytest.fixture
async def faulty(store: FaultyStore) -> AsyncIterator[StoreLedger]:
    """A ledger on `store`, in which a run is open."""
    ledger = StoreLedger(store, Fold(streams.empty, streams.evolve, 1, Checkpoints("gateway.core")), SystemClock(), capacity=10, readonly=False)
    await ledger.open()
    await life(ledger, open_run())
    yield ledger
    store.gate.set()
    await asyncio.wait_for(ledger.close(), 5)


async def test_while_nothing_can_be_written_lists_show_what_they_can_and_later_all(path: Path, store: FaultyStore, faulty: StoreLedger) -> None:
    await life(faulty, admit(1))
    store.fail, store.dead = "before", True
    assert await faulty.rows("calls", {}) == []
    with pytest.raises(LedgerFault):
        await life(faulty, admit(2))
    assert await faulty.in_flight() == []
    store.fail, store.dead = "", False
    await until(lambda: states(path) == {"call_r_1": "admitted"}, "the call's row")


async def test_a_call_whose_commit_nobody_knew_the_fate_of_is_shown_once_it_is_known(store: FaultyStore, faulty: StoreLedger) -> None:
    async def recorded(stream: str, seq: int) -> str | None:
        raise LedgerFault("can't tell")

    known, store.recorded = store.recorded, recorded  # type: ignore[method-assign]
    store.fail = "after"
    with pytest.raises(LedgerFault):
        await life(faulty, admit(1, lease_until=70))
    store.recorded, store.fail = known, ""  # type: ignore[method-assign]

    async def shown() -> bool:
        return await faulty.due_calls(80) == ["call_r_1"]

    await eventually(shown, "the call")


async def test_a_close_during_a_commit_shows_what_that_commit_recorded(path: Path, store: FaultyStore, faulty: StoreLedger) -> None:
    store.gate.clear()
    calling = asyncio.ensure_future(life(faulty, admit(1)))
    commits = store.commits
    await until(lambda: store.commits > commits, "the commit")
    closing = asyncio.ensure_future(faulty.close())
    await asyncio.sleep(0)
    store.gate.set()
    await asyncio.wait_for(asyncio.gather(calling, closing), 5)
    assert states(path) == {"call_r_1": "admitted"}


async def test_a_row_that_no_view_takes_keeps_no_ledger_from_opening_after_a_crash(path: Path, faulty: StoreLedger) -> None:
    await life(faulty, admit(1), admit(2, turn=2**63))
    copy = crashed(path)
    async with ledger_at(copy):
        assert states(copy) == {"call_r_1": "admitted"}


async def test_rows_shown_one_by_one_are_not_lost_to_a_fault_in_between(path: Path, store: FaultyStore, faulty: StoreLedger) -> None:
    await life(faulty, admit(1), admit(2, turn=2**63), admit(3))
    store.fail = "before"
    await faulty.rows("calls", {})
    store.fail = ""
    await eventually(lambda: shown_by(faulty, path, {"call_r_1", "call_r_3"}), "both calls")


async def shown_by(ledger: StoreLedger, path: Path, calls: set[str]) -> bool:
    await ledger.rows("calls", {})
    return set(states(path)) == calls


async def test_a_view_that_can_not_be_written_keeps_no_step_from_being_recorded(path: Path, store: FaultyStore, faulty: StoreLedger) -> None:
    await life(faulty, admit(1))
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("ALTER TABLE calls RENAME TO damaged")
    with pytest.raises(LedgerFault):
        await faulty.rows("calls", {})
    commits = store.commits
    for number in range(2, 12):
        await life(faulty, admit(number))
    assert store.commits == commits + 10


async def test_a_ledger_that_can_not_open_leaves_nothing_behind(path: Path, faulty: StoreLedger) -> None:
    await life(faulty, admit(1))
    copy = crashed(path)
    store = FaultyStore(copy)
    broken = StoreLedger(store, Fold(streams.empty, streams.evolve, 1, Checkpoints("gateway.core")), SystemClock(), capacity=10, readonly=False)

    async def unshown() -> list[str]:
        raise LedgerFault("unreadable")

    store.reader.unshown = unshown  # type: ignore[method-assign]
    with pytest.raises(LedgerFault):
        await broken.open()
    async with ledger_at(copy):
        pass
