"""The one task that writes, on a store whose commits can be held back and made to fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.core import streams
from gateway.core.events import Event, TurnOpened
from gateway.ledger.checkpoint import Checkpoints
from gateway.ledger.ledger import StoreLedger
from gateway.ledger.states import Fold
from gateway.ports import Committed, LedgerFault
from gateway.system import SystemClock
from tests.ledger.runs import RUN, admit, life, open_run, settle
from tests.ledger.stores import FaultyStore
from tests.ledger.tally import SettableClock, append, empty, evolve, look

pytestmark = pytest.mark.anyio
STREAM = ("run_1",)


@pytest.fixture
def store(path: Path) -> FaultyStore:
    return FaultyStore(path)


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
async def ledger(store: FaultyStore, clock: SettableClock) -> AsyncIterator[StoreLedger]:
    ledger = StoreLedger(store, Fold(empty, evolve, 1, Counted("tests.ledger")), clock, capacity=100, readonly=False)
    await ledger.open()
    await ledger.state("run_1")
    await ledger.state("run_2")
    yield ledger
    store.gate.set()
    await ledger.close()


class Counted(Checkpoints):
    """Counts the states it wrote."""

    dumped = 0

    def dump(self, state: object) -> str:
        self.dumped += 1
        return super().dump(state)


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def start(ledger: StoreLedger, step: object = None, stream: str = "run_1") -> asyncio.Task[Committed]:
    return asyncio.ensure_future(ledger.transact((stream,), step or append(stream)))  # type: ignore[arg-type]


async def writable(ledger: StoreLedger, step: object = None) -> Committed:
    """Try until the ledger takes it."""
    async with asyncio.timeout(5):
        while True:
            try:
                return await start(ledger, step)
            except LedgerFault:
                await asyncio.sleep(0.001)


async def test_what_queues_up_during_a_commit_shares_the_next_one(ledger: StoreLedger, store: FaultyStore) -> None:
    store.gate.clear()
    first = start(ledger)
    await turns()
    rest = [start(ledger) for _ in range(50)]
    await turns()
    assert not first.done()
    store.gate.set()
    await asyncio.wait_for(asyncio.gather(first, *rest), 5)
    assert store.commits == 2


async def test_a_trickle_of_steps_does_not_keep_the_first_one_waiting(ledger: StoreLedger, store: FaultyStore) -> None:
    steps, rounds = [start(ledger)], 0
    while not store.commits:
        rounds += 1
        if rounds % 3 == 0:
            steps.append(start(ledger))
        await asyncio.sleep(0)
    assert rounds < 100
    await asyncio.gather(*steps)


async def test_nobody_is_answered_before_the_commit_not_even_who_only_looked(ledger: StoreLedger, store: FaultyStore) -> None:
    store.gate.clear()
    appending, looking = start(ledger), start(ledger, look)
    await turns()
    assert not appending.done()
    assert not looking.done()
    assert (await ledger.state("run_1")).seq == 0
    store.gate.set()
    assert (await asyncio.wait_for(looking, 5)).answer == {"run_1": 1}
    assert appending.done()


async def test_looking_alone_needs_no_commit(ledger: StoreLedger, store: FaultyStore) -> None:
    assert (await start(ledger, look)).answer == {"run_1": 0}
    assert store.commits == 0


async def test_a_failed_commit_fails_everyone_in_the_batch_and_nothing_is_recorded(ledger: StoreLedger, store: FaultyStore) -> None:
    store.fail = "before"
    both = await asyncio.gather(start(ledger), start(ledger, stream="run_2"), start(ledger, look), return_exceptions=True)
    assert [type(each) for each in both] == [LedgerFault] * 3
    store.fail = ""
    assert (await writable(ledger)).answer == [0]
    assert [each.seq for each in await ledger.events("run_1")] == [1]
    assert await ledger.events("run_2") == []


async def test_a_commit_that_only_seemed_to_fail_is_answered_as_done(ledger: StoreLedger, store: FaultyStore) -> None:
    store.fail = "after"
    both = await asyncio.wait_for(asyncio.gather(start(ledger), start(ledger)), 5)
    assert [each.answer for each in both] == [[0], [1]]
    store.fail = ""
    assert (await start(ledger)).answer == [2]


async def test_a_commit_whose_fate_cannot_be_learned_counts_as_failed_and_is_seen_later(ledger: StoreLedger, store: FaultyStore) -> None:
    store.fail = "after"
    store.gate.clear()
    appending = start(ledger)
    await turns()

    async def recorded(stream: str, seq: int) -> str | None:
        raise LedgerFault("can't tell")

    store.recorded = recorded  # type: ignore[method-assign]
    store.gate.set()
    with pytest.raises(LedgerFault):
        await asyncio.wait_for(appending, 5)
    store.fail = ""
    assert (await writable(ledger)).answer == [1]


async def test_a_broken_store_admits_nothing_and_recovers_by_itself(ledger: StoreLedger, store: FaultyStore) -> None:
    store.dead = True
    with pytest.raises(LedgerFault):
        await start(ledger)
    commits = store.commits
    for _ in range(20):
        with pytest.raises(LedgerFault):
            await start(ledger)
    assert store.commits == commits
    store.dead = False
    assert (await writable(ledger)).answer == [0]


async def test_between_probes_everyone_is_refused_at_once(ledger: StoreLedger, store: FaultyStore, clock: SettableClock) -> None:
    clock.still = asyncio.Event()
    store.dead = True
    with pytest.raises(LedgerFault):
        await start(ledger)
    await turns()
    with pytest.raises(LedgerFault):
        await asyncio.wait_for(start(ledger), 5)
    store.dead = False
    clock.still.set()
    assert (await writable(ledger)).answer == [0]


async def test_a_store_that_raises_anything_does_not_end_the_writer(ledger: StoreLedger, store: FaultyStore) -> None:
    async def write(rows: object) -> None:
        raise OverflowError("int too large")

    plain, store.write = store.write, write  # type: ignore[method-assign]
    with pytest.raises(LedgerFault):
        await start(ledger)
    store.write = plain  # type: ignore[method-assign]
    assert (await writable(ledger)).answer == [0]


async def test_a_watcher_that_leaves_leaves_nothing_behind(ledger: StoreLedger) -> None:
    watching = [asyncio.ensure_future(ledger.watch("run_1", 0)) for _ in range(3)]
    await turns()
    for each in watching:
        each.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    assert ledger._writer._watchers == {}


async def test_a_watcher_is_woken_only_after_the_commit(ledger: StoreLedger, store: FaultyStore) -> None:
    store.gate.clear()
    watching, appending = asyncio.ensure_future(ledger.watch("run_1", 0)), start(ledger)
    await turns()
    assert not watching.done()
    store.gate.set()
    await asyncio.wait_for(asyncio.gather(watching, appending), 5)


async def test_a_stream_that_cannot_be_read_fails_only_those_who_need_it(ledger: StoreLedger, store: FaultyStore) -> None:
    plain = store.tail

    async def tail(stream: str, first: int, limit: int) -> object:
        if stream == "run_bad":
            raise LedgerFault("unreadable")
        return await plain(stream, first, limit)

    store.tail = tail  # type: ignore[method-assign, assignment]
    done = await asyncio.gather(start(ledger, stream="run_bad"), start(ledger), return_exceptions=True)
    assert [type(each) for each in done] == [LedgerFault, Committed]


async def test_closing_a_broken_ledger_ends_and_refuses_what_waits(ledger: StoreLedger, store: FaultyStore) -> None:
    store.dead = True
    with pytest.raises(LedgerFault):
        await start(ledger)
    await asyncio.wait_for(ledger.close(), 5)
    with pytest.raises(LedgerFault):
        await start(ledger)


async def test_a_checkpoint_rides_along_with_a_later_batch(ledger: StoreLedger, store: FaultyStore) -> None:
    await asyncio.gather(*(start(ledger) for _ in range(512)))  # no batch comes after the one that it is made of
    await asyncio.wait_for(asyncio.gather(*ledger._writer._saving), 5)
    assert await store.saved("run_1") is None
    await start(ledger, stream="run_2")
    saved = await store.saved("run_1")
    assert saved is not None
    assert saved.seq >= 500


async def test_a_state_that_has_no_text_gets_no_checkpoint_and_nothing_breaks(path: Path) -> None:
    fold = Fold(empty, evolve, 1, Checkpoints("gateway.core"))
    ledger = StoreLedger(FaultyStore(path), fold, SettableClock(), capacity=100, readonly=False)
    await ledger.open()
    await asyncio.gather(*(start(ledger) for _ in range(600)))
    assert (await start(ledger)).answer == [600]
    await ledger.close()


async def test_checkpoints_of_a_stream_come_at_growing_distances(ledger: StoreLedger) -> None:
    for _ in range(30):
        await asyncio.gather(*(start(ledger) for _ in range(100)))
    await asyncio.wait_for(asyncio.gather(*ledger._writer._saving), 5)
    assert ledger.fold.checkpoints.dumped == 3  # type: ignore[attr-defined]  # after 500, 1000 and 2000 events


async def test_a_run_of_calls_alone_gets_no_checkpoint_one_of_many_other_events_does(path: Path) -> None:
    async def dumped_by(*events: Event) -> int:
        checkpoints = Counted("gateway.core")
        ledger = StoreLedger(FaultyStore(path), Fold(streams.empty, streams.evolve, 1, checkpoints), SystemClock(), capacity=9, readonly=False)
        await ledger.open()
        await life(ledger, *events)
        await ledger.close()
        return checkpoints.dumped

    assert await dumped_by(open_run(), *(event for number in range(1, 60) for event in (admit(number), settle(number)))) == 0
    assert await dumped_by(*(TurnOpened(RUN, number) for number in range(1, 200))) == 1
