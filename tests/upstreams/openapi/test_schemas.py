"""Schema Objects become JSON Schema 2020-12: what is kept, translated, hidden, refused, and that recursion stays recursion."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gateway.policy.shapes import compile_shape
from gateway.upstreams.openapi.document import Node, Unusable
from gateway.upstreams.openapi.schemas import Schemas
from tests.upstreams.openapi.stage import document


def translated(schema: Any, version: str = "3.1.0", **schemas: Any) -> Any:
    """With the definitions that it needs, if it needs any."""
    it = Schemas(document({"components": {"schemas": {"here": schema, **schemas}}}, version))
    found = it.of(Node(schema, "/components/schemas/here"))
    definitions = it.definitions(found)
    return {**found, "$defs": definitions} if definitions else found


def v30(schema: Any, **schemas: Any) -> Any:
    return translated(schema, "3.0.3", **schemas)


def accepts(schema: Mapping[str, Any], value: Any) -> bool:
    """By both engines, which must agree."""
    Draft202012Validator.check_schema(schema)
    verdict = Draft202012Validator(schema).is_valid(value)
    assert (compile_shape(schema)(value) == ()) is verdict
    return verdict


# ---- 3.0 ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "string", "nullable": False}, {"type": "string"}),
        ({"nullable": True, "minLength": 1}, {"minLength": 1}),
        ({"type": "string", "nullable": True, "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a"]}),
        ({"minimum": 1, "exclusiveMinimum": True}, {"exclusiveMinimum": 1}),
        ({"minimum": 1, "exclusiveMinimum": False}, {"minimum": 1}),
        ({"maximum": 9, "exclusiveMaximum": True}, {"exclusiveMaximum": 9}),
        ({"exclusiveMaximum": True}, {}),
        ({"type": "integer", "example": 5, "xml": {}, "externalDocs": {}, "x-mine": 1}, {"type": "integer", "examples": [5]}),
    ],
)
def test_the_words_of_3_0_are_translated(schema: Any, expected: Any) -> None:
    assert v30(schema) == expected


def test_in_3_0_what_stands_beside_a_reference_means_nothing_and_in_3_1_it_counts() -> None:
    schema = {"$ref": "#/components/schemas/a", "maxLength": 3}
    assert "maxLength" not in v30(schema, a={})
    assert translated(schema, a={})["maxLength"] == 3


def test_in_3_1_the_words_of_json_schema_stay_as_they_are() -> None:
    schema = {
        "type": ["object", "null"], "properties": {"a": {"const": 1}, "b": {"exclusiveMinimum": 0}}, "patternProperties": {"^x": True},
        "dependentRequired": {"a": ["b"]}, "unevaluatedProperties": False, "if": {"required": ["a"]}, "then": {"maxProperties": 2},
        "dependentSchemas": {"a": {"minProperties": 1}}, "examples": [None],
    }  # fmt: skip
    assert translated(schema) == schema
    assert translated({"type": "array", "prefixItems": [{"type": "integer"}], "items": False}) == {
        "type": "array", "prefixItems": [{"type": "integer"}], "items": False,
    }  # fmt: skip


def test_a_boolean_is_a_schema_in_places_where_one_may_stand() -> None:
    assert translated({"additionalProperties": False, "items": True}) == {"additionalProperties": False, "items": True}


# ---- references ---------------------------------------------------------------------------------------------------------


def test_a_recursive_schema_stays_recursive() -> None:
    tree = {"type": "object", "properties": {"parts": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}}, "required": ["parts"]}
    schema = translated({"$ref": "#/components/schemas/Tree"}, Tree=tree)
    assert schema["$ref"] == "#/$defs/Tree"
    assert accepts(schema, {"parts": [{"parts": []}]})
    assert not accepts(schema, {"parts": [{"parts": [{}]}]})


def test_schemas_that_name_each_other_come_along_and_others_do_not() -> None:
    schemas = {"A": {"items": {"$ref": "#/components/schemas/B"}}, "B": {"items": {"$ref": "#/components/schemas/A"}}, "C": {}}
    assert set(translated({"$ref": "#/components/schemas/A"}, **schemas)["$defs"]) == {"A", "B"}


def test_a_chain_of_a_thousand_references_is_followed() -> None:
    chain = {f"S{n}": {"$ref": f"#/components/schemas/S{n + 1}"} for n in range(1000)}
    assert len(translated({"$ref": "#/components/schemas/S0"}, **chain, S1000={})["$defs"]) == 1001


def test_a_reference_to_any_place_is_a_definition_whose_name_is_its_own() -> None:
    inside, component = {"$ref": "#/components/schemas/here/properties/a"}, {"$ref": "#/components/schemas/a"}
    schema = {"properties": {"a": {"type": "string"}, "b": inside, "c": component}}
    found = translated(schema, a={"type": "null"})
    names = {name: part["$ref"].removeprefix("#/$defs/") for name, part in found["properties"].items() if "$ref" in part}
    assert names["c"] == "a"
    assert names["b"] != "a"
    assert {name: found["$defs"][names[name]] for name in "bc"} == {"b": {"type": "string"}, "c": {"type": "null"}}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/components/schemas/none"},
        {"$ref": "other.json"},
        {"$ref": 5},
        {"properties": {"a": []}},
        {"items": {"$id": "x"}},
        {"$anchor": "x"},
        {"$dynamicRef": "#x"},
        {"allOf": [5]},
        {"$ref": "#/components/schemas/bad"},
    ],
)
def test_what_cannot_be_followed_or_is_no_schema_is_unusable(schema: Any) -> None:
    with pytest.raises(Unusable):
        translated(schema, bad={"items": {"$ref": "#/nowhere"}})


def test_a_keyword_of_the_wrong_kind_is_left_for_the_catalog_to_judge() -> None:
    for schema in ({"properties": []}, {"allOf": {}}, {"items": [{}]}, {"required": True}, {"type": {}}, {"discriminator": "x", "oneOf": []}):
        assert isinstance(translated(schema), dict)


# ---- read only ----------------------------------------------------------------------------------------------------------


def test_read_only_properties_are_neither_shown_nor_wanted() -> None:
    schema = {
        "properties": {"id": {"readOnly": True}, "at": {"$ref": "#/components/schemas/At"}, "name": {}, "secret": {"writeOnly": True}},
        "required": ["id", "at", "name"],
    }
    assert translated(schema, At={"readOnly": True}) == {"properties": {"name": {}, "secret": {}}, "required": ["name"]}
    assert "required" not in translated({"properties": {"id": {"readOnly": True}}, "required": ["id"]})


def test_what_one_part_of_an_all_of_calls_read_only_another_cannot_want() -> None:
    schema = {"allOf": [{"$ref": "#/components/schemas/Base"}, {"required": ["id", "name"]}, {"properties": {"id": {"maxLength": 9}}}]}
    found = translated(schema, Base={"properties": {"id": {"readOnly": True}, "name": {}}})
    assert found["allOf"][1:] == [{"required": ["name"]}, {"properties": {}}]
    assert accepts(found, {"name": "x"})


def test_an_all_of_that_leads_back_to_itself_comes_to_an_end() -> None:
    found = translated({"allOf": [{"$ref": "#/components/schemas/here"}], "properties": {"id": {"readOnly": True}}})
    assert found["properties"] == {}


# ---- discriminators -----------------------------------------------------------------------------------------------------

PET = {"type": "object", "properties": {"kind": {"type": "string"}, "name": {"type": "string"}}, "required": ["kind"]}


@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
def test_a_discriminator_chooses_the_branch_among_schemas_that_all_fit(version: str) -> None:
    discriminator = {"propertyName": "kind", "mapping": {"cat": "#/components/schemas/Cat", "kitten": "Cat"}}
    branches = [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}, {"type": "integer"}]
    schema = {"oneOf": branches, "discriminator": discriminator}
    found = translated(schema, version, Cat=PET, Dog={**PET, "required": ["name"]})
    for kind in ("cat", "kitten"):
        assert accepts(found, {"kind": kind})
    assert accepts(found, {"kind": "Dog", "name": "x"})
    assert accepts(found, 5)
    assert not accepts(found, {"kind": "Dog"})
    assert not accepts(found, {"kind": "Cat"}), "it has other names"
    assert not accepts(found, {"kind": "bird", "name": "x"})
    assert "discriminator" not in json.dumps(found)


# ---- fields -------------------------------------------------------------------------------------------------------------


def fields(schema: Any, version: str = "3.1.0", **schemas: Any) -> Any:
    found = Schemas(document({"components": {"schemas": schemas}}, version)).fields(Node(schema, "/here"))
    return None if found is None else (list(found.nodes), found.required, found.closed)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "object", "properties": {"a": {}, "b": {"readOnly": True}}, "required": ["a", "b", "z"]}, (["a"], ("a",), True)),
        ({"properties": {"a": {}}, "title": "T", "description": "D", "x-a": 1, "additionalProperties": False}, (["a"], (), True)),
        ({"properties": {"a": {}}, "additionalProperties": True}, (["a"], (), False)),
        ({"properties": {"a": {}}, "additionalProperties": {}}, (["a"], (), False)),
        ({"$ref": "#/components/schemas/A"}, (["a"], (), True)),
        ({"properties": {}}, None),
        ({"type": "array"}, None),
        ({"type": ["object", "null"], "properties": {"a": {}}}, None),
        ({"properties": {"a": {}}, "nullable": True}, None),
        ({"properties": {"a": {}}, "anyOf": []}, None),
        ({"properties": {"a": {}}, "minProperties": 1}, None),
        ({"properties": {"a": {}}, "patternProperties": {}}, None),
        (True, None),
    ],
)
def test_only_a_plain_object_has_fields(schema: Any, expected: Any) -> None:
    assert fields(schema, A={"properties": {"a": {}}}) == expected
