"""What every store must hold: imported by the test file of each, whose `opened` fixture opens a ledger on that store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gateway.core.events import CallProbed, CallReconciled, Event, RunClosed, RunClosing
from gateway.core.model import Payload
from gateway.ledger.verify import Problem, verify
from gateway.ports import Committed, Decision, LedgerFault
from tests.cycles import is_let_go
from tests.ledger.runs import HOLD, RUN, admit, hold, life, open_run, settle, vote
from tests.ledger.tally import SettableClock, append, event, evolve, look, sealed

Opened = Callable[..., Any]
pytestmark = pytest.mark.anyio


async def test_seq_is_gapless_per_stream_under_two_hundred_concurrent_transacts(opened: Opened) -> None:
    async with opened() as ledger:
        await asyncio.gather(*(ledger.transact((f"run_{n % 5}",), append(f"run_{n % 5}")) for n in range(200)))
        for stream in (f"run_{n}" for n in range(5)):
            assert [each.seq for each in await ledger.events(stream)] == list(range(1, 41))
            assert (await ledger.state(stream)).seq == 40
        assert not (await verify(ledger)).problems


async def test_each_step_sees_what_the_steps_before_it_did(opened: Opened) -> None:
    async with opened() as ledger:
        done = await asyncio.gather(*(ledger.transact(("run_1",), append("run_1")) for _ in range(100)))
        assert [each.answer for each in done] == [[n] for n in range(100)]
        assert [each.states["run_1"].seq for each in done] == list(range(1, 101))


async def test_a_step_that_raises_fails_alone(opened: Opened) -> None:
    def broken(states: Mapping[str, Any], now: int) -> Decision:
        raise ZeroDivisionError

    async with opened() as ledger:
        steps = [append("run_1"), broken, append("run_1", note="forbidden"), append("run_1")]
        done = await asyncio.gather(*(ledger.transact(("run_1",), step) for step in steps), return_exceptions=True)
        assert [type(each) for each in done] == [Committed, ZeroDivisionError, ValueError, Committed]
        assert (await ledger.state("run_1")).seq == 2


class Refusal(Exception):
    pass


async def test_what_a_step_raised_leaves_nothing_behind(opened: Opened) -> None:
    def broken(states: Mapping[str, Any], now: int) -> Decision:
        raise Refusal

    async with opened() as ledger:
        await ledger.state("run_1")
        assert await is_let_go(lambda: ledger.transact(("run_1",), broken), Refusal)


async def test_a_decision_is_appended_whole_or_not_at_all(opened: Opened) -> None:
    def second_is_forbidden(states: Mapping[str, Any], now: int) -> Decision:
        return Decision((("run_1", event("run_1")), ("run_2", event("run_2", note="forbidden"))), None, (("run_1", sealed(b"x")),))

    async with opened() as ledger:
        with pytest.raises(ValueError, match="fold"):
            await ledger.transact(("run_1", "run_2"), second_is_forbidden)
        assert await ledger.events("run_1") == await ledger.events("run_2") == []
        assert await ledger.payload("run_1", sealed(b"x").hash) is None


async def test_an_event_that_has_no_text_fails_its_own_caller(opened: Opened) -> None:
    async with opened() as ledger:
        steps = [append("run_1", by="\ud800"), append("run_1", by="user:leo")]
        done = await asyncio.gather(*(ledger.transact(("run_1",), step) for step in steps), return_exceptions=True)
        assert isinstance(done[0], UnicodeEncodeError)
        assert isinstance(done[1], Committed)


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), asyncio.CancelledError(), StopIteration(), GeneratorExit()], ids=repr)
async def test_whatever_a_step_raises_the_writer_lives_on(opened: Opened, fault: BaseException) -> None:
    def broken(states: Mapping[str, Any], now: int) -> Decision:
        raise fault

    async with opened() as ledger:
        with pytest.raises(RuntimeError):
            await ledger.transact(("run_1",), broken)
        assert (await ledger.transact(("run_1",), append("run_1"))).answer == [0]


async def test_a_step_may_not_append_to_a_stream_it_did_not_name(opened: Opened) -> None:
    async with opened() as ledger:
        with pytest.raises(KeyError):
            await ledger.transact(("run_1",), lambda states, now: Decision((("run_2", event("run_2")),), None))
        assert await ledger.events("run_2") == []


async def test_a_step_that_appends_nothing_is_answered_with_what_came_before_it(opened: Opened) -> None:
    async with opened() as ledger:
        await ledger.state("run_1")
        appending = asyncio.ensure_future(ledger.transact(("run_1",), append("run_1")))
        await asyncio.sleep(0)
        looked = await ledger.transact(("run_1",), look)
        assert looked.answer == {"run_1": 1}
        assert len(await ledger.events("run_1")) == 1
        await appending


async def test_a_caller_that_leaves_does_not_take_its_append_along(opened: Opened) -> None:
    async with opened() as ledger:
        await ledger.state("run_1")
        leaving = asyncio.ensure_future(ledger.transact(("run_1",), append("run_1")))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert (await ledger.transact(("run_1",), append("run_1"))).answer == [1]


async def test_streams_of_one_decision_move_together(opened: Opened) -> None:
    async with opened() as ledger:
        names = ("run_1", "principal:agent:x")
        done = await asyncio.gather(*(ledger.transact(names, append(*names)) for _ in range(20)))
        assert [each.answer for each in done] == [[n, n] for n in range(20)]


async def test_time_in_a_stream_never_goes_back(opened: Opened) -> None:
    clock = SettableClock(5_000)
    async with opened(clock=clock) as ledger:
        assert (await ledger.transact(("run_1",), append("run_1"))).at == 5_000
        clock.now = 4_000
        assert (await ledger.transact(("run_1",), append("run_1"))).at == 5_000
        assert (await ledger.transact(("run_2",), append("run_2"))).at == 4_000
        clock.now = 6_000
        both = await asyncio.gather(*(ledger.transact(("run_1",), append("run_1")) for _ in range(3)))
        assert [each.at for each in both] == [6_000] * 3
        assert [each.at for each in await ledger.events("run_1")] == [5_000, 5_000, 6_000, 6_000, 6_000]


async def test_watch_returns_when_another_appends(opened: Opened) -> None:
    async with opened() as ledger:
        watching = [asyncio.ensure_future(ledger.watch("run_1", after)) for after in (0, 0, 1)]
        await asyncio.sleep(0)
        await ledger.transact(("run_2",), append("run_2"))
        assert not any(each.done() for each in watching)
        await ledger.transact(("run_1",), append("run_1"))
        await asyncio.wait_for(asyncio.gather(*watching[:2]), 5)
        assert not watching[2].done()
        await ledger.transact(("run_1",), append("run_1"))
        await asyncio.wait_for(watching[2], 5)


async def test_watch_returns_at_once_for_what_already_happened(opened: Opened) -> None:
    async with opened() as ledger:
        await ledger.transact(("run_1",), append("run_1"))
    async with opened() as ledger:
        await asyncio.wait_for(ledger.watch("run_1", 0), 5)


async def test_a_stream_without_events_has_its_empty_state(opened: Opened) -> None:
    async with opened() as ledger:
        assert (await ledger.state("run_none")).seq == 0
        assert await ledger.events("run_none") == []


async def test_everything_is_there_after_a_restart(opened: Opened) -> None:
    async with opened() as ledger:
        await asyncio.gather(*(ledger.transact(("run_1",), append("run_1", by=f"user:{n % 3}")) for n in range(50)))
        state, events = await ledger.state("run_1"), await ledger.events("run_1")
    async with opened() as ledger:
        assert await ledger.state("run_1") == state
        assert await ledger.events("run_1") == events
        assert (await ledger.transact(("run_1",), append("run_1"))).answer == [50]
        assert not (await verify(ledger)).problems


async def test_events_are_given_in_pages(opened: Opened) -> None:
    async with opened() as ledger:
        await asyncio.gather(*(ledger.transact(("run_1",), append("run_1")) for _ in range(10)))
        assert [each.seq for each in await ledger.events("run_1", after=3, limit=4)] == [4, 5, 6, 7]
        assert await ledger.events("run_1", after=10) == []


async def test_payloads_and_policies_are_kept_with_the_decision(opened: Opened) -> None:
    payload, empty = sealed(b"\x00\xff" * 9), sealed(b"")
    async with opened() as ledger:
        await ledger.transact(("run_1",), append("run_1", payloads=(payload, payload, empty)))
        await ledger.transact(("run_1",), lambda states, now: Decision((), None, policies={"digest": "text"}))
    async with opened() as ledger:
        await ledger.transact(("run_1",), append("run_1", payloads=(payload,)))
        assert await ledger.payload("run_1", payload.hash) == payload.data
        assert await ledger.payload("run_1", empty.hash) == b""
        assert await ledger.payload("run_2", payload.hash) is None
        assert await ledger.policy_text("digest") == "text"
        assert await ledger.policy_text("other") is None


async def test_a_small_cache_changes_nothing(opened: Opened) -> None:
    async with opened(capacity=2) as ledger:
        streams = [f"run_{n}" for n in range(8)]
        for _ in range(5):
            await asyncio.gather(*(ledger.transact((stream, "principal:p"), append(stream, "principal:p")) for stream in streams))
        assert [(await ledger.state(stream)).seq for stream in streams] == [5] * 8
        assert (await ledger.state("principal:p")).seq == 40
        assert not (await verify(ledger)).problems


async def test_a_long_stream_is_loaded_from_its_checkpoint_and_equals_its_fold(opened: Opened) -> None:
    async with opened() as ledger:
        await asyncio.gather(*(ledger.transact(("run_1",), append("run_1", by=f"user:{n % 7}")) for n in range(1_200)))
        state = await ledger.state("run_1")
    folded: list[int] = []

    def counting(state: Any, seq: int, at: int, event: Any) -> Any:
        folded.append(seq)
        return evolve(state, seq, at, event)

    async with opened(evolve=counting) as ledger:
        assert await ledger.state("run_1") == state
        assert len(folded) < 500
        assert not (await verify(ledger)).problems
    async with opened(fold_version=2) as ledger:
        assert await ledger.state("run_1") == state


async def test_close_writes_what_is_queued_and_then_refuses(opened: Opened) -> None:
    async with opened() as ledger:
        await ledger.state("run_1")
        queued = [asyncio.ensure_future(ledger.transact(("run_1",), append("run_1"))) for _ in range(300)]
        watching = asyncio.ensure_future(ledger.watch("run_2", 0))
        await asyncio.sleep(0.001)
        await ledger.close()
        assert [each.answer for each in await asyncio.gather(*queued)] == [[n] for n in range(300)]
        with pytest.raises(LedgerFault):
            await asyncio.wait_for(watching, 5)
        with pytest.raises(LedgerFault):
            await ledger.transact(("run_1",), append("run_1"))
    async with opened() as ledger:
        assert (await ledger.state("run_1")).seq == 300


async def test_a_call_in_flight_is_found_until_it_is_settled(opened_for_runs: Opened) -> None:
    async with opened_for_runs() as ledger:
        await life(ledger, open_run(), admit(1), admit(2))
        assert await ledger.in_flight() == [RUN]
        await life(ledger, settle(1))
        assert await ledger.in_flight() == [RUN]
        await life(ledger, settle(2))
        assert await ledger.in_flight() == []


async def test_a_call_is_due_when_its_state_says_so_the_longest_due_first(opened_for_runs: Opened) -> None:
    async with opened_for_runs() as ledger:
        await life(ledger, open_run(), admit(1, lease_until=90), admit(2, lease_until=70))
        assert await ledger.due_calls(69) == []
        assert await ledger.due_calls(70) == ["call_r_2"]
        assert await ledger.due_calls(90) == ["call_r_2", "call_r_1"]
        assert await ledger.due_calls(90, limit=1) == ["call_r_2"]
        await life(ledger, settle(1), settle(2, "in_doubt", probe_at=80))
        assert (await ledger.due_calls(79), await ledger.due_calls(80)) == ([], ["call_r_2"])
        await life(ledger, CallProbed(RUN, "call_r_2", "pay.find", "unclear", again_at=200))
        assert (await ledger.due_calls(199), await ledger.due_calls(200)) == ([], ["call_r_2"])
        await life(ledger, CallReconciled(RUN, "call_r_2", "abandoned", "user:mia", "who knows"))
        assert await ledger.due_calls(2**60) == []


async def test_a_run_is_due_when_its_state_says_so(opened_for_runs: Opened) -> None:
    async with opened_for_runs() as ledger:
        await life(ledger, open_run())
        due_at = (await ledger.state(RUN)).due_at()
        assert await ledger.due(due_at - 1) == []
        assert await ledger.due(due_at) == [RUN]
        await life(ledger, hold(1, expires_in_ms=1_000))
        sooner = (await ledger.state(RUN)).due_at()
        assert sooner < due_at
        assert await ledger.due(sooner) == [RUN]


async def test_a_decision_whose_rows_fit_no_column_fails_alone(opened_for_runs: Opened) -> None:
    async with opened_for_runs() as ledger:
        await life(ledger, open_run(), open_run("run_r.2", parent=RUN))
        salts: list[Any] = [b"salt", "no bytes", b"salt"]
        steps = [
            lambda states, now, number=number, salt=salt: Decision(((RUN, admit(number)),), None, ((RUN, Payload("hash", salt, b"{}")),))
            for number, salt in enumerate(salts, 1)
        ]
        done = await asyncio.gather(*(ledger.transact((RUN,), step) for step in steps), return_exceptions=True)
        assert [type(each) for each in done] == [Committed, LedgerFault, Committed]
        assert {row["call"] for row in await ledger.rows("calls", {})} == {"call_r_1", "call_r_3"}
        await life(ledger, admit(4))
        assert not [problem for problem in (await verify(ledger)).problems if problem.what != "payload"]


async def test_rows_come_newest_first_in_pages_and_filtered(opened_for_runs: Opened) -> None:
    async with opened_for_runs() as ledger:
        await life(ledger, open_run(), *(admit(n) for n in range(1, 13)), settle(3))
        first = await ledger.rows("calls", {"run": RUN}, limit=5)
        assert [row["call"] for row in first] == [f"call_r_{n}" for n in (12, 11, 10, 9, 8)]
        rest = await ledger.rows("calls", {}, before=first[-1]["call"])
        assert [row["call"] for row in rest] == [f"call_r_{n}" for n in range(7, 0, -1)]
        assert [row["call"] for row in await ledger.rows("calls", {"state": "succeeded", "stream": RUN})] == ["call_r_3"]
        assert [row["run"] for row in await ledger.rows("runs", {"principal": "agent:a"})] == [RUN]
        assert await ledger.rows("runs", {"principal": "agent:b"}) == []


async def test_holds_and_votes_have_rows(opened_for_runs: Opened) -> None:
    async with opened_for_runs() as ledger:
        await life(ledger, open_run(), hold(1), vote("user:mia"), vote("user:leo"))
        held = await ledger.rows("holds", {"state": "held"})
        assert [(row["hold"], row["call"], row["principal"]) for row in held] == [(HOLD, "call_r_1", "agent:a")]
        assert {row["by"] for row in await ledger.rows("votes", {"hold": HOLD})} == {"user:mia", "user:leo"}
        assert (await ledger.rows("calls", {"hold": HOLD}))[0]["state"] == "held"


async def test_only_known_views_and_columns_can_be_asked_for(opened: Opened) -> None:
    async with opened() as ledger:
        with pytest.raises(ValueError, match="events"):
            await ledger.rows("events", {})
        with pytest.raises(ValueError, match="1 = 1"):
            await ledger.rows("runs", {"1 = 1": "x"})


async def test_a_view_can_be_made_anew_from_the_events(opened_for_runs: Opened) -> None:
    async with opened_for_runs() as ledger:
        await life(ledger, open_run(), admit(1), settle(1), hold(2), vote("user:mia", 2))
        before = {view: await ledger.rows(view, {}) for view in ("runs", "calls", "holds", "votes")}
        for view in before:
            await ledger.rebuild(view)
        assert {view: await ledger.rows(view, {}) for view in before} == before
        assert not (await verify(ledger)).problems
        await life(ledger, admit(3))
        assert await ledger.in_flight() == [RUN]


async def damage(ledger: Any) -> list[Problem]:
    """What doesn't fit the events; what these did, which no gateway decided, is another matter."""
    return [one for one in (await verify(ledger)).problems if not one.what.startswith("P")]


async def opens(ledger: Any, run: str, *payloads: Payload) -> None:
    kept = tuple((run, payload) for payload in payloads)
    await ledger.transact((run,), lambda states, now: Decision(((run, open_run(run)),), None, kept))


async def over(ledger: Any, clock: SettableClock, run: str, *payloads: Payload, at: int) -> None:
    """A run with these payloads, closed then."""
    await opens(ledger, run, *payloads)
    ends: list[Event] = [RunClosing(run, "completed", "model_final", "agent:a"), RunClosed(run, "completed", "model_final")]
    clock.now = at
    await ledger.transact((run,), lambda states, now: Decision(tuple((run, event) for event in ends), None))


async def test_payloads_of_runs_that_closed_long_ago_are_erased_and_nothing_else(opened_for_runs: Opened) -> None:
    clock = SettableClock(1_000)
    old, new = [sealed(b"of an old run %d" % n) for n in range(1_200)], sealed(b"of a new run")
    async with opened_for_runs(clock=clock) as ledger:
        for n, run in enumerate(("run_a", "run_b")):
            await over(ledger, clock, run, *old[n * 600 : n * 600 + 600], at=5_000)
        await over(ledger, clock, "run_c", new, at=5_001)
        await opens(ledger, RUN, new)
        assert await ledger.payload("run_a", old[0].hash) == old[0].data
        assert (await ledger.erase(4_999), await ledger.erase(5_000), await ledger.erase(5_000)) == (0, 1_200, 0)
        assert [await ledger.payload("run_a", one.hash) for one in old[:600]] == [None] * 600
        assert (await ledger.payload("run_c", new.hash), await ledger.payload(RUN, new.hash)) == (new.data, new.data)
        assert [len(await ledger.events(run)) for run in ("run_a", "run_b", "run_c", RUN)] == [3, 3, 3, 1]
        assert await damage(ledger) == []


async def test_a_child_that_closed_keeps_its_payloads_while_its_tree_is_open(opened_for_runs: Opened) -> None:
    child, payload = "run_r.1", sealed(b"of the tree")
    ends = (RunClosing(child, "completed", "model_final", "agent:a"), RunClosed(child, "completed", "model_final"))
    async with opened_for_runs() as ledger:
        await opens(ledger, RUN, payload)
        await life(ledger, open_run(child, parent=RUN), *ends)
        assert await ledger.erase(2**60) == 0
        assert await ledger.payload(RUN, payload.hash) == payload.data


async def test_appends_go_on_while_payloads_are_erased(opened_for_runs: Opened) -> None:
    clock = SettableClock()
    async with opened_for_runs(clock=clock) as ledger:
        await over(ledger, clock, "run_a", *(sealed(b"%d" % n) for n in range(3_000)), at=clock.now)
        erasing = asyncio.ensure_future(ledger.erase(2**60))
        while not erasing.done():
            clock.now += 1
            await opens(ledger, f"run_{clock.now}")
        assert await erasing == 3_000
        assert await damage(ledger) == []
