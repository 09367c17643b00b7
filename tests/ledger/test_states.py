"""States by stream: from memory, from a checkpoint and the events after it, and never an older one than was there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from gateway.ledger.checkpoint import Checkpoints
from gateway.ledger.codec import encode, genesis
from gateway.ledger.states import Fold, Head, States
from gateway.ledger.store import PAGE, CheckpointRow, EventRow, Store
from gateway.ports import LedgerFault
from tests.ledger.tally import Tally, empty, event, evolve

pytestmark = pytest.mark.anyio
FOLD = Fold(empty, evolve, 1, Checkpoints("tests.ledger"))


def row(seq: int, by: str = "user:mia", kind: str = "RunFrozen") -> EventRow:
    return EventRow("run_1", seq, f"id-{seq}", seq, kind, 1, encode(event("run_1", by)), f"hash {seq}")


class Stored:
    """A store of one stream; `gate` holds reads back."""

    def __init__(self, rows: Sequence[EventRow], saved: CheckpointRow | None = None) -> None:
        self.rows = list(rows)
        self.checkpoint = saved
        self.gate = asyncio.Event()
        self.gate.set()
        self.reads = 0

    async def tail(self, stream: str, first: int, limit: int) -> list[EventRow]:
        self.reads += 1
        found = [each for each in self.rows if each.stream == stream and each.seq >= first][:limit]
        await self.gate.wait()
        return found

    async def saved(self, stream: str) -> CheckpointRow | None:
        return self.checkpoint if self.checkpoint and self.checkpoint.stream == stream else None


def states(stored: Stored, capacity: int = 10) -> States:
    return States(cast(Store, stored), FOLD, capacity)


def checkpoint(seq: int, **changes: Any) -> CheckpointRow:
    state = Tally()
    for each in range(1, seq + 1):
        state = evolve(state, each, each, event("run_1"))
    return CheckpointRow("run_1", seq, 1, FOLD.checkpoints.dump(state))._replace(**changes)


async def test_a_stream_is_folded_once_and_then_remembered() -> None:
    stored = Stored([row(seq) for seq in range(1, 1_001)])
    cache = states(stored)
    head = await cache.load("run_1")
    assert (head.state.seq, head.state.by["user:mia"], head.hash) == (1_000, 1_000, "hash 1000")
    reads = stored.reads
    assert await cache.load("run_1") is head
    assert stored.reads == reads


async def test_a_checkpoint_and_its_tail_give_what_the_whole_fold_gives() -> None:
    rows = [row(seq) for seq in range(1, 41)]
    for seq in (1, 20, 40):
        head = await states(Stored(rows, checkpoint(seq))).load("run_1")
        assert head == Head((await states(Stored(rows)).replay("run_1")).state, "hash 40", seq)


@pytest.mark.parametrize(
    "changes", [{"fold_version": 2}, {"state": "{"}, {"state": '["c","os:system",{}]'}, {"state": '["c","tally:Tally",{"seq":99}]'}]
)
async def test_a_checkpoint_that_does_not_fit_is_passed_over(changes: dict[str, Any]) -> None:
    head = await states(Stored([row(seq) for seq in range(1, 31)], checkpoint(20, **changes))).load("run_1")
    assert (head.state.seq, head.state.by["user:mia"], head.saved) == (30, 30, 0)


async def test_a_stream_without_events_begins_with_its_genesis() -> None:
    assert await states(Stored([])).load("run_1") == Head(Tally(), genesis("run_1"))


async def test_a_gap_or_an_event_that_cannot_be_read_is_a_fault() -> None:
    for rows in ([row(1), row(3)], [row(2)], [row(1), row(2, kind="RunMelted")]):
        with pytest.raises(LedgerFault):
            await states(Stored(rows)).load("run_1")


async def test_a_checkpoint_whose_own_event_is_missing_does_not_hide_the_gap() -> None:
    rows = [row(seq) for seq in range(1, 31) if seq != 20]
    with pytest.raises(LedgerFault):
        await states(Stored(rows, checkpoint(20))).load("run_1")


async def test_a_fold_that_raises_is_a_fault() -> None:
    rows = [row(1)._replace(body=encode(event("run_1", note="forbidden")))]
    with pytest.raises(LedgerFault):
        await states(Stored(rows)).load("run_1")


async def test_callers_share_one_load_and_one_may_leave() -> None:
    stored = Stored([row(1)])
    cache = states(stored)
    stored.gate.clear()
    waiting = [asyncio.ensure_future(cache.load("run_1")) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    stored.gate.set()
    heads = await asyncio.wait_for(asyncio.gather(*waiting[1:]), 5)
    assert heads[0] is heads[1]
    assert stored.reads == 1


async def test_a_load_that_a_commit_overtook_does_not_bring_the_old_state_back() -> None:
    stored = Stored([row(1)])
    cache = states(stored, capacity=1)
    stored.gate.clear()
    loading = asyncio.ensure_future(cache.load("run_1"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    stored.rows.append(row(2))
    cache.put("run_1", FOLD.append(FOLD.append(FOLD.start("run_1"), row(1)), row(2)))
    cache.put("run_2", FOLD.start("run_2"))
    stored.gate.set()
    assert (await asyncio.wait_for(loading, 5)).state.seq == 2


async def test_only_so_many_are_kept_the_least_used_go_first() -> None:
    cache = states(Stored([]), capacity=2)
    await cache.load("run_1")
    await cache.load("run_2")
    await cache.load("run_1")
    await cache.load("run_3")
    assert [stream for stream, _ in cache.heads()] == ["run_1", "run_3"]
    assert "run_2" not in cache


async def test_more_loads_at_once_than_are_kept_are_each_answered_by_one_read() -> None:
    stored = Stored([])
    cache = states(stored, capacity=2)
    stored.gate.clear()
    loads = [asyncio.ensure_future(cache.load(f"run_{number}")) for number in range(9)]
    await asyncio.sleep(0)
    stored.gate.set()
    heads = await asyncio.wait_for(asyncio.gather(*loads), 5)
    assert ([head.hash for head in heads], stored.reads) == ([genesis(f"run_{number}") for number in range(9)], 9)


async def test_what_is_forgotten_is_read_again() -> None:
    stored = Stored([row(1)])
    cache = states(stored)
    await cache.load("run_1")
    stored.rows.append(row(2))
    cache.forget(["run_1"])
    assert (await cache.load("run_1")).state.seq == 2


async def test_a_failed_load_is_tried_again() -> None:
    stored = Stored([row(2)])
    cache = states(stored)
    with pytest.raises(LedgerFault):
        await cache.load("run_1")
    stored.rows.insert(0, row(1))
    assert (await cache.load("run_1")).state.seq == 2


async def test_others_events_move_a_head_on_and_what_it_has_already_is_passed_over() -> None:
    cache = states(Stored([row(1)]))
    await cache.load("run_1")
    cache.follow(cache.known(["run_1"]), [row(1), row(2), row(3)])
    head = cache.get("run_1")
    assert head is not None
    assert (head.state.seq, head.hash) == (3, "hash 3")
    assert cache.known(["run_1", "run_2"]) == {"run_1": 3, "run_2": None}


@pytest.mark.parametrize("others", [[row(3)], [row(2, kind="Unknown")], [row(seq) for seq in range(2, PAGE + 2)]], ids=["gap", "unreadable", "page"])
async def test_a_head_that_others_events_cannot_move_on_is_read_again(others: list[EventRow]) -> None:
    stored = Stored([row(1)])
    cache = states(stored)
    await cache.load("run_1")
    cache.follow({"run_1": 1}, others)
    assert "run_1" not in cache
    cache.follow({"run_1": 1}, others)
    assert "run_1" not in cache


async def test_a_load_that_was_under_way_when_nothing_was_at_hand_is_late() -> None:
    stored = Stored([row(1)])
    cache = states(stored)
    stored.gate.clear()
    loading = asyncio.ensure_future(cache.load("run_1"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    stored.rows.append(row(2))
    cache.follow({"run_1": None}, [])
    stored.gate.set()
    assert (await asyncio.wait_for(cache.load("run_1"), 5)).state.seq == 2
    assert (await asyncio.wait_for(loading, 5)).state.seq == 2


async def test_all_can_be_forgotten_at_once_loads_too() -> None:
    stored = Stored([row(1)])
    cache = states(stored)
    await cache.load("run_1")
    stored.gate.clear()
    loading = asyncio.ensure_future(cache.load("run_2"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    stored.rows = [row(1)._replace(stream="run_2"), row(1), row(2)]
    cache.forget_all()
    stored.gate.set()
    assert (await asyncio.wait_for(loading, 5)).state.seq == 1
    assert (await cache.load("run_1")).state.seq == 2
