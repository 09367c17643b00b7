"""The engine's life: what a dead process left is settled by effect, what time alone does is done, stopping refuses and records."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.core.events import CallAdmitted
from gateway.core.model import Completed, Doubt, Failed, Refused, Reply
from gateway.ledger.verify import verify
from gateway.ports import LedgerFault, RequestFault, UpstreamFault
from tests.engine.stage import ACT, ASKED, AT_ONCE, BOT, MIA, POLICY, READ, WRITE, Stage, erase, ok, soon, stage

pytestmark = pytest.mark.anyio


async def left_running(folder: Path, tool: str, *, turn: int = 0, **options: Any) -> tuple[str, CallAdmitted]:
    """A process dies with a call on the wire: the run and the intent."""
    async with stage(folder) as desk:
        run = await desk.open(**options)
        if turn:
            await desk.engine.open_turn(BOT, run)
        hang = desk.tools.hang(tool)
        caller = desk.calling(run, tool, {"id": "1"}, turn=turn)
        await soon(hang.reached.wait())
        [intent] = [event for event in await desk.events(run) if isinstance(event, CallAdmitted)]
        await desk.crash(caller)
    return run, intent


async def stopped(desk: Stage, grace_ms: int) -> None:
    await soon(desk.engine.stop(grace_ms))


# ---- recovery -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", [READ, WRITE])
async def test_what_may_be_repeated_is_dispatched_again_under_its_key(tmp_path: Path, tool: str) -> None:
    _, intent = await left_running(tmp_path, tool)
    async with stage(tmp_path) as desk:
        assert (await desk.settled(intent.call)).state == "succeeded"
        [sent] = desk.tools.sent
        assert (sent.call, sent.key, sent.attempt, sent.arguments) == (intent.call, intent.key, 2, {"id": "1"})


async def test_a_payment_left_on_the_wire_is_in_doubt_and_not_sent_again(tmp_path: Path) -> None:
    run, intent = await left_running(tmp_path, ACT)
    async with stage(tmp_path) as desk:
        assert (await desk.record(intent.call)).state == "in_doubt"
        assert isinstance(await desk.call(run, ACT, {"id": "1"}), Doubt)
        assert (desk.tools.sent, (await desk.engine.run(BOT, run)).awaiting_approval) == ([], True)


@pytest.mark.parametrize(("tool", "state"), [(READ, "cancelled"), (WRITE, "in_doubt")])
async def test_without_its_arguments_nothing_is_dispatched_again(tmp_path: Path, tool: str, state: str) -> None:
    _, intent = await left_running(tmp_path, tool)
    erase(tmp_path, intent.arguments)
    async with stage(tmp_path) as desk:
        assert ((await desk.record(intent.call)).state, desk.tools.sent) == (state, [])


@pytest.mark.parametrize(("tool", "state"), [(READ, "cancelled"), (WRITE, "in_doubt")])
async def test_without_budget_for_another_attempt_nothing_is_dispatched_again(tmp_path: Path, tool: str, state: str) -> None:
    _, intent = await left_running(tmp_path, tool, budgets={"tool_calls": 1})
    async with stage(tmp_path) as desk:
        assert ((await desk.record(intent.call)).state, desk.tools.sent) == (state, [])


@pytest.mark.parametrize(("tool", "state"), [(READ, "cancelled"), (WRITE, "in_doubt")])
async def test_a_call_of_a_turn_cancelled_before_the_crash_is_not_dispatched_again(tmp_path: Path, tool: str, state: str) -> None:
    run, intent = await left_running(tmp_path, tool, turn=1)
    async with stage(tmp_path, start=False) as desk:
        await desk.engine.cancel_turn(BOT, run, 1)
        await desk.engine.start()
        assert ((await desk.settled(intent.call)).state, desk.tools.sent) == (state, [])


@pytest.mark.parametrize(("tool", "state"), [(READ, "cancelled"), (WRITE, "in_doubt")])
async def test_what_is_cancelled_between_its_launch_and_its_first_step_is_not_dispatched(tmp_path: Path, tool: str, state: str) -> None:
    run, intent = await left_running(tmp_path, tool)
    async with stage(tmp_path, start=False) as desk:
        await desk.engine.recover(run, [await desk.record(intent.call)])
        desk.engine.cancel_flights({run})
        assert ((await desk.settled(intent.call)).state, desk.tools.sent) == (state, [])


async def test_a_write_that_does_not_get_through_after_a_crash_stays_in_doubt(tmp_path: Path) -> None:
    _, intent = await left_running(tmp_path, WRITE)
    async with stage(tmp_path, start=False) as desk:
        desk.tools.shelf.pop(WRITE)
        await desk.engine.start()
        await desk.clock.asleep(400)
        desk.clock.move(400)
        assert ((await desk.settled(intent.call)).state, desk.tools.sent) == ("in_doubt", [])


async def test_a_run_keeps_its_policy_from_the_ledger_when_the_files_have_changed(tmp_path: Path) -> None:
    run, intent = await left_running(tmp_path, READ)
    async with stage(tmp_path, POLICY.replace("crm.get_*", "crm.nothing*")) as desk:
        assert (await desk.settled(intent.call)).state == "succeeded"
        assert isinstance(await desk.call(run, READ), Completed)
        fresh = await desk.engine.run(BOT, await desk.open())
        assert (READ in (await desk.engine.run(BOT, run)).tools, READ in fresh.tools) == (True, False)


# ---- the sweep ----------------------------------------------------------------------------------------------------------


async def test_a_run_past_its_deadline_is_ended_by_the_sweep(tmp_path: Path) -> None:
    async with stage(tmp_path) as desk:
        run = await desk.open()
        assert await desk.engine.sweep() == 0
        desk.clock.move(600_000)
        await desk.engine.sweep()
        assert ((await desk.run(run)).state, (await desk.run(run)).reason) == ("closed", "deadline_exceeded")


async def test_the_engine_sweeps_by_itself(tmp_path: Path) -> None:
    async with stage(tmp_path) as desk:
        run = await desk.open()
        await desk.clock.asleep(1_000)
        desk.clock.move(600_000)
        while (tree := await desk.tree(run)).runs[run].state != "closed":
            await soon(desk.ledger.watch(run, tree.seq))


async def test_the_sweep_outlives_a_ledger_that_is_away(tmp_path: Path) -> None:
    async with stage(tmp_path) as desk:
        run = await desk.open()
        await desk.clock.asleep(1_000)
        desk.ledger.down = True
        desk.clock.move(600_000)
        with pytest.raises(LedgerFault):
            await desk.engine.sweep()
        await desk.clock.asleep(1_000)
        desk.ledger.down = False
        desk.clock.move(1_000)
        while (tree := await desk.tree(run)).runs[run].state != "closed":
            await soon(desk.ledger.watch(run, tree.seq))


async def test_a_hold_nobody_decides_on_expires(tmp_path: Path) -> None:
    async with stage(tmp_path, POLICY.replace("{hold_open: 0s}", "{hold_open: 0s, expires_in: 1m}")) as desk:
        run = await desk.open()
        held = await desk.call(run, ASKED)
        desk.clock.move(60_000)
        await desk.engine.sweep()
        assert ((await desk.record(held.call or "")).reason, desk.tools.sent) == ("approval.expired", [])


# ---- stopping -----------------------------------------------------------------------------------------------------------


async def test_a_stopping_gateway_starts_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path) as desk:
        run = await desk.open()
        await stopped(desk, 1_000)
        reply = await desk.call(run, READ)
        with pytest.raises(RequestFault) as refused:
            await desk.open()
        assert (reply.findings[0].reason, refused.value.reason) == ("gateway.stopping", "gateway.stopping")
        assert desk.tools.sent == []


async def test_what_is_on_the_wire_may_finish_within_the_grace(tmp_path: Path) -> None:
    async with stage(tmp_path) as desk:
        run = await desk.open()
        hang = desk.tools.hang(ACT)
        caller = desk.calling(run, ACT)
        await soon(hang.reached.wait())
        stopping = asyncio.create_task(desk.engine.stop(4_000))
        hang.let.set()
        assert isinstance(await soon(caller), Completed)
        await soon(stopping)


@pytest.mark.parametrize(("tool", "kind", "state"), [(READ, Failed, "cancelled"), (WRITE, Doubt, "in_doubt"), (ACT, Doubt, "in_doubt")])
async def test_what_does_not_finish_is_cancelled_and_recorded(tmp_path: Path, tool: str, kind: type[Reply], state: str) -> None:
    async with stage(tmp_path) as desk:
        run = await desk.open()
        hang = desk.tools.hang(tool)
        caller = desk.calling(run, tool)
        await soon(hang.reached.wait())
        await stopped(desk, 10)
        assert hang.cancelled.is_set()
        reply = await soon(caller)
        assert isinstance(reply, kind)
        assert (await desk.record(reply.call)).state == state


async def test_a_stop_waits_for_no_further_try(tmp_path: Path) -> None:
    async with stage(tmp_path) as desk:
        run = await desk.open()
        desk.tools.plan(READ, UpstreamFault("timeout", "late"))
        caller = desk.calling(run, READ)
        await desk.clock.asleep(200)
        await stopped(desk, 60_000)
        assert isinstance(await soon(caller), Failed)
        assert len(desk.tools.sent) == 1


async def test_what_an_approval_set_off_while_stopping_is_recorded_too(tmp_path: Path) -> None:
    async with stage(tmp_path) as desk:
        run = await desk.open()
        held = await desk.call(run, AT_ONCE)
        seen = await desk.engine.hold(MIA, "hold" + held.call.removeprefix("call"))
        desk.tools.hang(AT_ONCE)
        await desk.engine.vote(MIA, seen.hold.id, "approve", seen.hold.digest, "")
        await stopped(desk, 10)
        assert (await desk.record(held.call)).state != "admitted"


async def test_an_answer_after_a_restart_is_the_recorded_one(tmp_path: Path) -> None:
    async with stage(tmp_path) as desk:
        run = await desk.open()
        desk.tools.plan(ACT, ok(paid=1))
        first = await desk.call(run, ACT)
    async with stage(tmp_path) as desk:
        again = await desk.call(run, ACT)
        assert isinstance(first, Completed)
        assert isinstance(again, Completed)
        assert (again.result, again.replayed, desk.tools.sent) == (first.result, True, [])


# ---- retention ----------------------------------------------------------------------------------------------------------

DAY_MS = 86_400_000


async def swept_out(desk: Stage) -> None:
    """A sweep, and what it set going."""
    await desk.engine.sweep()
    await soon(asyncio.gather(*desk.engine.errands))


async def test_what_is_no_longer_kept_is_replayed_as_expired_and_never_dispatched_again(tmp_path: Path) -> None:
    async with stage(tmp_path) as desk:
        desk.engine.retain_payloads_ms = 30 * DAY_MS
        run = await desk.open()
        await desk.call(run, ACT, {"id": "1"}, call_id="c1")
        await desk.engine.finish_run(BOT, run, None)
        desk.clock.move(29 * DAY_MS)
        await swept_out(desk)
        assert isinstance(await desk.call(run, ACT, {"id": "1"}), Completed)
        desk.clock.move(DAY_MS)
        await swept_out(desk)
        for asked in ({}, {"call_id": "c1"}):
            refused = await desk.call(run, ACT, {"id": "1"}, **asked)
            assert isinstance(refused, Refused)
            assert [finding.reason for finding in refused.findings] == ["result.expired"]
        successor = await desk.open(continues=run)
        refused = await desk.call(successor, ACT, {"id": "1"})
        assert isinstance(refused, Refused)
        assert ([finding.reason for finding in refused.findings], len(desk.tools.sent)) == (["result.expired"], 1)
        report = await verify(desk.ledger)
        assert (report.problems, len(report.erased)) == ([], 2)


async def test_an_open_runs_payloads_are_kept_however_old(tmp_path: Path) -> None:
    async with stage(tmp_path, POLICY.replace("deadline: 10m", "deadline: unlimited").replace("run:\n", "run:\n  max_age: 90d\n")) as desk:
        desk.engine.retain_payloads_ms = DAY_MS
        run = await desk.open()
        await desk.call(run, ACT, {"id": "1"})
        await desk.call(run, ASKED, {"id": "1"})
        desk.clock.move(2 * DAY_MS)
        await swept_out(desk)
        assert isinstance(await desk.call(run, ACT, {"id": "1"}), Completed)


async def test_without_retention_everything_is_kept(tmp_path: Path) -> None:
    async with stage(tmp_path) as desk:
        run = await desk.open()
        await desk.call(run, ACT, {"id": "1"})
        await desk.engine.finish_run(BOT, run, None)
        desk.clock.move(900 * DAY_MS)
        await swept_out(desk)
        assert isinstance(await desk.call(run, ACT, {"id": "1"}), Completed)


async def test_erasing_is_done_once_an_hour(tmp_path: Path) -> None:
    async with stage(tmp_path, start=False) as desk:
        desk.engine.retain_payloads_ms = 0
        await swept_out(desk)
        run = await desk.open()
        await desk.call(run, ACT, {"id": "1"})
        await desk.engine.finish_run(BOT, run, None)
        desk.clock.move(3_599_999)
        await swept_out(desk)
        assert isinstance(await desk.call(run, ACT, {"id": "1"}), Completed)
        desk.clock.move(1)
        await swept_out(desk)
        assert isinstance(await desk.call(run, ACT, {"id": "1"}), Refused)
