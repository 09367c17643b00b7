"""The flat form gives what the expression gives, or no answer; what it keeps between evaluations never shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.canonical import canonical
from gateway.core.guards.guard import ConditionFault
from gateway.policy.conditions import CompiledValue, compile_value
from gateway.policy.expressions import parse, render
from gateway.policy.flat import NO_ANSWER, flatten

VARIABLES = frozenset({"args", "principal"})
EXPRESSIONS = (
    "args.a", 'args["a"] == principal.id', "size(args.a)", "args.a.size() + size(principal.id)", "args.a == args.b", "args.a + args.b",
    "args.a < 3 || args.b", "args.a.b == args.a", "args", "args.a[0]", 'size("é" + args.a)', 'size("\\u00e9")', "string(args.a)",
    "args.a == 1 ? args.b : principal.id", "[args.a, args.b]", "double(args.a) * 2.0", "args.a in [1, 'é']", 'args.a.startsWith("é")',
)  # fmt: skip
TEXTS = st.sampled_from(("", "a", "é", "😀b"))
VALUES = TEXTS | st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.just(2**63) | st.sampled_from((1.0, 0.5)) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(("a", "b")), inner, max_size=2),
    max_leaves=4,
)
FACTS = st.fixed_dictionaries({
    "args": st.dictionaries(st.sampled_from(("a", "b")), VALUES), "principal": st.fixed_dictionaries({"id": st.sampled_from(("a", "é"))})
})  # fmt: skip


def told(value: CompiledValue, facts: dict[str, Any]) -> Any:
    try:
        return canonical(value(facts))
    except ConditionFault as fault:
        return str(fault)


@pytest.mark.parametrize("text", EXPRESSIONS)
@settings(deadline=None, max_examples=40)
@given(st.lists(FACTS, min_size=1, max_size=4))
def test_what_comes_out_never_depends_on_the_form_or_on_what_came_before(text: str, several: list[dict[str, Any]]) -> None:
    flat = compile_value(text, VARIABLES)
    assert flat.flat is not None
    for facts in several:
        assert told(flat, facts) == told(replace(flat, flat=None), facts)


def test_each_path_becomes_one_variable() -> None:
    found = flatten(parse('args.a.b + args["a"].b + principal.id + args.n[0] + other.x'), VARIABLES)
    assert found is not None
    tree, paths = found
    assert (render(tree), paths) == ("fact_0 + fact_0 + fact_1 + fact_2[0] + other.x", (("args", "a", "b"), ("principal", "id"), ("args", "n")))


@pytest.mark.parametrize("text", ["has(args.a)", "args.a.all(x, x > 1)", "args.a > 1 && has(args.b.c)"])
def test_where_a_path_is_more_than_its_value_there_is_no_flat_form(text: str) -> None:
    assert flatten(parse(text), VARIABLES) is None
    assert compile_value(text, VARIABLES).flat is None


@pytest.mark.parametrize("facts", [{"args": {}}, {"args": {"a": 3}}, {"args": {"a": {"b": None}}}, {}])
def test_without_an_answer_the_expression_itself_is_asked(facts: dict[str, Any]) -> None:
    flat = compile_value("size(args.a.b) > 1", VARIABLES).flat
    assert flat is not None
    assert flat(facts) is NO_ANSWER


def test_an_integer_beyond_64_bits_is_refused_as_everywhere() -> None:
    with pytest.raises(ConditionFault):
        compile_value("args.a == 1", VARIABLES)({"args": {"a": 2**63}})


def test_a_value_that_is_changed_in_place_is_seen() -> None:
    value, items = compile_value("size(args.a)", VARIABLES), [1]
    assert value({"args": {"a": items}}) == 1
    items.append(2)
    assert value({"args": {"a": items}}) == 2


def test_a_text_after_another_kind_of_value_is_handed_over_again() -> None:
    value, text = compile_value("args.a", VARIABLES), "a"
    assert [value({"args": {"a": each}}) for each in (text, 1, text, True, 1, text)] == ["a", 1, "a", True, 1, "a"]
