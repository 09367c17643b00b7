"""Loops as a run meets them: how often, what is intercepted, when the run ends."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.decide import calls
from gateway.core.guards.authorize import Authorize
from gateway.core.guards.budgets import Budgets
from gateway.core.guards.loops import Loops
from tests.core.build import ACT, DONE, READ, WRITE, World, asks, opened, policy, rule, verdict

NO = Authorize("false", lambda facts: False)


def says(world: World, times: int, name: str, *results: Any, **asked: Any) -> list[str]:
    """Verdicts of the same call again and again; what runs is answered, with `results` in turn."""
    said = []
    for number in range(times):
        answer = world.call(name, **asked)
        said.append(verdict(answer))
        if isinstance(answer, calls.Admit):
            world.settle(answer, replace(DONE, result={"n": results[number % len(results)]}) if results else DONE)
    return said


def test_the_eleventh_same_read_is_intercepted_and_the_third_interception_ends_the_run() -> None:
    world = opened()
    assert says(world, 13, "crm.get", a=1) == ["allow"] * 10 + ["loop.repeat"] * 3
    assert (world.run().state, world.run().status, world.run().reason) == ("closed", "blocked", "loop")


def test_a_read_whose_results_change_is_no_loop() -> None:
    world = opened()
    assert set(says(world, 25, "crm.get", *range(25), a=1)) == {"allow"}


def test_polling_is_no_loop() -> None:
    world = opened()
    assert set(says(world, 30, "crm.poll", a=1)) == {"allow"}


def test_replays_count_toward_a_loop_and_still_answer_until_it_ends_the_run() -> None:
    world = opened()
    assert says(world, 5, "crm.set", a=1) == ["allow", "replay", "replay", "replay", "replay"]
    assert [event.loop for event in world.events if isinstance(event, e.CallReplayed)] == ["loop.repeat"]
    assert world.run().state == "open"
    assert (says(world, 2, "crm.set", a=1), world.run().reason) == (["replay", "replay"], "loop")


def test_replays_of_the_same_call_id_are_no_loop() -> None:
    world = opened()
    assert set(says(world, 20, "crm.set", call_id="c1", a=1)[1:]) == {"replay"}
    assert world.run().state == "open"


def test_a_replay_of_the_same_call_id_is_no_part_of_a_loop_that_others_made() -> None:
    world = opened()
    world.does("crm.set", call_id="c1", a=1)
    says(world, 2, "crm.set", a=1)
    for _ in range(5):
        assert verdict(world.call("crm.set", call_id="c1", a=1)) == "replay"
        assert world.events[0].loop is None  # type: ignore[attr-defined]
    assert world.run().state == "open"


def test_only_a_loop_makes_a_replay_an_interception() -> None:
    world = opened(turns=1, in_flight_calls=1)
    world.does("crm.set", a=1)
    world.begin()
    for turn in (0, 1):
        assert verdict(world.call("crm.set", turn=turn, a=1)) == "replay"
        assert world.events[0].loop is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("period", [2, 3])
def test_a_circle_of_calls_is_intercepted(period: int) -> None:
    world = opened(policy(rule("*", READ), guards=[Budgets(), Loops(reads=20)]))
    said = [verdict_of_done(world, "crm.get", n=step % period) for step in range(period * 3 + 1)]
    assert said == ["allow"] * (period * 3) + ["loop.cycle"]


def verdict_of_done(world: World, name: str, **asked: Any) -> str:
    return says(world, 1, name, **asked)[0]


def test_after_ten_refusals_in_a_row_the_next_dispatch_is_intercepted_and_the_one_after_passes() -> None:
    world = opened(policy(rule("no.*", READ, NO), rule("crm.*", READ)))
    assert set(says(world, 10, "no.way")) == {"authorization.denied"}
    assert [verdict_of_done(world, "crm.get", a=n) for n in range(2)] == ["loop.refusals", "allow"]


def test_after_two_hundred_refusals_the_run_ends_and_records_no_more() -> None:
    world = opened(policy(rule("no.*", READ, NO)))
    assert set(says(world, 199, "no.way")) == {"authorization.denied"}
    assert world.run().state == "open"
    says(world, 1, "no.way")
    assert (world.kinds, world.run().status, world.run().reason) == (["CallDenied", "RunClosing", "RunClosed", "RunReleased"], "blocked", "loop")
    answer = world.call("no.way")
    assert (verdict(answer), answer.call, world.events) == ("authorization.denied", None, [])


def test_a_closed_run_still_records_refusals_until_there_are_too_many() -> None:
    world = opened()
    world.finish()
    assert [says(world, 1, "crm.get") and len(world.events) for _ in range(201)] == [1] * 199 + [0, 0]


def test_a_call_that_a_loop_ends_with_is_cancelled_where_it_waits() -> None:
    world = opened(policy(rule("crm.*", WRITE), rule("pay.*", ACT, asks())))
    held = world.call("pay.refund")
    says(world, 6, "crm.set", a=1)
    assert (world.run().state, world.record(held).state, world.hold(held).state) == ("closed", "cancelled", "cancelled")
    assert len(world.mine().open_holds) == len(world.mine().open_runs) == 0


def test_a_shadowed_guard_intercepts_nothing() -> None:
    world = opened(policy(rule("crm.*", WRITE, shadow=("loops",))))
    says(world, 9, "crm.set", a=1)
    assert world.run().state == "open"


