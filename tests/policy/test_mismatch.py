"""What is said about a value that doesn't fit: the place, the kind found, the thing wanted."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.policy.mismatch import MAX_LOOKS, _Look, explain
from gateway.policy.schema_index import SchemaIndex

ALTERNATIVES = {
    "oneOf": [
        {"type": "object", "properties": {"op": {"const": "and"}, "all": {"type": "array"}}, "required": ["op", "all"]},
        {"type": "object", "properties": {"op": {"const": "not"}, "one": {"type": "string"}}, "required": ["op", "one"]},
    ]
}


def said(schema: dict[str, Any], value: Any) -> list[str]:
    return list(explain(SchemaIndex(schema), value, "arguments"))


@pytest.mark.parametrize(
    ("schema", "value", "place", "words"),
    [
        ({"type": "string"}, 5, "", ("an integer", "string")),
        ({"type": ["string", "null"]}, 5.5, "", ("a number", "string or null")),
        ({"properties": {"a": {"type": "object"}}}, {"a": None}, "/a", ("null", "object")),
        ({"items": {"type": "boolean"}}, [True, "x"], "/1", ("a string of 1 characters", "boolean")),
        ({"enum": ["EUR", "USD"]}, "GBP", "", ('one of ["EUR", "USD"]',)),
        ({"const": 1}, True, "", ("a boolean", "only 1")),
        ({"maximum": 500}, 501, "", ("at most 500",)),
        ({"exclusiveMinimum": 0}, 0, "", ("more than 0",)),
        ({"multipleOf": 0.01}, 0.001, "", ("a multiple of 0.01",)),
        ({"pattern": "^o-"}, "x", "", ('"^o-"',)),
        ({"minLength": 3}, "é", "", ("a string of 1 characters", "at least 3 characters")),
        ({"maxItems": 1}, [1, 2], "", ("an array of 2 items", "at most 1 items")),
        ({"uniqueItems": True}, [1, 1], "", ("all differ",)),
        ({"minProperties": 1}, {}, "", ("at least 1 members",)),
        ({"required": ["a", "b"]}, {"b": 1}, "", ('lacks "a"',)),
        ({"properties": {"a": {}}, "additionalProperties": False}, {"a": 1, "b": 2}, "", ('unknown members: "b"',)),
        ({"additionalProperties": {"type": "string"}}, {"b/c": 2}, "/b~1c", ("string",)),
        ({"patternProperties": {"^x": {"type": "string"}}, "additionalProperties": False}, {"x1": 2}, "/x1", ("string",)),
        ({"propertyNames": {"maxLength": 2}}, {"abc": 1}, "", ('"abc"',)),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "", ('lacks "b"', '"a"')),
        ({"dependencies": {"a": {"required": ["c"]}}}, {"a": 1}, "", ('lacks "c"',)),
        ({"prefixItems": [{}, {"type": "null"}], "items": False}, [1, 2, 3], "/1", ("null",)),
        ({"prefixItems": [{}], "items": False}, [1, 2], "/1", ("nothing may stand here",)),
        ({"items": [{}, {"type": "null"}], "additionalItems": False}, [1, 2], "/1", ("null",)),
        ({"contains": {"type": "string"}}, [1], "", ("none of the items",)),
        ({"not": {"type": "string"}}, "x", "", ("forbidden",)),
        ({"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"minimum": 2}}, "x", "", ("2 characters",)),
        ({"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"minimum": 2}}, 1, "", ("at least 2",)),
        ({"allOf": [{}, {"type": "string"}]}, 1, "", ("string",)),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "string"}}}, 1, "", ("string",)),
        ({"anyOf": [{"type": "string"}, {"type": "null"}, {"const": 7}]}, 1, "", ("string or null or only 7",)),
        ({"oneOf": [{"minimum": 1}, {"maximum": 9}]}, 5, "", ("2 of 2 alternatives",)),
        (ALTERNATIVES, {"op": "not", "one": 5}, "/one", ("string", "2 alternatives")),
        (ALTERNATIVES, {"op": "and"}, "", ('lacks "all"', "2 alternatives")),
        (ALTERNATIVES, "x", "", ("object",)),
    ],
)
def test_the_place_the_kind_found_and_the_thing_wanted_are_named(schema: dict[str, Any], value: Any, place: str, words: tuple[str, ...]) -> None:
    first = said(schema, value)[0]
    assert first.startswith(f"arguments{place}: ")
    for word in words:
        assert word in first


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, {"a": "x", "b": 1}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
        ({"oneOf": [{"type": "string"}, {"minimum": 3}]}, 4),
        ({"contains": {"const": 1}, "minContains": 0}, []),
        ({"if": {"type": "string"}, "then": {"minLength": 2}}, 1),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/x", "type": "string", "definitions": {"x": {}}}, 1),
    ],
)
def test_nothing_is_said_of_a_value_that_fits(schema: dict[str, Any], value: Any) -> None:
    assert said(schema, value) == []


def test_all_that_is_wrong_is_said_once_up_to_ten() -> None:
    assert said({"allOf": [{"type": "string"}, {"type": "string"}], "type": "string"}, 1) == ["arguments: found an integer, wanted string"]
    assert len(said({"items": {"type": "string"}}, list(range(50)))) == 10


def test_what_is_not_described_is_left_out() -> None:
    assert said({"unevaluatedProperties": False}, {"a": 1}) == []


def test_a_look_is_bounded() -> None:
    tree: Any = {"anyOf": [{"properties": {"l": {"$ref": "#"}, "op": {"const": op}}, "required": ["op"]} for op in "abc"]}
    value: Any = {}
    for _ in range(60):
        value = {"op": "x", "l": value}
    assert len(said(tree, value)) <= 10
    assert said({"not": {"$ref": "#"}}, 1) == []
    assert said({"allOf": [{"uniqueItems": True}] * 1000, "items": {"type": "string"}}, list(range(50_000))) == []


def test_a_large_value_uses_up_the_look_sooner() -> None:
    look = _Look(SchemaIndex({}))
    assert list(look.at({"maxItems": 1_000_000}, [0] * 6400, ())) == []
    assert look.left == MAX_LOOKS - 101


def test_long_names_and_limits_are_cut() -> None:
    long = "x" * 1000
    messages = said({"properties": {long: {"enum": [long]}}, "required": [f"{long}{n}" for n in range(9)]}, {long: 1})
    assert len(messages) == 2
    assert all(len(message) < 400 for message in messages)
