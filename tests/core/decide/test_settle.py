"""Outcomes: at most one a call, by its owner; another attempt where run, deadline, budget and key allow; what a dead owner left."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.model import Outcome
from tests.core.build import (
    ACT,
    DONE,
    DOUBT,
    ERROR,
    FREED,
    NOW,
    READ,
    REFUSED,
    STOPPED,
    TIMEOUT,
    WRITE,
    World,
    asks,
    never,
    opened,
    policy,
    rule,
    sealed,
    verdict,
)  # fmt: skip

OUTCOMES = (DONE, ERROR, FREED, REFUSED, TIMEOUT, DOUBT, STOPPED)


# ---- outcomes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_outcome_is_recorded_as_it_is(outcome: Outcome) -> None:
    world = opened()
    call = world.call("crm.set", a=1)
    world.wait(7, sweep=False)
    told = world.settle(call, replace(outcome, status=418))
    record, event = world.record(call), world.events[0]
    assert isinstance(event, e.CallSettled)
    assert (world.kinds, event.by, event.attempt) == (["CallSettled"], "one", 1)
    assert (record.state, record.reason, record.status, record.settled_at) == (outcome.state, outcome.reason, 418, NOW + 7)
    assert (record.answered, record.not_applied, record.settled_seq) == (outcome.answered, outcome.not_applied, world.tree().seq)
    assert record.result == (sealed(outcome.result).hash if outcome.result is not None else None)
    same = ("id", "state", "reason", "result", "answered", "not_applied", "attempt", "key")
    assert [getattr(told, name) for name in same] == [getattr(record, name) for name in same]


@pytest.mark.parametrize("first", OUTCOMES)
@pytest.mark.parametrize("second", OUTCOMES)
def test_a_call_gets_one_outcome(first: Outcome, second: Outcome) -> None:
    world = opened()
    call = world.call("crm.set", a=1)
    world.settle(call, first)
    told = world.settle(call, second)
    assert (world.events, told) == ([], world.record(call))
    assert told.state == first.state


def test_an_owner_that_lost_its_call_records_nothing() -> None:
    world = opened()
    call = world.call("crm.set", a=1)
    world.again(call, owner="two", dead=True)
    assert (world.settle(call, owner="one", attempt=1).owner, world.events) == ("two", [])
    assert (world.settle(call, owner="one", attempt=2).owner, world.events) == ("two", [])
    assert (world.settle(call, owner="two", attempt=1).owner, world.events) == ("two", [])
    assert world.settle(call, owner="two", attempt=2).state == "succeeded"


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_doubt_that_a_successor_recorded_is_not_the_late_owners_to_settle(outcome: Outcome) -> None:
    world = opened()
    call = world.call("mail.send", a=1)
    world.again(call, owner="two", dead=True)
    assert (world.settle(call, outcome, owner="one").state, world.events) == ("in_doubt", [])


@pytest.mark.parametrize("how", ["freeze", "cancel", "finish"])
def test_what_was_admitted_still_finishes(how: str) -> None:
    world = opened()
    call = world.call("crm.set", a=1)
    getattr(world, how)()
    assert (world.settle(call).state, world.run().state) == ("succeeded", "frozen" if how == "freeze" else "closed")
    assert world.kinds == ["CallSettled"] if how == "freeze" else ["CallSettled", "RunClosed", "RunReleased"]


def test_a_doubt_lets_its_run_close_and_counts_until_it_is_settled() -> None:
    world = opened()
    call = world.call("mail.send", a=1)
    world.cancel()
    world.settle(call, DOUBT)
    assert (world.run().state, world.run().in_doubt) == ("closed", 1)
    world.happened(world.run_id, e.CallReconciled(world.run_id, world.record(call).id, "succeeded", "user:mia", "I looked"))
    assert (world.record(call).state, world.run().in_doubt) == ("succeeded", 0)


# ---- another attempt ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["crm.get", "crm.set", "mail.send"])
def test_another_attempt_has_the_same_key_and_its_own_deadline(name: str) -> None:
    world = opened()
    call = world.call(name, turn=1, call_id="c1", a=1)
    world.wait(10)
    after = world.again(call, owner="two")
    event = world.events[0]
    assert isinstance(event, e.CallAdmitted)
    assert (after.state, after.attempt, after.owner, after.key) == ("admitted", 2, "two", world.record(call).key)
    assert (event.deadline_at, event.lease_until, after.admitted_at) == (NOW + 30_010, NOW + 35_010, NOW)
    assert (world.kinds, after.turn, after.call_id, after.occurrence) == (["CallAdmitted"], 1, "c1", 0)


def test_an_approved_call_may_be_attempted_again() -> None:
    world = opened()
    held = world.call("pay.refund", a=1)
    world.vote(held)
    world.call("pay.refund", a=1)
    assert (world.again(held, REFUSED).attempt, world.hold(held).state) == (2, "consumed")


@pytest.mark.parametrize("state", ["settled", "other attempt"])
def test_an_attempt_that_is_over_is_not_followed_up(state: str) -> None:
    world = opened()
    call = world.call("crm.set", a=1)
    if state == "settled":
        world.settle(call)
    assert world.again(call, attempt=2 if state == "other attempt" else 1).attempt == 1
    assert world.events == []


def stop(world: World, how: str) -> None:
    if how == "deadline":
        world.wait(60_000, sweep=False)
    elif how == "above":
        world.freeze("run_r1")
    else:
        getattr(world, how)(world.run_id)


@pytest.mark.parametrize("how", ["freeze", "cancel", "finish", "deadline", "above"])
def test_without_a_run_that_takes_calls_the_last_fault_stands(how: str) -> None:
    world = opened(deadline_ms=60_000)
    world.run_id = world.open(parent="run_r1")
    call = world.call("crm.get", a=1)
    stop(world, how)
    assert (world.again(call, TIMEOUT).state, world.record(call).reason) == ("failed", "tool.timeout")
    assert world.run().state in ("frozen", "closed", "open")


@pytest.mark.parametrize(("caps", "price"), [({"tool_calls": 1}, 0), ({"usd_micros": 9}, 5)])
def test_without_budget_the_last_fault_stands(caps: dict[str, int], price: int) -> None:
    world = opened(policy(rule("*", READ, usd_micros=price), **caps))
    call = world.call("crm.get", a=1)
    assert world.again(call, ERROR).state == "failed"
    assert world.record(call).result == sealed(ERROR.result).hash


def test_each_attempt_costs_one_tool_call() -> None:
    world = opened(tool_calls=3)
    call = world.call("crm.get", a=1)
    assert [world.again(call).state for _ in range(3)] == ["admitted", "admitted", "failed"]


def test_a_parents_purse_must_pay_another_attempt_too() -> None:
    world = opened(tool_calls=1)
    child = world.open(parent=world.run_id, policies=policy())
    assert world.again(world.call("crm.get", run=child, a=1)).state == "failed"


def test_a_call_keeps_its_place_in_flight_and_in_its_turn() -> None:
    world = opened(in_flight_calls=1, tool_calls_per_turn=1)
    assert world.again(world.call("crm.get", turn=1, a=1)).attempt == 2


def test_a_budget_in_the_shadow_stops_no_attempt() -> None:
    world = opened(policy(rule("*", READ, shadow=("budgets",)), tool_calls=1))
    assert world.again(world.call("crm.get", a=1)).attempt == 2


def test_a_loop_or_a_closed_turn_is_no_reason_to_give_an_attempt_up() -> None:
    world = opened()
    call = world.call("crm.get", turn=1, a=1)
    world.end(1)
    assert world.again(call).attempt == 2


def test_no_write_is_attempted_again_with_less_time_than_it_needs() -> None:
    world = opened(policy(rule("*", WRITE, min_time_ms=500), deadline_ms=1_000))
    call = world.call("crm.set", a=1)
    world.wait(501, sweep=False)
    assert world.again(call, DOUBT).state == "in_doubt"


@pytest.mark.parametrize("dead", [False, True])
@pytest.mark.parametrize(("waited", "state"), [(5_000, "admitted"), (5_001, "in_doubt")])
def test_no_dispatch_uses_a_key_that_its_upstream_has_forgotten(waited: int, state: str, dead: bool) -> None:
    world = opened(policy(rule("*", WRITE, upstream_key_ttl_ms=5_000)))
    call = world.call("crm.set", a=1)
    world.wait(waited, sweep=False)
    assert world.again(call, DOUBT, dead=dead).state == state


def test_how_long_a_key_is_remembered_counts_from_the_first_attempt() -> None:
    world = opened(policy(rule("*", WRITE, upstream_key_ttl_ms=5_000)))
    call = world.call("crm.set", a=1)
    world.wait(4_000)
    world.again(call)
    world.wait(4_000)
    assert world.again(call, DOUBT).state == "in_doubt"


def test_reads_have_no_key_to_be_forgotten() -> None:
    world = opened(policy(rule("*", READ, upstream_key_ttl_ms=5_000)))
    call = world.call("crm.get", a=1)
    world.wait(9_000)
    assert world.again(call).attempt == 2


# ---- a dead owner's calls -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "state", "attempt"), [("crm.get", "admitted", 2), ("crm.set", "admitted", 2), ("mail.send", "in_doubt", 1)])
def test_what_a_dead_owner_left_is_tried_again_or_in_doubt_by_effect(name: str, state: str, attempt: int) -> None:
    world = opened()
    after = world.again(world.call(name, a=1), owner="two", dead=True)
    assert (after.state, after.attempt, after.reason) == (state, attempt, "call.in_doubt" if state == "in_doubt" else None)


@pytest.mark.parametrize(("name", "state", "reason"), [("crm.get", "cancelled", "call.cancelled"), ("crm.set", "in_doubt", "call.in_doubt")])
@pytest.mark.parametrize("how", ["freeze", "cancel"])
def test_what_may_not_be_tried_again_is_cancelled_or_in_doubt_by_effect(name: str, state: str, reason: str, how: str) -> None:
    world = opened()
    call = world.call(name, a=1)
    getattr(world, how)()
    after = world.again(call, owner="two", dead=True)
    assert (after.state, after.reason) == (state, reason)
    assert world.run().state == ("frozen" if how == "freeze" else "closed")


@pytest.mark.parametrize("name", ["crm.set", "mail.send"])
def test_what_was_settled_or_taken_over_meanwhile_is_left_alone(name: str) -> None:
    world = opened()
    call = world.call(name, a=1)
    world.again(call, attempt=9, dead=True)
    assert world.events == []
    world.settle(call)
    assert (world.again(call, dead=True).state, world.events) == ("succeeded", [])


def test_giving_up_costs_what_was_set_aside() -> None:
    world = opened(tool_calls=1)
    world.again(world.call("mail.send", a=1), dead=True)
    assert verdict(world.call("mail.send", a=2)) == "budget.tool_calls"


def test_each_attempt_pays_its_price() -> None:
    world: Any = opened(policy(rule("*", ACT, never(), usd_micros=5), rule("x", ACT, asks())))
    call = world.call("mail.send", a=1)
    world.again(call, REFUSED)
    world.settle(call)
    assert (world.run().facts["budgets"].posted.usd_micros, world.record(call).usd_micros) == (10, 5)
