"""One rule out of a policy's and its ceilings': the strictest of each, and nothing that a shadow could carry away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import asdict

from gateway.core.guards.allow import Allow
from gateway.core.guards.budgets import Budgets
from gateway.core.guards.guard import Guard, Placed, Stage
from gateway.core.guards.loops import Loops
from gateway.core.model import Effect, Limits, Principal
from gateway.core.policy import Match, Policy, PolicySet, Retry, ToolRule, stricter
from tests.core.guards.given import ACT, READ, WRITE, asks, policy, rule


def ceiling(*rules: ToolRule, guards: tuple[Guard, ...] = (), limits: Limits | None = None) -> Policy:
    return replace(policy(*rules, guards=guards, limits=limits).policy, name="c", kind="ceiling")


def under(one: PolicySet, *ceilings: Policy) -> PolicySet:
    return PolicySet("set", one.policy, ceilings)


def test_the_first_rule_that_matches_speaks() -> None:
    one = policy(rule(name="crm.get_*", effect=WRITE), rule(name="crm.*", effect=ACT))
    assert [one.rule_for(name).effect for name in ("crm.get_order", "crm.other")] == [WRITE, ACT]


def test_where_no_rule_matches_the_policys_denial_speaks_whatever_ceilings_say() -> None:
    one = under(policy(rule(name="crm.*")), ceiling(rule(name="*")))
    assert one.rule_for("billing.pay") is one.policy.deny


def test_a_ceiling_that_names_no_rule_for_a_tool_says_nothing_about_it() -> None:
    own = policy(rule(name="*"))
    assert under(own, ceiling(rule(name="billing.*", effect=ACT))).rule_for("crm.get").guards == own.rule_for("crm.get").guards


@pytest.mark.parametrize(("own", "over", "merged"), [(READ, ACT, ACT), (ACT, READ, ACT), (WRITE, WRITE, WRITE), (READ, WRITE, WRITE)])
def test_the_graver_effect_counts(own: Effect, over: Effect, merged: Effect) -> None:
    assert under(policy(rule(effect=own)), ceiling(rule(effect=over))).rule_for("crm.get").effect == merged


def test_of_each_number_the_stricter_counts_whichever_side_it_stands_on() -> None:
    lax: dict[str, Any] = {"timeout_ms": 9, "min_time_ms": 1, "retry": Retry(5), "upstream_key_ttl_ms": 9, "usd_micros": 1}
    strict: dict[str, Any] = {"timeout_ms": 5, "min_time_ms": 3, "retry": Retry(2), "upstream_key_ttl_ms": 5, "usd_micros": 7}
    for own, over in ((lax, strict), (strict, lax)):
        merged = under(policy(rule(**own)), ceiling(rule(**over))).rule_for("crm.get")
        assert {name: getattr(merged, name) for name in strict} == strict


def test_every_demand_for_people_stands_beside_the_others() -> None:
    merged = under(policy(rule(asks())), ceiling(rule(asks(2))), ceiling(rule(asks(3)))).rule_for("crm.get")
    assert len(merged.stages[Stage.CONSENT]) == 3


def test_guards_of_one_document_stand_once_and_a_shadow_is_only_for_the_rules_own_calls() -> None:
    one = policy(rule(name="crm.get", shadow=("loops",)), rule(name="crm.*"), guards=(Budgets(), Loops()))
    shadowed = {name: [p.guard.kind for p in one.rule_for(name).guards if p.shadow] for name in ("crm.get", "crm.set")}
    assert shadowed == {"crm.get": ["loops"], "crm.set": []}


def test_an_equal_guard_of_a_ceiling_enforces_where_the_policys_is_in_shadow() -> None:
    own = policy(rule(shadow=("loops", "budgets")), guards=(Budgets(), Loops()))
    merged = under(own, ceiling(guards=(Budgets(), Loops(reads=2)))).rule_for("crm.get")
    limits = [(p.guard, p.shadow) for p in merged.stages[Stage.LIMIT]]
    assert sorted(limits, key=repr) == sorted([(Budgets(), False), (Loops(reads=2), False), (Loops(), True)], key=repr)


def test_rules_in_shadow_mode_are_met_on_the_way_and_apply_in_nothing() -> None:
    tried = replace(rule(asks(), effect=ACT), shadow_mode=True, timeout_ms=1)
    merged = policy(tried, rule(name="*")).rule_for("crm.get")
    assert (merged.effect, merged.timeout_ms) == (READ, 30_000)
    assert [(p.guard.kind, p.shadow, p.skipped) for p in merged.guards] == [
        ("allow", False, False), ("allow", True, True), ("approval", True, True),
    ]  # fmt: skip
    assert policy(tried).rule_for("crm.get").guards == (Placed(Allow(permitted=False), "p.yaml:7"),)


def test_rules_are_remembered_but_not_for_every_name_that_a_model_makes_up() -> None:
    one = policy(rule(name="crm.*"))
    assert one.rule_for("crm.get") is one.rule_for("crm.get")
    for n in range(5_000):
        one.rule_for(f"crm.{n}")
    assert len(one._rules) <= 2_000


# ---- limits, match ------------------------------------------------------------------------------------------------------


def test_of_each_cap_the_lower_counts_and_none_is_no_cap() -> None:
    one = Limits(turns=3, tokens=None, max_age_ms=5, pause_while_held=True, require_turns=False, close_on=("turns",))
    two = Limits(turns=None, tokens=7, max_age_ms=9, pause_while_held=False, require_turns=True, close_on=("cost",))
    merged = stricter(one, two)
    assert merged == stricter(two, one)
    assert (merged.turns, merged.tokens, merged.max_age_ms, merged.tool_calls) == (3, 7, 5, None)
    assert (merged.pause_while_held, merged.require_turns, merged.close_on) == (False, True, ("cost", "turns"))


def test_a_set_has_the_strictest_limits_of_all_its_documents() -> None:
    one = under(policy(limits=Limits(turns=9, tool_calls=9)), ceiling(limits=Limits(turns=3)), ceiling(limits=Limits(tool_calls=2)))
    assert (one.limits.turns, one.limits.tool_calls) == (3, 2)
    assert asdict(under(policy(limits=Limits(turns=9))).limits)["turns"] == 9


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        (Match(), True),
        (Match(frozenset({"agent:bot"})), True),
        (Match(frozenset({"group:support"})), True),
        (Match(frozenset({"agent:other", "group:none"})), False),
        (Match(task_types=frozenset({"chat"})), True),
        (Match(task_types=frozenset({"batch"})), False),
        (Match(frozenset({"agent:bot"}), frozenset({"batch"})), False),
    ],
)
def test_a_document_is_for_the_principals_and_task_types_it_names_or_for_all(match: Match, fits: bool) -> None:
    assert match.fits(Principal("agent:bot", frozenset({"support"})), "chat") is fits
