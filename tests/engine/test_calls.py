"""One call's way through the loop: who waits for what and how long, what joins, what the record answers, what people decide meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.core.model import Busy, CallRequest, Completed, Doubt, Failed, Held, Malformed, Refused
from gateway.engine import Caller
from gateway.ports import RequestFault, UpstreamFault
from tests.engine.stage import ACT, ASKED, BOT, MIA, OPS, OTHER, POLICY, READ, VIEWER, WRITE, Stage, erase, ok, soon, stage

pytestmark = pytest.mark.anyio


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as here:
        yield here


def leaving() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


async def held(desk: Stage, run: str, tool: str = ASKED, **options: object) -> Held:
    reply = await desk.call(run, tool, **options)
    assert isinstance(reply, Held)
    return reply


async def vote(desk: Stage, hold: str, word: str) -> None:
    seen = await desk.engine.hold(MIA, hold)
    await desk.engine.vote(MIA, hold, word, seen.hold.digest, "")


# ---- who may call -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", [OTHER, OPS, VIEWER], ids=lambda who: who.principal.id)
async def test_nobody_calls_in_another_ones_run(desk: Stage, who: object) -> None:
    run = await desk.open()
    with pytest.raises(RequestFault) as refused:
        await desk.call(run, READ, who=who)
    assert refused.value.reason == "run.unknown"
    assert desk.tools.sent == []


async def test_a_refusal_is_recorded_and_dispatches_nothing(desk: Stage) -> None:
    run = await desk.open()
    reply = await desk.call(run, "crm.drop_all")
    assert isinstance(reply, Refused)
    assert (reply.findings[0].reason, reply.call is not None) == ("tool.not_allowed", True)
    assert (await desk.kinds(run), desk.tools.sent) == (["RunOpened", "CallDenied"], [])


async def test_arguments_that_could_not_be_read_are_refused(desk: Stage) -> None:
    run = await desk.open()
    reply = await desk.engine.call(BOT, run, CallRequest(READ, Malformed("cut off"), "rest"))
    assert isinstance(reply, Refused)
    assert reply.findings[0].reason == "arguments.malformed"


# ---- sharing one dispatch -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", [READ, WRITE, ACT])
async def test_identical_calls_share_one_dispatch_and_all_but_the_first_are_marked(desk: Stage, tool: str) -> None:
    run = await desk.open()
    hang = desk.tools.hang(tool)
    first = desk.calling(run, tool, {"id": "1"})
    await soon(hang.reached.wait())
    others = [await desk.joining(run, tool, {"id": "1"}) for _ in range(3)]
    hang.let.set()
    replies = await soon(asyncio.gather(first, *others))
    assert [reply.replayed for reply in replies] == [False, True, True, True]
    assert len({(reply.call, str(reply.result)) for reply in replies}) == 1
    assert len(desk.tools.sent) == 1
    assert (await desk.kinds(run)).count("CallReplayed") == 3


async def test_a_joiner_whose_patience_ends_is_told_that_it_runs(desk: Stage) -> None:
    run = await desk.open()
    hang = desk.tools.hang(READ)
    first = desk.calling(run, READ)
    await soon(hang.reached.wait())
    assert isinstance(await desk.call(run, READ, wait_ms=5), Busy)
    hang.let.set()
    assert isinstance(await soon(first), Completed)


async def test_a_joiner_of_a_dispatch_without_an_answer_learns_what_became_of_it(desk: Stage) -> None:
    run = await desk.open()
    hang = desk.tools.hang(ACT)
    first = desk.calling(run, ACT)
    await soon(hang.reached.wait())
    second = await desk.joining(run, ACT)
    await desk.engine.cancel_run(BOT, run)
    assert [type(reply) for reply in await soon(asyncio.gather(first, second))] == [Doubt, Doubt]


async def test_a_read_whose_last_waiter_left_is_cancelled_at_the_upstream(desk: Stage) -> None:
    run = await desk.open()
    hang, one, two = desk.tools.hang(READ), leaving(), leaving()
    first = desk.calling(run, READ, gone=one)
    await soon(hang.reached.wait())
    second = await desk.joining(run, READ, gone=two)
    one.set_result(None)
    reply = await soon(first)
    assert isinstance(reply, Busy)
    assert not hang.cancelled.is_set()
    two.set_result(None)
    assert isinstance(await soon(second), Busy)
    await soon(hang.cancelled.wait())
    assert (await desk.settled(reply.call)).state == "cancelled"


@pytest.mark.parametrize("tool", [WRITE, ACT])
async def test_a_write_goes_on_when_its_waiter_left_and_its_repeat_gets_the_result(desk: Stage, tool: str) -> None:
    run = await desk.open()
    hang, gone = desk.tools.hang(tool), leaving()
    first = desk.calling(run, tool, gone=gone)
    await soon(hang.reached.wait())
    gone.set_result(None)
    assert isinstance(await soon(first), Busy)
    second = await desk.joining(run, tool)
    hang.let.set()
    reply = await soon(second)
    assert isinstance(reply, Completed)
    assert (reply.replayed, len(desk.tools.sent), hang.cancelled.is_set()) == (True, 1, False)


async def test_a_read_made_again_while_the_one_before_is_being_cancelled_is_made_afresh(desk: Stage) -> None:
    run = await desk.open()
    hang, gone = desk.tools.hang(READ), leaving()
    hang.ended.clear()
    first = desk.calling(run, READ, gone=gone)
    await soon(hang.reached.wait())
    gone.set_result(None)
    await soon(hang.cancelled.wait())
    second = await desk.joining(run, READ)
    hang.ended.set()
    reply = await soon(second)
    assert isinstance(reply, Completed)
    assert (reply.replayed, len(desk.tools.sent)) == (False, 2)
    assert isinstance(await soon(first), Busy)


# ---- the record answers -------------------------------------------------------------------------------------------------


async def test_a_repeated_write_gets_the_recorded_result_and_the_differences(desk: Stage) -> None:
    run = await desk.open()
    first = await desk.call(run, WRITE, {"id": "1", "text": "a"})
    again = await desk.call(run, WRITE, {"id": "1", "text": "b"})
    assert isinstance(first, Completed)
    assert isinstance(again, Completed)
    assert (again.result, again.replayed, again.differences) == (first.result, True, {"text": ["a", "b"]})
    assert (first.differences, len(desk.tools.sent)) == (None, 1)


async def test_an_erased_result_is_expired_and_not_executed_again(tmp_path: Path) -> None:
    async with stage(tmp_path) as desk:
        run = await desk.open()
        first = await desk.call(run, ACT)
        assert isinstance(first, Completed)
        record = await desk.record(first.call)
    erase(tmp_path, record.result)
    async with stage(tmp_path) as desk:
        reply = await desk.call(run, ACT)
        assert isinstance(reply, Refused)
        assert (reply.findings[0].reason, desk.tools.sent) == ("result.expired", [])


async def test_a_successor_joins_and_replays_what_its_predecessor_did(desk: Stage) -> None:
    before = await desk.open()
    first = await desk.call(before, ACT)
    await desk.engine.finish_run(BOT, before, None)
    reply = await desk.call(await desk.open(continues=before), ACT)
    assert isinstance(first, Completed)
    assert isinstance(reply, Completed)
    assert (reply.call, reply.replayed, len(desk.tools.sent)) == (first.call, True, 1)


# ---- people -------------------------------------------------------------------------------------------------------------


async def test_an_approval_wakes_the_waiting_caller_and_executes_in_the_same_call(desk: Stage) -> None:
    run = await desk.open()
    hold = await held(desk, run)
    waiting = desk.calling(run, ASKED, wait_ms=60_000)
    await vote(desk, hold.hold, "approve")
    reply = await soon(waiting)
    assert isinstance(reply, Completed)
    assert (reply.call, reply.replayed, len(desk.tools.sent)) == (hold.call, False, 1)


async def test_a_denial_wakes_the_waiting_caller_and_sticks(desk: Stage) -> None:
    run = await desk.open()
    hold = await held(desk, run)
    waiting = desk.calling(run, ASKED, wait_ms=60_000)
    await vote(desk, hold.hold, "deny")
    for reply in (await soon(waiting), await desk.call(run, ASKED)):
        assert isinstance(reply, Refused)
        assert reply.findings[0].reason == "approval.denied"
    assert desk.tools.sent == []


async def test_of_many_who_wait_for_one_approval_one_dispatches(desk: Stage) -> None:
    run = await desk.open()
    hold = await held(desk, run)
    waiting = [desk.calling(run, ASKED, wait_ms=60_000) for _ in range(5)]
    await vote(desk, hold.hold, "approve")
    replies = await soon(asyncio.gather(*waiting))
    assert sorted(reply.replayed for reply in replies) == [False, True, True, True, True]
    assert len(desk.tools.sent) == 1


async def test_patience_for_people_is_the_rules_hold_open_and_ends_by_the_clock(tmp_path: Path) -> None:
    async with stage(tmp_path, POLICY.replace("hold_open: 0s", "hold_open: 20ms")) as desk:
        run = await desk.open()
        waiting = desk.calling(run, ASKED)
        await soon(desk.ledger.watches.get())
        assert not waiting.done()
        desk.clock.move(20)
        reply = await soon(waiting)
        assert isinstance(reply, Held)
        assert reply.state == "held"


async def test_leaving_ends_the_wait_for_people_but_not_the_hold(desk: Stage) -> None:
    run = await desk.open()
    gone = leaving()
    waiting = desk.calling(run, ASKED, wait_ms=60_000, gone=gone)
    await soon(desk.ledger.watches.get())
    gone.set_result(None)
    reply = await soon(waiting)
    assert isinstance(reply, Held)
    assert (await desk.record(reply.call)).state == "held"


# ---- how a call stands --------------------------------------------------------------------------------------------------


async def test_a_calls_state_is_told_as_it_stands(desk: Stage) -> None:
    run = await desk.open()
    desk.tools.plan(ACT, UpstreamFault("timeout", "late"))
    calls = [await desk.call(run, READ), await desk.call(run, ACT), await desk.call(run, ASKED), await desk.call(run, "crm.drop_all")]
    stands = [await desk.engine.call_state(BOT, run, call.call or "", None) for call in calls]
    assert [type(reply) for reply in stands] == [Completed, Doubt, Held, Refused]
    assert (stands[0].replayed, stands[3].findings[0].reason) == (True, "tool.not_allowed")


async def test_a_calls_state_is_waited_for(desk: Stage) -> None:
    run = await desk.open()
    hang = desk.tools.hang(READ)
    first = desk.calling(run, READ)
    await soon(hang.reached.wait())
    [call] = (await desk.tree(run)).calls
    assert isinstance(await desk.engine.call_state(VIEWER, run, call, None), Busy)
    waiting = asyncio.create_task(desk.engine.call_state(BOT, run, call, 60_000))
    hang.let.set()
    assert isinstance(await soon(waiting), Completed)
    await soon(first)


async def test_a_call_of_another_run_is_unknown(desk: Stage) -> None:
    run = await desk.open()
    child = await desk.open(Caller(BOT.principal, run), parent_run=run)
    reply = await desk.call(run, READ)
    for here, call in ((child, reply.call), (run, "call_x_1"), (run, "")):
        with pytest.raises(RequestFault) as refused:
            await desk.engine.call_state(BOT, here, call or "", None)
        assert refused.value.reason == "call.unknown"


async def test_a_call_without_an_answer_is_told_with_its_reason(desk: Stage) -> None:
    run = await desk.open()
    desk.tools.plan("crm.get_card", UpstreamFault("timeout", "late"))
    failed = await desk.call(run, "crm.get_card")
    assert isinstance(failed, Failed)
    stands = await desk.engine.call_state(BOT, run, failed.call, None)
    assert isinstance(stands, Failed)
    assert (stands.outcome.reason, stands.outcome.state) == ("tool.timeout", "failed")


async def test_an_answer_that_is_an_error_is_a_result(desk: Stage) -> None:
    run = await desk.open()
    answer = ok()
    desk.tools.plan(ACT, type(answer)({**answer.result, "isError": True}))
    reply = await desk.call(run, ACT)
    assert isinstance(reply, Completed)
    assert (reply.status, reply.reason) == ("failed", "tool.error")
