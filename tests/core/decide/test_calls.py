"""One call's step: what is admitted and refused, and what of it stands in the ledger. Holds, loops, repeats: see the files beside."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import asdict, replace

from gateway.core import events as e
from gateway.core.decide import calls
from gateway.core.guards.authorize import Authorize
from gateway.core.model import CallRequest, Limits, Malformed
from tests.core.build import ACT, DONE, DOUBT, ERROR, NOW, READ, STOPPED, WRITE, World, asks, document, never, opened, policy, rule, sealed, verdict

NO = Authorize("false", lambda facts: False)


def denied(world: World) -> e.CallDenied:
    event = world.events[0]
    assert isinstance(event, e.CallDenied)
    return event


# ---- admitted -----------------------------------------------------------------------------------------------------------


def test_the_intent_says_all_that_its_dispatch_needs() -> None:
    world = opened(policy(rule("*", WRITE, timeout_ms=1_000, usd_micros=7)))
    answer = world.call("crm.set", call_id="c1", operation_id="op", turn=1, a=1)
    event = world.events[-1]
    assert isinstance(event, e.CallAdmitted)
    assert (event.tool, event.upstream, event.effect, event.attempt, event.usd_micros) == ("crm.set", "crm", "idempotent_write", 1, 7)
    assert (event.call_id, event.operation_id, event.turn, event.door, event.owner) == ("c1", "op", 1, "rest", "one")
    assert (event.deadline_at, event.lease_until) == (NOW + 1_000, NOW + 6_000)
    assert (event.arguments, event.policy_digest, event.hold) == (sealed({"a": 1}).hash, "set of p", None)
    assert world.record(answer).id == event.call


def test_each_fresh_read_of_one_operation_is_a_new_occurrence() -> None:
    world = opened(policy(rule("*", READ, usd_micros=3, timeout_ms=9)))
    for number in range(3):
        answer = world.call("crm.get", turn=number, call_id="c", operation_id="op", a=1)
        assert world.record(answer).occurrence == number
        world.settle(answer)


def test_a_price_must_fit_before_it_is_paid() -> None:
    world = opened(policy(rule("*", READ, usd_micros=3), usd_micros=5))
    assert [verdict(world.call("crm.get", n=n)) for n in range(2)] == ["allow", "budget.cost"]


def test_no_attempt_outlasts_its_run() -> None:
    world = opened(deadline_ms=10_000)
    world.wait(4_000)
    assert world.record(world.call("crm.get")).deadline_at == NOW + 10_000


def test_the_arguments_are_kept_beside_the_intent() -> None:
    world = opened()
    draft, _ = calls.call({world.run_id: world.tree()}, world.command("crm.get", a=1), NOW)
    assert draft.payloads == [(world.run_id, sealed({"a": 1}))]


def test_arguments_that_are_none_are_not_kept() -> None:
    world = opened()
    request = CallRequest("crm.get", Malformed("no object"), "rest")
    world.policies = policy(rule("*", READ, NO))
    world.decide(replace(world.command("crm.get"), request=request, assessment=world.assessed(request), arguments=None))
    assert denied(world).arguments is None


def test_each_call_gets_an_id_of_its_own() -> None:
    world = opened(policy(rule("crm.*", READ), rule("no.*", READ, NO), rule("pay.*", ACT, asks())))
    answers = [world.call(name) for name in ("crm.get", "no.a", "pay.b")]
    assert (answers[0].call, answers[1].call, answers[2].call) == ("call_r1_1", "call_r1_2", "call_r1_3")
    assert world.call("crm.get", run=world.open(parent=world.run_id)).call == "call_r1_4"


def test_what_was_judged_under_another_policy_is_judged_again_before_anything_is_answered() -> None:
    world = opened(policy(rule("*", READ, NO)))
    for stale in (policy(rule("*", READ, NO), name="stale"), policy(name="stale")):
        world.policies = stale
        assert (world.call("crm.set", a=1), world.events) == (calls.Reassess("set of p"), [])


# ---- refused before the queue -------------------------------------------------------------------------------------------


def test_a_refusal_before_the_queue_is_recorded_and_costs_nothing() -> None:
    world = opened(policy(rule("*", READ, NO), tool_calls=1))
    before = world.run().facts.get("budgets")
    answer = world.call("crm.get", call_id="c1", a=1)
    assert (verdict(answer), world.kinds, answer.call) == ("authorization.denied", ["CallDenied"], "call_r1_1")
    assert denied(world).findings == tuple(asdict(finding) for finding in answer.findings)
    assert world.run().facts.get("budgets") == before
    assert len(world.run().by_print) == len(world.run().by_call_id) == 0


def test_what_a_shadow_would_have_said_stands_beside_what_happened() -> None:
    world = opened(policy(rule("crm.*", READ, NO, shadow=("authorize", "budgets")), rule("pay.*", ACT, asks(), shadow=("budgets",)), tool_calls=0))
    for name in ("crm.get", "pay.refund"):
        world.call(name)
        reasons = [finding["reason"] for finding in world.events[0].shadowed]  # type: ignore[attr-defined]
        assert reasons == [*(["authorization.denied"] if name == "crm.get" else []), "budget.tool_calls"]


def test_a_refusal_tells_what_only_a_shadow_saw() -> None:
    world = opened(policy(rule("*", READ, NO, shadow=("authorize",)), turns=0))
    world.call("crm.get", turn=1)
    assert [finding["reason"] for finding in denied(world).shadowed] == ["authorization.denied"]


# ---- the run ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["freeze", "finish", "cancel"])
@pytest.mark.parametrize("above", [False, True])
@pytest.mark.parametrize("name", ["crm.get", "crm.set", "pay.refund", "mail.send"])
def test_nothing_is_admitted_or_held_in_a_run_that_is_not_open_here_and_above(how: str, above: bool, name: str) -> None:
    world = opened()
    child = world.open(parent=world.run_id)
    getattr(world, how)(world.run_id if above else child)
    answer = world.call(name, run=child, a=1)
    assert (verdict(answer), world.kinds) == ("run.not_open", ["CallDenied"])


def test_nothing_is_admitted_while_a_run_closes() -> None:
    world = opened()
    world.call("crm.set", a=1)
    world.finish()
    assert world.run().state == "closing"
    assert verdict(world.call("crm.get")) == "run.not_open"


def test_a_frozen_parent_freezes_an_unfrozen_child() -> None:
    world = opened()
    child = world.open(parent=world.run_id)
    world.freeze()
    world.resume(child)
    assert world.run(child).state == "open"
    assert verdict(world.call("crm.get", run=child)) == "run.not_open"


def test_past_the_deadline_a_call_ends_the_run_where_the_policy_says_so() -> None:
    world = opened(deadline_ms=1_000)
    world.wait(1_000, sweep=False)
    assert verdict(world.call("crm.get")) == "run.deadline"
    assert (world.kinds, world.run().status, world.run().reason) == (
        ["CallDenied", "RunClosing", "RunClosed", "RunReleased"], "blocked", "deadline_exceeded",
    )  # fmt: skip


def test_past_the_deadline_a_run_that_only_refuses_stays_open() -> None:
    world = opened(deadline_ms=1_000, close_on=())
    world.wait(1_000)
    assert verdict(world.call("crm.get")) == "run.deadline"
    assert world.run().state == "open"


def test_a_childs_calls_end_at_its_parents_deadline() -> None:
    world = opened(deadline_ms=1_000)
    child = world.open(parent=world.run_id, tighten=Limits(deadline_ms=None))
    world.wait(999, sweep=False)
    assert verdict(world.call("crm.get", run=child)) == "allow"
    world.wait(1, sweep=False)
    assert verdict(world.call("crm.get", run=child, a=1)) == "run.deadline"


@pytest.mark.parametrize(("name", "verdict_then"), [("crm.set", "run.deadline"), ("crm.get", "allow")])
def test_no_write_starts_with_less_time_than_it_needs(name: str, verdict_then: str) -> None:
    world = opened(policy(rule("crm.get", READ, min_time_ms=500), rule("crm.set", WRITE, min_time_ms=500), deadline_ms=1_000))
    world.wait(500)
    assert verdict(world.call(name, a=1)) == "allow"
    world.wait(1)
    assert (verdict(world.call(name, a=2)), world.run().state) == (verdict_then, "open")


# ---- turns --------------------------------------------------------------------------------------------------------------


def test_a_call_that_names_a_new_turn_opens_it() -> None:
    world = opened(turns=5, tokens=100, tokens_per_turn=10)
    assert verdict(world.call("crm.get", turn=1)) == "allow"
    assert world.kinds == ["TurnOpened", "CallAdmitted"]
    assert (world.run().last_turn, world.run().turns[1].tokens) == (1, 10)
    world.call("crm.get", turn=1, a=1)
    assert world.kinds == ["CallAdmitted"]


def test_a_turn_that_the_budget_cannot_pay_is_refused_and_ends_the_run() -> None:
    world = opened(turns=1)
    world.begin()
    assert verdict(world.call("crm.get", turn=2)) == "budget.turns"
    assert (world.kinds[:2], world.run().reason) == (["CallDenied", "RunClosing"], "turn_budget")


def test_an_old_number_that_was_never_opened_is_no_new_turn() -> None:
    world = opened()
    world.call("crm.get", turn=5)
    assert verdict(world.call("crm.get", turn=3, a=1)) == "turn.unknown"


def test_an_approved_call_may_go_on_in_a_new_turn() -> None:
    world = opened()
    world.vote(world.call("pay.refund", turn=1, a=1))
    assert verdict(world.call("pay.refund", turn=2, call_id="c9", a=1)) == "allow"
    assert world.kinds == ["TurnOpened", "CallAdmitted", "HoldReleased"]
    assert world.run().by_call_id[(2, "c9")] == "call_r1_1"


# ---- replays and joins --------------------------------------------------------------------------------------------------


def test_a_replay_says_what_was_asked_and_what_answered() -> None:
    world = opened()
    first = world.does("crm.set", a=1)
    world.call("crm.set", call_id="c2", turn=0, a=1)
    event = world.events[0]
    assert isinstance(event, e.CallReplayed)
    assert (event.call, event.of, event.call_id, event.result) == (first.id, world.run_id, "c2", first.result)
    assert (event.same_call_id, event.joined, event.loop) == (False, False, None)


@pytest.mark.parametrize(("outcome", "noted"), [(DONE, True), (ERROR, True), (STOPPED, False), (DOUBT, False)])
def test_a_join_is_noted_once_its_dispatch_has_answered(outcome: Any, noted: bool) -> None:
    world = opened()
    first = world.call("crm.set", a=1)
    command = world.command("crm.set", call_id="c2", a=1)
    world.decide(command)
    world.settle(first, outcome)
    answer = world.decided(lambda states: calls.joined(states, command, world.record(first).id, world.now), world.run_id)
    assert (answer.record, world.kinds) == (world.record(first), ["CallReplayed"] if noted else [])
    if noted:
        assert world.events[0].joined  # type: ignore[attr-defined]


def test_replays_and_joins_cost_nothing() -> None:
    world = opened(tool_calls=1)
    world.does("crm.set", a=1)
    assert [verdict(world.call("crm.set", a=1)) for _ in range(2)] == ["replay"] * 2
    assert verdict(world.call("crm.get")) == "budget.tool_calls"


def test_a_ceiling_that_raises_the_effect_raises_it_for_repeats_too() -> None:
    world = opened(policy(rule("*", READ), ceilings=(document(rule("crm.*", ACT, never()), kind="ceiling"),)))
    world.does("crm.get", a=1)
    assert verdict(world.call("crm.get", a=1)) == "replay"
    assert verdict(world.call("crm.get", operation_id="op", a=1)) == "hold"


