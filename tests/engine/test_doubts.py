"""Reconciling through the engine: who may, what a repeat then gets, and the one more dispatch of what did not happen."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.core.events import CallAdmitted
from gateway.core.model import Completed, Doubt
from gateway.engine import Caller
from gateway.engine.doubts import Word
from gateway.ports import Answer, RequestFault, UpstreamFault
from tests.engine.stage import ACT, ASKED, BOT, MIA, OPS, OTHER, POLICY, VIEWER, WRITE, Stage, erase, ok, soon, stage

pytestmark = pytest.mark.anyio

LOST = UpstreamFault("reset", "gone")
HAPPENED, ABSENT, NEVER = Word("happened", "the bank says so", {"paid": 7}), Word("did_not_happen", "no trace of it"), Word("abandoned", "who knows")


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as here:
        yield here


async def doubted(desk: Stage, tool: str = ACT, *faults: UpstreamFault, **options: object) -> tuple[str, str]:
    """A run with a call in doubt."""
    run = await desk.open(**options)
    desk.tools.plan(tool, *(faults or (LOST,)))
    reply = await desk.call(run, tool, {"id": "1"})
    assert isinstance(reply, Doubt)
    return run, reply.call


async def refusal(desk: Stage, who: Caller, run: str, call: str, word: Word = HAPPENED) -> str:
    with pytest.raises(RequestFault) as refused:
        await desk.engine.reconcile(who, run, call, word)
    return refused.value.reason


# ---- what it makes of the call ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", [MIA, OPS])
async def test_a_repeat_of_what_happened_gets_the_answer_that_the_person_gave(desk: Stage, who: Caller) -> None:
    run, call = await doubted(desk)
    assert (await desk.engine.reconcile(who, run, call, HAPPENED)).state == "succeeded"
    again = await desk.call(run, ACT, {"id": "1"})
    assert isinstance(again, Completed)
    assert (again.result["structuredContent"], again.replayed, len(desk.tools.sent)) == ({"paid": 7}, True, 1)


@pytest.mark.parametrize("result", [None, [1], "text", 5])
async def test_any_answer_will_do_and_none(desk: Stage, result: object) -> None:
    run, call = await doubted(desk)
    await desk.engine.reconcile(OPS, run, call, HAPPENED._replace(result=result))
    again = await desk.call(run, ACT, {"id": "1"})
    assert isinstance(again, Completed)
    assert ("structuredContent" in again.result, len(again.result["content"])) == (False, 1)


async def test_what_did_not_happen_is_sent_once_more_under_its_key_and_the_agents_repeat_gets_its_result(desk: Stage) -> None:
    run, call = await doubted(desk)
    desk.tools.plan(ACT, ok(paid=2))
    assert (await desk.engine.reconcile(OPS, run, call, ABSENT)).state == "admitted"
    assert (await desk.settled(call)).state == "succeeded"
    again = await desk.call(run, ACT, {"id": "1"})
    assert isinstance(again, Completed)
    assert (again.result["structuredContent"], again.replayed) == ({"paid": 2}, True)
    first, second = desk.tools.sent
    assert (first.key, first.arguments, second.attempt, second.call) == (second.key, second.arguments, 2, call)


async def test_in_a_closed_run_what_did_not_happen_is_not_sent(desk: Stage) -> None:
    run, call = await doubted(desk)
    await desk.engine.cancel_run(BOT, run)
    assert (await desk.engine.reconcile(OPS, run, call, ABSENT)).state == "failed"
    assert len(desk.tools.sent) == 1


@pytest.mark.parametrize("missing", ["the tool", "the arguments", "the definition"])
async def test_without_the_tool_or_the_arguments_what_did_not_happen_is_not_sent(tmp_path: Path, missing: str) -> None:
    async with stage(tmp_path) as desk:
        run = await desk.open()
        held = await desk.call(run, ASKED, {"id": "1"})
        hold = await desk.engine.hold(MIA, "hold" + held.call.removeprefix("call"))
        await desk.engine.vote(MIA, hold.hold.id, "approve", hold.hold.digest, "")
        desk.tools.plan(ASKED, LOST)
        assert isinstance(await desk.call(run, ASKED, {"id": "1"}), Doubt)
        arguments = (await desk.record(held.call)).arguments
    if missing == "the arguments":
        erase(tmp_path, arguments)
    async with stage(tmp_path) as desk:
        if missing == "the tool":
            del desk.tools.shelf[ASKED]
        elif missing == "the definition":
            desk.tools.shelf[ASKED] = dataclasses.replace(desk.tools.shelf[ASKED], digest="another")
        assert (await desk.engine.reconcile(MIA, run, held.call, ABSENT)).state == "failed"
        assert desk.tools.sent == []


async def test_what_was_given_up_stays_in_doubt_for_the_agent(desk: Stage) -> None:
    run, call = await doubted(desk)
    await desk.engine.reconcile(OPS, run, call, NEVER)
    assert isinstance(await desk.call(run, ACT, {"id": "1"}), Doubt)
    assert isinstance(await desk.engine.call_state(BOT, run, call, None), Doubt)
    assert (len(desk.tools.sent), (await desk.engine.run(BOT, run)).awaiting_approval) == (1, False)


async def test_what_is_sent_once_more_outlives_its_process_like_any_call(desk: Stage) -> None:
    run, call = await doubted(desk)
    hang = desk.tools.hang(ACT)
    await desk.engine.reconcile(OPS, run, call, ABSENT)
    await soon(hang.reached.wait())
    async with desk.beside() as other:
        await desk.vanish()
        desk.clock.move(35_000)
        await other.engine.sweep()
        assert ((await other.record(call)).state, other.tools.sent) == ("in_doubt", [])


# ---- who may ------------------------------------------------------------------------------------------------------------

MACHINE = Caller(replace(OPS.principal, person=False))
ASKER = Caller(replace(BOT.principal, person=True, roles=frozenset({"operator", "approver"}), groups=frozenset({"finance"})))


@pytest.mark.parametrize(
    ("who", "reason"),
    [(BOT, "auth.forbidden"), (ASKER, "auth.forbidden"), (VIEWER, "auth.forbidden"), (MACHINE, "auth.forbidden"), (OTHER, "run.unknown")],
    ids=["the agent", "who asked, though a person with every role", "a viewer", "a machine", "a stranger"],
)
async def test_nobody_else_may_end_a_doubt(desk: Stage, who: Caller, reason: str) -> None:
    run, call = await doubted(desk)
    assert await refusal(desk, who, run, call) == reason
    assert (await desk.record(call)).state == "in_doubt"


async def test_a_run_token_ends_no_doubt(desk: Stage) -> None:
    run, call = await doubted(desk)
    assert await refusal(desk, Caller(OPS.principal, run), run, call) == "auth.forbidden"


async def test_approvers_of_another_rule_may_not(tmp_path: Path) -> None:
    async with stage(tmp_path, POLICY.replace("approval: never", 'approval: {when: "false", approvers: ["group:leads"]}')) as desk:
        run, call = await doubted(desk)
        assert await refusal(desk, MIA, run, call) == "run.unknown"
        lead = Caller(replace(MIA.principal, groups=frozenset({"leads"})))
        assert (await desk.engine.reconcile(lead, run, call, HAPPENED)).state == "succeeded"


async def test_a_write_that_names_no_approvers_is_for_operators(tmp_path: Path) -> None:
    async with stage(tmp_path, POLICY.replace("attempts: 3", "attempts: 1")) as desk:
        run, call = await doubted(desk, WRITE)
        assert await refusal(desk, MIA, run, call) == "run.unknown"
        assert (await desk.engine.reconcile(OPS, run, call, HAPPENED)).state == "succeeded"


async def test_what_is_not_there_is_not_found(desk: Stage) -> None:
    run, call = await doubted(desk)
    other, _ = await doubted(desk)
    assert await refusal(desk, OPS, run, "call_none") == "call.unknown"
    assert await refusal(desk, OPS, "run_none", call) == "run.unknown"
    assert await refusal(desk, OPS, other, call) == "call.unknown"
    assert await refusal(desk, OPS, "nonsense", call) == "run.unknown"


async def test_a_call_of_a_child_is_found_by_the_run_above(desk: Stage) -> None:
    run = await desk.open()
    child = await desk.open(Caller(BOT.principal, run), parent_run=run)
    desk.tools.plan(ACT, LOST)
    call = (await desk.call(child, ACT, {"id": "1"})).call or ""
    sibling = await desk.open(Caller(BOT.principal, run), parent_run=run)
    assert await refusal(desk, OPS, sibling, call) == "call.unknown"
    assert (await desk.engine.reconcile(OPS, run, call, HAPPENED)).run == child


@pytest.mark.parametrize("answer", [ok(), Answer({"content": [], "isError": True})])
async def test_what_is_not_in_doubt_is_left_as_it_is(desk: Stage, answer: Answer) -> None:
    run = await desk.open()
    desk.tools.plan(ACT, answer)
    call = (await desk.call(run, ACT)).call or ""
    assert await refusal(desk, OPS, run, call) == "call.not_in_doubt"
    denied = await desk.call(run, "crm.drop_all")
    assert await refusal(desk, OPS, run, denied.call or "") == "call.not_in_doubt"


async def test_a_stopping_gateway_reconciles_nothing(desk: Stage) -> None:
    run, call = await doubted(desk)
    await soon(desk.engine.stop(10))
    assert await refusal(desk, OPS, run, call, ABSENT) == "gateway.stopping"
    assert len([event for event in await desk.events(run) if isinstance(event, CallAdmitted)]) == 1
