"""From text to a policy: every mistake at once with its place, and nothing that fails open."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from gateway.core.guards import GUARDS
from gateway.core.guards.guard import Stage
from gateway.core.model import Effect, Outcome, Principal
from gateway.core.policy import Idempotency, Match, Policy, PolicySet, Retry, ToolRule
from gateway.policy.compile import compile_document
from gateway.policy.play import completed
from gateway.ports import PolicyError
from tests.core.guards.given import ACT, BOT, READ, WRITE, given, reasons, verdict
from tests.policy.writing import HEAD, ceiling, compiled, mistakes, places, policy


def rule_of(text: str, head: str = HEAD) -> ToolRule:
    return compiled(policy(text, head)).rules[0]


def kinds(rule: ToolRule) -> set[str]:
    return {place.guard.kind for place in rule.guards}


def governing(*texts: bytes) -> PolicySet:
    one, *ceilings = [compile_document(f"{number}.yaml", text) for number, text in enumerate(texts)]
    return PolicySet("set", one, tuple(ceilings))


# ---- mistakes -----------------------------------------------------------------------------------------------------------

TEN = b"""\
version: 2
name: Bad Name
match: {principal: ["agent:x"]}
run:
  budgets: {turns: many, tool_calls: 40}
tools:
  - tool: crm.get_*
    effect: read_onyl
  - tool: crm.get_order
    effect: read_only
    poll: yes
  - tool: billing.refund
    allow_if: args.amount >
    shadow: [approval]
    arguments: {schema: {type: objekt}}
    idempotency: {on_error: retry, send_as: {header: K, argument: k}}
    price: {cost_usd: 0.12345678}
    min_time: 40s
"""


def test_every_mistake_of_a_document_is_told_at_once_in_file_order_and_with_its_place() -> None:
    assert places(TEN) == [
        "1:10", "2:7", "3:9", "5:12", "5:20", "8:13", "9:11", "11:11", "12:5", "13:15", "14:14", "15:32", "16:29", "16:45", "17:23", "18:15",
    ]  # fmt: skip


def test_the_places_name_the_file_as_it_was_given() -> None:
    with pytest.raises(PolicyError, match=r"^policies/x\.yaml:1:1: "):
        compile_document("policies/x.yaml", b"")


@pytest.mark.parametrize("text", [b"", b"[", b"\xff", b"a: 1\na: 2\n", b"[]\n", b"5\n", b"version: 1\n", b"version: 1\nname: p\n", b"null\n"])
def test_what_is_no_policy_is_never_one(text: bytes) -> None:
    assert mistakes(text)


def test_a_policy_without_rules_is_a_mistake_and_a_ceiling_without_rules_is_none() -> None:
    assert places(HEAD.encode()) == ["1:1"]
    assert places(HEAD.encode() + b"tools: []\n") == ["5:8"]
    assert mistakes(b"version: 1\nname: c\nkind: ceiling\nrun: {budgets: {turns: 3}}\n") == []


def test_budgets_that_nobody_decided_on_are_a_mistake() -> None:
    assert len(mistakes(policy("- {tool: a.b, effect: read_only}", "version: 1\nname: p\n# no run\n\n"))) == 4


def test_a_rule_that_another_always_forestalls_is_a_mistake_unless_that_one_is_only_tried_out() -> None:
    rules = "- {{tool: a.*, effect: read_only{more}}}\n- {{tool: a.get_b, effect: read_only}}"
    assert places(policy(rules.format(more=""))) == ["7:12"]
    assert places(policy(rules.format(more=", mode: shadow"))) == []
    assert "at line 6" in mistakes(policy(rules.format(more="")))[0]


def test_a_call_that_nobody_could_approve_is_a_mistake() -> None:
    assert places(policy("- {tool: a.b}", HEAD.replace('defaults: {approvers: ["user:mia"]}', "#"))) == ["6:5"]


def test_a_mistake_in_the_defaults_is_told_once_and_not_for_every_rule() -> None:
    assert places(policy("- {tool: a.b}\n- {tool: a.c}", HEAD.replace('["user:mia"]', '["mia"]'))) == ["4:24"]


@pytest.mark.parametrize(
    ("rule", "place"),
    [
        ("{tool: a.b, approval: {when: args.x +}}", "6:34"),
        ("{tool: a.b, allow_if: amount > 5}", "6:27"),
        ("{tool: a.b, allow_if: result.x == 1}", "6:27"),
        ("{tool: a.b, arguments: {bind: {x: args.y}}}", "6:39"),
        ("{tool: a.b, result: {schema: {type: [5]}}}", "6:41"),
        ("{tool: a.b, idempotency: {not_applied_on: [409, args.x]}}", "6:53"),
        ('{tool: a.b, probe: {tool: a.c, arguments: {x: result.y}, happened_if: "true", absent_if: "false"}}', "6:51"),
        ('{tool: a.b, probe: {tool: a.c, happened_if: args.x == 1, absent_if: "false"}}', "6:49"),
        ('{tool: a.b, probe: {tool: a.c, happened_if: "true", absent_if: "[result]"}}', "6:68"),
        ('{tool: a.b, probe: {tool: a.*, happened_if: "true", absent_if: "false"}}', "6:31"),
        ('{tool: a.b, probe: {tool: a.c, happened_if: "true", absent_if: "false", after: 0s}}', "6:84"),
        ('{tool: a.b, probe: {tool: a.c, happened_if: "true"}}', "6:24"),
        ("{tool: ab}", "6:12"),
        ("{tool: 'a.[bc]'}", "6:12"),
        ("{tool: a.b, timeout: 0s}", "6:26"),
        ("{tool: a.b, approval: {expires_in: 0s}}", "6:40"),
        ("{tool: a.b, retry: {attempts: 0}}", "6:35"),
        ("{effect: read_only}", "6:5"),
        ("{tool: a.b, approvals: never}", "6:17"),
    ],
)
def test_each_expression_schema_and_key_is_checked_where_it_stands(rule: str, place: str) -> None:
    assert places(policy(f"- {rule}")) == [place]


PROBE = '{tool: a.find, arguments: {id: args.id}, happened_if: result.n > 0, absent_if: result.n == 0}'


def test_a_probe_is_compiled_with_its_rule() -> None:
    probe = rule_of(f"- {{tool: a.b, probe: {PROBE}}}").probe
    assert probe is not None
    assert (probe.tool, probe.after_ms) == ("a.find", 60_000)
    assert {name: value({"args": {"id": "7"}}) for name, value in probe.arguments} == {"id": "7"}
    assert [(probe.happened_if({"result": {"n": n}}), probe.absent_if({"result": {"n": n}})) for n in (0, 1)] == [(False, True), (True, False)]
    assert rule_of("- {tool: a.b}").probe is None


@pytest.mark.parametrize(
    ("rules", "place"),
    [
        (f"- {{tool: a.b, probe: {PROBE}}}", ""),
        (f"- {{tool: a.find, effect: read_only}}\n- {{tool: a.*, probe: {PROBE}}}", ""),
        (f"- {{tool: a.f*, mode: shadow}}\n- {{tool: a.b, probe: {PROBE}}}", ""),
        (f"- {{tool: a.*, probe: {PROBE}}}", "6:31"),
        (f"- {{tool: a.b, probe: {PROBE}}}\n- {{tool: a.f*, effect: idempotent_write}}", "6:31"),
        (f"- {{tool: a.f*}}\n- {{tool: a.b, probe: {PROBE}}}", "7:31"),
    ],
)
def test_a_probe_whose_tool_writes_by_any_rule_is_a_mistake(rules: str, place: str) -> None:
    assert places(policy(rules)) == ([place] if place else [])


# ---- what a rule becomes ------------------------------------------------------------------------------------------------


def test_a_rule_that_says_little_gets_the_careful_defaults() -> None:
    rule = rule_of("- {tool: a.b}")
    assert (rule.effect, rule.timeout_ms, rule.min_time_ms, rule.retry, rule.upstream_key_ttl_ms) == (ACT, 30_000, 0, Retry(1, 200), 86_400_000)
    assert (rule.idempotency, rule.usd_micros, rule.poll, rule.shadow_mode, rule.listed) == (Idempotency(), 0, False, False, True)
    assert kinds(rule) == {"allow", "arguments", "approval", "result"}


def test_a_rule_that_says_everything_is_compiled_as_it_says() -> None:
    rule = rule_of("""
        - tool: a.*
          effect: idempotent_write
          timeout: 5s
          min_time: 2s
          retry: {attempts: 3, backoff: 1s}
          upstream_key_ttl: 1h
          price: {cost_usd: 0.05}
          allow_if: args.x > 1
          approval: {when: args.x > 5}
          shadow: [authorize, loops]
          idempotency: {key_from: [x], send_as: {header: K, quoted: true}, on_error: retry, not_applied_on: [409, 503]}
    """)
    assert (rule.tool, rule.effect, rule.timeout_ms, rule.min_time_ms, rule.retry) == ("a.*", WRITE, 5_000, 2_000, Retry(3, 1_000))
    assert (rule.upstream_key_ttl_ms, rule.usd_micros, rule.shadow) == (3_600_000, 50_000, frozenset({"authorize", "loops"}))
    assert rule.idempotency == Idempotency(("x",), ("header_quoted", "K"), "retry", frozenset({409, 503}))
    assert {place.guard.kind for place in rule.guards if place.shadow} == {"authorize"}


@pytest.mark.parametrize("send_as", [("header", "K"), ("argument", "k"), ("meta", "m")])
def test_the_key_goes_where_the_rule_says(send_as: tuple[str, str]) -> None:
    rule = rule_of(f"- {{tool: a.b, idempotency: {{send_as: {{{send_as[0]}: {send_as[1]}}}}}}}")
    assert rule.idempotency.send_as == send_as


def test_several_conditions_of_not_applied_are_one_that_holds_if_any_does() -> None:
    rule = rule_of("""
        - tool: a.b
          idempotency: {not_applied_on: [409, "result.code == 1 // a remark", "result.code == 2"]}
    """)
    condition = rule.idempotency.not_applied_if
    assert condition is not None
    assert [condition({"result": {"code": code}}) for code in (1, 2, 3)] == [True, True, False]


def test_the_timeout_of_the_document_stands_in_for_that_of_a_rule() -> None:
    head = HEAD.replace("defaults: {", "defaults: {timeout: 7s, ")
    assert rule_of("- {tool: a.b}", head).timeout_ms == 7_000
    assert rule_of("- {tool: a.b, timeout: 9s}", head).timeout_ms == 9_000


def test_each_finding_can_name_the_line_of_its_rule_or_section() -> None:
    one = compiled(policy("- {tool: a.b}\n- {tool: a.c}", HEAD + "loops: {reads: 2}\n"))
    assert [rule.where for rule in one.rules] == ["p.yaml:7", "p.yaml:8"]
    assert {place.where for place in one.rules[1].guards} == {"p.yaml:8"}
    assert {place.guard.kind: place.where for place in one.guards} == {"turns": "p.yaml:3", "budgets": "p.yaml:3", "loops": "p.yaml:5"}
    assert one.deny.where == "p.yaml:6"


def test_every_guard_is_built_somewhere() -> None:
    one = compiled(policy('- {tool: a.b, allow_if: "true"}'))
    assert kinds(one.rules[0]) | {place.guard.kind for place in one.guards} == {guard.kind for guard in GUARDS}


# ---- digests ------------------------------------------------------------------------------------------------------------


def digest_of(text: str, head: str = HEAD) -> str:
    return rule_of(text, head).digest


def test_a_rules_digest_changes_with_what_it_means_and_only_with_that() -> None:
    same = digest_of("- {tool: a.b, timeout: 5s}")
    assert digest_of("- tool: a.b   # a remark\n  timeout: 5s") == same
    assert digest_of("- {tool: a.b, timeout: 6s}") != same
    assert digest_of("- {tool: a.b, timeout: 5s}", HEAD.replace("name: p", "name: q")) != same
    assert digest_of("- {tool: a.b, timeout: 5s}", HEAD.replace("user:mia", "user:kim")) != same


def test_a_policys_digest_is_that_of_its_bytes() -> None:
    text = policy("- {tool: a.b}")
    assert compiled(text).digest == hashlib.sha256(text).hexdigest()


def test_what_an_approval_binds_is_the_rules_digest() -> None:
    rule = rule_of("- {tool: a.b}")
    (consent,) = rule.stages[Stage.CONSENT]
    requirement = consent.guard.require(None)  # type: ignore[arg-type]
    assert requirement is not None
    assert (requirement.rule, requirement.rule_digest) == (rule.where, rule.digest)


# ---- the document -------------------------------------------------------------------------------------------------------


def test_the_head_of_a_policy() -> None:
    head = HEAD + "description: d\npriority: 5\nmatch: {principals: ['group:a'], task_types: [t]}\n"
    one = compiled(policy("- {tool: a.b}", head))
    assert (one.name, one.file, one.kind, one.priority, one.apply, one.description) == ("p", "p.yaml", "policy", 5, "new_runs", "d")
    assert one.match == Match(frozenset({"group:a"}), frozenset({"t"}))
    assert (one.limits.turns, one.limits.tokens, one.limits.deadline_ms) == (9, None, 90_000)


def test_a_ceiling_applies_at_once_unless_it_says_otherwise() -> None:
    assert compiled(ceiling("- {tool: a.b}")).apply == "at_once"
    assert compiled(ceiling("- {tool: a.b}", "apply: new_runs\n")).apply == "new_runs"


def test_what_no_rule_names_is_denied_and_not_listed() -> None:
    one = governing(policy("- {tool: a.b, effect: read_only}"))
    rule = one.rule_for("x.y")
    assert (rule.listed, rule.effect, reasons(given(one).when("x.y"))) == (False, ACT, ["tool.not_allowed"])


# ---- under ceilings -----------------------------------------------------------------------------------------------------

WIDE = policy(
    "- {tool: a.b, effect: read_only, timeout: 60s, retry: {attempts: 5}, poll: true, price: {cost_usd: 1}}",
    HEAD.replace("turns: 9", "turns: 9, open_holds: 8") + "#\n",
)


def plain(rule: ToolRule) -> dict[str, Any]:
    return {name: getattr(rule, name) for name in ("effect", "timeout_ms", "min_time_ms", "retry", "upstream_key_ttl_ms", "usd_micros", "poll")}


def test_a_ceiling_that_says_nothing_tightens_nothing() -> None:
    one = governing(WIDE, ceiling("- {tool: a.b}"))
    assert plain(one.rule_for("a.b")) == plain(one.policy.rules[0])
    assert one.limits == one.policy.limits


def test_of_each_number_the_strictest_counts() -> None:
    rule = "- {tool: a.*, timeout: 2s, retry: {attempts: 2}, price: {cost_usd: 2}, min_time: 1s}"
    one = governing(WIDE, ceiling(rule, "run: {budgets: {turns: 3}}\n"))
    merged = one.rule_for("a.b")
    assert (merged.timeout_ms, merged.retry.attempts, merged.usd_micros, merged.min_time_ms, merged.effect) == (2_000, 2, 2_000_000, 1_000, READ)
    assert (one.limits.turns, one.limits.open_holds, one.limits.tool_calls) == (3, 8, 9)


def test_the_graver_effect_counts() -> None:
    rules = '- {tool: a.b, effect: non_idempotent, approval: {approvers: ["user:mia"]}}'
    one = governing(WIDE, ceiling(rules))
    assert (one.rule_for("a.b").effect, verdict(given(one).when("a.b"))) == (Effect.NON_IDEMPOTENT, "hold")


def test_a_ceiling_allows_nothing_by_itself() -> None:
    one = governing(WIDE, ceiling("- {tool: '*'}"))
    assert reasons(given(one).when("x.y")) == ["tool.not_allowed"]


def test_a_policys_shadow_does_not_reach_a_ceilings_guards() -> None:
    shadowed = policy("- {tool: a.b, effect: read_only, shadow: [loops, budgets, turns]}", HEAD + "loops: {reads: 1}\n")
    alone, under = governing(shadowed), governing(shadowed, ceiling("- {tool: a.b}", "run: {budgets: {tool_calls: 1}}\nloops: {reads: 2}\n"))
    assert [verdict(run.happens("a.b", n=n)) for run in (given(alone),) for n in range(12)] == ["allow"] * 12
    assert [verdict(run.happens("a.b", n=n)) for run in (given(under),) for n in range(3)] == ["allow", "deny", "deny"]
    assert {place.where for place in under.rule_for("a.b").stages[Stage.LIMIT] if not place.shadow} == {"1.yaml:4", "1.yaml:5"}


def test_a_ceilings_rule_shadows_only_the_ceilings_own_guards() -> None:
    own = policy("- {tool: a.b, effect: read_only}", HEAD + "loops: {reads: 2}\n")
    run = given(governing(own, ceiling("- {tool: a.b, shadow: [loops]}", "loops: {reads: 1}\n")))
    asked = [run.happens("a.b") for _ in range(3)]
    assert [verdict(each) for each in asked] == ["allow", "allow", "deny"]
    assert asked[1].shadowed == ("loop.repeat",)


def test_a_rule_in_shadow_mode_is_recorded_and_skipped_and_suspends_nothing() -> None:
    one = governing(policy("""
        - tool: a.*
          mode: shadow
          allow_if: args.n > 5
          arguments: {bind: {tenant: principal.claims.tenant}}
          result: {redact: [/x]}
        - {tool: a.b, effect: read_only}
    """))  # fmt: skip
    run = given(one, BOT)
    asked = run.happens("a.b", n=1)
    assert (verdict(asked), asked.assessment.arguments) == ("allow", {"n": 1})
    assert asked.shadowed == ("authorization.denied", "approval.required")
    assert run.when("a.b", n=9).shadowed == ("approval.required",)
    assert reasons(run.when("a.c", n=9)) == ["tool.not_allowed"]
    kept = run.settle(run.when("a.b", n=3), Outcome("succeeded", result=completed({"x": 1}), answered=True))
    assert (kept.result or {})["structuredContent"] == {"x": 1}


def test_a_policy_is_plain_data() -> None:
    one: Policy = compiled(policy("- {tool: a.b}"))
    assert replace(one, name="q") != one
    assert compiled(policy("- {tool: a.b}")) == one
    assert one.match.fits(Principal("agent:any"), "any")
