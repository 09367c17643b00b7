"""Calls that wait for people, and what an approval is worth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.core import events as e
from gateway.core.decide import calls
from gateway.core.decide.draft import NeedsStream
from tests.core.build import ACT, KIM, MIA, NOW, READ, STRANGER, World, asks, document, keyed, opened, policy, rule, verdict

# ---- held ---------------------------------------------------------------------------------------------------------------


def test_a_hold_says_all_that_people_need() -> None:
    one, two = asks("user:mia", expires_in_ms=500, execute_within_ms=90), asks("user:kim", "group:finance", expires_in_ms=900, execute_within_ms=80)
    world = opened(policy(rule("*", ACT, one, two, usd_micros=3)))
    answer = world.call("pay.refund", a=1)
    event = world.events[0]
    assert isinstance(event, e.CallHeld)
    assert (event.hold, event.expires_at, event.execute_within_ms, event.usd_micros) == ("hold_r1_1", NOW + 500, 80, 3)
    assert (event.tool_digest, event.policy_digest, event.show) == ("d", "set of p", "pay.refund")
    assert (world.record(answer).state, answer.hold, answer.call) == ("held", world.hold(answer), "call_r1_1")
    assert [requirement.approvers for requirement in answer.hold.requirements] == [("user:mia",), ("user:kim", "group:finance")]
    assert dict(world.mine().open_holds) == {"hold_r1_1": NOW}


def test_a_hold_ends_with_its_run_at_the_latest() -> None:
    world = opened(policy(rule("*", ACT, asks(expires_in_ms=9_000)), max_age_ms=5_000))
    child = world.open(parent=world.run_id, policies=policy(max_age_ms=7_000))
    assert world.call("pay.refund", run=child).hold.expires_at == NOW + 5_000


@pytest.mark.parametrize(("most", "then"), [(1, "budget.open_holds"), (2, "hold"), (None, "hold")])
def test_a_principal_may_have_only_so_many_holds_over_all_its_runs(most: int | None, then: str) -> None:
    world = World(open_holds=most)
    first, second = world.open(), world.open()
    world.call("pay.refund", run=first)
    assert verdict(world.call("pay.refund", run=second)) == then


def test_a_run_may_have_only_so_many_holds_and_running_calls_are_no_matter() -> None:
    world = opened(open_holds=1, in_flight_calls=1)
    world.call("crm.get")
    assert [verdict(world.call("pay.refund", n=n)) for n in range(2)] == ["hold", "budget.open_holds"]
    assert verdict(world.call("crm.get", n=1)) == "budget.in_flight"


def test_a_stream_that_a_hold_counts_in_is_asked_for() -> None:
    world = opened()
    with pytest.raises(NeedsStream) as need:
        calls.call({world.run_id: world.tree()}, world.command("pay.refund"), NOW)
    assert need.value.stream == "principal:agent:bot"


def test_limits_speak_before_people_are_asked() -> None:
    world = opened(tool_calls=0)
    assert verdict(world.call("pay.refund")) == "budget.tool_calls"


# ---- approved -----------------------------------------------------------------------------------------------------------


def approved(world: World, **asked: Any) -> Any:
    held = world.call("pay.refund", **asked)
    world.vote(held)
    return held


def test_what_was_approved_runs_once_and_consumes_its_hold() -> None:
    world = opened()
    held = approved(world, a=1)
    answer = world.call("pay.refund", a=1)
    assert (verdict(answer), world.record(held).state, world.hold(held).state) == ("allow", "admitted", "consumed")
    assert answer.call == held.call
    assert len(world.mine().open_holds) == 0
    world.settle(answer)
    assert verdict(world.call("pay.refund", a=1)) == "replay"


@pytest.mark.parametrize(("after", "reason"), [(0, None), (899_999, None), (900_000, "approval.lapsed"), (10**6, "approval.lapsed")])
def test_an_approval_that_is_not_used_in_time_lapses(after: int, reason: str | None) -> None:
    world = opened()
    held = approved(world, a=1)
    world.wait(after, sweep=False)
    answer = world.call("pay.refund", a=1)
    assert world.record(held).reason == reason
    assert (verdict(answer), world.kinds[0]) == (("allow", "CallAdmitted") if reason is None else ("hold", "HoldExpired"))


def test_a_hold_that_nobody_decided_on_is_asked_for_anew() -> None:
    world = opened()
    first = world.call("pay.refund", a=1)
    world.wait(86_399_999, sweep=False)
    assert world.call("pay.refund", a=1).call == first.call
    world.wait(1, sweep=False)
    second = world.call("pay.refund", a=1)
    assert (verdict(second), world.kinds) == ("hold", ["HoldExpired", "HoldReleased", "CallHeld", "HoldCounted"])
    assert world.record(first).reason == world.hold(first).reason == "approval.expired"
    assert world.record(second).key == world.record(first).key


def test_a_changed_definition_voids_an_approval() -> None:
    world = opened()
    held = approved(world, a=1)
    world.digests["pay.refund"] = "changed"
    assert (verdict(world.call("pay.refund", a=1)), world.kinds[:2]) == ("hold", ["HoldVoided", "HoldReleased"])
    assert (world.record(held).reason, world.hold(held).state) == ("approval.void", "void")


def test_a_changed_rule_voids_an_approval() -> None:
    world = opened()
    approved(world, a=1)
    world.policies = replace(policy(rule("pay.*", ACT, asks(digest="changed"))), digest=world.run().policy_digest)
    assert (verdict(world.call("pay.refund", a=1)), world.kinds[0]) == ("hold", "HoldVoided")


def test_an_approval_is_for_these_arguments_even_where_the_key_leaves_them_out() -> None:
    world = opened(policy(rule("pay.*", ACT, asks(), idempotency=keyed("order"))))
    approved(world, order=1, amount=5)
    assert (verdict(world.call("pay.refund", order=1, amount=500)), world.kinds[0]) == ("hold", "HoldVoided")


def test_an_approval_is_for_the_one_who_asked() -> None:
    world = opened()
    approved(world, a=1)
    assert (verdict(world.call("pay.refund", who=STRANGER, a=1)), world.kinds[0]) == ("hold", "HoldVoided")


def test_an_approved_deliberate_repeat_goes_on() -> None:
    world = opened()
    world.does("mail.send", a=1)
    world.vote(world.call("mail.send", operation_id="op", a=1))
    assert verdict(world.call("mail.send", operation_id="op", a=1)) == "allow"


@pytest.mark.parametrize("how", ["in_flight", "freeze", "deadline"])
def test_an_approved_call_that_may_not_start_now_stays_ready(how: str) -> None:
    world = opened(in_flight_calls=1, deadline_ms=1_000, close_on=())
    held = approved(world, a=1)
    if how == "in_flight":
        world.call("crm.get")
    elif how == "freeze":
        world.freeze()
    else:
        world.wait(999, sweep=False)
        world.policies = replace(policy(rule("pay.*", ACT, asks(), min_time_ms=2)), digest=world.run().policy_digest)
    answer = world.call("pay.refund", a=1)
    reason = {"in_flight": "budget.in_flight", "freeze": "run.not_open", "deadline": "run.deadline"}[how]
    assert (verdict(answer), world.kinds, world.record(held).state) == (reason, ["CallDenied"], "ready")


def test_an_approved_call_says_what_a_shadow_saw_when_it_runs() -> None:
    world = opened(policy(rule("pay.*", ACT, asks(), shadow=("budgets",)), rule("crm.*", READ), in_flight_calls=0))
    approved(world, a=1)
    world.call("pay.refund", a=1)
    assert [finding["reason"] for finding in world.events[0].shadowed] == ["budget.in_flight"]  # type: ignore[attr-defined]
    assert world.kinds[0] == "CallAdmitted"


def test_people_named_by_two_documents_must_all_agree() -> None:
    ceiling = document(rule("pay.*", ACT, asks("user:kim", digest="c")), kind="ceiling")
    world = opened(policy(rule("pay.*", ACT, asks("user:mia")), ceilings=(ceiling,)))
    held = world.call("pay.refund")
    assert world.vote(held, MIA).state == "held"
    assert world.vote(held, KIM).state == "approved"
