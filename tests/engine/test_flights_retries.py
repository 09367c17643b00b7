"""Retries, in the one layer that makes them: which faults, under which key, after which waits, and when no more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.core.model import Completed, Doubt, Failed
from gateway.ports import Answer, Dispatch, UpstreamFault
from tests.engine.stage import ACT, BOT, POLICY, READ, WRITE, Stage, soon, stage

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


async def test_a_connect_fault_is_tried_again_under_the_same_key_with_doubling_waits(desk: Stage) -> None:
    run = await desk.open()
    desk.tools.plan(ACT, REFUSED, REFUSED)
    waiting = desk.calling(run, ACT)
    await naps(desk, 200, 400)
    reply = await soon(waiting)
    assert isinstance(reply, Completed)
    assert [dispatch.attempt for dispatch in desk.tools.sent] == [1, 2, 3]
    assert len({dispatch.key for dispatch in desk.tools.sent}) == 1
    assert (await desk.kinds(run)).count("CallAdmitted") == 3
    assert reply.budget.tool_calls_left == 17


async def test_the_last_fault_stands_when_the_attempts_are_used_up(desk: Stage) -> None:
    run = await desk.open()
    desk.tools.plan(READ, REFUSED, TIMEOUT, TIMEOUT)
    waiting = desk.calling(run, READ)
    await naps(desk, 200, 400)
    reply = await soon(waiting)
    assert isinstance(reply, Failed)
    assert (reply.outcome.reason, (await desk.record(reply.call)).reason) == ("tool.timeout", "tool.timeout")
    assert len(desk.tools.sent) == 3


async def test_without_budget_for_another_attempt_the_last_fault_stands(desk: Stage) -> None:
    run = await desk.open(budgets={"tool_calls": 1})
    desk.tools.plan(READ, TIMEOUT)
    waiting = desk.calling(run, READ)
    await naps(desk, 200)
    reply = await soon(waiting)
    assert isinstance(reply, Failed)
    assert reply.outcome.reason == "tool.timeout"
    assert len(desk.tools.sent) == 1


async def test_a_payment_that_timed_out_is_in_doubt_and_never_tried_again(desk: Stage) -> None:
    run = await desk.open()
    desk.tools.plan(ACT, TIMEOUT)
    reply = await desk.call(run, ACT)
    assert isinstance(reply, Doubt)
    assert isinstance(await desk.call(run, ACT), Doubt)
    assert len(desk.tools.sent) == 1


async def test_a_write_that_timed_out_stays_in_doubt_when_the_later_attempts_do_not_get_through(desk: Stage) -> None:
    run = await desk.open()
    desk.tools.plan(WRITE, TIMEOUT, REFUSED, REFUSED)
    waiting = desk.calling(run, WRITE, {"id": "1"})
    await naps(desk, 200, 400)
    assert isinstance(await soon(waiting), Doubt)
    assert len({dispatch.key for dispatch in desk.tools.sent}) == 1


async def test_a_read_waits_as_long_as_the_upstream_asks(desk: Stage) -> None:
    run = await desk.open()
    desk.tools.plan(READ, BUSY)
    waiting = desk.calling(run, READ)
    await naps(desk, 1_500)
    assert isinstance(await soon(waiting), Completed)
    assert len(desk.tools.sent) == 2


@pytest.mark.parametrize(("asked_ms", "sent"), [(33_999, 2), (34_001, 1)])
async def test_who_asks_for_more_than_the_call_has_is_not_tried_again_and_its_answer_stands(desk: Stage, asked_ms: int, sent: int) -> None:
    run = await desk.open()
    desk.tools.plan(READ, Answer({"content": [], "isError": True}, 429, asked_ms))
    waiting = desk.calling(run, READ)
    if sent == 2:
        await naps(desk, asked_ms)
    reply = await soon(waiting)
    assert isinstance(reply, Completed)
    assert (reply.status, len(desk.tools.sent)) == ("failed" if sent == 1 else "succeeded", sent)


async def test_no_try_is_waited_for_that_would_come_after_the_runs_deadline(desk: Stage) -> None:
    run = await desk.open(budgets={"deadline": "1s"})
    desk.tools.plan(READ, BUSY)
    reply = await desk.call(run, READ)
    assert isinstance(reply, Completed)
    assert (reply.status, len(desk.tools.sent)) == ("failed", 1)


async def test_waits_grow_no_longer_than_half_a_minute(tmp_path: Path) -> None:
    slow = POLICY.replace("attempts: 3, backoff: 200ms", "attempts: 4, backoff: 20s").replace("timeout: 30s", "timeout: 2m")
    async with stage(tmp_path, slow) as desk:
        run = await desk.open()
        desk.tools.plan(READ, REFUSED, REFUSED, REFUSED)
        waiting = desk.calling(run, READ)
        await naps(desk, 20_000, 30_000, 30_000)
        assert isinstance(await soon(waiting), Completed)


async def test_a_wait_after_a_timeout_ends_while_the_call_is_still_its_owners(tmp_path: Path) -> None:
    async def late(dispatch: Dispatch) -> Answer:
        desk.clock.move(30_000)
        raise TIMEOUT

    async with stage(tmp_path, POLICY.replace("backoff: 200ms", "backoff: 20s")) as desk:
        run = await desk.open()
        desk.tools.plan(READ, late)
        waiting = desk.calling(run, READ)
        await naps(desk, 4_000)
        assert isinstance(await soon(waiting), Completed)


async def test_cancelling_ends_the_wait_for_the_next_attempt(desk: Stage) -> None:
    run = await desk.open()
    desk.tools.plan(READ, TIMEOUT)
    waiting = desk.calling(run, READ)
    await desk.clock.asleep(200)
    await desk.engine.cancel_run(BOT, run)
    reply = await soon(waiting)
    assert isinstance(reply, Failed)
    assert len(desk.tools.sent) == 1
    assert (await desk.run(run)).state == "closed"
