"""Tests of policies: they pass for the right reason, fail in words one can act on, and miss nothing that is allowed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.policy.cases import CaseResult, run_cases
from gateway.policy.store import load_policies
from gateway.ports import PolicyError
from tests.policy.writing import policy

RULES = """
- {tool: crm.get, effect: read_only, result: {redact: [/card]}}
- {tool: crm.set, effect: idempotent_write, arguments: {bind: {tenant: principal.claims.tenant}}, idempotency: {not_applied_on: [409]}}
- {tool: crm.try, effect: read_only, shadow: [authorize], allow_if: args.k > 5}
- {tool: crm.pay, allow_if: "run.labels.team == 'a' || run.goal == 'pay'"}
"""
HEAD = """\
policy: p
now: "2026-01-05T09:00:00Z"
principals:
  bot: {id: "agent:bot", claims: {tenant: acme}, trust: [call_id]}
  mia: {id: "user:mia", person: true, roles: [approver]}
cases:
"""
Play = Callable[..., list[CaseResult]]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    def run(cases: str, head: str = HEAD) -> list[CaseResult]:
        (tmp_path / "p.yaml").write_bytes(policy(RULES))
        (tmp_path / "p_test.yaml").write_text(head + "".join(f"  {line}\n" for line in cases.strip("\n").split("\n")))
        return run_cases(tmp_path / "p_test.yaml", load_policies(tmp_path))

    return run


def one(play: Play, when: str, then: str, given: str = "", **more: str) -> CaseResult:
    extra = "".join(f", {name}: {value}" for name, value in more.items())
    (result,) = play(f"- {{name: it, given: [{given}], when: {{principal: bot, {when}}}, then: {{{then}}}{extra}}}")
    return result


GET, SET, PAY = "tool: crm.get", "tool: crm.set, arguments: {k: 1}", "tool: crm.pay, arguments: {k: 1}"
TEAM = {"run": "{labels: {team: a}}"}

PASSING: dict[str, tuple[Any, ...]] = {
    "a read is allowed": (GET, "verdict: allow, findings: [], approvers: []"),
    "what is left is as in an answer": (GET, "verdict: allow, budget: {tool_calls_left: 8, tokens_left: null, seconds_left: 90}"),
    "a tool without a rule is denied": ("tool: crm.delete", "verdict: deny, reason: tool.not_allowed, findings: [tool.not_allowed]"),
    "what is injected is dispatched": (SET, "verdict: allow, arguments: {k: 1, tenant: acme}"),
    "arguments that are no JSON are malformed": ("tool: crm.get, arguments: oops", "verdict: deny, reason: arguments.malformed"),
    "a write again is a replay": (SET, "verdict: replay, budget: {tool_calls_left: 8}", f"{{call: {{{SET}}}}}"),
    "a call that still runs is joined": (GET, "verdict: busy", f"{{call: {{{GET}}}, outcome: running}}"),
    "an outcome that nobody knows is in doubt": (SET, "verdict: doubt", f"{{call: {{{SET}}}, outcome: {{fault: reset}}}}"),
    "a failure that is kept is answered from the record": (SET, "verdict: replay", f"{{call: {{{SET}}}, outcome: {{error: full, status: 409}}}}"),
    "a call id that was used otherwise": (
        "tool: crm.set, call_id: c1, arguments: {k: 2}", "verdict: deny, reason: key.reused",
        "{call: {tool: crm.set, call_id: c1, arguments: {k: 1}}}",
    ),
    "what is only recorded": ("tool: crm.try, arguments: {k: 1}", "verdict: allow, shadowed: [authorization.denied]"),
    "what may be seen": ("tool: crm.get, outcome: {result: {card: 4111, x: 1}}", 'verdict: allow, result: {card: "[redacted]", x: 1}'),
    "calls made again and again": (GET, "verdict: deny, reason: budget.tool_calls", f"{{call: {{{GET}}}, times: 9, outcome: {{result: [1]}}}}"),
    "a turn that was opened and used": (
        f"{GET}, turn: 2", "verdict: allow, budget: {turns_left: 7, cost_usd_left: null}",
        "{turn: 2}, {usage: {input: 5, cost_usd: 0.5}}, {usage: {turn: 1}}",
    ),
    "time that passed": (GET, "verdict: deny, reason: run.not_open", "{wait: 90s}"),
}  # fmt: skip


@pytest.mark.parametrize("name", PASSING)
def test_a_case_that_says_what_happens_passes(name: str, play: Play) -> None:
    result = one(play, *PASSING[name])
    assert result.passed, str(result)
    assert str(result) == "p_test.yaml:7: it: passed"


def test_people_are_asked_and_heard(play: Play) -> None:
    pay = f"{{call: {{{PAY}}}}}"
    assert one(play, PAY, 'verdict: hold, approvers: ["user:mia"]', **TEAM).passed
    assert one(play, PAY, 'verdict: hold, approvers: ["user:mia"]', pay, **TEAM).passed
    assert one(play, PAY, "verdict: allow", f"{pay}, {{vote: {{by: mia, say: approve}}}}", **TEAM).passed
    assert one(play, PAY, "verdict: deny, reason: approval.denied", f"{pay}, {{vote: {{by: mia, say: deny, note: never}}}}", **TEAM).passed


def test_goal_and_labels_of_the_run_are_facts(play: Play) -> None:
    assert one(play, PAY, "verdict: hold", run="{goal: pay, labels: {team: b}}").passed
    assert one(play, PAY, "verdict: deny", run="{labels: {team: b}}").passed


FAILING = {
    "verdict": (GET, "verdict: deny"),
    "reason": ("tool: crm.delete", "verdict: deny, reason: tool.unknown"),
    "findings": ("tool: crm.delete", "verdict: deny, findings: [tool.not_allowed, tool.unknown]"),
    "shadowed": (GET, "verdict: allow, shadowed: [loop.repeat]"),
    "approvers": (GET, 'verdict: allow, approvers: ["user:mia"]'),
    "arguments": (SET, "verdict: allow, arguments: {k: 1}"),
    "result": ("tool: crm.get, outcome: {result: {card: 1}}", "verdict: allow, result: {card: 1}"),
    "tool_calls_left": (GET, "verdict: allow, budget: {tool_calls_left: 9, turns_left: unmetered}"),
}


@pytest.mark.parametrize("field", FAILING)
def test_a_case_that_says_anything_else_fails_and_tells_both(field: str, play: Play) -> None:
    result = one(play, *FAILING[field])
    assert not result.passed
    assert [line.split(":")[0] for line in result.wrong] == [field]
    assert "expected" in result.wrong[0]
    assert "got" in result.wrong[0]


def test_a_failure_shows_the_place_the_name_and_what_was_objected(play: Play) -> None:
    text = str(one(play, "tool: crm.delete", "verdict: allow"))
    assert text.startswith("p_test.yaml:7: it: FAILED\n")
    assert "tool.not_allowed" in text
    assert "p.yaml:5" in text


@pytest.mark.parametrize("given", ["{vote: {by: mia, say: approve}}", "{turn: 10}", "{usage: {input: 1}}", "{turn: 1}, {usage: {turn: 2}}"])
def test_what_cannot_have_happened_fails_the_case(given: str, play: Play) -> None:
    result = one(play, GET, "verdict: allow", given)
    assert result.wrong[0].startswith("given: ")


def test_a_vote_that_is_not_counted_fails_the_case(play: Play) -> None:
    result = one(play, PAY, "verdict: allow", f"{{call: {{{PAY}}}}}, {{vote: {{by: bot, say: approve}}}}", **TEAM)
    assert result.wrong[0].startswith("given: ")


def test_a_principal_that_the_policy_does_not_match_is_denied(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_bytes(policy(RULES).replace(b"name: p\n", b"name: p\nmatch: {task_types: [day]}\n"))
    for when, verdict in (("task_type: day", "allow"), ("task_type: night", "deny")):
        (tmp_path / "p_test.yaml").write_text(
            f'policy: p\ncases:\n  - {{name: it, when: {{principal: {{id: "agent:x"}}, tool: crm.get, {when}}}, then: {{verdict: {verdict}}}}}\n'
        )
        (result,) = run_cases(tmp_path / "p_test.yaml", load_policies(tmp_path))
        assert result.passed, str(result)
    assert result.findings[0].reason == "policy.none"


# ---- what no case mentions ----------------------------------------------------------------------------------------------

TOOLS = "tools: {crm.get: {inputSchema: {type: object, required: [id]}}, crm.set: {}, crm.drop: {}, crm.odd: {inputSchema: {type: odd}}}\n"


def listing(play: Play, cases: str) -> dict[str, bool]:
    return {result.name: result.passed for result in play(cases, HEAD.replace("cases:", TOOLS + "cases:"))}


def test_a_tool_that_no_case_lets_a_principal_call_is_expected_to_be_denied(play: Play) -> None:
    results = listing(play, "- {name: it, when: {principal: bot, tool: crm.get, arguments: {id: 1}}, then: {verdict: allow}}")
    assert results["it"]
    assert (results["crm.set is denied to bot"], results["crm.drop is denied to bot"]) == (False, True)
    assert "crm.get is denied to bot" not in results
    assert results["crm.get is denied to mia"] is False


def test_a_case_that_expects_a_denial_does_not_count_as_a_mention(play: Play) -> None:
    results = listing(play, "- {name: it, when: {principal: bot, tool: crm.get, arguments: {}}, then: {verdict: deny, reason: arguments.invalid}}")
    assert (results["it"], results["crm.get is denied to bot"]) == (True, False)


def test_where_tools_are_listed_no_other_is_offered_and_one_that_cannot_be_enforced_is_held_back(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_bytes(policy("- {tool: crm.*, effect: read_only}"))
    cases = "".join(
        f"  - {{name: {tool}, when: {{principal: {{id: 'agent:x'}}, tool: {tool}}}, then: {{verdict: deny, reason: {reason}}}}}\n"
        for tool, reason in (("crm.odd", "tool.schema_unsupported"), ("crm.other", "tool.unknown"))
    )
    (tmp_path / "p_test.yaml").write_text("policy: p\n" + TOOLS + "cases:\n" + cases)
    assert all(result.passed for result in run_cases(tmp_path / "p_test.yaml", load_policies(tmp_path)))


# ---- the file -----------------------------------------------------------------------------------------------------------

CASE = "- {name: it, when: {principal: bot, tool: crm.get}, then: {verdict: allow}}"


def refusal(play: Play, cases: str, head: str = HEAD) -> str:
    with pytest.raises(PolicyError) as error:
        play(cases, head)
    return str(error.value)


@pytest.mark.parametrize(
    ("cases", "place"),
    [
        (CASE.replace("allow", "perhaps"), "7:"),
        (CASE.replace("bot", "nobody"), "7:"),
        (CASE.replace("name: it", "name: it, given: [{}]"), "7:"),
        (CASE.replace("name: it", "name: it, given: [{turn: 1, wait: 5s}]"), "7:"),
        (CASE.replace("name: it", "name: it, given: [{turn: 1, times: 2}]"), "7:"),
        (CASE.replace("name: it", "name: it, given: [{vote: {by: nobody, say: deny}}]"), "7:"),
        (CASE.replace("name: it", "name: it, given: [{call: {tool: a.b}, outcome: {fault: bad}}]"), "7:"),
        (CASE.replace("tool: crm.get", "tool: crm.get, outcome: {result: 1, error: e}"), "7:"),
    ],
)
def test_a_case_that_means_nothing_is_a_mistake_with_its_place(cases: str, place: str, play: Play) -> None:
    assert refusal(play, cases).startswith(f"p_test.yaml:{place}")


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [("policy: p", "policy: q", "1:9"), ("2026-01-05T09:00:00Z", "soon", "2:6"), ("09:00:00Z", "09:00:00", "2:6"), ("policy: p\n", "#\n", "2:1")],
)
def test_facts_that_mean_nothing_are_mistakes_with_their_place(old: str, new: str, place: str, play: Play) -> None:
    assert refusal(play, CASE, HEAD.replace(old, new)).startswith(f"p_test.yaml:{place}: ")


def test_a_file_that_cannot_be_read_is_said_to_be(play: Play, tmp_path: Path) -> None:
    play(CASE)
    with pytest.raises(PolicyError):
        run_cases(tmp_path / "none_test.yaml", load_policies(tmp_path))
    assert refusal(play, "- [", HEAD)


def test_a_policy_may_be_named_by_its_file(play: Play) -> None:
    assert [result.passed for result in play(CASE, HEAD.replace("policy: p\n", "policy: p.yaml\n"))] == [True]


def test_without_a_now_time_stands_at_a_fixed_one(play: Play) -> None:
    assert [result.passed for result in play(CASE, HEAD.replace('now: "2026-01-05T09:00:00Z"\n', ""))] == [True]
