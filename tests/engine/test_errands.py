"""What is done without a caller, by whichever process comes to it: calls that a dead one left, approved calls that run at once, probes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.core.events import CallAdmitted, CallSettled
from gateway.core.model import Busy, Completed, Doubt, Reply, Tool
from gateway.ports import Answer, Dispatch, UpstreamFault
from tests.engine.stage import ACT, AT_ONCE, BOT, MIA, POLICY, READ, WRITE, Hang, Stage, erase, ok, soon, stage

pytestmark = pytest.mark.anyio

LEASE_MS = 35_000
"""The timeout of a call, and what the owner has beyond it for recording."""


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as here:
        yield here


async def on_the_wire(desk: Stage, tool: str, **options: object) -> tuple[str, Hang, asyncio.Task[Reply]]:
    """A call that its tool doesn't answer: its run."""
    run = await desk.open(**options)
    hang = desk.tools.hang(tool)
    caller = desk.calling(run, tool, {"id": "1"})
    await soon(hang.reached.wait())
    return run, hang, caller


async def intents(desk: Stage, run: str) -> list[CallAdmitted]:
    return [event for event in await desk.events(run) if isinstance(event, CallAdmitted)]


# ---- taking over --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", [READ, WRITE])
async def test_what_a_dead_process_left_is_dispatched_again_by_another_once_its_lease_has_ended(desk: Stage, tool: str) -> None:
    run, _, caller = await on_the_wire(desk, tool)
    [intent] = await intents(desk, run)
    async with desk.beside() as other:
        await desk.vanish(caller)
        desk.clock.move(LEASE_MS - 1)
        await other.engine.sweep()
        assert other.tools.sent == []
        desk.clock.move(1)
        await other.engine.sweep()
        after = await other.settled(intent.call)
        [sent] = other.tools.sent
    assert (after.state, after.attempt, after.owner, sent.key) == ("succeeded", 2, other.engine.owner, intent.key)


async def test_a_call_that_has_moved_on_since_it_was_listed_as_due_is_left_to_its_owner(desk: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    run, hang, caller = await on_the_wire(desk, WRITE)
    [intent] = await intents(desk, run)

    async def listed(now: int, limit: int = 0) -> list[str]:
        return [intent.call]

    async with desk.beside() as other:
        monkeypatch.setattr(desk.ledger, "due_calls", listed)
        await other.engine.sweep()
        hang.let.set()
        assert isinstance(await soon(caller), Completed)
        assert (other.tools.sent, [one.attempt for one in await intents(desk, run)]) == ([], [1])


async def test_a_payment_that_a_dead_process_left_is_put_in_doubt_and_not_sent(desk: Stage) -> None:
    run, _, caller = await on_the_wire(desk, ACT)
    async with desk.beside() as other:
        await desk.vanish(caller)
        desk.clock.move(LEASE_MS)
        await other.engine.sweep()
        assert isinstance(await other.call(run, ACT, {"id": "1"}), Doubt)
        assert other.tools.sent == []


async def test_a_key_that_the_upstream_has_forgotten_is_not_sent_again(tmp_path: Path) -> None:
    async with stage(tmp_path, POLICY.replace("key_from: [id]", "key_from: [id]").replace(
        "effect: idempotent_write", "effect: idempotent_write\n    upstream_key_ttl: 30s"
    )) as desk:  # fmt: skip
        run, _, caller = await on_the_wire(desk, WRITE)
        async with desk.beside() as other:
            await desk.vanish(caller)
            desk.clock.move(LEASE_MS)
            await other.engine.sweep()
            [intent] = await intents(desk, run)
            assert ((await other.record(intent.call)).state, other.tools.sent) == ("in_doubt", [])


async def test_of_several_processes_that_see_the_same_need_one_acts(desk: Stage) -> None:
    run, _, caller = await on_the_wire(desk, READ)
    async with desk.beside() as second, desk.beside() as third:
        await desk.vanish(caller)
        desk.clock.move(LEASE_MS)
        await asyncio.gather(second.engine.sweep(), third.engine.sweep())
        await second.settled((await intents(desk, run))[0].call)
        assert len(second.tools.sent + third.tools.sent) == 1
        assert [intent.attempt for intent in await intents(desk, run)] == [1, 2]


async def test_a_live_process_keeps_its_call_for_as_long_as_its_lease_and_after_it_to_itself(desk: Stage) -> None:
    _, hang, caller = await on_the_wire(desk, ACT)
    desk.clock.move(LEASE_MS)
    await desk.engine.sweep()
    hang.let.set()
    assert isinstance(await soon(caller), Completed)


@pytest.mark.parametrize("tool", [READ, WRITE, ACT])
async def test_a_call_whose_caller_was_gone_before_it_could_be_sent_is_cancelled_by_its_own_process(desk: Stage, tool: str) -> None:
    run = await desk.open()

    async def leave() -> None:
        caller.cancel()
        await asyncio.sleep(0)

    desk.ledger.between = leave
    caller = desk.calling(run, tool)
    with pytest.raises(asyncio.CancelledError):
        await soon(caller)
    [intent] = await intents(desk, run)
    assert desk.tools.sent == []
    desk.clock.move(LEASE_MS)
    await desk.engine.sweep()
    assert ((await desk.record(intent.call)).state, desk.tools.sent) == ("cancelled", [])
    assert isinstance(await desk.call(run, tool), Completed)


# ---- outcomes that come late --------------------------------------------------------------------------------------------


async def test_an_old_owners_late_outcome_is_not_recorded_and_its_caller_gets_the_successors(desk: Stage) -> None:
    run, hang, caller = await on_the_wire(desk, WRITE)
    async with desk.beside() as other:
        desk.clock.move(LEASE_MS)
        other.tools.plan(WRITE, ok(by="the successor"))
        await other.engine.sweep()
        await other.settled((await intents(desk, run))[0].call)
        hang.let.set()
        told = await soon(caller)
    assert isinstance(told, Completed)
    assert (told.result["structuredContent"], told.replayed) == ({"by": "the successor"}, True)
    assert len([event for event in await desk.events(run) if isinstance(event, CallSettled)]) == 1


async def test_an_old_owners_caller_is_told_that_it_still_runs_while_the_successor_has_it(desk: Stage) -> None:
    run, hang, caller = await on_the_wire(desk, WRITE)
    async with desk.beside() as other:
        desk.clock.move(LEASE_MS)
        theirs = other.tools.hang(WRITE)
        await other.engine.sweep()
        await soon(theirs.reached.wait())
        hang.let.set()
        assert isinstance(await soon(caller), Busy)
        theirs.let.set()
        assert (await other.settled((await intents(desk, run))[0].call)).owner == other.engine.owner


async def test_a_late_outcome_does_not_end_a_doubt(desk: Stage) -> None:
    run, hang, caller = await on_the_wire(desk, ACT)
    async with desk.beside() as other:
        desk.clock.move(LEASE_MS)
        await other.engine.sweep()
        hang.let.set()
        assert isinstance(await soon(caller), Doubt)
        assert (await other.record((await intents(desk, run))[0].call)).state == "in_doubt"


# ---- approved calls that run at once ------------------------------------------------------------------------------------


async def approved_and_left(desk: Stage, other: Stage) -> str:
    """An approved call whose process died before it started it."""
    run = await desk.open()
    held = await desk.call(run, AT_ONCE, {"id": "1"})
    hold = await desk.engine.hold(MIA, "hold" + held.call.removeprefix("call"))
    desk.engine.stopping = True
    await desk.engine.vote(MIA, hold.hold.id, "approve", hold.hold.digest, "")
    await desk.vanish()
    return held.call


async def test_an_approved_call_that_a_dead_process_left_is_executed_once_by_another(desk: Stage) -> None:
    async with desk.beside() as second, desk.beside() as third:
        call = await approved_and_left(desk, second)
        await asyncio.gather(second.engine.sweep(), third.engine.sweep())
        assert (await desk.record(call)).state == "ready"
        desk.clock.move(5_000)
        await asyncio.gather(second.engine.sweep(), third.engine.sweep())
        assert (await second.settled(call)).state == "succeeded"
        assert len(second.tools.sent + third.tools.sent) == 1
        await second.engine.sweep()
        assert len(second.tools.sent + third.tools.sent) == 1


# ---- probes -------------------------------------------------------------------------------------------------------------

PROBED = POLICY.replace(
    "    effect: non_idempotent\n    approval: never\n",
    "    effect: non_idempotent\n    approval: never\n"
    "    probe: {tool: pay.find, arguments: {id: args.id}, happened_if: result.n > 0, absent_if: result.n == 0}\n",
)
FIND = "pay.find"
READABLE = f"  - {{tool: {FIND}, effect: read_only, timeout: 5s, result: {{redact: [/who]}}}}\n"


@asynccontextmanager
async def doubted(folder: Path, policy: str = PROBED) -> AsyncIterator[tuple[Stage, str, str]]:
    """A desk, a run, and its call in doubt whose probe is due."""
    async with stage(folder, policy) as desk:
        desk.tools.shelf[FIND] = Tool(FIND, *FIND.split("."), {"inputSchema": {"type": "object"}}, "digest of it")
        run = await desk.open()
        desk.tools.plan(ACT, UpstreamFault("reset", "gone"))
        reply = await desk.call(run, ACT, {"id": "1"})
        assert isinstance(reply, Doubt)
        await desk.engine.sweep()
        assert len(desk.tools.sent) == 1, "not before its time"
        desk.clock.move(60_000)
        yield desk, run, reply.call


async def probed(desk: Stage) -> list[Dispatch]:
    """Sweep, and let the probes end: those that were sent."""
    await desk.engine.sweep()
    await soon(asyncio.gather(*desk.engine.errands))
    return [dispatch for dispatch in desk.tools.sent if dispatch.tool.name == FIND]


async def test_a_probe_that_found_it_answers_the_agents_repeat(tmp_path: Path) -> None:
    async with doubted(tmp_path) as (desk, run, call):
        desk.tools.plan(FIND, ok(n=1, who="Ada"))
        [asked] = await probed(desk)
        assert (asked.arguments, asked.key, asked.send_as, asked.remaining_ms) == ({"id": "1"}, "", None, 30_000)
        again = await desk.call(run, ACT, {"id": "1"})
        assert isinstance(again, Completed)
        assert (again.replayed, again.result["structuredContent"]) == (True, {"found_by": FIND, "found": None})
        assert (await desk.engine.run(BOT, run)).budget.tool_calls_left == 19
        assert (await desk.record(call)).state == "succeeded"


async def test_what_a_probe_read_is_shown_as_the_rule_for_its_tool_lets_it_be_seen(tmp_path: Path) -> None:
    async with doubted(tmp_path, PROBED + READABLE) as (desk, run, _):
        desk.tools.plan(FIND, ok(n=1, who="Ada"))
        [asked] = await probed(desk)
        assert asked.remaining_ms == 5_000
        again = await desk.call(run, ACT, {"id": "1"})
        assert isinstance(again, Completed)
        assert again.result["structuredContent"]["found"] == {"n": 1, "who": "[redacted]"}


async def test_a_probe_that_found_it_absent_sends_nothing_and_a_repeat_is_a_new_call(tmp_path: Path) -> None:
    async with doubted(tmp_path) as (desk, run, call):
        desk.tools.plan(FIND, ok(n=0))
        await probed(desk)
        assert ((await desk.record(call)).reason, len(desk.tools.sent)) == ("call.not_applied", 2)
        again = await desk.call(run, ACT, {"id": "1"})
        assert isinstance(again, Completed)
        first, _, second = desk.tools.sent
        assert (again.replayed, first.key == second.key, second.call == call) == (False, True, False)


@pytest.mark.parametrize(
    "answer",
    [ok(m=1), ok(n="many"), Answer({"content": [], "structuredContent": {"n": 0}, "isError": True}), Answer({"content": []}, 404),
     UpstreamFault("timeout", "late"), UpstreamFault("refused", "no")],
    ids=["another answer", "no number", "an error", "a status", "no answer", "nobody there"],
)  # fmt: skip
async def test_a_probe_that_is_not_sure_leaves_the_doubt_and_is_made_again(tmp_path: Path, answer: Answer | UpstreamFault) -> None:
    async with doubted(tmp_path) as (desk, _, call):
        desk.tools.plan(FIND, answer, ok(n=1))
        assert len(await probed(desk)) == 1
        assert ((await desk.record(call)).state, len(await probed(desk))) == ("in_doubt", 1)
        desk.clock.move(120_000)
        assert len(await probed(desk)) == 2
        assert (await desk.record(call)).state == "succeeded"


async def test_a_probe_whose_tool_is_gone_or_writes_under_a_ceiling_asks_nobody(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    ceiling = 'version: 1\nname: c\nkind: ceiling\ntools:\n  - {tool: pay.find, effect: idempotent_write}\n  - {tool: "*"}\n'
    (tmp_path / "policies" / "c.yaml").write_text(ceiling)
    async with doubted(tmp_path, PROBED + READABLE) as (desk, _, call):
        assert await probed(desk) == []
        del desk.tools.shelf[FIND]
        desk.clock.move(120_000)
        assert await probed(desk) == []
        assert ((await desk.record(call)).state, (await desk.record(call)).probes) == ("in_doubt", 2)


async def test_a_probe_under_way_is_not_made_twice_and_holds_up_no_sweep(tmp_path: Path) -> None:
    async with doubted(tmp_path) as (desk, _, call):
        hang = desk.tools.hang(FIND)
        await desk.engine.sweep()
        await soon(hang.reached.wait())
        await desk.engine.sweep()
        hang.let.set()
        assert len(await probed(desk)) == 1
        assert (await desk.record(call)).state == "in_doubt"


async def test_without_the_arguments_nobody_is_asked_and_a_person_has_to_find_out(tmp_path: Path) -> None:
    async with doubted(tmp_path) as (desk, _, call):
        arguments = (await desk.record(call)).arguments
    erase(tmp_path, arguments)
    async with stage(tmp_path, PROBED, desk.clock) as later:
        assert await probed(later) == []
        assert ((await later.record(call)).probe_at, (await later.record(call)).probes) == (None, 1)


async def test_a_closed_run_s_doubt_is_probed_too(tmp_path: Path) -> None:
    async with doubted(tmp_path) as (desk, run, call):
        desk.tools.plan(FIND, ok(n=1))
        await desk.engine.cancel_run(BOT, run)
        await probed(desk)
        assert ((await desk.run(run)).state, (await desk.record(call)).state) == ("closed", "succeeded")
