"""Runs, turns and holds as doors ask for them: what is refused, what is found again, who sees and decides what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.core.events import UsageReported
from gateway.core.model import Completed, Held
from gateway.engine import AskedCall, Caller, RunRequest, UsageRequest
from gateway.ports import RequestFault, UpstreamFault
from tests.engine.stage import ACT, ASKED, AT_ONCE, BOT, METER, MIA, OPS, OTHER, POLICY, READ, VIEWER, Stage, erase, soon, stage

pytestmark = pytest.mark.anyio

MINUTES = 60_000


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as here:
        yield here


async def refused(asked: Awaitable[Any]) -> RequestFault:
    with pytest.raises(RequestFault) as why:
        await asked
    return why.value


# ---- opening ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "budgets",
    [
        {"turns": -1}, {"turns": True}, {"turns": 1.5}, {"turns": 10**40},
        {"turns": "5"}, {"turns": None}, {"tool_calls": "unlimited"}, {"deadline": 5},
        {"deadline": "soon"}, {"deadline": []}, {"cost_usd": "much"}, {"cost_usd": -1}, {"cost_usd": [1]}, {"cost_usd": True}, {"wishes": 3},
    ],
    ids=str,
)  # fmt: skip
async def test_caps_that_are_none_are_refused(desk: Stage, budgets: dict[str, Any]) -> None:
    assert (await refused(desk.open(budgets=budgets))).reason == "request.malformed"


async def test_the_caller_may_only_tighten(desk: Stage) -> None:
    run = await desk.open(budgets={"turns": 2, "tool_calls": 99, "deadline": "20m", "cost_usd": 0.5})
    limits = (await desk.run(run)).limits
    assert (limits.turns, limits.tool_calls, limits.deadline_ms, limits.usd_micros, limits.tokens) == (2, 20, 10 * MINUTES, 500_000, 1000)


async def test_what_the_caller_leaves_out_stays_as_the_policy_has_it(tmp_path: Path) -> None:
    laxer = "run:\n  pause_while_held: true\n  idle_after: 5h\n  max_age: 9d\n  on_exhausted: {deadline: refuse}"
    async with stage(tmp_path, POLICY.replace("run:", laxer).replace("tokens: 1000,", "tokens: 1000, open_holds: 9,")) as desk:
        plain, tight = [await desk.run(await desk.open(budgets=budgets)) for budgets in ({}, {"turns": 2})]
        assert tight.limits == replace(plain.limits, turns=2)
        assert (plain.limits.open_holds, plain.limits.pause_while_held, "deadline" in plain.limits.close_on) == (9, True, False)


async def test_a_child_sees_its_own_events_and_nothing_of_the_runs_beside_it(desk: Stage) -> None:
    parent = await desk.open()
    token = Caller(BOT.principal, parent)
    one, other = [(await desk.engine.open_run(token, RunRequest("rest", parent_run=parent))).run.id for _ in range(2)]
    seen = await desk.engine.events(Caller(BOT.principal, one), one, 0, 1)
    assert [event.event.run for event in seen] == [one]
    assert {event.event.run for event in await desk.engine.events(token, parent, 0, 100)} == {parent, one, other}
    assert await desk.engine.events(Caller(BOT.principal, one), one, seen[-1].seq, 1) == []


@pytest.mark.parametrize("asked", [{"policy": "other"}, {"policy": ""}])
async def test_a_policy_may_only_be_named_where_it_matches(desk: Stage, asked: dict[str, Any]) -> None:
    assert (await refused(desk.open(**asked))).reason == "policy.none"


async def test_a_known_run_key_finds_its_run_even_when_that_is_over(desk: Stage) -> None:
    run = await desk.engine.run_by_key(BOT, "ticket-1", "mcp")
    assert await desk.engine.run_by_key(BOT, "ticket-1", "mcp") == run
    await desk.engine.finish_run(BOT, run, None)
    assert await desk.engine.run_by_key(BOT, "ticket-1", "mcp") == run
    assert await desk.open(run_key="ticket-1") == run
    assert await desk.engine.run_by_key(OTHER, "ticket-1", "mcp") != run
    await desk.engine.stop(0)
    assert await desk.engine.run_by_key(BOT, "ticket-1", "mcp") == run


async def test_a_child_is_opened_with_its_parents_token_only(desk: Stage) -> None:
    run, other = await desk.open(), await desk.open()
    for who, asked in ((BOT, run), (Caller(BOT.principal, other), run), (Caller(BOT.principal, run), None)):
        assert (await refused(desk.open(who, parent_run=asked))).reason == "auth.forbidden"
    assert await desk.open(Caller(BOT.principal, run), parent_run=run) == f"{run}.1"


async def test_a_child_continues_nothing(desk: Stage) -> None:
    run = await desk.open()
    token = Caller(BOT.principal, run)
    child = await desk.open(token, parent_run=run)
    await desk.engine.finish_run(token, child, None)
    assert (await refused(desk.open(token, parent_run=run, continues=child))).reason == "request.malformed"


async def test_another_ones_run_is_not_continued(desk: Stage) -> None:
    run = await desk.open()
    await desk.engine.finish_run(BOT, run, None)
    assert (await refused(desk.open(OTHER, continues=run))).reason == "run.unknown"


async def test_a_silent_client_keeps_its_implicit_run_while_that_is_open(desk: Stage) -> None:
    run = await desk.engine.implicit_run(BOT, "mcp")
    desk.clock.move(9 * MINUTES)
    assert await desk.engine.implicit_run(BOT, "mcp") == run
    assert await desk.engine.implicit_run(OTHER, "mcp") != run
    await desk.engine.freeze_run(BOT, run, "")
    assert await desk.engine.implicit_run(BOT, "mcp") == run
    await desk.engine.cancel_run(BOT, run)
    assert await desk.engine.implicit_run(BOT, "mcp") != run


async def test_an_implicit_run_that_was_capped_is_replaced_after_half_an_hour_without_calls(desk: Stage) -> None:
    run = await desk.engine.implicit_run(BOT, "mcp")
    desk.clock.move(10 * MINUTES)
    await desk.engine.sweep()
    assert (await desk.run(run)).status == "blocked"
    desk.clock.move(19 * MINUTES)
    assert await desk.engine.implicit_run(BOT, "mcp") == run
    await desk.call(run, READ)
    desk.clock.move(30 * MINUTES - 1)
    assert await desk.engine.implicit_run(BOT, "mcp") == run
    desk.clock.move(1)
    assert await desk.engine.implicit_run(BOT, "mcp") != run


# ---- a run --------------------------------------------------------------------------------------------------------------


async def test_a_view_tells_what_the_run_has_and_what_its_calls_came_to(desk: Stage) -> None:
    run = await desk.open()
    for tool in (READ, ACT, ASKED, "crm.drop_all"):
        await desk.call(run, tool)
    view = await desk.engine.run(BOT, run)
    assert view.calls == {"succeeded": 2, "held": 1, "denied": 1}
    assert (view.awaiting_approval, view.existed) == (True, False)
    assert view.tools == tuple(sorted((READ, "crm.get_card", "crm.set_note", ACT, ASKED, AT_ONCE)))
    assert [tool.tool.name for tool in await desk.engine.tools(BOT, run)] == list(view.tools)


async def test_lists_show_ones_own_runs_and_everybodys_to_operators_and_viewers(desk: Stage) -> None:
    mine, others = [await desk.open(), await desk.open()], await desk.open(OTHER)
    await desk.engine.finish_run(BOT, mine[0], None)

    async def seen(who: Caller, state: str | None = None) -> set[str]:
        return {row["run"] for row in await desk.engine.runs(who, state=state, limit=10, before=None)}

    assert (await seen(BOT), await seen(BOT, "open"), await seen(OTHER)) == (set(mine), {mine[1]}, {others})
    assert await seen(OPS) == await seen(VIEWER) == {*mine, others}
    assert (await seen(Caller(BOT.principal, mine[0])), await seen(MIA)) == ({mine[0]}, set())


async def test_only_an_operator_resumes_a_frozen_run(desk: Stage) -> None:
    run = await desk.open()
    await desk.engine.freeze_run(BOT, run, "look")
    assert (await refused(desk.engine.resume_run(BOT, run))).reason == "auth.forbidden"
    assert (await desk.engine.resume_run(OPS, run)).run.state == "open"


async def test_a_finish_after_a_cancel_is_refused(desk: Stage) -> None:
    run = await desk.open()
    await desk.engine.cancel_run(BOT, run)
    assert (await refused(desk.engine.finish_run(BOT, run, None))).reason == "run.not_open"


async def test_cancelling_a_run_reaches_the_calls_of_its_children(desk: Stage) -> None:
    run = await desk.open()
    child = await desk.open(Caller(BOT.principal, run), parent_run=run)
    hang = desk.tools.hang(READ)
    waiting = desk.calling(child, READ)
    await soon(hang.reached.wait())
    await desk.engine.cancel_run(BOT, run)
    await soon(hang.cancelled.wait())
    await soon(waiting)
    assert ((await desk.run(child)).reason, (await desk.run(run)).state) == ("parent_closed", "closed")


# ---- turns --------------------------------------------------------------------------------------------------------------


async def test_a_turn_gives_each_asked_call_its_result_in_the_models_order(desk: Stage) -> None:
    run = await desk.open()
    await desk.engine.open_turn(BOT, run)
    asked = [AskedCall(f"c{n}", tool, {"n": n}) for n, tool in enumerate((READ, ACT, ASKED, "crm.get_card", READ))]
    await desk.engine.answer_turn(BOT, run, 1, asked, None)
    desk.tools.plan(ACT, UpstreamFault("timeout", "late"))
    desk.tools.plan("crm.get_card", UpstreamFault("timeout", "late"))
    for one in reversed(asked[:4]):
        await desk.call(run, one.tool, one.arguments, call_id=one.call_id, turn=1)
    open_view = await desk.engine.turn(BOT, run, 1)
    assert [result.call_id for result in open_view.results] == ["c0", "c1", "c2", "c3", "c4"]
    assert [result.state for result in open_view.results] == ["succeeded", "in_doubt", "held", "failed", "new"]
    assert [result.synthetic for result in open_view.results] == [False, True, False, True, False]
    assert [result.result is None for result in open_view.results] == [False, False, True, False, True]
    await desk.engine.cancel_turn(BOT, run, 1)
    over = await desk.engine.turn(BOT, run, 1)
    assert [result.synthetic for result in over.results] == [False, True, True, True, True]
    assert all(result.result for result in over.results)
    assert over.results[0] == open_view.results[0]
    assert (await desk.run(run)).state == "open"


async def test_a_call_that_is_running_in_a_cancelled_turn_is_still_to_come(desk: Stage) -> None:
    run = await desk.open()
    await desk.engine.open_turn(BOT, run)
    await desk.engine.answer_turn(BOT, run, 1, [AskedCall("c1", ACT, {})], None)
    hang = desk.tools.hang(ACT)
    hang.ended.clear()
    waiting = desk.calling(run, ACT, call_id="c1", turn=1)
    await soon(hang.reached.wait())
    await desk.engine.cancel_turn(BOT, run, 1)
    [result] = (await desk.engine.turn(BOT, run, 1)).results
    assert (result.state, result.result) == ("admitted", None)
    hang.ended.set()
    await soon(waiting)


async def test_a_turn_that_was_never_opened_is_unknown(desk: Stage) -> None:
    run = await desk.open()
    assert (await refused(desk.engine.turn(BOT, run, 1))).reason == "turn.unknown"
    assert (await refused(desk.engine.answer_turn(BOT, run, 1, [], None))).reason == "turn.unknown"
    assert (await refused(desk.engine.cancel_turn(BOT, run, 1))).reason == "turn.unknown"


async def test_turns_are_refused_when_they_are_used_up(desk: Stage) -> None:
    run = await desk.open(budgets={"turns": 1})
    assert (await desk.engine.open_turn(BOT, run)).turn.number == 1
    why = await refused(desk.engine.open_turn(BOT, run))
    assert (why.reason, why.findings[0].reason) == ("budget.turns", "budget.turns")


async def test_figures_of_the_owner_add_and_those_of_a_reporter_lower(desk: Stage) -> None:
    run = await desk.open()
    for _ in range(2):
        await desk.engine.open_turn(BOT, run)
    own = await desk.engine.report_usage(BOT, run, 1, UsageRequest(input=10, output=5))
    metered = await desk.engine.report_usage(METER, run, 2, UsageRequest("m", input=10, output=5, cost_usd="0.25"))
    assert (own.budget.tokens_left, metered.budget.tokens_left) == (800, 885)
    reports = [event for event in await desk.events(run) if isinstance(event, UsageReported)]
    assert [(report.source, report.usd_micros) for report in reports] == [("self_reported", 0), ("reporter", 250_000)]


@pytest.mark.parametrize("who", [OTHER, OPS, VIEWER, MIA], ids=lambda who: who.principal.id)
async def test_nobody_else_reports_usage(desk: Stage, who: Caller) -> None:
    run = await desk.open()
    await desk.engine.open_turn(BOT, run)
    assert (await refused(desk.engine.report_usage(who, run, 1, UsageRequest()))).reason == "run.unknown"


@pytest.mark.parametrize("cost", ["much", -1, float("nan"), "1e99"], ids=str)
async def test_a_cost_that_is_no_amount_is_refused(desk: Stage, cost: Any) -> None:
    run = await desk.open()
    await desk.engine.open_turn(BOT, run)
    assert (await refused(desk.engine.report_usage(BOT, run, 1, UsageRequest(cost_usd=cost)))).reason == "request.malformed"


# ---- holds --------------------------------------------------------------------------------------------------------------


async def asked_for(desk: Stage, run: str, tool: str = ASKED, n: int = 0) -> Held:
    reply = await desk.call(run, tool, {"n": n})
    assert isinstance(reply, Held)
    return reply


async def approve(desk: Stage, hold: str) -> None:
    seen = await desk.engine.hold(MIA, hold)
    await desk.engine.vote(MIA, hold, "approve", seen.hold.digest, "fine")


async def test_a_hold_is_seen_by_its_owner_its_approvers_operators_and_viewers(desk: Stage) -> None:
    run = await desk.open()
    held = await asked_for(desk, run, n=3)
    for who in (BOT, MIA, OPS, VIEWER, Caller(BOT.principal, run)):
        view = await desk.engine.hold(who, held.hold)
        assert (view.hold.id, view.call.id, view.run.id, view.arguments) == (held.hold, held.call, run, {"n": 3})
        assert [one.hold.id for one in (await desk.engine.holds(who, state=None, limit=10, before=None))[0]] == [held.hold]
    for who in (OTHER, METER, Caller(BOT.principal, await desk.open()), Caller(MIA.principal, await desk.open(MIA))):
        assert (await refused(desk.engine.hold(who, held.hold))).reason == "hold.unknown"
        assert await desk.engine.holds(who, state=None, limit=10, before=None) == ([], None)
    for hold in ("", "hold_x", run, "hold_" + held.hold):
        assert (await refused(desk.engine.hold(MIA, hold))).reason == "hold.unknown"


async def test_a_page_of_holds_goes_past_those_of_others(desk: Stage) -> None:
    mine, others = await desk.open(), await desk.open(OTHER)
    own = [(await asked_for(desk, mine, n=n)).hold for n in range(3)]
    for n in range(4):
        await desk.call(others, ASKED, {"n": n}, who=OTHER)
    first, before = await desk.engine.holds(BOT, state="held", limit=2, before=None)
    rest, end = await desk.engine.holds(BOT, state="held", limit=2, before=before)
    assert [view.hold.id for view in (*first, *rest)] == own[::-1]
    assert end is None


async def test_a_vote_by_a_run_token_is_refused_and_a_late_one_says_how_it_stands(desk: Stage) -> None:
    run = await desk.open()
    held = await asked_for(desk, run)
    digest = (await desk.engine.hold(MIA, held.hold)).hold.digest
    token = Caller(MIA.principal, run)
    assert (await refused(desk.engine.vote(token, held.hold, "approve", digest, ""))).reason == "hold.forbidden"
    assert (await refused(desk.engine.vote(MIA, held.hold, "approve", "other", ""))).reason == "hold.digest"
    await approve(desk, held.hold)
    late = await refused(desk.engine.vote(MIA, held.hold, "deny", digest, ""))
    assert (late.reason, late.data) == ("hold.conflict", {"state": "approved"})
    assert (desk.tools.sent, desk.engine.errands) == ([], set())


async def test_what_is_to_run_at_once_runs_when_approved_and_once_only(desk: Stage) -> None:
    run = await desk.open()
    held = await asked_for(desk, run, AT_ONCE, 1)
    waiting = [desk.calling(run, AT_ONCE, {"n": 1}, wait_ms=60_000) for _ in range(3)]
    for _ in waiting:
        await soon(desk.ledger.watches.get())
    await approve(desk, held.hold)
    await approve(desk, held.hold)
    replies = await soon(asyncio.gather(*waiting))
    assert {type(reply) for reply in replies} == {Completed}
    assert [dispatch.arguments for dispatch in desk.tools.sent] == [{"n": 1}]


async def test_what_is_to_run_at_once_needs_no_agent(desk: Stage) -> None:
    run = await desk.open()
    held = await asked_for(desk, run, AT_ONCE)
    hang = desk.tools.hang(AT_ONCE)
    await approve(desk, held.hold)
    await soon(hang.reached.wait())
    hang.let.set()
    assert (await desk.settled(held.call)).state == "succeeded"
    again = await desk.call(run, AT_ONCE, {"n": 0})
    assert isinstance(again, Completed)
    assert (again.replayed, len(desk.tools.sent)) == (True, 1)


async def test_without_its_arguments_nothing_is_run_at_once(tmp_path: Path) -> None:
    async with stage(tmp_path) as desk:
        held = await asked_for(desk, await desk.open(), AT_ONCE)
        record = await desk.record(held.call)
    erase(tmp_path, record.arguments)
    async with stage(tmp_path) as desk:
        await approve(desk, held.hold)
        await soon(asyncio.wait(list(desk.engine.errands)))
        assert ((await desk.record(held.call)).state, desk.tools.sent) == ("ready", [])


async def test_what_changed_after_the_approval_is_not_run_at_once(desk: Stage) -> None:
    run = await desk.open()
    held = await asked_for(desk, run, AT_ONCE)
    desk.tools.shelf.pop(AT_ONCE)
    await approve(desk, held.hold)
    await soon(asyncio.wait(list(desk.engine.errands)))
    assert ((await desk.engine.hold(MIA, held.hold)).hold.state, desk.tools.sent) == ("void", [])
