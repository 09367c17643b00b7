"""What is known of an expression before it runs."""

from __future__ import annotations

from typing import Any

import cel
import pytest

from gateway.policy.expression_checks import FUNCTIONS, METHODS, TYPES, arithmetic, check_names, degree, parts_of, reads
from gateway.policy.expressions import ConditionError, parse

VARIABLES = frozenset(("args", "tool", "run", "principal"))


@pytest.mark.parametrize(
    "text",
    [
        "args.amount > 100.0 && tool.name == 'x' || run.id in principal.groups",
        "args.items.all(item, item.tags.exists(tag, tag == args.tag && item.ok))",
        "args.items.map(args, args.n)[0] == 1",
        "type(args.x) == int || type(args.x) == null_type",
        "size(args.x) == args.x.size()",
        "has(args.x) ? args.x.matches('^a') : double(args.y) < -1.5",
        "timestamp(args.t).getFullYear() > 2000",
    ],
)
def test_known_names_pass(text: str) -> None:
    check_names(parse(text), VARIABLES)


@pytest.mark.parametrize(
    ("text", "offset", "hint"),
    [
        ("arg.amount > 1", 0, "args"),
        ("args.currency == EUR", 17, "quotes"),
        ("args.l.all(x, y > 1)", 14, "unknown"),
        ("args.l.all(x, x > 1) && x > 1", 24, "unknown"),
        ("x.all(x, x > 1)", 0, "unknown"),
        ("result.ok", 0, "unknown"),
        ("len(args.x) > 1", 0, "size"),
        ("args.s.startswith('x')", 7, "startsWith"),
        ("startsWith(args.s, 'x')", 0, "method"),
        ("all(args.l, true)", 0, "method"),
        ("args.x.int() > 1", 7, "function"),
        ("args.l.exist(x, x)", 7, "exists"),
        ("size(args.a, args.b) > 1", 0, "1 argument, not 2"),
        ("args.s.contains()", 7, "1 argument, not 0"),
        ("args.t.getHours('UTC') > 1", 7, "0 arguments, not 1"),
        ("optional.of(args.a)", 9, "unknown"),
        ("-args.x < 5", 0, "0 - x"),
        ("1 < -(args.x - 1)", 4, "0 - x"),
    ],
)
def test_an_unknown_name_is_shown_where_it_stands_with_a_way_out(text: str, offset: int, hint: str) -> None:
    with pytest.raises(ConditionError) as caught:
        check_names(parse(text), VARIABLES)
    assert caught.value.offset == offset
    assert hint in caught.value.message


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_each_listed_function_exists_in_the_library(name: str) -> None:
    argument = {"timestamp": "'2026-01-01T00:00:00Z'", "duration": "'1h'", "size": "''", "bytes": "''"}.get(name, "1")
    cel.compile(f"{name}({argument})").execute({})


@pytest.mark.parametrize("name", sorted(METHODS))
def test_each_listed_method_exists_in_the_library(name: str) -> None:
    receiver = "timestamp('2026-01-01T00:00:00Z')" if name.startswith("get") else "'abc'"
    arguments = ", ".join(["'a'"] * METHODS[name])
    cel.compile(f"{receiver}.{name}({arguments})").execute({})


@pytest.mark.parametrize("name", sorted(TYPES))
def test_each_listed_type_exists_in_the_library(name: str) -> None:
    assert cel.compile(f"type(1) == {name}").execute({}) is (name == "int")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("args.a.b == args['c']", {"args": {"a": {"b": None}, "c": None}}),
        ("args.a.b == 1 && args.a.c == 1", {"args": {"a": {"b": None, "c": None}}}),
        ("args.a.b == 1 && size(args) == 1", {"args": None}),
        ("size(args) == 1 && args.a.b == 1", {"args": None}),
        ("args.a == 1 || args.a.b == 1", {"args": {"a": None}}),
        ("has(args.a.b)", {"args": {"a": {"b": None}}}),
        ("args.a.startsWith(principal.claims.p)", {"args": {"a": None}, "principal": {"claims": {"p": None}}}),
        ("args.l[0].x == 1", {"args": {"l": None}}),
        ("args[args.k] == 1", {"args": None}),
        ("args['a\\'b'] == 1", {"args": None}),
        ("args.l.all(x, x.a == args.b)", {"args": {"l": None, "b": None}}),
        ("args.l.all(args, args.a > 1)", {"args": {"l": None}}),
        ("args.l.map(x, [x]).all(y, y == tool)", {"args": {"l": None}, "tool": None}),
        ("type(args.a) == int", {"args": {"a": None}}),
        ("{'k': args.a}.k == 1", {"args": {"a": None}}),
        ("(args.a ? args.b : args.c).d == 1", {"args": {"a": None, "b": None, "c": None}}),
        ("1 == 1", {}),
    ],
)
def test_the_facts_read_are_known(text: str, wanted: dict[str, Any]) -> None:
    assert reads(parse(text)) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("args.a > 1", 0),
        ("'x' in args.l", 1),
        ("args.a in ['x', 'y']", 0),
        ("args.l.all(x, x > 1)", 1),
        ("args.l.all(x, x in ['a', 'b'])", 1),
        ("args.l.all(x, x in args.m)", 2),
        ("args.l.all(x, x.matches('a'))", 2),
        ("args.l.filter(x, x > 1) == []", 2),
        ("args.l.all(x, args.l.all(y, x == y))", 2),
        ("args.l.all(x, args.l.filter(y, x == y) == [x])", 3),
        ("args.l.all(x, x > 1) && args.m.all(x, x > 1)", 1),
    ],
)
def test_the_growth_of_the_work_is_known(text: str, wanted: int) -> None:
    assert degree(parse(text)) == wanted


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("args.a * 2 > 10", [0]),
        ("1 + args['a'] > 10", [4]),
        ("args.a + args.b + args.c > 10", [0, 9, 18]),
        ("(args.a + 1) * 2 > 10", [1]),
        ("double(args.a) * 2.0 > 10", []),
        ("double(args.a) * 2 > 10", [17]),
        ("args.l.all(x, x * 2 > 4)", [14]),
        ("args.s + 'x' == 'y'", []),
        ("args.l + [1] == [2]", []),
        ("string(args.a) + args.b == 'y'", []),
        ("timestamp(args.a) - duration('1h') > timestamp(args.b)", []),
        ("size(args.a) + 1 > 2", []),
        ("args.a > 100.0 && args.b == 1", []),
        ("args.a % 2 == 0", [0]),
        ("int(args.a) % 2 == 0", []),
    ],
)
def test_arithmetic_on_a_field_asks_for_a_cast(text: str, offsets: list[int]) -> None:
    assert [offset for offset, _ in arithmetic(parse(text))] == offsets


def test_the_parts_come_from_left_to_right_without_loop_variables() -> None:
    assert [node.text for node in parts_of(parse("a.b.all(x, x > 1)")) if node.text] == ["all", "b", "a", ">", "x", "1"]
