"""What `gateway check` says of policies that load: each remark with its place, and none where all is well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.core.model import Principal
from gateway.policy.lint import Deployment, Remark, lint
from gateway.policy.store import load_policies
from gateway.source import Position
from tests.policy.writing import HEAD, ceiling, policy

STRICT = HEAD.replace("run: {", "run: {require_turns: true, ")
MIA = Principal("user:mia", person=True, roles=frozenset({"approver"}))
Check = Callable[..., list[str]]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    def run(rules: str, head: str = STRICT, over: bytes | None = None, **known: Any) -> list[str]:
        """`file:line:column` and the kind of each remark."""
        (tmp_path / "p.yaml").write_bytes(policy(rules, head))
        if over is not None:
            (tmp_path / "c.yaml").write_bytes(over)
        return [f"{remark.position} {'error' if remark.is_error else 'warning'}" for remark in lint(load_policies(tmp_path), Deployment(**known))]

    return run


def test_a_tool_that_keeps_its_prefixed_name_though_its_rule_says_otherwise_is_told(check: Check) -> None:
    rules = '- {tool: "*.b", effect: read_only, as: "*"}\n- {tool: a.*, effect: read_only, as: "*"}'
    offered: dict[str, dict[str, Any]] = {"a.b": {}, "a.c": {}, "c.b": {}}
    assert check(rules, tools=offered) == ["p.yaml:6:42 warning"] * 2
    assert check(rules, tools={"a.b": {}, "a.c": {}}) == []


def test_a_policy_that_means_what_it_says_gets_no_remark(check: Check) -> None:
    assert check("- {tool: a.get, effect: read_only, allow_if: args.n > 5}\n- {tool: a.b}", principals=[MIA], bounded=lambda one: True) == []


# ---- the text -----------------------------------------------------------------------------------------------------------


def test_turns_that_only_some_clients_declare_are_worth_a_remark(check: Check) -> None:
    assert check("- {tool: a.get, effect: read_only}", HEAD) == ["p.yaml:3:6 warning"]
    assert check("- {tool: a.get, effect: read_only}", over=ceiling("- {tool: a.get}")) == []


@pytest.mark.parametrize(
    ("rule", "place"),
    [
        ("{tool: a.b, allow_if: args.n * 1.1 > 5.0}", "6:27"),
        ("{tool: a.b, approval: {when: args.n + 1.0 > 5.0}}", "6:34"),
        ("{tool: a.b, arguments: {bind: {x: run.labels.n * 2}}}", "6:39"),
        ("{tool: a.b, idempotency: {not_applied_on: [503, result.n - 1 == 0]}}", "6:53"),
        ("{tool: a.b, allow_if: double(args.n) * 1.1 > 5.0}", ""),
        ("{tool: a.b, allow_if: args.n > 5, approval: never}", ""),
    ],
)
def test_arithmetic_that_depends_on_how_a_number_was_written_asks_for_double(rule: str, place: str, check: Check) -> None:
    assert check(f"- {rule}") == ([f"p.yaml:{place} warning"] if place else [])


PROBE = "probe: {tool: a.c, arguments: {x: args.n * 2}, happened_if: result.n + 1 > 2, absent_if: 'false'}"


def test_what_this_version_accepts_but_does_not_run_is_said(check: Check) -> None:
    assert check("- {tool: a.b, approval: {grants: {max_count: 2}}}") == ["p.yaml:6:36 warning"]


def test_the_expressions_of_a_probe_are_looked_at_too(check: Check) -> None:
    assert check(f"- {{tool: a.b, {PROBE}}}") == ["p.yaml:6:51 warning", "p.yaml:6:77 warning"]


@pytest.mark.parametrize(
    ("definition", "count"),
    [
        ({"inputSchema": {"properties": {"x": {}}, "required": ["x"]}, "annotations": {"readOnlyHint": True}}, 0),
        (None, 1),
        ({"inputSchema": {"properties": {"x": {}}}, "annotations": {"readOnlyHint": False}}, 1),
        ({"inputSchema": {"properties": {"x": {}, "y": {}}, "required": ["x", "y"]}}, 1),
        ({"inputSchema": {"properties": {"z": {}}}}, 1),
        ({"inputSchema": {"properties": [{}], "required": "x"}}, 1),
    ],
    ids=["fits", "no such tool", "a write", "an argument missing", "an argument too many", "no schema that makes sense"],
)
def test_a_probe_is_held_against_its_tool(definition: dict[str, Any] | None, count: int, check: Check) -> None:
    rule = "- {tool: a.b, probe: {tool: a.c, arguments: {x: args.n}, happened_if: result.n > 1, absent_if: 'false'}}"
    tools = {"a.b": {}} if definition is None else {"a.b": {}, "a.c": definition}
    assert check(rule, tools=tools) == ["p.yaml:6:24 warning"] * count


# ---- people -------------------------------------------------------------------------------------------------------------

KIM = Principal("user:kim", person=True, roles=frozenset({"approver"}), groups=frozenset({"leads"}))


@pytest.mark.parametrize(
    "principals",
    [
        [],
        [Principal("user:mia", person=True)],
        [Principal("user:mia", roles=frozenset({"approver"}))],
        [KIM],
    ],
)
def test_a_hold_that_nobody_can_approve_is_an_error(principals: list[Principal], check: Check) -> None:
    assert check("- {tool: a.b}", principals=principals) == ["p.yaml:6:5 error"]
    assert check("- {tool: a.b, approval: never}", principals=principals) == ["p.yaml:6:27 error"]


def test_a_quorum_counts_people_and_a_group_its_members(check: Check) -> None:
    rule = '- {tool: a.b, approval: {approvers: ["user:mia", "group:leads"], quorum: 2}}'
    assert check(rule, principals=[MIA]) == ["p.yaml:6:27 error"]
    assert check(rule, principals=[MIA, KIM]) == []


def test_where_tokens_may_bring_others_nothing_is_known_of_people(check: Check) -> None:
    assert check("- {tool: a.b}", principals=None) == []


def test_the_demands_of_ceilings_are_looked_at_too(check: Check) -> None:
    over = ceiling('- {tool: a.b, approval: {approvers: ["group:none"]}}')
    assert check("- {tool: a.b}", over=over, principals=[MIA]) == ["c.yaml:5:27 error"]


def test_an_agent_that_no_quota_bounds_is_named(check: Check) -> None:
    bot, other = Principal("agent:bot"), Principal("agent:other")
    rules = "- {tool: a.get, effect: read_only}"
    assert check(rules, principals=[bot, MIA], bounded=lambda one: False) == ["p.yaml:1:1 warning"]
    assert check(rules, principals=[bot], bounded=lambda one: True) == []
    assert check(rules, STRICT + "match: {principals: ['agent:bot']}\n", principals=[other], bounded=lambda one: False) == ["p.yaml:5:22 warning"]


@pytest.mark.parametrize(
    ("match", "remarks"),
    [
        ("principals: ['agent:bot', 'agent:bto', 'group:leads', 'group:lead']", ["5:35", "5:63"]),
        ("task_types: [nightly, batch]", ["5:31"]),
        ("principals: ['agent:bot'], task_types: [nightly, batch]", ["5:58"]),
        ("principals: ['agent:bot', 'user:kim'], task_types: [nightly, batch]", ["5:70"]),
    ],
)
def test_a_match_that_fits_nobody_is_worth_a_remark_once_people_are_known(match: str, remarks: list[str], check: Check) -> None:
    bot = Principal("agent:bot", task_types=frozenset({"nightly"}))
    head, rule = STRICT + f"match: {{{match}}}\n", "- {tool: a.get, effect: read_only}"
    assert check(rule, head, principals=[bot, KIM]) == [f"p.yaml:{place} warning" for place in remarks]
    assert check(rule, head) == []


# ---- tools --------------------------------------------------------------------------------------------------------------


def tools(**definitions: Any) -> dict[str, Any]:
    return {f"a.{name}": one for name, one in definitions.items()}


@pytest.mark.parametrize(
    ("effect", "hints", "remarks"),
    [
        ("read_only", {"readOnlyHint": False}, 1), ("read_only", {"destructiveHint": True}, 1), ("non_idempotent", {"readOnlyHint": True}, 1),
        ("idempotent_write", {"idempotentHint": False}, 1), ("read_only", {"readOnlyHint": True}, 0),
        ("non_idempotent", {"idempotentHint": False}, 0),
        ("idempotent_write", {"readOnlyHint": False, "idempotentHint": True}, 0), ("read_only", None, 0), ("read_only", "odd", 0),
    ],
)  # fmt: skip
def test_an_effect_that_the_upstream_says_otherwise_is_worth_a_look(effect: str, hints: Any, remarks: int, check: Check) -> None:
    assert check(f"- {{tool: a.b, effect: {effect}}}", tools=tools(b={"annotations": hints})) == ["p.yaml:6:25 warning"] * remarks


def schema(**fields: Any) -> dict[str, Any]:
    return tools(b={"inputSchema": {"type": "object", "properties": fields}})


FREE = {"type": "string"}


@pytest.mark.parametrize("field", [FREE, {"type": "string", "maxLength": 65}])
def test_a_writes_key_that_includes_free_text_is_worth_a_remark(field: dict[str, Any], check: Check) -> None:
    assert check("- {tool: a.b}", tools=schema(note=field)) == ["p.yaml:6:5 warning"]


@pytest.mark.parametrize(
    "field",
    [
        {"type": "string", "enum": ["a"]}, {"type": "string", "const": "a"}, {"type": "string", "format": "date"},
        {"type": "string", "pattern": "^a$"},
        {"type": "string", "maxLength": 64}, {"type": "integer"}, {}, True,
    ],
)  # fmt: skip
def test_text_that_is_bounded_is_not_free(field: Any, check: Check) -> None:
    assert check("- {tool: a.b}", tools=schema(note=field)) == []


@pytest.mark.parametrize(
    "rule",
    [
        "{tool: a.b, idempotency: {key_from: [order_id]}}",
        "{tool: a.b, effect: read_only}",
        "{tool: a.b, arguments: {bind: {note: run.id}}}",
        "{tool: a.b, arguments: {schema: {properties: {note: {enum: [x]}}}}}",
    ],
)
def test_free_text_matters_only_where_it_stands_in_a_key(rule: str, check: Check) -> None:
    assert check(f"- {rule}", tools=schema(note=FREE, order_id=FREE)) == []


@pytest.mark.parametrize(
    "definition", [{}, {"inputSchema": 5}, {"inputSchema": {"properties": []}}, {"inputSchema": {"properties": {"id": FREE, "orderId": FREE}}}]
)
def test_tools_without_readable_fields_or_with_ids_only_get_no_remark(definition: Any, check: Check) -> None:
    assert check("- {tool: a.b}", tools=tools(b=definition)) == []


def test_a_rule_that_names_no_tool_of_the_upstreams_is_worth_a_look(check: Check) -> None:
    assert check("- {tool: a.bee, effect: read_only}", tools=tools(b={})) == ["p.yaml:6:12 warning"]


def test_each_tool_is_judged_by_the_rule_that_it_meets(check: Check) -> None:
    rules = "- {tool: a.b, effect: read_only}\n- {tool: a.*, effect: non_idempotent}\n"
    assert check(rules, tools=tools(b={"annotations": {"readOnlyHint": True}}, c={})) == []
    shadowed = "- {tool: a.*, effect: non_idempotent, mode: shadow}\n" + rules.splitlines()[0]
    assert check(shadowed, tools=tools(b={"annotations": {"readOnlyHint": True}})) == ["p.yaml:6:25 warning"]


# ---- files --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "remarks"), [(0o600, 0), (0o644, 0), (0o664, 1), (0o602, 1), (0o777, 1)])
def test_a_file_that_others_can_write_is_worth_a_remark(mode: int, remarks: int, check: Check, tmp_path: Path) -> None:
    ledger = tmp_path / "gateway.db"
    ledger.touch()
    ledger.chmod(mode)
    assert check("- {tool: a.get, effect: read_only}", files=[ledger, tmp_path / "none.db"]) == [f"{ledger}:1:1 warning"] * remarks


def test_a_remark_says_how_grave_it_is() -> None:
    place = Position("p.yaml", 6, 5)
    assert str(Remark(place, "look")) == "p.yaml:6:5: warning: look"
    assert str(Remark(place, "stop", is_error=True)) == "p.yaml:6:5: error: stop"
