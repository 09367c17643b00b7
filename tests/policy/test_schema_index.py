"""A schema as data: references, limits, and how the work can grow."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.policy.schema_index import MAX_BYTES, MAX_DEPTH, SchemaIndex, ShapeError, children, pointer


def refused(schema: dict[str, Any]) -> str:
    with pytest.raises(ShapeError) as caught:
        SchemaIndex(schema)
    return caught.value.pointer


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/x", "$defs": {"x": {"title": "wanted"}}},
        {"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"title": "wanted"}}},
        {"$ref": "#/unknown/0", "unknown": [{"title": "wanted"}]},
        {"$ref": "#name", "$defs": {"x": {"$anchor": "name", "title": "wanted"}}},
        {"$ref": "#name", "$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"x": {"$id": "#name", "title": "wanted"}}},
        {"$ref": "T0", "$defs": {"x": {"$id": "T0", "title": "wanted"}}},
        {"$id": "http://example.com/root.json", "$ref": "root.json#/$defs/x", "$defs": {"x": {"title": "wanted"}}},
        {"$id": "http://example.com/a/", "$ref": "b#/$defs/y", "$defs": {"x": {"$id": "b", "$defs": {"y": {"title": "wanted"}}}}},
        {"$id": "urn:example:root", "$ref": "#/$defs/x", "$defs": {"x": {"title": "wanted"}}},
    ],
)
def test_a_reference_leads_where_the_standard_says(schema: dict[str, Any]) -> None:
    index = SchemaIndex(schema)
    assert index.target(index.root)["title"] == "wanted"


def test_a_reference_may_lead_to_a_boolean_or_back_to_the_root() -> None:
    index = SchemaIndex({"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#/not"}}, "not": False})
    assert index.target(index.root["properties"]["a"]) is index.root
    assert index.target(index.root["properties"]["b"]) is False


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"$ref": "#/$defs/x"}, "/$ref"),
        ({"$defs": {"q": {"items": {"$ref": "#/$defs/x"}}}}, "/$defs/q/items/$ref"),
        ({"$ref": "#nowhere"}, "/$ref"),
        ({"$ref": "#/allOf/1", "allOf": [True]}, "/$ref"),
        ({"$ref": "#/title", "title": "x"}, "/$ref"),
        ({"$ref": 5}, "/$ref"),
        ({"$ref": "http://["}, "/$ref"),
        ({"$id": "http://["}, "/$id"),
        ({"properties": {"a": {"$ref": "http://example.com/x"}}}, "/properties/a/$ref"),
        ({"properties": {"a": {"$ref": "other.json"}}}, "/properties/a/$ref"),
        ({"$ref": "#/unknown", "unknown": {"not": {"$ref": "#/no"}}}, "/$ref/not/$ref"),
        ({"allOf": [{"$dynamicRef": "#x"}]}, "/allOf/0/$dynamicRef"),
        ({"not": {"$recursiveRef": "#"}}, "/not/$recursiveRef"),
    ],
)
def test_a_reference_that_leads_out_or_nowhere_is_refused_with_its_place(schema: dict[str, Any], place: str) -> None:
    assert refused(schema) == place


def test_data_inside_a_schema_is_no_reference() -> None:
    SchemaIndex({"const": {"$ref": "#/no"}, "enum": [{"$ref": "http://x"}], "default": {"$ref": 1}, "properties": {"$ref": {"type": "string"}}})


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"not": schema}
    return schema


def test_limits_of_depth_and_size() -> None:
    SchemaIndex(nested(MAX_DEPTH - 1))
    refused(nested(MAX_DEPTH))
    refused(nested(100_000))
    SchemaIndex({"title": "x" * (MAX_BYTES - len('{"title":""}'))})
    refused({"title": "x" * MAX_BYTES})


@pytest.mark.parametrize("value", [float("nan"), b"x", "\ud800", object()])
def test_what_is_no_json_is_refused(value: Any) -> None:
    refused({"const": value})


def cost(schema: dict[str, Any]) -> int:
    return SchemaIndex(schema).cost


def test_alternatives_add_up_and_different_members_do_not() -> None:
    leaf = {"type": "string"}
    union = {"anyOf": [leaf] * 10}
    assert cost(union) > cost({"anyOf": [leaf]})
    many = {"properties": {f"p{n}": union for n in range(10)}}
    assert cost(many) < 2 * cost(union)
    same = {"allOf": [{"properties": {"p": union}} for _ in range(10)]}
    assert cost(same) > 10 * cost(union)
    apart = {"allOf": [{"properties": {f"p{n}": union}} for n in range(10)]}
    assert cost(apart) < 5 * cost(union)


def test_a_pattern_meets_each_member_and_the_rest_the_others() -> None:
    leaf = {"anyOf": [True] * 50}
    assert cost({"properties": {"a": leaf}, "patternProperties": {"a": leaf, "^a": leaf}}) > 150
    assert cost({"properties": {"a": leaf}, "additionalProperties": leaf}) < 100
    assert cost({"allOf": [{"properties": {"a": leaf}}, {"additionalProperties": leaf}]}) > 100
    assert cost({"allOf": [{"prefixItems": [leaf]}, {"items": leaf}], "contains": leaf}) > 150


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_branches_that_multiply_are_refused(keyword: str) -> None:
    definitions: dict[str, Any] = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    refused({"$defs": {**definitions, "d40": {}}, "$ref": "#/$defs/d0"})


def test_members_that_multiply_are_refused() -> None:
    definitions: dict[str, Any] = {
        f"d{n}": {"properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}}, "patternProperties": {"a": {"$ref": f"#/$defs/d{n + 1}"}}} for n in range(40)
    }
    refused({"$defs": {**definitions, "d40": {}}, "$ref": "#/$defs/d0"})


def test_a_recursive_schema_is_no_explosion() -> None:
    operation = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}, "required": ["left"]}
    assert cost({"anyOf": [operation] * 10}) < 100


def test_a_wide_schema_is_read_in_bounds() -> None:
    assert cost({"allOf": [{"properties": {f"p{n}": {}}} for n in range(4000)]}) > 4000


def test_the_children_are_those_that_are_schemas() -> None:
    schema = {"properties": {"a": {}, "b": 5}, "items": [True, {}], "not": {}, "dependencies": {"x": ["y"], "z": {}}, "enum": [{}], "allOf": 3}
    assert [path for path, _ in children(schema)] == [("not",), ("items", 0), ("items", 1), ("properties", "a"), ("dependencies", "z")]


def test_a_pointer_escapes_its_parts() -> None:
    assert pointer(("a/b", 0, "~")) == "/a~1b/0/~0"
