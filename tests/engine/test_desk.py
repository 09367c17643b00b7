"""What all parts of the engine share: deciding, the pinned policy, who may see what, waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.core.decide.draft import Draft
from gateway.core.model import Finding
from gateway.core.run import principal_stream
from gateway.engine import Caller
from gateway.engine.desk import fault
from gateway.ports import LedgerFault, PolicyError, RequestFault
from tests.engine.stage import ASKED, BOT, METER, MIA, OPS, OTHER, READ, VIEWER, Stage, soon, stage

pytestmark = pytest.mark.anyio


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as here:
        yield here


def token(run: str) -> Caller:
    return Caller(BOT.principal, run)


async def refused(asked: Awaitable[Any]) -> str | None:
    try:
        await asked
    except RequestFault as why:
        return why.reason
    return None


# ---- seeing -------------------------------------------------------------------------------------------------------------

Look = Callable[[Stage, Caller, str], Awaitable[object]]
OWN: dict[str, Look] = {
    "call": lambda desk, who, run: desk.call(run, READ, who=who),
    "turn": lambda desk, who, run: desk.engine.open_turn(who, run),
    "finish": lambda desk, who, run: desk.engine.finish_run(who, run, None),
}
DIRECT: dict[str, Look] = {
    "freeze": lambda desk, who, run: desk.engine.freeze_run(who, run, ""),
    "cancel": lambda desk, who, run: desk.engine.cancel_run(who, run),
}
SEE: dict[str, Look] = {
    "run": lambda desk, who, run: desk.engine.run(who, run),
    "events": lambda desk, who, run: desk.engine.events(who, run, 0, 10),
    "tools": lambda desk, who, run: desk.engine.tools(who, run),
}
MAY: list[tuple[Caller, tuple[dict[str, Look], ...]]] = [
    (BOT, (OWN, DIRECT, SEE)), (OPS, (DIRECT, SEE)), (VIEWER, (SEE,)), (MIA, ()), (METER, ()), (OTHER, ()),
]  # fmt: skip


@pytest.mark.parametrize(("who", "may"), MAY, ids=lambda value: value.principal.id if isinstance(value, Caller) else "")
async def test_a_run_is_there_only_for_who_may_do_this_with_it(desk: Stage, who: Caller, may: tuple[dict[str, Look], ...]) -> None:
    for acts in (SEE, DIRECT, OWN):
        for name, act in acts.items():
            run = await desk.open()
            assert (name, await refused(act(desk, who, run))) == (name, None if acts in may else "run.unknown")


async def test_a_run_token_reaches_its_run_and_those_below_and_no_other(desk: Stage) -> None:
    root, other = await desk.open(), await desk.open()
    child = await desk.open(token(root), parent_run=root)
    grandchild = await desk.open(token(child), parent_run=child)
    for holder, reached in ((root, {root, child, grandchild}), (child, {child, grandchild}), (grandchild, {grandchild}), (other, {other})):
        seen = {run for run in (root, child, grandchild, other) if await refused(desk.engine.run(token(holder), run)) is None}
        assert seen == reached


async def test_a_token_of_an_operator_is_no_operator(desk: Stage) -> None:
    run = await desk.open()
    assert await refused(desk.engine.run(Caller(OPS.principal, await desk.open()), run)) == "run.unknown"


@pytest.mark.parametrize("run", ["", "run_", "run_x", "principal:agent:bot", "hold_1_1", "gateway"])
async def test_what_is_no_run_is_unknown(desk: Stage, run: str) -> None:
    await desk.open()
    assert await refused(desk.engine.run(BOT, run)) == "run.unknown"


# ---- deciding -----------------------------------------------------------------------------------------------------------


async def test_a_step_gets_the_streams_that_it_asks_for(desk: Stage) -> None:
    given: list[set[str]] = []

    def step(states: Any, now: int) -> tuple[Draft, int]:
        given.append(set(states))
        draft = Draft(states, run, now)
        draft.given("principal:a"), draft.given("principal:b")
        return draft, 7

    run = await desk.open()
    answer, committed = await desk.engine.decide([run], step)
    assert (answer, committed.at) == (7, desk.clock.now)
    assert given == [{run}, {run, "principal:a"}, {run, "principal:a", "principal:b"}]


async def test_a_hold_is_counted_in_its_principals_stream_in_the_same_decision(desk: Stage) -> None:
    run = await desk.open()
    await desk.call(run, ASKED)
    assert len((await desk.ledger.state(principal_stream("agent:bot"))).open_holds) == 1


async def test_a_policy_whose_texts_nobody_has_governs_nothing(desk: Stage) -> None:
    with pytest.raises(PolicyError):
        await desk.engine.governing("0" * 64)


async def test_a_runs_policy_is_kept_with_the_run(desk: Stage) -> None:
    run = await desk.open()
    digest = (await desk.run(run)).policy_digest
    text = await desk.ledger.policy_text(digest)
    assert text is not None
    assert desk.engine.policies.revive(digest, text).digest == digest


async def test_a_run_is_decided_with_all_the_runs_that_it_continues(desk: Stage) -> None:
    runs = [await desk.open()]
    for _ in range(2):
        await desk.engine.finish_run(BOT, runs[0], None)
        runs.insert(0, await desk.open(continues=runs[0]))
    assert await desk.engine.streams_of(await desk.run(runs[0])) == runs


def test_a_refusal_becomes_a_fault_with_the_same_reason() -> None:
    finding = Finding("run", "run.not_open", "over")
    made = fault(finding)
    assert (made.reason, made.message, made.findings) == ("run.not_open", "over", (finding,))


# ---- waiting ------------------------------------------------------------------------------------------------------------


async def test_waiting_ends_when_it_is_so(desk: Stage) -> None:
    run = await desk.open()
    waiting = asyncio.create_task(desk.engine.until(run, lambda tree: tree.runs[run].state == "frozen", 60_000))
    await soon(desk.ledger.watches.get())
    await desk.engine.freeze_run(BOT, run, "")
    assert await soon(waiting) is True


async def test_waiting_ends_when_the_time_is_up_or_the_caller_has_gone(desk: Stage) -> None:
    run = await desk.open()
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    assert await desk.engine.until(run, lambda tree: False, 0) is False
    waiting = asyncio.create_task(desk.engine.until(run, lambda tree: False, 60_000, gone))
    await soon(desk.ledger.watches.get())
    gone.set_result(None)
    assert await soon(waiting) is False


async def test_waiting_ends_with_a_fault_when_nobody_can_tell_any_more(desk: Stage) -> None:
    run = await desk.open()
    waiting = asyncio.create_task(desk.engine.until(run, lambda tree: False, 60_000))
    await soon(desk.ledger.watches.get())
    await desk.crash()
    with pytest.raises(LedgerFault):
        await soon(waiting)
