"""Approved calls that the gateway executes by itself (`execute: at_once`)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gateway.core import events as e
from tests.core.build import ACT, NOW, World, asks, opened, policy, rule


def approved(**caps: Any) -> tuple[World, Any]:
    world = opened(policy(rule("pay.*", ACT, asks(), timeout_ms=1_000, usd_micros=5), *policy().policy.rules[:1], **caps))
    call = world.call("pay.refund", turn=1, call_id="c1", a=1)
    world.vote(call)
    return world, call


def test_an_approved_call_is_admitted_exactly_as_it_was_approved() -> None:
    world, call = approved()
    before = world.record(call)
    after = world.execute(call)
    event = world.events[0]
    assert isinstance(event, e.CallAdmitted)
    assert (world.kinds, after.state, world.hold(call).state) == (["CallAdmitted", "HoldReleased"], "admitted", "consumed")
    same = ("key", "occurrence", "fingerprint", "arguments", "turn", "call_id", "policy_digest", "effect", "upstream", "usd_micros")
    assert [getattr(event, name) for name in same] == [getattr(before, name) for name in same]
    assert (event.attempt, event.owner, event.deadline_at, event.lease_until) == (1, "one", NOW + 1_000, NOW + 6_000)


def test_it_is_executed_once() -> None:
    world, call = approved()
    world.execute(call)
    assert (world.execute(call).attempt, world.events) == (1, [])


def test_a_call_that_is_still_held_is_not_executed() -> None:
    world = opened()
    call = world.call("pay.refund")
    assert (world.execute(call).state, world.events) == ("held", [])


def test_an_approval_that_lapsed_is_not_executed() -> None:
    world, call = approved()
    world.wait(899_999, sweep=False)
    assert world.execute(call).state == "admitted"
    world, call = approved()
    world.wait(900_000, sweep=False)
    assert (world.execute(call).state, world.record(call).reason, world.kinds) == ("denied", "approval.lapsed", ["HoldExpired", "HoldReleased"])


@pytest.mark.parametrize("changed", ["tool", "policy"])
def test_what_has_changed_since_is_not_executed(changed: str) -> None:
    world, call = approved()
    if changed == "policy":
        tree = world.tree()
        world.states[world.run_id] = replace(tree, runs=tree.runs.set(world.run_id, replace(world.run(), policy_digest="newer")))
    after = world.execute(call, "changed" if changed == "tool" else "d")
    assert (after.reason, world.hold(call).state, world.kinds) == ("approval.void", "void", ["HoldVoided", "HoldReleased"])


@pytest.mark.parametrize("how", ["freeze", "deadline", "in_flight"])
def test_it_stays_ready_while_the_run_lets_nothing_start(how: str) -> None:
    world, call = approved(in_flight_calls=1, deadline_ms=1_000, close_on=(), turns=5)
    if how == "freeze":
        world.freeze()
    elif how == "in_flight":
        world.call("crm.get", turn=1)
    else:
        world.policies = policy(rule("pay.*", ACT, asks(), min_time_ms=1_001))
    assert (world.execute(call).state, world.events) == ("ready", [])


def test_its_tool_call_was_paid_when_it_was_held() -> None:
    world, call = approved(tool_calls=1, usd_micros=5)
    assert world.execute(call).state == "admitted"
