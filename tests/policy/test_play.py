"""A run played on the pure core: it folds what was decided and goes on from there."""

from __future__ import annotations

import json

import pytest

from gateway.core import events as e
from gateway.core.decide.calls import Admit
from gateway.core.guards.budgets import Budgets
from gateway.core.guards.result import ResultGuard
from gateway.core.model import CallRequest, Finding, Limits, Outcome
from gateway.core.run import Hold
from gateway.policy.play import completed
from tests.core.guards.given import ACT, MIA, NOW, WRITE, asks, given, policy, reasons, rule, verdict


def test_what_happened_decides_what_happens_next() -> None:
    run = given(policy(rule(effect=WRITE), guards=(Budgets(),), limits=Limits(tool_calls=1)))
    run.happens(n=1)
    assert [verdict(run.when(n=1)), verdict(run.when(n=2))] == ["replay", "deny"]


def test_a_call_tells_its_events_and_what_was_only_recorded() -> None:
    run = given(policy(rule(shadow=("budgets",)), guards=(Budgets(),), limits=Limits(tool_calls=0)))
    asked = run.when()
    assert [type(event) for event in asked.events] == [e.CallAdmitted]
    assert (asked.shadowed, asked.findings) == (("budget.tool_calls",), ())
    assert reasons(run.when("nobody.has_this")) == ["tool.not_allowed"]


def test_an_outcome_is_recorded_as_the_rule_lets_it_be_seen() -> None:
    run = given(policy(rule(ResultGuard(1000, (("card",),), None))))
    asked = run.when()
    assert isinstance(asked.next, Admit)
    assert "4111" not in json.dumps(run.settle(asked, Outcome("succeeded", result=completed({"card": "4111"}), answered=True)).result)
    assert run.tree.calls[asked.next.call].state == "succeeded"


def test_a_vote_is_on_the_latest_call_that_waits() -> None:
    run = given(policy(rule(asks(), effect=ACT)))
    for n in range(11):
        if n % 5 == 0:
            run.when(n=n)
        else:
            run.when("nobody.has_this", n=n)
    hold = run.vote(MIA, "approve", "fine")
    assert isinstance(hold, Hold)
    assert (hold.id, hold.state, hold.votes[0].note) == ("hold_played_11", "approved", "fine")


def test_a_vote_that_may_not_be_cast_is_a_finding_and_one_on_nothing_an_error() -> None:
    run = given(policy(rule(asks(), effect=ACT)))
    with pytest.raises(LookupError):
        run.vote(MIA, "approve")
    run.when()
    assert isinstance(run.vote(run.principal, "approve"), Finding)


def test_time_passes_only_when_told_and_does_what_time_does() -> None:
    run = given(policy(guards=(Budgets(),), limits=Limits(deadline_ms=1000)))
    assert (run.now, run.budget.seconds_left) == (NOW, 1.0)
    run.wait(1000)
    assert (run.now, reasons(run.when())) == (NOW + 1000, ["run.not_open"])


def test_turns_and_usage_count() -> None:
    run = given(policy(guards=(Budgets(),), limits=Limits(turns=2, tokens=100)))
    assert run.open_turn() == 1
    run.uses(1, 40)
    assert (run.budget.turns_left, run.budget.tokens_left) == (1, 60)


def test_a_trusted_call_id_is_taken_as_the_principal_gives_it() -> None:
    run = given(policy(rule(effect=WRITE)))
    run.happens(call_id="c1", n=1)
    assert reasons(run.call(CallRequest("crm.get", {"n": 2}, "rest", "c1"))) == ["key.reused"]


def test_answers_look_like_those_of_tools() -> None:
    assert completed() == {"content": [{"type": "text", "text": ""}], "isError": False}
    assert completed({"a": 1}) == {"content": [{"type": "text", "text": '{"a": 1}'}], "isError": False, "structuredContent": {"a": 1}}
    assert completed([1])["content"][0]["text"] == "[1]"
    assert completed(error="no") == {"content": [{"type": "text", "text": "no"}], "isError": True}
