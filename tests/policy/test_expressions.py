"""Reading CEL: what is read is what the library reads, mistakes stand where they are."""

from __future__ import annotations

import json
import re
from typing import Any

import cel
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gateway.policy.expressions import MAX_LENGTH, ConditionError, Node, parse, render

FACTS = {
    "a": {"n": 3, "f": 1.5, "s": "text", "t": True, "l": [1, 2, 3], "m": {"k": 1, "deep": [{"x": 2}]}, "none": None, "k-1": 7},
    "b": {"n": -4, "s": "te", "l": ["te", "x"]},
    "flag": False,
}

_LEAVES = st.sampled_from(
    ["1", "2", "0", "1.5", "2.0", "3u", "true", "false", "null", "'te'", '"x"', "r'e\\d'", "'''k'''", "a.n", "a.f", "a.s", "a.t", "a.l", "a.m.k",
     "a['k-1']", "a.m['k']", "a.l[0]", "a.m.deep[0].x", "a.none", "b.n", "b.s", "b.l", "flag", "a", "a.nope", "[]", "{}", "int", "double"]
)  # fmt: skip


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["-", "*", "/", "%", "<", "<=", ">", ">=", "==", "!=", "in", "&&", "||"])
    loops = st.sampled_from(["all", "exists", "exists_one", "map", "filter"])
    return st.one_of(
        st.builds("{} {} {}".format, inner, operators, inner),
        st.builds("({} {} {})".format, inner, operators, inner),
        st.builds("{} + {}".format, inner, st.sampled_from(["1", "2.0", "a.n", "a.s", "'x'", "a.l", "(a.n + 1)"])),
        st.builds("({})".format, inner),
        st.builds("!({})".format, inner),
        st.builds("!!(true && ({}))".format, inner),
        st.builds("-({})".format, inner),
        st.builds("{} ? ({}) : {}".format, inner, inner, inner),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("{{'k': {}, 'n': {}}}".format, inner, inner),
        st.builds("({}).k".format, inner),
        st.builds("{}.n".format, inner),
        st.builds("({})[{}]".format, inner, inner),
        st.builds("size({})".format, inner),
        st.builds("type({})".format, inner),
        st.builds("has(({}).k)".format, inner),
        st.builds("({}).startsWith({})".format, inner, inner),
        st.builds("[{}, {}].{}(x, x == {})".format, inner, inner, loops, inner),
        st.builds("a.l.{}(x, {} in [x])".format, loops, inner),
        st.builds("a.l.map(x, x > {}, x)".format, inner),
    )


EXPRESSIONS = st.recursive(_LEAVES, _compound, max_leaves=8)


def outcome(text: str, facts: dict[str, Any] = FACTS) -> Any:
    """The library's value; which error it meets first may depend on parentheses. Maps have no order there."""
    try:
        return json.dumps(cel.compile(text).execute(facts), sort_keys=True, default=repr)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
        return "error"


@settings(max_examples=1500, deadline=None)
@given(EXPRESSIONS)
def test_the_text_made_of_the_tree_means_what_was_written(text: str) -> None:
    assert outcome(render(parse(text))) == outcome(text)


@settings(max_examples=300, deadline=None)
@given(EXPRESSIONS)
def test_a_tree_survives_being_written_and_read_again(text: str) -> None:
    once = render(parse(text))
    assert render(parse(once)) == once


@settings(max_examples=500, deadline=None)
@given(st.text("ab1.'\"\\r()[]{}<>=!&|?:,-*/% \n", max_size=25))
def test_any_text_is_read_as_the_library_reads_it_or_is_a_mistake(text: str) -> None:
    assume(not re.search(r"!\s*!|-\s*-", text))  # the library drops the pair and with it the error of `!!1`
    try:
        tree = parse(text)
    except ConditionError:
        return
    assert outcome(render(tree)) == outcome(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a - b + c", "a - b + c"),
        ("a - (b + c)", "a - (b + c)"),
        ("a || b && c", "a || (b && c)"),
        ("a * b == c ? d : e ? f : g", "((a * b) == c) ? d : (e ? f : g)"),
        ("-1 < !a.b", "(-1) < (!a.b)"),
        ("x.map(i, i > 1, i)  // all above 1", "x.map(i, (i > 1), i)"),
        ("[1, {'a': 2,},]", "[1, {'a': 2}]"),
        ("r'''it's \\''' + b\"\\xff\"", "r'''it's \\''' + b\"\\xff\""),
        ("0xFF + 1e3 + .5 + 2u", "0xFF + 1e3 + .5 + 2u"),
    ],
)
def test_operators_bind_as_the_language_says(text: str, shown: str) -> None:
    assert render(parse(text)) == shown


def test_each_part_knows_where_it_stands() -> None:
    assert parse("a.b ==\n 'x'") == Node(
        "operator", "==", 4, (Node("field", "b", 2, (Node("name", "a", 0),)), Node("literal", "'x'", 8))
    )


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("", 0),
        ("a = 1", 2),
        ("a and b", 2),
        ("not a", 0),
        ("a == 'x", 5),
        ("a == 1 2", 7),
        ("f(a,)", 4),
        ("(a", 2),
        ("a.", 2),
        ("a.b.(c)", 4),
        ("a ? b", 5),
        ("{'a'}", 4),
        ("a == $b", 5),
        (".a", 0),
        ("a.`b`", 2),
        ("has(a)", 0),
        ("has(a.b, c)", 0),
        ("has(a['b'])", 0),
        ("l.all(x)", 2),
        ("l.all(x.y, true)", 2),
        ("l.exists(1, true)", 2),
        ("a.b{c: 1}", 3),
        ("é", 0),
    ],
)
def test_a_mistake_is_shown_where_it_stands(text: str, offset: int) -> None:
    with pytest.raises(ConditionError) as caught:
        parse(text)
    assert caught.value.offset == offset


@pytest.mark.parametrize("text", ["(" * 2000, "[" * 2000, "!" * 4000 + "a", "a" + " ? b : a" * 400, "a." * 3000])
def test_too_deep_or_too_long_is_a_mistake_not_a_crash(text: str) -> None:
    with pytest.raises(ConditionError):
        parse(text)


def test_a_long_chain_is_no_deep_one() -> None:
    text = " && ".join(["a"] * 500)
    assert len(text) < MAX_LENGTH
    assert cel.compile(render(parse(text))).execute({"a": True}) is True
