"""arguments: one JSON object, right by the tool's schema and the policy's; what is injected is neither listed nor taken from the model."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gateway.core.guards.arguments import Arguments
from gateway.core.guards.guard import ConditionFault, Placed
from gateway.core.model import CallRequest, Malformed
from tests.core.guards.given import Written, ask, given, policy, reasons, rule, tool, verdict


def needs(*names: str) -> Any:
    return lambda value: tuple(f"{name} is missing" for name in names if name not in value)


def tenant(facts: Mapping[str, Any]) -> Any:
    return facts["principal"]["claims"]["tenant"]


OWN = Arguments(own=True, shape=None, binds=(), key_argument=None)
BOUND = Arguments(own=True, shape=needs("order"), binds=(("tenant", tenant),), key_argument="key")


def test_arguments_that_are_no_object_are_malformed() -> None:
    run = given(policy(rule(OWN)))
    for arguments in (Malformed("it ends too early"), [1], None):
        asked = run.call(CallRequest("crm.get", arguments, "rest"))
        assert (verdict(asked), reasons(asked)) == ("deny", ["arguments.malformed"])


def test_the_tools_own_schema_and_the_policys_both_speak() -> None:
    run = given(policy(rule(Arguments(True, needs("order"), (), None))), catalog=lambda name: tool(name, shape=needs("id")))
    assert reasons(run.when("crm.get")) == ["arguments.invalid", "arguments.invalid"]
    assert verdict(run.when("crm.get", id=1, order=2)) == "allow"


def test_a_ceiling_leaves_the_tools_own_schema_to_the_policy() -> None:
    ceiling = Arguments(False, needs("order"), (), None)
    assert [f.reason for f in ceiling.check(ask({"order": 1}, of=tool(shape=needs("id"))))] == []


def test_a_tool_without_a_schema_takes_any_object() -> None:
    assert list(OWN.check(ask({"x": 1}, of=tool()))) == []
    assert list(OWN.check(ask({"x": 1}))) == []


def test_bound_arguments_are_injected_before_any_check_and_are_what_is_dispatched() -> None:
    run = given(policy(rule(BOUND)), catalog=lambda name: tool(name, shape=needs("tenant", "key")))
    asked = run.when("crm.get", order=1)
    assert (verdict(asked), asked.assessment.arguments) == ("allow", {"order": 1, "tenant": "acme"})


def test_a_model_may_not_choose_what_is_injected() -> None:
    asked = given(policy(rule(BOUND))).when("crm.get", order=1, tenant="evil", key="mine")
    assert (verdict(asked), reasons(asked)) == ("deny", ["arguments.bound", "arguments.bound"])
    assert asked.assessment.arguments["tenant"] == "acme"


def test_a_value_that_cannot_be_injected_denies() -> None:
    def failing(facts: Mapping[str, Any]) -> Any:
        raise ConditionFault("principal.claims.tenant is missing")

    run = given(policy(rule(Arguments(True, None, (("tenant", failing),), None))))
    assert reasons(run.when("crm.get")) == ["condition.failed"]


def test_a_shadow_records_what_is_invalid_but_suspends_neither_injection_nor_the_refusal_of_what_is_injected() -> None:
    run = given(policy(rule(BOUND, shadow=("arguments",))))
    asked = run.when("crm.get")
    assert (verdict(asked), asked.shadowed, asked.assessment.arguments) == ("allow", ("arguments.invalid",), {"tenant": "acme"})
    assert reasons(run.when("crm.get", order=1, tenant="evil")) == ["arguments.bound"]
    assert reasons(run.call(CallRequest("crm.get", Malformed("no"), "rest"))) == ["arguments.malformed"]


def test_a_skipped_rule_injects_nothing() -> None:
    open_rule = rule()
    skipped = (Placed(BOUND, "p.yaml:5", shadow=True, skipped=True),)
    asked = given(policy(rule_with(open_rule, skipped))).when("crm.get", order=1)
    assert (verdict(asked), asked.assessment.arguments) == ("allow", {"order": 1})


def rule_with(one: Any, more: tuple[Placed, ...]) -> Any:
    return replace(one, guards=(*one.guards, *more))


def test_what_is_injected_is_hidden() -> None:
    assert BOUND.hidden == {"tenant", "key"}
    assert OWN.hidden == frozenset()


def test_it_is_built_from_schema_bind_and_send_as() -> None:
    shape = needs("order")
    written = Written(
        rule={"arguments": {"schema": {"is": shape}, "bind": {"tenant": "t", "bad": "("}}, "idempotency": {"send_as": {"argument": "key"}}},
        compiled={"t": tenant},
    )
    assert Arguments.build(written.section) == Arguments(True, shape, (("tenant", tenant),), "key")


def test_a_policy_always_judges_by_the_tools_schema_and_a_ceiling_only_speaks_if_it_says_something() -> None:
    assert Arguments.build(Written().section) == OWN
    assert Arguments.build(Written(kind="ceiling").section) is None
    assert Arguments.build(Written(kind="ceiling", rule={"arguments": {"schema": {"is": None}}}).section) == Arguments(False, None, (), None)
