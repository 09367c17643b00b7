"""The ladder before the queue: what denies, what is only recorded, whom a call would wait for, and what a call is known by."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from gateway.core.assess import Assessment, assess, review
from gateway.core.canonical import fingerprint
from gateway.core.guards.allow import Allow
from gateway.core.guards.approval import Approval
from gateway.core.guards.arguments import Arguments
from gateway.core.guards.authorize import Authorize
from gateway.core.guards.guard import Ask, ConditionFault, Guard, Placed, RunFacts, Stage
from gateway.core.guards.result import ResultGuard
from gateway.core.model import CallRequest, Finding, Malformed, Outcome, Requirement, Tool
from gateway.core.policy import PolicySet, ToolRule
from tests.core.build import ACT, BOT, DONE, DOUBT, READ, WRITE, asks, document, keyed, never, policy, rule, tool

FACTS = RunFacts("run_r", "interactive", None, {}, "p")
NO = Authorize("false", lambda facts: False)


@dataclass(frozen=True)
class Says(Guard):
    """Objects, or raises, at a stage of its choice."""

    kind: ClassVar[str] = "says"
    stage: ClassVar[Stage] = Stage.SHAPE
    what: tuple[str, ...] = ("arguments.invalid",)
    raises: type[Exception] | None = None

    def check(self, ask: Ask) -> Iterable[Finding]:
        for reason in self.what:
            yield Finding(self.kind, reason, "no")
        if self.raises is not None:
            raise self.raises("because")


class SaysScope(Says):
    stage: ClassVar[Stage] = Stage.SCOPE


def arguments(*binds: tuple[str, Any], key: str | None = None) -> Arguments:
    return Arguments(True, None, binds, key)


def judged(*guards: Guard, effect: Any = READ, given: Any = None, name: str = "crm.get", known: Tool | None = None, **more: Any) -> Assessment:
    return assessed(policy(rule("*", effect, *guards, **more)), name, {} if given is None else given, known or tool(name))


def assessed(policies: PolicySet, name: str, given: Any, known: Tool | None) -> Assessment:
    return assess(policies, CallRequest(name, given, "rest"), BOT, FACTS, known)


def reasons(found: Assessment) -> list[str]:
    return [finding.reason for finding in found.findings]


# ---- the ladder ---------------------------------------------------------------------------------------------------------


def test_a_call_that_nothing_objects_to_passes_with_what_is_known_of_it() -> None:
    found = judged(arguments(), given={"a": 1})
    assert (found.findings, found.shadowed, found.requirements, found.repeat, found.arguments) == ((), (), (), None, {"a": 1})
    assert (found.policy_digest, found.rule.tool, found.tool) == ("set of p", "*", tool("crm.get"))
    assert found.fingerprint == fingerprint("crm.get", {"a": 1})


def test_all_guards_of_a_stage_speak_and_each_says_where_it_stands() -> None:
    found = judged(Says(), Says(("arguments.bound",)), where="p.yaml:12")
    assert sorted(reasons(found)) == ["arguments.bound", "arguments.invalid"]
    assert {finding.rule for finding in found.findings} == {"p.yaml:12"}


def test_a_denial_ends_the_ladder_after_its_stage() -> None:
    assert reasons(judged(Says(), NO)) == ["arguments.invalid"]
    assert reasons(judged(SaysScope(("tool.unknown",)), Says(), NO)) == ["tool.unknown"]
    assert reasons(judged(NO)) == ["authorization.denied"]


def test_the_same_objection_twice_is_said_once() -> None:
    assert reasons(judged(Says(("arguments.invalid",) * 3))) == ["arguments.invalid"]


def test_without_a_rule_a_tool_is_denied() -> None:
    found = assessed(policy(rule("crm.*", READ)), "mail.send", {}, tool("mail.send"))
    assert (reasons(found), found.findings[0].rule) == (["tool.not_allowed"], "p.yaml:1")


def test_a_tool_that_nobody_offers_is_denied_and_says_why_its_upstream_is_away() -> None:
    found = assess(policy(rule("*", READ)), CallRequest("crm.get", {}, "rest"), BOT, FACTS, None, "it is down")
    assert (reasons(found), "it is down" in found.findings[0].message, found.tool) == (["tool.unknown"], True, None)


# ---- broken guards ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "reason"), [(ConditionFault, "condition.failed"), (ZeroDivisionError, "guard.failed"), (RecursionError, "guard.failed")]
)
def test_a_guard_that_cannot_judge_denies(fault: type[Exception], reason: str) -> None:
    found = judged(Says((), fault))
    assert (reasons(found), found.findings[0].guard, found.findings[0].rule) == ([reason], "says", "p.yaml:9")


def test_what_a_broken_guard_raises_is_not_told() -> None:
    found = judged(Says((), ZeroDivisionError))
    assert "because" not in found.findings[0].message


def test_people_who_cannot_be_named_are_a_denial() -> None:
    def broken(facts: Mapping[str, Any]) -> bool:
        raise ConditionFault("of arguments")

    found = judged(Approval(Requirement("r", "d", ("user:mia",)), broken, None), effect=ACT)
    assert (reasons(found), found.requirements) == (["condition.failed"], ())


# ---- shadows ------------------------------------------------------------------------------------------------------------


def test_a_shadowed_guard_is_only_recorded() -> None:
    found = judged(NO, Says(), shadow=("authorize", "says"))
    assert (found.findings, sorted(finding.reason for finding in found.shadowed)) == ((), ["arguments.invalid", "authorization.denied"])


def test_a_shadowed_guard_that_breaks_is_only_recorded() -> None:
    found = judged(Says((), ZeroDivisionError), shadow=("says",))
    assert (found.findings, [finding.reason for finding in found.shadowed]) == ((), ["guard.failed"])


def test_no_shadow_lets_an_unknown_tool_or_people_by() -> None:
    found = assessed(policy(rule("*", READ, shadow=("allow",))), "crm.get", {}, None)
    assert reasons(found) == ["tool.unknown"]
    assert len(judged(asks(), effect=ACT, shadow=("approval",)).requirements) == 1


def skipping(*guards: Guard) -> PolicySet:
    """A rule in shadow mode before one that lets everything pass."""
    shadow = ToolRule("crm.*", "p.yaml:5", "s", ACT, tuple(Placed(guard, "p.yaml:5") for guard in (Allow(), *guards)), shadow_mode=True)
    return policy(shadow, rule("*", READ))


def test_a_rule_in_shadow_mode_asks_nobody_and_says_that_it_would_have() -> None:
    found = assessed(skipping(asks(), NO), "crm.get", {}, tool("crm.get"))
    assert (found.findings, found.requirements, found.repeat) == ((), (), None)
    assert sorted(finding.reason for finding in found.shadowed) == ["approval.required", "authorization.denied"]


def test_a_rule_in_shadow_mode_that_would_ask_nobody_or_cannot_tell_says_so() -> None:
    def broken(facts: Mapping[str, Any]) -> bool:
        raise ConditionFault("of arguments")

    assert assessed(skipping(never()), "crm.get", {}, tool("crm.get")).shadowed == ()
    found = assessed(skipping(Approval(Requirement("r", "d", ("user:mia",)), broken, None)), "crm.get", {}, tool("crm.get"))
    assert ([finding.reason for finding in found.shadowed], found.findings) == (["condition.failed"], ())


def test_a_rule_in_shadow_mode_injects_nothing() -> None:
    assert assessed(skipping(arguments(("tenant", lambda facts: "acme"))), "crm.get", {}, tool("crm.get")).arguments == {}


# ---- arguments ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [Malformed("no json"), [], "text", 5, None])
def test_arguments_that_are_no_object_are_refused_and_still_have_a_fingerprint(given: Any) -> None:
    found = assessed(policy(rule("*", READ, arguments(("tenant", lambda facts: "acme")))), "crm.get", given, tool("crm.get"))
    assert (reasons(found), found.arguments, found.fingerprint) == (["arguments.malformed"], given, fingerprint("crm.get", None))


def test_what_is_injected_is_dispatched_judged_and_part_of_the_fingerprint() -> None:
    seen: list[Any] = []
    watch = Authorize("true", lambda facts: seen.append(facts["args"]) or True)
    found = judged(arguments(("tenant", lambda facts: facts["principal"]["id"])), watch, given={"a": 1})
    assert (found.arguments, seen) == ({"a": 1, "tenant": BOT.id}, [{"a": 1, "tenant": BOT.id}])
    assert found.fingerprint == fingerprint("crm.get", {"a": 1, "tenant": BOT.id})


def test_what_is_injected_cannot_be_given() -> None:
    found = judged(arguments(("tenant", lambda facts: "acme")), given={"tenant": "other"})
    assert (reasons(found), found.arguments) == (["arguments.bound"], {"tenant": "acme"})


def test_what_cannot_be_injected_denies() -> None:
    def broken(facts: Mapping[str, Any]) -> Any:
        raise ConditionFault("of the principal")

    found = judged(arguments(("tenant", broken)), NO, given={"a": 1})
    assert (reasons(found), found.arguments) == (["condition.failed"], {"a": 1})


def test_what_cannot_be_injected_is_an_objection_of_its_stage() -> None:
    def broken(facts: Mapping[str, Any]) -> Any:
        raise ConditionFault("of the principal")

    injects = arguments(("tenant", broken))
    assert sorted(reasons(judged(injects, Says()))) == ["arguments.invalid", "condition.failed"]
    assert reasons(judged(injects, SaysScope(("tool.unknown",)))) == ["tool.unknown"]


def test_what_is_asked_has_one_fingerprint_however_far_it_climbs() -> None:
    policies = policy(rule("*", WRITE, arguments(("tenant", lambda facts: "acme"))))
    passed, away = (assessed(policies, "crm.set", {"a": 1}, known) for known in (tool("crm.set"), None))
    assert (passed.findings, reasons(away)) == ((), ["tool.unknown"])
    assert passed.fingerprint == away.fingerprint


def test_key_from_picks_what_counts() -> None:
    picked = keyed("order", "absent")
    one, two, other = (judged(given={"order": order, "note": note}, idempotency=picked) for order, note in ((1, "a"), (1, "b"), (2, "a")))
    assert one.fingerprint == two.fingerprint != other.fingerprint
    assert one.fingerprint == fingerprint("crm.get", {"order": 1})


# ---- people -------------------------------------------------------------------------------------------------------------


def test_each_demand_for_people_is_a_requirement_of_its_own() -> None:
    ceiling = document(rule("*", ACT, asks("user:kim", digest="c")), kind="ceiling")
    found = assessed(policy(rule("*", ACT, asks("user:mia")), ceilings=(ceiling,)), "pay.refund", {}, tool("pay.refund"))
    assert [requirement.approvers for requirement in found.requirements] == [("user:mia",), ("user:kim",)]


def test_a_denied_call_asks_nobody_but_says_whom_a_repeat_would_ask() -> None:
    found = judged(NO, asks("user:mia"), effect=ACT)
    assert (found.requirements, found.repeat and found.repeat.approvers) == ((), ("user:mia",))


def test_a_deliberate_repeat_asks_people_even_where_a_call_asks_nobody() -> None:
    found = judged(never("user:mia"), effect=ACT)
    assert (found.requirements, found.repeat and found.repeat.approvers) == ((), ("user:mia",))
    assert judged().repeat is None


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        (None, "pay.refund"),
        ("Refund {args.amount} to {args.who.name}", "Refund 5.5 to Ada"),
        ("{args.missing} {args.amount.more} {args.who}", '(absent) (absent) {"name":"Ada"}'),
        ("{other} {args} {args.} {args.__class__}", "{other} {args} {args.} (absent)"),
    ],
)
def test_people_are_shown_a_sentence(template: str | None, shown: str) -> None:
    given = {"amount": 5.5, "who": {"name": "Ada"}}
    assert judged(asks(show=template), effect=ACT, given=given, name="pay.refund").show == shown


def test_what_is_shown_of_an_argument_is_bounded() -> None:
    assert len(judged(asks(show="{args.a}"), effect=ACT, given={"a": "x" * 9_999}).show) == 200


# ---- results ------------------------------------------------------------------------------------------------------------


class Broken(ResultGuard):
    def review(self, result: Mapping[str, Any]) -> tuple[Mapping[str, Any], Finding | None]:
        raise ZeroDivisionError("secret")


def capped(max_bytes: int) -> ResultGuard:
    return ResultGuard(max_bytes, (), None)


BIG = replace(DONE, result={"content": [{"type": "text", "text": "x" * 500}]})


def test_a_result_passes_as_it_is() -> None:
    assert review(rule("*", READ, capped(1_000)), BIG) == BIG
    assert review(rule("*", READ, capped(1)), Outcome("failed", "tool.timeout")) == Outcome("failed", "tool.timeout")


def test_a_result_that_may_not_be_seen_is_replaced_and_the_call_has_failed() -> None:
    after = review(rule("*", READ, dataclasses.replace(capped(100), redact=(("a",),))), BIG)
    assert (after.state, after.reason, after.answered, after.result and after.result["isError"]) == ("failed", "result.too_large", True, True)


def test_a_result_that_is_only_too_long_is_kept_and_the_call_has_succeeded() -> None:
    after = review(rule("*", READ, capped(100)), BIG)
    assert (after.state, after.reason, after.whole, after.result and after.result["isError"]) == ("succeeded", "result.too_large", BIG.result, False)


def test_a_doubt_stays_a_doubt_whatever_its_result() -> None:
    after = review(rule("*", READ, capped(100)), replace(DOUBT, result=BIG.result))
    assert (after.state, after.reason) == ("in_doubt", "result.too_large")


def test_a_result_that_cannot_be_reviewed_does_not_pass() -> None:
    after = review(rule("*", READ, Broken(1, (), None)), BIG)
    assert (after.state, after.reason, "secret" in str(after.result), "xxx" in str(after.result)) == ("failed", "guard.failed", False, False)


def test_a_shadowed_review_changes_nothing() -> None:
    assert review(rule("*", READ, capped(100), shadow=("result",)), BIG) == BIG


def test_every_review_sees_what_the_one_before_left() -> None:
    redact = ResultGuard(10_000, (("a",),), None)
    after = review(rule("*", READ, redact, capped(60)), replace(DONE, result={"structuredContent": {"a": "x" * 500}}))
    assert (after.state, after.result) == ("succeeded", {"structuredContent": {"a": "[redacted]"}})
