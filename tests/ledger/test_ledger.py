"""The port over a store: what is answered from memory, and faults. The rest is in the conformance suite."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.ports import Decision, LedgerFault
from tests.ledger.conformance import Opened
from tests.ledger.tally import append, sealed

pytestmark = pytest.mark.anyio


async def test_a_recent_payload_is_answered_without_a_read(opened: Opened) -> None:
    payload = sealed(b"a result")
    async with opened() as ledger:
        await ledger.transact(("run_1",), append("run_1", payloads=(payload,)))
        await ledger.store.reader.close()
        assert await ledger.payload("run_1", payload.hash) == b"a result"
        with pytest.raises(LedgerFault):
            await ledger.payload("run_2", payload.hash)


async def test_a_policy_once_read_is_remembered(opened: Opened) -> None:
    async with opened() as ledger:
        await ledger.transact((), lambda states, now: Decision((), None, policies={"digest": "text"}))
        assert await ledger.policy_text("digest") == "text"
        await ledger.store.reader.close()
        assert await ledger.policy_text("digest") == "text"


async def test_everything_is_a_fault_once_the_ledger_is_closed(opened: Opened) -> None:
    async with opened() as ledger:
        pass
    for asked in (
        ledger.state("run_9"), ledger.events("run_1"), ledger.payload("run_1", "h"), ledger.policy_text("d"), ledger.due(1), ledger.in_flight(),
        ledger.rows("runs", {}), ledger.watch("run_9", 0), ledger.transact((), append()),
    ):  # fmt: skip
        with pytest.raises(LedgerFault):
            await asked


async def test_a_recorded_event_that_cannot_be_read_is_a_fault_with_its_place(path: Path, opened: Opened) -> None:
    async with opened() as ledger:
        await ledger.transact(("run_1",), append("run_1"))
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript("DROP TRIGGER events_are_never_changed; UPDATE events SET kind = 'RunMelted'")
    async with opened() as ledger:
        for asked in (ledger.events("run_1"), ledger.state("run_1"), ledger.transact(("run_1",), append("run_1"))):
            with pytest.raises(LedgerFault, match=r"run_1.* 1"):
                await asked


async def test_a_rebuild_that_fails_leaves_the_view_as_it_was(opened_for_runs: Opened) -> None:
    from tests.ledger.runs import RUN, life, open_run

    async with opened_for_runs() as ledger:
        await life(ledger, open_run())
        before = await ledger.rows("runs", {})

        async def commit() -> None:
            raise LedgerFault("no")

        plain, ledger.store.commit = ledger.store.commit, commit
        with pytest.raises(LedgerFault):
            await ledger.rebuild("runs")
        ledger.store.commit = plain
        assert await ledger.rows("runs", {}) == before
        await ledger.transact((RUN,), lambda states, now: Decision((), None))
