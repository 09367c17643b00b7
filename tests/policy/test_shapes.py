"""Shapes: jsonschema is the oracle for verdicts; hostile schemas and values are refused in bounded time; no value gets into a message."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.policy.schema_index import ShapeError
from gateway.policy.shapes import compile_shape
from tests.waiting import START_S

DRAFT_07 = "http://json-schema.org/draft-07/schema#"
REFUND = {
    "type": "object",
    "properties": {
        "order_id": {"type": "string", "pattern": "^o-"},
        "amount": {"type": "number", "maximum": 500},
        "currency": {"enum": ["EUR", "USD"]},
    },
    "required": ["order_id", "amount"],
    "additionalProperties": False,
}

NAMES = st.sampled_from(["a", "b", "ab", "é"])
NUMBERS = st.integers(-5, 5) | st.sampled_from(
    [0.0, 1.0, -1.0, 2.5, 0.1, 0.3, 4.35, 1e20, 1e300, 2**53 + 1, 2**63, 2**64, 2**70, 2**70 + 1, -(2**70)]
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.sampled_from(["", "a", "ab", "é", "😀"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
COUNTS = st.integers(0, 3) | st.sampled_from([1.0, 2.0])
TYPES = st.sampled_from(["string", "number", "integer", "object", "array", "null", "boolean"])
LEAVES = {
    "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
    "enum": st.lists(VALUES, min_size=1, max_size=3),
    "const": VALUES,
    "multipleOf": st.sampled_from([1, 2, 3, 0.5, 0.1, 0.01, 1e-3, 2**65]),
    "pattern": st.sampled_from(["^a", "b$", "^[a-z]+$", "a|é", ""]),
    "uniqueItems": st.booleans(),
    "required": st.lists(NAMES, max_size=2, unique=True),
    "format": st.sampled_from(["email", "date"]),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), NUMBERS),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), COUNTS),
}


def some(keywords: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """A schema with up to three of the keywords."""
    chosen = st.lists(st.sampled_from(sorted(keywords)), max_size=3, unique=True)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({name: keywords[name] for name in names}))


def schemas(modern: bool) -> st.SearchStrategy[dict[str, Any]]:
    def compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
        needed = st.lists(NAMES, max_size=2, unique=True)
        lists = dict.fromkeys(("allOf", "anyOf", "oneOf"), st.lists(inner, min_size=1, max_size=3))
        singles = dict.fromkeys(("not", "if", "then", "else", "contains", "additionalProperties", "propertyNames"), inner)
        keywords: dict[str, st.SearchStrategy[Any]] = {
            **lists,
            **singles,
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), inner, max_size=2),
            "$ref": st.sampled_from(["#/$defs/x", "#/$defs/y"]),
        }
        if modern:
            keywords |= {"prefixItems": lists["allOf"], "items": inner, "minContains": COUNTS, "maxContains": COUNTS}
            keywords |= {"unevaluatedProperties": inner, "unevaluatedItems": inner, "dependentRequired": st.dictionaries(NAMES, needed, max_size=2)}
            keywords |= {"dependentSchemas": st.dictionaries(NAMES, inner, max_size=2)}
        else:
            keywords |= {"items": inner | lists["allOf"], "additionalItems": inner, "contentEncoding": st.just("base64")}
            keywords |= {"dependencies": st.dictionaries(NAMES, inner | needed, max_size=2)}
        return st.builds(lambda one, two: one | two, some(keywords), some(LEAVES))

    inner = st.recursive(some(LEAVES) | st.booleans(), compound, max_leaves=5)
    return st.builds(lambda root, x, y: {"allOf": [root], "$defs": {"x": x, "y": y}}, inner, inner, some(LEAVES))


@pytest.mark.parametrize("modern", [True, False], ids=["2020-12", "draft-07"])
def test_verdicts_are_those_of_the_reference_implementation(modern: bool) -> None:
    oracle = jsonschema.Draft202012Validator if modern else jsonschema.Draft7Validator

    @settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
    @given(schemas(modern), st.lists(VALUES, min_size=3, max_size=6))
    def compare(schema: dict[str, Any], values: list[Any]) -> None:
        if not modern:
            schema["$schema"] = DRAFT_07
        shape, reference = compile_shape(schema), oracle(schema)
        for value in values:
            try:
                wanted = reference.is_valid(value)
            except BaseException as error:  # the oracle overflows its stack on definitions that name themselves, or its index of numbers
                if isinstance(error, KeyboardInterrupt):
                    raise
                continue
            assert (shape(value) == ()) is wanted, (schema, value)

    compare()


@pytest.mark.parametrize(
    ("schema", "value", "mine", "reason"),
    [
        ({"pattern": "^a$"}, "a\n", False, "ECMAScript's $ doesn't stand before a last line feed; Python's does"),
        ({"$ref": "#"}, 1, True, "a schema that only names itself demands nothing; the oracle's stack overflows"),
        ({"$schema": DRAFT_07, "contentEncoding": "base64"}, "{", True, "contents aren't asserted (the engine alone would)"),
        ({"format": "date"}, "tomorrow", True, "formats aren't asserted"),
    ],
)
def test_known_disagreements(schema: dict[str, Any], value: Any, mine: bool, reason: str) -> None:
    assert (compile_shape(schema)(value) == ()) is mine, reason


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"maximum": 2**70}, 2**70, 2**70 + 1),
        ({"minimum": -(2**70)}, -(2**70), -(2**70) - 1),
        ({"maximum": 9007199254740992.0}, 2**53, 2**53 + 1),
        ({"multipleOf": 2**65}, 2**66, 2**66 + 1),
        ({"multipleOf": 3}, 3**50, 3**50 + 1),
        ({"multipleOf": 0.01}, 4.35, 4.355),
        ({"const": 2**70}, 2**70, 2**70 + 1),
        ({"enum": [2**64]}, 2**64, 2**64 + 1),
        ({"uniqueItems": True}, [2**70, 2**70 + 1], [2**70, 2**70]),
        ({"uniqueItems": True}, [1, True], [1, 1.0]),
        ({"type": "integer"}, 2**70, 2.5),
        ({"type": "integer"}, 1.0, True),
        ({"const": 1}, 1.0, True),
        ({"maxLength": 1}, "😀", "é😀"),
    ],
)
def test_numbers_and_texts_are_judged_exactly(schema: dict[str, Any], good: Any, bad: Any) -> None:
    shape = compile_shape(schema)
    assert shape(good) == ()
    assert shape(bad) != ()


def test_draft_07_is_honoured() -> None:
    pair = {"items": [{"type": "integer"}], "additionalItems": False}
    assert compile_shape({**pair, "$schema": DRAFT_07})([1, 2]) != ()
    assert compile_shape({**pair, "$schema": DRAFT_07})([1]) == ()
    assert compile_shape({"$ref": "#/definitions/x", "minimum": 5, "definitions": {"x": {}}, "$schema": DRAFT_07})(1) == ()


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"type": "strin"}, "/type"),
        ({"properties": {"a/b": {"minimum": "x"}}}, "/properties/a~1b/minimum"),
        ({"properties": {"a": {"pattern": "("}}}, "/properties/a/pattern"),
        ({"pattern": "^(?=a)"}, "/pattern"),
        ({"pattern": "(a)\\1"}, "/pattern"),
        ({"pattern": "((a{100}){100}){100}"}, "/pattern"),
        ({"patternProperties": {"(?!a)": {}}}, "/patternProperties/(?!a)"),
        ({"properties": {"a": {"$ref": "http://example.com/x.json"}}}, "/properties/a/$ref"),
        ({"$ref": "#/$defs/none"}, "/$ref"),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, "/$schema"),
        ({"$schema": "https://example.com/own"}, "/$schema"),
        ({"$schema": 7}, "/$schema"),
        ({"$schema": {}}, "/$schema"),
    ],
)
def test_a_schema_that_cant_be_enforced_is_refused_with_its_place(schema: dict[str, Any], pointer: str) -> None:
    with pytest.raises(ShapeError) as caught:
        compile_shape(schema)
    assert caught.value.pointer == pointer


def test_a_pattern_takes_linear_time() -> None:
    assert compile_shape({"pattern": "^(a+)+$"})("a" * 200_000 + "b") != ()


def test_nothing_is_fetched() -> None:
    for schema in ({"$ref": "file:///etc/hostname"}, {"$ref": "https://json-schema.org/draft/2020-12/schema"}):
        with pytest.raises(ShapeError):
            compile_shape(schema)


def branching(levels: int, leaf: dict[str, Any], keyword: str = "anyOf") -> dict[str, Any]:
    definitions: dict[str, Any] = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$defs": {**definitions, f"d{levels}": leaf}, "$ref": "#/$defs/d0"}


def wrapped(levels: int, value: Any, wrap: Callable[[Any], Any]) -> Any:
    for _ in range(levels):
        value = wrap(value)
    return value


RECURSIVE = {"anyOf": [{"properties": {"l": {"$ref": "#"}, "op": {"const": op}}, "required": ["op"]} for op in "abc"]}
CIRCLE = {f"d{n}": {"$ref": f"#/$defs/d{(n + 1) % 5000}"} for n in range(5000)}
HOSTILE: dict[str, Callable[[], tuple[dict[str, Any], Any]]] = {
    "branches multiply": lambda: (branching(40, {"type": "null"}), {}),
    "branches multiply, a little": lambda: (branching(14, {"type": "null"}), {}),
    "branches multiply under unevaluated": lambda: ({**branching(14, {"properties": {"q": {}}}), "unevaluatedProperties": False}, {"q": 1}),
    "unevaluated in unevaluated": lambda: (
        wrapped(30, {"properties": {"q": {}}}, lambda inner: {"allOf": [inner], "unevaluatedProperties": False}), {"q": 1}
    ),
    "recursive branches": lambda: (RECURSIVE, wrapped(60, {}, lambda inner: {"op": "x", "l": inner})),
    "only itself": lambda: ({"$ref": "#"}, 1),
    "itself in turn": lambda: ({"$defs": CIRCLE, "$ref": "#/$defs/d0"}, 1),
    "not itself": lambda: ({"not": {"$ref": "#"}}, 1),
    "very deep": lambda: (wrapped(50_000, {}, lambda inner: {"not": inner}), 1),
    "many large patterns": lambda: ({"patternProperties": {f"\\pL{{50}}{n}": {} for n in range(3000)}}, {"a": 1}),
    "many options for many items": lambda: ({"items": {"enum": [[n] for n in range(30_000)]}}, [[29_999]] * 100_000),
    "a deep value": lambda: ({"items": {"$ref": "#"}, "uniqueItems": True}, wrapped(900, 1, lambda inner: [inner])),
    "a wide wrong value": lambda: ({"items": {"type": "string"}}, list(range(300_000))),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_or_value_neither_hangs_nor_crashes(name: str) -> None:
    code = f"import tests.policy.test_shapes as t; t.judge({name!r})"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=START_S, cwd=Path(__file__).parents[2])


def judge(name: str) -> None:
    schema, value = HOSTILE[name]()
    try:
        shape = compile_shape(schema)
    except ShapeError:
        return
    assert len(shape(value)) <= 10


@pytest.mark.parametrize("name", ["branches multiply", "unevaluated in unevaluated", "very deep", "many large patterns"])
def test_what_could_explode_is_refused_at_load(name: str) -> None:
    with pytest.raises(ShapeError):
        compile_shape(HOSTILE[name]()[0])


def test_a_value_the_engine_cant_take_is_refused() -> None:
    for value in ("\ud800", object(), {1: 2}, b""):
        assert len(compile_shape({"type": "string"})(value)) == 1


def test_the_callers_schema_may_change_afterwards() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"type": "string"}}}
    shape = compile_shape(schema)
    schema["properties"]["a"]["type"] = "integer"
    assert shape({"a": 1})[0].startswith("arguments/a: found an integer, wanted string")


def test_messages_are_at_most_ten_and_start_with_the_place() -> None:
    shape = compile_shape({"items": {"type": "string"}}, where="result")
    messages = shape(list(range(50)))
    assert len(messages) == 10
    assert messages[3].startswith("result/3:")


SECRET = "sk-7f3a-secret"


@pytest.mark.parametrize(
    "value",
    [
        {"order_id": SECRET, "amount": 7341, "currency": SECRET},
        {"order_id": [SECRET], "amount": {SECRET: 1}},
        {"order_id": {"x": SECRET}, "amount": SECRET},
        [SECRET],
        SECRET,
    ],
)
def test_a_message_names_no_value(value: Any) -> None:
    messages = compile_shape(REFUND)(value)
    assert messages
    assert SECRET not in "".join(messages)
    assert "7341" not in "".join(messages)


def test_messages_stay_short() -> None:
    long = "x" * 1_000
    schema = {"properties": {long: {"enum": [long]}}, "additionalProperties": False, "required": [f"{long}{n}" for n in range(50)]}
    for message in compile_shape(schema)({long: 1, long + "y": 2}):
        assert len(message) < 400


def test_a_compiled_shape_is_frozen() -> None:
    with pytest.raises(AttributeError):
        compile_shape({}).where = "x"  # type: ignore[misc]
