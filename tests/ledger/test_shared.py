"""What one process learns of another: by asking, by a hint, by looking."""

from __future__ import annotations

import asyncio

import pytest

from gateway.ports import LedgerFault
from tests.ledger.conformance import Opened
from tests.ledger.tally import append, sealed

pytestmark = pytest.mark.anyio


@pytest.fixture
def opened(opened_in_postgres: Opened) -> Opened:
    return opened_in_postgres


async def test_a_process_sees_what_another_was_told_is_recorded(opened: Opened) -> None:
    async with opened() as one, opened() as two:
        for seq in range(1, 20):
            writer, reader = (one, two) if seq % 2 else (two, one)
            await writer.transact(("run_1",), append("run_1"))
            assert (await reader.state("run_1")).seq == seq
            assert (await reader.events("run_1"))[-1].seq == seq


async def test_watching_learns_of_another_process_by_a_hint(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.ledger.shared._LOOK_S", 60)
    async with opened() as one, opened() as two:
        await asyncio.wait_for(asyncio.gather(one.store._hints.listening.wait(), two.store._hints.listening.wait()), 5)
        watching = asyncio.ensure_future(two.watch("run_1", 0))
        await asyncio.sleep(0)
        await one.transact(("run_2",), append("run_2"))
        await one.transact(("run_1",), append("run_1"))
        await asyncio.wait_for(watching, 5)


async def test_watching_learns_of_another_process_without_hints(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.ledger.postgres_hints.Hints.tell", lambda *_: None)
    monkeypatch.setattr("gateway.ledger.shared._LOOK_S", 0.05)
    async with opened(capacity=2) as one, opened(capacity=2) as two:
        watching = [asyncio.ensure_future(two.watch(f"run_{n}", 0)) for n in range(5)]
        await asyncio.sleep(0)
        for n in range(5):
            await one.transact((f"run_{n}",), append(f"run_{n}"))
        await asyncio.wait_for(asyncio.gather(*watching), 5)


async def test_a_load_that_another_process_overtakes_is_not_decided_on(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as one, opened() as two:
        await one.transact(("run_1",), append("run_1"))
        plain, gate, read = two.store.tail, asyncio.Event(), asyncio.Event()

        async def slow(stream: str, first: int, limit: int) -> object:
            found = await plain(stream, first, limit)
            read.set()
            await gate.wait()
            return found

        monkeypatch.setattr(two.store, "tail", slow)
        looking = asyncio.ensure_future(two.state("run_1"))
        await asyncio.wait_for(read.wait(), 5)
        monkeypatch.setattr(two.store, "tail", plain)
        await one.transact(("run_1",), append("run_1"))
        appending = asyncio.ensure_future(two.transact(("run_1",), append("run_1")))
        await asyncio.sleep(0)
        gate.set()
        assert (await asyncio.wait_for(appending, 5)).answer == [2]
        assert (await asyncio.wait_for(looking, 5)).seq in (2, 3)


async def test_a_watcher_learns_also_what_somebody_else_here_saw_first(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.ledger.postgres_hints.Hints.tell", lambda *_: None)
    async with opened() as one, opened() as two:
        watching = asyncio.ensure_future(two.watch("run_1", 0))
        await asyncio.sleep(0.01)
        await one.transact(("run_1",), append("run_1"))
        assert (await two.state("run_1")).seq == 1
        await asyncio.wait_for(watching, 5)


async def test_what_is_at_hand_may_be_behind_and_costs_no_look(opened: Opened) -> None:
    async with opened() as one, opened() as two:
        assert (one.alone, two.at_hand("run_1")) == (False, None)
        await one.transact(("run_1",), append("run_1"))
        assert (await two.state("run_1")).seq == two.at_hand("run_1").seq == 1
        await one.transact(("run_1",), append("run_1"))
        assert two.at_hand("run_1").seq == 1


async def test_a_payload_that_another_process_erased_is_gone_here_too(opened: Opened, dsn: str) -> None:
    payload = sealed(b"bytes")
    async with opened() as one, opened() as two:
        await one.transact(("run_1",), append("run_1", payloads=(payload,)))
        assert await one.payload("run_1", payload.hash) == await two.payload("run_1", payload.hash) == b"bytes"
        await two.store._pools[0].execute("DELETE FROM payloads")
        assert await one.payload("run_1", payload.hash) is None


async def test_while_nobody_can_look_watchers_wait_and_askers_are_told(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(known: object) -> object:
        raise LedgerFault("away")

    async with opened() as one, opened() as two:
        plain = two.store.past
        watching = asyncio.ensure_future(two.watch("run_1", 0))
        await asyncio.sleep(0.01)
        two.store.past = away
        await one.transact(("run_1",), append("run_1"))
        with pytest.raises(LedgerFault):
            await two.state("run_1")
        assert not watching.done()
        two.store.past = plain
        await asyncio.wait_for(watching, 5)
