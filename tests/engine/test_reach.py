"""What others decided about a run reaches its calls in flight here. The others are steps that this engine knows nothing of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.core.decide import runs, turns
from gateway.core.model import Completed, Doubt, Failed
from gateway.core.run import stream_of
from gateway.engine.reach import LOOK_MS, Reach
from gateway.ports import Decision, LedgerFault
from tests.engine.stage import ACT, READ, WRITE, Stage, soon, stage

pytestmark = pytest.mark.anyio


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as here:
        reaching = asyncio.ensure_future(Reach(here.engine).run())
        yield here
        reaching.cancel()


async def decided(desk: Stage, run: str, decide: Callable[[Any, int], Any]) -> None:
    """As another process would."""

    def step(states: Any, now: int) -> Decision:
        draft, answer = decide(states, now)
        return Decision(tuple(draft.events), answer)

    await desk.ledger.transact([stream_of(run)], step)


async def cancelled(desk: Stage, run: str) -> None:
    await decided(desk, run, lambda states, now: runs.cancel(states, run, "user:ops", now))


async def looked(desk: Stage) -> None:
    """The next look, and that it has found something to watch."""
    await desk.clock.asleep(LOOK_MS)
    desk.clock.move(LOOK_MS)
    await soon(desk.ledger.watches.get())


async def test_a_run_cancelled_elsewhere_ends_its_calls_on_the_wire(desk: Stage) -> None:
    run = await desk.open()
    hangs = [desk.tools.hang(tool) for tool in (READ, ACT)]
    calls = [desk.calling(run, tool) for tool in (READ, ACT)]
    for hang in hangs:
        await soon(hang.reached.wait())
    await looked(desk)
    assert not any(hang.cancelled.is_set() for hang in hangs)
    await cancelled(desk, run)
    for hang in hangs:
        await soon(hang.cancelled.wait())
    assert [type(reply) for reply in await soon(asyncio.gather(*calls))] == [Failed, Doubt]


async def test_a_run_cancelled_elsewhere_before_the_look_ends_them_then(desk: Stage) -> None:
    run = await desk.open()
    hang = desk.tools.hang(READ)
    call = desk.calling(run, READ)
    await soon(hang.reached.wait())
    await cancelled(desk, run)
    await looked(desk)
    await soon(hang.cancelled.wait())
    assert isinstance(await soon(call), Failed)


async def test_a_turn_cancelled_elsewhere_ends_only_its_own_calls(desk: Stage) -> None:
    run = await desk.open()
    first, other = desk.tools.hang(READ), desk.tools.hang(ACT)
    calls = [desk.calling(run, READ, turn=1), desk.calling(run, ACT)]
    for hang in (first, other):
        await soon(hang.reached.wait())
    await looked(desk)
    await decided(desk, run, lambda states, now: turns.end(states, run, 1, "cancelled", "user:ops", now))
    await soon(first.cancelled.wait())
    assert isinstance(await soon(calls[0]), Failed)
    assert not other.cancelled.is_set()
    other.let.set()
    assert isinstance(await soon(calls[1]), Completed)


async def test_other_news_of_the_run_leaves_its_calls_alone(desk: Stage) -> None:
    run = await desk.open()
    hang = desk.tools.hang(ACT)
    call = desk.calling(run, ACT)
    await soon(hang.reached.wait())
    await looked(desk)
    await decided(desk, run, lambda states, now: runs.freeze(states, run, "user:ops", "", now))
    await soon(desk.ledger.watches.get())
    hang.let.set()
    assert isinstance(await soon(call), Completed)


async def test_a_watch_ends_with_the_last_flight_and_begins_anew_with_the_next(desk: Stage) -> None:
    run = await desk.open()
    for _ in range(2):
        hang = desk.tools.hang(READ)
        call = desk.calling(run, READ)
        await soon(hang.reached.wait())
        await looked(desk)
        hang.let.set()
        assert isinstance(await soon(call), Completed)


async def test_a_ledger_that_is_away_is_looked_at_again(desk: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    run = await desk.open()
    hang = desk.tools.hang(WRITE)
    call = desk.calling(run, WRITE)
    await soon(hang.reached.wait())
    plain, asked = desk.ledger.state, asyncio.Event()

    async def away(stream: str) -> object:
        asked.set()
        raise LedgerFault("away")

    monkeypatch.setattr(desk.ledger, "state", away)
    await desk.clock.asleep(LOOK_MS)
    desk.clock.move(LOOK_MS)
    await soon(asked.wait())
    monkeypatch.setattr(desk.ledger, "state", plain)
    await looked(desk)
    await cancelled(desk, run)
    await soon(hang.cancelled.wait())
    assert isinstance(await soon(call), Doubt)
