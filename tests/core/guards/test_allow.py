"""allow: no rule, no tool; and nothing that suspends it."""

from gateway.core.guards.allow import Allow
from gateway.core.guards.guard import Placed
from tests.core.guards.given import Written, given, policy, reasons, rule, tool, verdict


def test_a_tool_that_a_rule_names_is_allowed() -> None:
    assert verdict(given(policy(rule())).when("crm.get")) == "allow"


def test_a_tool_without_a_rule_is_denied_at_the_place_where_rules_stand() -> None:
    asked = given(policy(rule())).when("billing.refund")
    assert (verdict(asked), reasons(asked), asked.findings[0].rule) == ("deny", ["tool.not_allowed"], "p.yaml:7")


def test_a_rule_for_a_tool_that_no_upstream_has_denies() -> None:
    assert reasons(given(policy(rule()), catalog=lambda name: None).when("crm.get")) == ["tool.unknown"]


def test_a_tool_whose_schema_cannot_be_enforced_is_held_back() -> None:
    held_back = given(policy(rule()), catalog=lambda name: tool(name, unsupported="a remote $ref"))
    assert reasons(held_back.when("crm.get")) == ["tool.schema_unsupported"]


def test_a_tool_whose_definition_is_not_the_accepted_one_is_held_back_whatever_else_is_wrong_with_it() -> None:
    held_back = given(policy(rule()), catalog=lambda name: tool(name, unaccepted="changed", unsupported="a remote $ref"))
    assert reasons(held_back.when("crm.get")) == ["tool.changed"]


def test_no_shadow_suspends_it() -> None:
    place = Placed(Allow(), "p.yaml:9", shadow=True)
    assert not Allow.shadowable
    assert all(place.enforces(code) for code in ("tool.unknown", "tool.not_allowed", "tool.schema_unsupported"))


def test_every_rule_of_a_policy_has_it_and_none_of_a_ceiling() -> None:
    assert Allow.build(Written().section) == Allow(permitted=True)
    assert Allow.build(Written(kind="ceiling").section) is None
