"""Dispatches in flight: intent first, retries, cancelling, deadlines, a ledger that is away, and what of an answer is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.core.events import CallAdmitted
from gateway.core.model import Completed, Doubt, Failed
from gateway.engine import flights
from gateway.ports import Answer, Client, Dispatch, LedgerFault, UpstreamFault
from tests.engine.stage import ACT, BOT, POLICY, READ, WRITE, Stage, ok, soon, stage

pytestmark = pytest.mark.anyio

REFUSED = UpstreamFault("refused", "no")
TIMEOUT = UpstreamFault("timeout", "late")
BUSY = Answer({"content": [], "isError": True}, 503, 1_500)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as here:
        yield here


async def naps(desk: Stage, *lengths: int) -> None:
    """Each wait between two attempts, slept through."""
    for length in lengths:
        await desk.clock.asleep(length)
        desk.clock.move(length)


# ---- intent -------------------------------------------------------------------------------------------------------------


async def test_the_intent_is_durable_before_the_dispatch_and_says_the_same(desk: Stage) -> None:
    found: list[CallAdmitted] = []

    async def look(dispatch: Dispatch) -> Answer:
        found.extend(event for event in await desk.events(run) if isinstance(event, CallAdmitted))
        return ok()

    run = await desk.open()
    desk.tools.plan(WRITE, look)
    reply = await desk.call(run, WRITE, {"id": "1"})
    assert isinstance(reply, Completed)
    [sent], [intent] = desk.tools.sent, found
    assert (intent.call, intent.key, intent.attempt, intent.deadline_at) == (sent.call, sent.key, sent.attempt, sent.deadline_at)
    assert (sent.remaining_ms, sent.send_as, sent.fresh_connection) == (30_000, ("header", "Idempotency-Key"), False)


async def test_only_a_non_idempotent_call_asks_for_a_fresh_connection(desk: Stage) -> None:
    run = await desk.open()
    await desk.call(run, ACT)
    assert desk.tools.sent[0].fresh_connection


async def test_what_is_frozen_after_the_intent_is_not_dispatched(desk: Stage) -> None:
    run = await desk.open()
    desk.ledger.between = lambda: desk.engine.freeze_run(BOT, run, "")
    reply = await desk.call(run, ACT)
    assert isinstance(reply, Failed)
    assert desk.tools.sent == []
    record = await desk.record(reply.call)
    assert (record.state, record.reason, record.not_applied) == ("cancelled", "call.cancelled", True)


@pytest.mark.parametrize("tool", [READ, ACT])
async def test_what_is_cancelled_after_the_intent_is_not_dispatched(desk: Stage, tool: str) -> None:
    run = await desk.open()
    desk.ledger.between = lambda: desk.engine.cancel_run(BOT, run)
    reply = await desk.call(run, tool)
    assert isinstance(reply, Failed)
    assert desk.tools.sent == []
    assert (await desk.run(run)).state == "closed"


async def test_a_turn_cancelled_after_the_intent_dispatches_nothing_more(desk: Stage) -> None:
    run = await desk.open()
    await desk.engine.open_turn(BOT, run)
    desk.ledger.between = lambda: desk.engine.cancel_turn(BOT, run, 1)
    reply = await desk.call(run, ACT, turn=1)
    assert isinstance(reply, Failed)
    assert desk.tools.sent == []


async def test_a_wall_clock_that_was_set_back_grants_no_more_time(desk: Stage) -> None:
    run = await desk.open()
    desk.clock.now -= 3_600_000
    assert isinstance(await desk.call(run, ACT), Completed)
    assert [sent.remaining_ms for sent in desk.tools.sent] == [30_000]


async def test_what_has_no_time_left_is_not_dispatched(desk: Stage) -> None:
    async def too_late() -> None:
        desk.clock.move(30_000)

    run = await desk.open()
    desk.tools.plan(ACT, ok(second=True))
    desk.ledger.between = too_late
    waiting = desk.calling(run, ACT)
    await naps(desk, 200)
    reply = await soon(waiting)
    assert isinstance(reply, Completed)
    assert [dispatch.attempt for dispatch in desk.tools.sent] == [2]


async def test_a_process_that_was_stopped_sends_nothing_late_though_its_wall_clock_was_set_back(
    desk: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = desk.ledger.at_hand

    def look_late(stream: str) -> object:
        if desk.engine.flights:  # the last look before the first byte
            monkeypatch.setattr(desk.ledger, "at_hand", look)
            desk.clock.move(30_000)
            desk.clock.wall_ms = -40_000
        return look(stream)

    run = await desk.open()
    monkeypatch.setattr(desk.ledger, "at_hand", look_late)
    waiting = desk.calling(run, ACT)
    await naps(desk, 200)
    assert isinstance(await soon(waiting), Completed)
    assert [(dispatch.attempt, dispatch.remaining_ms) for dispatch in desk.tools.sent] == [(2, 30_000)]


# ---- cancelling ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tool", "state"), [(READ, "cancelled"), (WRITE, "in_doubt"), (ACT, "in_doubt")])
@pytest.mark.parametrize("what", ["run", "turn"])
async def test_cancelling_reaches_what_is_on_the_wire(desk: Stage, tool: str, state: str, what: str) -> None:
    run = await desk.open()
    await desk.engine.open_turn(BOT, run)
    hang = desk.tools.hang(tool)
    waiting = desk.calling(run, tool, turn=1)
    await soon(hang.reached.wait())
    await (desk.engine.cancel_run(BOT, run) if what == "run" else desk.engine.cancel_turn(BOT, run, 1))
    await soon(hang.cancelled.wait())
    reply = await soon(waiting)
    assert isinstance(reply, Failed if state == "cancelled" else Doubt)
    assert (await desk.record(reply.call)).state == state
    assert (await desk.run(run)).state == ("closed" if what == "run" else "open")


async def test_cancelling_a_turn_leaves_the_calls_of_others(desk: Stage) -> None:
    run = await desk.open()
    await desk.engine.open_turn(BOT, run)
    await desk.engine.open_turn(BOT, run)
    hang = desk.tools.hang(READ)
    waiting = desk.calling(run, READ, turn=1)
    await soon(hang.reached.wait())
    await desk.engine.cancel_turn(BOT, run, 2)
    hang.let.set()
    assert isinstance(await soon(waiting), Completed)


async def test_cancelling_a_run_leaves_the_calls_of_others(desk: Stage) -> None:
    run, other = await desk.open(), await desk.open()
    hang = desk.tools.hang(READ)
    waiting = desk.calling(other, READ)
    await soon(hang.reached.wait())
    await desk.engine.cancel_run(BOT, run)
    hang.let.set()
    assert isinstance(await soon(waiting), Completed)


async def test_an_upstream_that_ignores_its_deadline_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "SAFETY_MS", 10)
    async with stage(tmp_path, POLICY.replace("timeout: 30s", "timeout: 20ms")) as desk:
        run = await desk.open()
        hang = desk.tools.hang(ACT)
        reply = await desk.call(run, ACT)
        assert isinstance(reply, Doubt)
        assert hang.cancelled.is_set()


# ---- a ledger that is away ----------------------------------------------------------------------------------------------


async def test_an_outcome_is_offered_again_until_the_ledger_takes_it(desk: Stage) -> None:
    async def answer(dispatch: Dispatch) -> Answer:
        desk.ledger.down = True
        return ok()

    run = await desk.open()
    desk.tools.plan(ACT, answer)
    waiting = desk.calling(run, ACT)
    await desk.clock.asleep(100)
    desk.ledger.down = False
    desk.clock.move(100)
    assert isinstance(await soon(waiting), Completed)
    assert len(desk.tools.sent) == 1


async def test_an_outcome_that_could_not_be_recorded_in_time_is_told_to_nobody_and_recorded_later(desk: Stage) -> None:
    async def answer(dispatch: Dispatch) -> Answer:
        desk.ledger.down = True
        return ok(paid=1)

    run = await desk.open()
    desk.tools.plan(ACT, answer)
    waiting = desk.calling(run, ACT)
    await desk.clock.asleep(100)
    desk.clock.move(35_000)
    with pytest.raises(LedgerFault):
        await soon(waiting)
    desk.ledger.down = False
    await desk.engine.sweep()
    again = await desk.call(run, ACT)
    assert isinstance(again, Completed)
    assert (again.replayed, again.result["structuredContent"]) == (True, {"paid": 1})
    assert len(desk.tools.sent) == 1


async def test_a_dispatch_that_broke_in_a_way_nobody_foresaw_is_in_doubt(desk: Stage) -> None:
    async def broken(dispatch: Dispatch) -> Answer:
        raise KeyError("a fault of ours")

    run = await desk.open()
    desk.tools.plan(ACT, broken)
    with pytest.raises(KeyError):
        await desk.call(run, ACT)
    await desk.engine.sweep()
    assert isinstance(await desk.call(run, ACT), Doubt)


async def test_a_dispatch_whose_task_somebody_cancelled_is_in_doubt(desk: Stage) -> None:
    run = await desk.open()
    hang = desk.tools.hang(ACT)
    waiting = desk.calling(run, ACT)
    await soon(hang.reached.wait())
    [flight] = desk.engine.flights.values()
    assert flight.task is not None
    flight.task.cancel()
    await asyncio.wait({waiting})
    await desk.engine.sweep()
    assert (await desk.record(flight.record.id)).state == "in_doubt"


async def test_nothing_is_dispatched_when_the_intent_can_not_be_recorded(desk: Stage) -> None:
    run = await desk.open()
    desk.ledger.down = True
    with pytest.raises(LedgerFault):
        await desk.call(run, ACT)
    assert desk.tools.sent == []


# ---- what of an answer is recorded --------------------------------------------------------------------------------------


async def test_what_is_redacted_is_neither_told_nor_recorded(desk: Stage) -> None:
    run = await desk.open()
    desk.tools.plan("crm.get_card", ok(number="4111 1111", name="Ada"))
    reply = await desk.call(run, "crm.get_card", call_id="c1")
    again = await desk.call(run, "crm.get_card", call_id="c1")
    assert isinstance(reply, Completed)
    assert isinstance(again, Completed)
    assert reply.result["structuredContent"] == {"number": "[redacted]", "name": "Ada"}
    assert (again.result, again.replayed) == (reply.result, True)
    record = await desk.record(reply.call)
    assert b"4111" not in (await desk.ledger.payload(run, record.result or "") or b"4111")


@pytest.mark.parametrize(("answer", "reason"), [(ok(number=1, name="x" * 500), "result.too_large"), (ok(name="Ada"), "result.invalid")])
async def test_a_result_that_may_not_pass_is_replaced_by_a_note(desk: Stage, answer: Answer, reason: str) -> None:
    run = await desk.open()
    desk.tools.plan("crm.get_card", answer)
    reply = await desk.call(run, "crm.get_card", call_id="c1")
    again = await desk.call(run, "crm.get_card", call_id="c1")
    assert isinstance(reply, Completed)
    assert isinstance(again, Completed)
    assert (reply.status, reply.reason, reply.result["isError"]) == ("failed", reason, True)
    assert (again.result, again.reason) == (reply.result, reason)


async def test_progress_reaches_who_asked_for_it(desk: Stage) -> None:
    heard: list[object] = []

    async def slow(dispatch: Dispatch) -> Answer:
        assert dispatch.client.progress is not None
        dispatch.client.progress({"progress": 1})
        return ok()

    run = await desk.open()
    desk.tools.plan(READ, slow)
    await desk.call(run, READ, client=Client(heard.append))
    assert heard == [{"progress": 1}]


async def test_a_caller_that_is_cancelled_takes_its_read_along_but_no_write(desk: Stage) -> None:
    run = await desk.open()
    read, write = desk.tools.hang(READ), desk.tools.hang(ACT)
    callers = [desk.calling(run, READ), desk.calling(run, ACT)]
    await soon(asyncio.gather(read.reached.wait(), write.reached.wait()))
    for caller in callers:
        caller.cancel()
    await soon(read.cancelled.wait())
    write.let.set()
    states = {(await desk.settled(call)).state for call in list((await desk.tree(run)).calls)}
    assert states == {"cancelled", "succeeded"}
    assert not write.cancelled.is_set()
