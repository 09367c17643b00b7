"""budgets: what is set aside, posted, released; and that nothing is admitted beyond a cap, here or up the lineage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from gateway.core import events as e
from gateway.core.decide import runs, settle
from gateway.core.decide.calls import Admit
from gateway.core.decide.draft import Draft
from gateway.core.guards.budgets import SAYS_NOTHING, Budgets, Purse, checked_caps, limits_of, purse
from gateway.core.model import Amounts, Limits, Outcome
from gateway.core.policy import PolicySet, stricter
from gateway.core.run import stream_of
from tests.core.guards.given import ACT, BOT, MIA, WRITE, Given, Written, asks, bid, given, policy, reasons, rule, verdict

FAILED = Outcome("failed", "tool.error", answered=True)
DOUBT = Outcome("in_doubt", "call.in_doubt")


def capped(*rules: Any, **limits: Any) -> Given:
    return given(policy(*rules, guards=(Budgets(),), limits=Limits(**limits)))


def the_purse(run: Given) -> Purse:
    return purse(run.tree.runs[run.run])


# ---- tool calls ---------------------------------------------------------------------------------------------------------


def test_the_last_call_that_the_budget_pays_runs_and_the_next_is_refused() -> None:
    run = capped(tool_calls=2)
    assert [verdict(run.happens(n=n)) for n in range(3)] == ["allow", "allow", "deny"]
    assert reasons(run.when(n=9)) == ["budget.tool_calls"]


def test_a_running_call_counts_before_its_outcome_is_known() -> None:
    run = capped(tool_calls=1)
    run.when(n=1)
    assert the_purse(run).pending == Amounts(tool_calls=1)
    assert reasons(run.when(n=2)) == ["budget.tool_calls"]


@pytest.mark.parametrize("outcome", [FAILED, DOUBT, Outcome("cancelled", "call.cancelled")])
def test_one_attempt_costs_one_call_whatever_came_of_it(outcome: Outcome) -> None:
    run = capped(tool_calls=1)
    run.happens(outcome=outcome)
    assert (the_purse(run).posted, the_purse(run).pending) == (Amounts(tool_calls=1), Amounts())
    assert reasons(run.when(n=2)) == ["budget.tool_calls"]


def test_a_call_in_doubt_is_not_posted_twice_when_its_outcome_becomes_known() -> None:
    run = capped(rule(effect=WRITE))
    asked = run.happens(outcome=DOUBT)
    assert isinstance(asked.next, Admit)
    record = run.tree.calls[asked.next.call]
    late = settle.SettleCommand(record.id, 1, record.owner, Outcome("succeeded", answered=True), None)
    fold(run, settle.settle(run.states, late, run.now)[0])
    assert (the_purse(run).posted, the_purse(run).in_flight) == (Amounts(tool_calls=1), 0)


def test_a_replay_costs_nothing() -> None:
    run = capped(rule(effect=WRITE), tool_calls=1)
    run.happens()
    assert verdict(run.when()) == "replay"
    assert the_purse(run).used == Amounts(tool_calls=1)


def test_a_second_attempt_costs_a_second_call() -> None:
    run = capped(rule(effect=WRITE, usd_micros=7), tool_calls=3)
    asked = run.when()
    assert isinstance(asked.next, Admit)
    fold(run, again(run, asked.next.call, asked.assessment.rule, 1)[0])
    assert (the_purse(run).posted, the_purse(run).pending, the_purse(run).in_flight) == (Amounts(0, 1, 0, 7), Amounts(0, 1, 0, 7), 1)


def test_without_budget_for_another_attempt_the_last_fault_stands() -> None:
    run = capped(rule(effect=WRITE), tool_calls=1)
    asked = run.when()
    assert isinstance(asked.next, Admit)
    draft, call = again(run, asked.next.call, asked.assessment.rule, 1)
    assert (draft.tree.calls[call].state, [type(event) for _, event in draft.events]) == ("in_doubt", [e.CallSettled])


def again(run: Given, call: str, by: Any, attempt: int) -> Any:
    return settle.again(run.states, settle.AgainCommand(call, attempt, by, "play", 0, DOUBT), run.now)


def fold(run: Given, draft: Draft) -> None:
    run._fold(draft)


# ---- holds --------------------------------------------------------------------------------------------------------------


def test_a_hold_sets_its_amounts_aside_and_they_travel_with_it() -> None:
    run = capped(rule(asks(), effect=ACT, usd_micros=50), tool_calls=1)
    run.when(n=1)
    assert (the_purse(run).pending, the_purse(run).holds) == (Amounts(0, 1, 0, 50), 1)
    assert reasons(run.when(n=2)) == ["budget.tool_calls"]
    run.vote(MIA, "approve")
    assert verdict(run.when(n=1)) == "allow"
    assert (the_purse(run).pending, the_purse(run).holds, the_purse(run).in_flight) == (Amounts(0, 1, 0, 50), 0, 1)


@pytest.mark.parametrize("end", ["denied", "expired", "cancelled"])
def test_a_hold_that_ends_without_execution_releases_what_it_set_aside(end: str) -> None:
    run = capped(rule(asks(), effect=ACT, usd_micros=50), tool_calls=1)
    run.when(n=1)
    if end == "denied":
        run.vote(MIA, "deny")
    elif end == "expired":
        run.wait(86_400_000)
    else:
        fold(run, runs.cancel(run.states, run.run, "agent:bot", run.now)[0])
    assert (the_purse(run).used, the_purse(run).holds) == (Amounts(), 0)


def test_a_hold_that_got_dearer_until_it_was_executed_is_paid_in_full() -> None:
    run = capped(rule(asks(), effect=ACT, usd_micros=50))
    run.when(n=1)
    run.vote(MIA, "approve")
    run.policies = policy(rule(asks(), effect=ACT, usd_micros=80), guards=(Budgets(),))
    run.happens(n=1)
    assert (the_purse(run).pending, the_purse(run).posted) == (Amounts(), Amounts(0, 1, 0, 80))


def test_only_so_many_calls_may_wait_at_once() -> None:
    run = capped(rule(asks(), effect=ACT), open_holds=1)
    assert [verdict(run.when(n=n)) for n in (1, 2)] == ["hold", "deny"]
    assert reasons(run.when(n=3)) == ["budget.open_holds"]


# ---- turns, in flight ---------------------------------------------------------------------------------------------------


def test_only_so_many_calls_may_run_at_once_and_held_ones_do_not_run() -> None:
    run = capped(rule(name="crm.get"), rule(asks(), name="crm.pay", effect=ACT), in_flight_calls=1)
    assert [verdict(run.when(n=1)), verdict(run.when("crm.pay"))] == ["allow", "hold"]
    assert reasons(run.when(n=2)) == ["budget.in_flight"]


def test_only_so_many_calls_may_stand_in_one_turn() -> None:
    run = capped(tool_calls_per_turn=2)
    run.open_turn()
    assert [verdict(run.happens(n=n, turn=1)) for n in range(3)] == ["allow", "allow", "deny"]
    assert reasons(run.when(n=9, turn=1)) == ["budget.tool_calls_per_turn"]
    run.open_turn()
    assert verdict(run.when(n=9, turn=2)) == "allow"
    assert verdict(run.when(n=8)) == "allow"


def test_turns_beyond_the_cap_are_refused_and_end_the_run() -> None:
    run = capped(turns=1)
    assert run.open_turn() == 1
    (finding,) = run.open_turn()  # type: ignore[misc]
    assert (finding.reason, finding.closes) == ("budget.turns", True)
    assert (run.tree.runs[run.run].status, run.tree.runs[run.run].reason) == ("blocked", "turn_budget")


def test_a_call_that_names_a_new_turn_opens_it_or_is_refused_even_where_its_rule_shadows_budgets() -> None:
    run = capped(rule(shadow=("budgets",)), turns=1)
    assert verdict(run.when(turn=1, n=1)) == "allow"
    assert reasons(run.when(turn=2, n=2)) == ["budget.turns"]


def test_in_the_shadow_of_its_rule_a_budget_is_recorded_only() -> None:
    run = capped(rule(name="crm.get", shadow=("budgets",)), rule(name="crm.set"), tool_calls=0)
    asked = run.when("crm.get")
    assert (verdict(asked), asked.shadowed) == ("allow", ("budget.tool_calls",))
    assert reasons(run.when("crm.set")) == ["budget.tool_calls"]


# ---- tokens and money ---------------------------------------------------------------------------------------------------


def test_what_a_model_call_is_expected_to_use_is_set_aside_when_the_turn_opens() -> None:
    run = capped(tokens=25, tokens_per_turn=10)
    run.open_turn()
    run.open_turn()
    assert the_purse(run).pending == Amounts(tokens=20)
    (finding,) = run.open_turn()  # type: ignore[misc]
    assert finding.reason == "budget.tokens"


def test_self_reported_usage_only_adds_what_goes_beyond_and_releases_nothing() -> None:
    run = capped(tokens_per_turn=10)
    run.open_turn()
    run.uses(1, 4)
    assert the_purse(run).used == Amounts(turns=1, tokens=10)
    run.uses(1, 9, usd_micros=3)
    assert the_purse(run).used == Amounts(turns=1, tokens=13, usd_micros=3)


def test_a_reporters_figure_takes_the_place_of_what_was_set_aside_and_guessed() -> None:
    run = capped(tokens_per_turn=10)
    run.open_turn()
    run.uses(1, 12)
    run.uses(1, 3, source="reporter")
    assert (the_purse(run).pending, the_purse(run).posted) == (Amounts(), Amounts(turns=1, tokens=15))
    run.uses(1, 5, source="reporter")
    assert the_purse(run).posted == Amounts(turns=1, tokens=20)


def test_an_overdraft_is_posted_and_nothing_more_starts() -> None:
    run = capped(tokens=100, tokens_per_turn=10)
    run.open_turn()
    run.uses(1, 500)
    asked = run.when(turn=1)
    assert (reasons(asked), the_purse(run).posted.tokens) == (["budget.tokens"], 490)
    assert run.tree.runs[run.run].reason == "token_budget"


def test_a_price_is_paid_with_each_attempt() -> None:
    run = capped(rule(usd_micros=60), usd_micros=100)
    run.happens(n=1)
    assert reasons(run.when(n=2)) == ["budget.cost"]


def test_a_spent_budget_refuses_or_closes_as_the_policy_says() -> None:
    for close_on, state in (((), "open"), (("tool_calls",), "closed")):
        run = capped(tool_calls=0, close_on=close_on)
        run.when()
        assert run.tree.runs[run.run].state == state


def test_a_history_that_grew_too_long_opens_no_further_turn_but_tools_still_run() -> None:
    run = capped(input_tokens_per_turn=10)
    run.open_turn()
    run.uses(1, 11)
    assert verdict(run.when(turn=1)) == "allow"
    (finding,) = run.open_turn()  # type: ignore[misc]
    assert finding.reason == "budget.input_tokens"


# ---- lineage ------------------------------------------------------------------------------------------------------------


def child_of(run: Given, policies: PolicySet) -> str:
    command = runs.OpenCommand("", BOT, policies, "interactive", "rest", SAYS_NOTHING, 20, parent=run.run)
    draft, opened = runs.open_child(run.states, command, run.now)
    fold(run, draft)
    assert isinstance(opened, runs.Opened)
    return opened.run


def test_a_child_draws_on_every_purse_up_its_lineage() -> None:
    policies = policy(guards=(Budgets(),), limits=Limits(tool_calls=2))
    run = given(policies)
    run.happens(n=1)
    child = child_of(run, policies)
    run.run, parent = child, run.run
    assert [verdict(run.happens(n=n)) for n in (2, 3)] == ["allow", "deny"]
    assert (purse(run.tree.runs[child]).posted, purse(run.tree.runs[parent]).posted) == (Amounts(tool_calls=1), Amounts(tool_calls=2))
    assert stream_of(child) == parent
    (finding,) = run.when(n=4).findings
    assert "a run above this one" in finding.message


def test_a_purse_stands_empty_before_anything_happened() -> None:
    assert the_purse(capped()) == Purse()
    assert list(Budgets().limit(bid(capped()))) == []


# ---- limits -------------------------------------------------------------------------------------------------------------

FULL: Mapping[str, Any] = {
    "budgets": {"turns": 12, "tool_calls": 40, "deadline": "90s", "tokens": "unlimited", "cost_usd": 2.0, "open_holds": "unlimited"},
    "on_exhausted": {"tool_calls": "close", "cost": "refuse"},
    "pause_while_held": True, "require_turns": True, "max_age": "1d", "idle_after": "5m",
}  # fmt: skip


def test_the_run_section_becomes_limits() -> None:
    assert limits_of(FULL) == Limits(
        turns=12, tool_calls=40, deadline_ms=90_000, usd_micros=2_000_000, open_holds=None, pause_while_held=True, require_turns=True,
        max_age_ms=86_400_000, idle_after_ms=300_000, close_on=("deadline", "tokens", "tool_calls", "turns"),
    )  # fmt: skip
    assert asdict(limits_of({})) == asdict(replace(Limits(), close_on=tuple(sorted(Limits().close_on))))


def test_unlimited_lifts_deadline_and_cost_too() -> None:
    limits = limits_of({"budgets": {"deadline": "unlimited", "cost_usd": "unlimited"}})
    assert (limits.deadline_ms, limits.usd_micros) == (None, None)


def test_what_a_ceiling_leaves_out_tightens_nothing() -> None:
    own = limits_of({**FULL, "max_age": "30d"})
    assert stricter(own, limits_of({}, SAYS_NOTHING)) == own
    assert stricter(own, limits_of({"budgets": {"turns": 3}}, SAYS_NOTHING)) == replace(own, turns=3)


def test_a_policy_names_each_mandatory_budget_or_lifts_it() -> None:
    written = Written(run={"budgets": {"turns": 1}})
    assert Budgets.build(written.section) == Budgets()
    assert written.reports == ["/run/budgets/tool_calls", "/run/budgets/deadline", "/run/budgets"]
    complete = Written(run={"budgets": {"turns": "unlimited", "tool_calls": 1, "deadline": "1s", "cost_usd": 1}})
    Budgets.build(complete.section)
    assert complete.reports == []


def test_an_amount_of_money_that_cannot_be_counted_is_a_mistake() -> None:
    written = Written(kind="ceiling", run={"budgets": {"cost_usd": 0.0000001}})
    Budgets.build(written.section)
    assert written.reports == ["/run/budgets/cost_usd"]


def test_a_ceiling_guards_by_itself_where_it_caps_anything() -> None:
    assert Budgets.build(Written(kind="ceiling").section) is None
    assert Budgets.build(Written(kind="ceiling", run={"budgets": {"turns": 1}}).section) == Budgets()


@pytest.mark.parametrize("caps", [{"turns": -1}, {"turns": True}, {"turns": "1"}, {"deadline": 5}, {"cost_usd": -1}, {"colour": 1}])
def test_a_callers_cap_that_is_none_is_refused(caps: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"is|wanted"):
        limits_of({"budgets": checked_caps(caps)})


def test_a_callers_caps_are_taken_as_they_are() -> None:
    caps = {"turns": 1, "deadline": "90s", "cost_usd": 1.5}
    assert checked_caps(caps) == caps
