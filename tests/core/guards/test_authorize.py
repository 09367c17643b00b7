"""authorize: `allow_if` denies when false or unjudgeable, and never falls through."""

from collections.abc import Mapping
from typing import Any

from gateway.core.guards.authorize import Authorize
from gateway.core.guards.guard import ConditionFault
from tests.core.guards.given import Written, given, policy, reasons, rule, verdict


def is_small(facts: Mapping[str, Any]) -> bool:
    if "amount" not in facts["args"]:
        raise ConditionFault("args.amount is missing")
    return bool(facts["args"]["amount"] <= 5)


def small_only(*, shadow: tuple[str, ...] = ()) -> Any:
    return given(policy(rule(Authorize("args.amount <= 5", is_small), shadow=shadow), rule(name="*")))


def test_a_condition_that_holds_allows() -> None:
    assert verdict(small_only().when("crm.get", amount=5)) == "allow"


def test_a_false_condition_denies_and_no_later_rule_is_asked() -> None:
    asked = small_only().when("crm.get", amount=6)
    assert (verdict(asked), reasons(asked)) == ("deny", ["authorization.denied"])


def test_a_condition_that_cannot_be_judged_denies() -> None:
    assert reasons(small_only().when("crm.get")) == ["condition.failed"]


def test_a_guard_that_raises_denies() -> None:
    def broken(facts: Mapping[str, Any]) -> bool:
        raise ZeroDivisionError

    assert reasons(given(policy(rule(Authorize("1 / 0", broken)))).when("crm.get")) == ["guard.failed"]


def test_in_shadow_it_is_recorded_only() -> None:
    asked = small_only(shadow=("authorize",)).when("crm.get", amount=6)
    assert (verdict(asked), asked.shadowed) == ("allow", ("authorization.denied",))


def test_the_variables_are_the_call_and_facts_fixed_at_opening() -> None:
    seen: dict[str, Any] = {}

    def look(facts: Mapping[str, Any]) -> bool:
        seen.update(facts)
        return True

    given(policy(rule(Authorize("true", look)))).when("crm.get", amount=1)
    assert seen["args"] == {"amount": 1}
    assert seen["tool"] == {"name": "crm.get", "upstream": "crm"}
    assert seen["principal"] == {"id": "agent:bot", "groups": ["support"], "claims": {"tenant": "acme"}}
    assert seen["run"] == {"id": "run_played", "task_type": "interactive", "goal": "", "labels": {}, "policy": "p"}


def test_it_is_built_from_allow_if_alone() -> None:
    written = Written(rule={"allow_if": "small"}, compiled={"small": is_small})
    assert Authorize.build(written.section) == Authorize("small", is_small)
    assert Authorize.build(Written().section) is None


def test_text_that_does_not_compile_makes_no_guard_since_its_mistake_is_reported() -> None:
    assert Authorize.build(Written(rule={"allow_if": "bad("}).section) is None
