"""Keys of a rule that contradict each other: each is found at its place, and what is right passes."""

from __future__ import annotations

import pytest

from gateway.policy.rule_checks import covers
from tests.policy.writing import HEAD, ceiling, places, policy

WRONG = {
    "one name for several tools": "{tool: a.*, as: b}",
    "a name that could be a prefixed one": "{tool: a.b, as: a__c}",
    "a name that not every client takes": "{tool: a.b, as: a.b}",
    "the key goes nowhere": "{tool: a.b, effect: idempotent_write, idempotency: {send_as: {}}}",
    "the key goes to two places": "{tool: a.b, effect: idempotent_write, idempotency: {send_as: {header: K, meta: k}}}",
    "only a header is quoted": "{tool: a.b, effect: idempotent_write, idempotency: {send_as: {meta: k, quoted: true}}}",
    "an answer is freed by nothing": "{tool: a.b, effect: idempotent_write, idempotency: {on_error: retry}}",
    "a key of a read": "{tool: a.b, effect: read_only, idempotency: {key_from: [x]}}",
    "a read that needs time to start": "{tool: a.b, effect: read_only, min_time: 1s}",
    "a probe of a read": '{tool: a.b, effect: read_only, probe: {tool: a.c, happened_if: "true", absent_if: "false"}}',
    "a probe that can't tell": '{tool: a.b, probe: {tool: a.c, happened_if: "true", absent_if: " true"}}',
    "a write that is polled": "{tool: a.b, effect: idempotent_write, poll: true}",
    "keys that no upstream is asked to remember": "{tool: a.b, effect: non_idempotent, upstream_key_ttl: 1h}",
    "more time to start than to run": "{tool: a.b, effect: idempotent_write, timeout: 5s, min_time: 5s}",
    "more time to start than the default timeout": "{tool: a.b, effect: idempotent_write, min_time: 31s}",
    "an argument injected twice": "{tool: a.b, effect: idempotent_write, arguments: {bind: {k: run.id}}, idempotency: {send_as: {argument: k}}}",
    "a key made from itself": "{tool: a.b, effect: idempotent_write, idempotency: {key_from: [x, k], send_as: {argument: k}}}",
    "one key for all calls": "{tool: a.b, effect: idempotent_write, arguments: {bind: {k: run.id}}, idempotency: {key_from: [k]}}",
    "an edit of what is injected": "{tool: a.b, arguments: {bind: {k: run.id}}, approval: {editable: [k]}}",
    "an edit of the key": "{tool: a.b, idempotency: {send_as: {argument: k}}, approval: {editable: [k]}}",
    "a quorum of more people than are named": "{tool: a.b, approval: {quorum: 2}}",
    "a sentence with a field that nobody fills in": '{tool: a.b, approval: {show: "Pay {amount} now"}}',
    "a sentence with an open brace": '{tool: a.b, approval: {show: "Pay {args.amount now"}}',
}

RIGHT = {
    "a short name": "{tool: a.b, as: b-2_c}",
    "the own name of several tools": '{tool: a.*, as: "*"}',
    "a key in a quoted header": "{tool: a.b, effect: idempotent_write, idempotency: {send_as: {header: K, quoted: true}}}",
    "a key in an argument": "{tool: a.b, effect: idempotent_write, idempotency: {key_from: [x], send_as: {argument: k}}}",
    "a key in _meta": "{tool: a.b, effect: idempotent_write, idempotency: {send_as: {meta: k}}, upstream_key_ttl: 1h}",
    "an answer freed by a status": "{tool: a.b, effect: idempotent_write, idempotency: {on_error: retry, not_applied_on: [409]}}",
    "an answer freed by a condition": '{tool: a.b, idempotency: {on_error: retry, not_applied_on: [503, "result.done == false"]}}',
    "a key from an injected argument among others": "{tool: a.b, arguments: {bind: {k: run.id}}, idempotency: {key_from: [k, x]}}",
    "a read that waits for people": "{tool: a.b, effect: read_only, approval: {}}",
    "a read that is polled": "{tool: a.b, effect: read_only, poll: true}",
    "a quorum in a group": '{tool: a.b, approval: {approvers: ["group:leads"], quorum: 5}}',
    "a sentence with nested fields": '{tool: a.b, approval: {show: "Pay {args.order.amount}", editable: [amount]}}',
    "a write that needs time to start": "{tool: a.b, effect: idempotent_write, timeout: 5s, min_time: 4s}",
}


@pytest.mark.parametrize("rule", WRONG.values(), ids=WRONG)
def test_a_rule_that_contradicts_itself_is_a_mistake_in_its_line(rule: str) -> None:
    (place,) = places(policy(f"- {rule}"))
    assert place.startswith("6:")
    assert place != "6:1"


@pytest.mark.parametrize("rule", RIGHT.values(), ids=RIGHT)
def test_what_belongs_together_passes(rule: str) -> None:
    assert places(policy(f"- {rule}")) == []


def test_a_short_name_is_one_tools_in_a_policy_and_shadows_have_none() -> None:
    twice = "- {tool: a.b, as: x}\n- {tool: a.c, as: x, mode: shadow}\n- {tool: a.d, as: x}"
    assert [mistake.partition(":")[0] for mistake in places(policy(twice))] == ["8"]
    assert places(policy('- {tool: a.b, as: "*"}\n- {tool: a.c, as: "*"}')) == []


def test_the_default_timeout_of_the_document_counts() -> None:
    head = HEAD.replace("defaults: {", "defaults: {timeout: 60s, ")
    assert places(policy("- {tool: a.b, effect: idempotent_write, min_time: 31s}", head)) == []


def test_an_effect_that_is_a_mistake_brings_no_mistakes_of_its_own() -> None:
    assert places(policy("- {tool: a.b, effect: readonly, poll: true, min_time: 1s, upstream_key_ttl: 1h}")) == ["6:25"]


@pytest.mark.parametrize(
    "rule",
    [
        "{tool: a.b, as: b}",
        "{tool: a.b, idempotency: {key_from: [x]}}",
        '{tool: a.b, probe: {tool: a.c, happened_if: "true", absent_if: "false"}}',
        "{tool: a.b, poll: true}",
        "{tool: a.b, effect: non_idempotent}",
        "{tool: a.b, approval: never}",
        "{tool: a.b, effect: read_only, approval: never}",
    ],
)
def test_a_ceiling_neither_loosens_nor_takes_over_what_is_the_policys(rule: str) -> None:
    assert len(places(ceiling(f"- {rule}"))) == 1


@pytest.mark.parametrize(
    "rule",
    [
        '{tool: a.b, effect: non_idempotent, approval: {approvers: ["group:leads"]}}',
        "{tool: a.b, effect: idempotent_write, min_time: 1s, upstream_key_ttl: 1h}",
        "{tool: a.b, timeout: 1s, retry: {attempts: 1}, price: {cost_usd: 1}, mode: shadow}",
    ],
)
def test_a_ceiling_narrows(rule: str) -> None:
    assert places(ceiling(f"- {rule}")) == []


def test_a_ceiling_that_says_non_idempotent_may_leave_the_gate_to_the_policy_by_saying_so() -> None:
    rule = "- {tool: a.b, effect: non_idempotent, approval: never}"
    assert places(ceiling(rule, 'defaults: {approvers: ["group:leads"]}\n')) == []


@pytest.mark.parametrize(
    ("earlier", "later", "covered"),
    [
        ("*", "a.b", True), ("a.*", "a.b", True), ("a.*", "a.b*", True), ("a.*", "*", False), ("a.b", "a.b", True), ("a.b", "a.*", False),
        ("a.*c", "a.b*c", True), ("a.b*", "a.*", False), ("*.get_*", "crm.get_order", True), ("*.get_*", "crm.*", False), ("a.**", "a.*", True),
    ],
)  # fmt: skip
def test_a_pattern_covers_another_if_it_matches_all_that_the_other_matches(earlier: str, later: str, covered: bool) -> None:
    assert covers(earlier, later) is covered


def test_how_tools_are_listed_is_the_policys_to_say() -> None:
    assert places(policy("- {tool: a.b}", HEAD + "listing: {effect: false, budget: true}\n")) == []
    assert places(ceiling("- {tool: a.b, effect: read_only}", "listing: {effect: false}\n")) == ["4:10"]
    assert places(policy("- {tool: a.b}", HEAD + "listing: {effect: annotations}\n")) == ["5:19"]
