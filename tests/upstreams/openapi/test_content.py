"""Which content type is sent, and what its arguments are then."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.upstreams.openapi.bodies import BINARY, FORM, JSON, MULTIPART, TEXT, Body, Part
from tests.upstreams.openapi.stage import one, sending, unusable

OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}}


def takes(*content_types: str, schema: Any = None, version: str = "3.1.0") -> Body:
    content = {name: {} if schema is None else {"schema": schema} for name in content_types}
    takes = one({"requestBody": {"required": True, "content": content}}, version=version).takes
    assert takes is not None
    return takes


@pytest.mark.parametrize(
    ("content_types", "schema", "expected"),
    [
        (["application/json"], OBJECT, (JSON, "application/json")),
        (["Application/JSON; charset=utf-8"], OBJECT, (JSON, "application/json")),
        (["application/vnd.x+json"], OBJECT, (JSON, "application/vnd.x+json")),
        (["text/plain", "application/x-www-form-urlencoded", "application/json"], None, (JSON, "application/json")),
        (["application/x-www-form-urlencoded", "multipart/form-data"], OBJECT, (MULTIPART, "multipart/form-data")),
        (["text/plain", "application/x-www-form-urlencoded"], None, (FORM, "application/x-www-form-urlencoded")),
        (["application/octet-stream", "text/csv"], None, (TEXT, "text/csv; charset=utf-8")),
        (["application/xml"], {"type": "string"}, (TEXT, "application/xml; charset=utf-8")),
        (["application/xml", "application/json"], OBJECT, (JSON, "application/json")),
        (["image/png", "image/jpeg"], None, (BINARY, "image/png")),
        (["application/octet-stream"], {"type": "string", "format": "binary"}, (BINARY, "application/octet-stream")),
        (["image/*"], {"type": "string"}, (BINARY, "application/octet-stream")),
        (["*/*"], {}, (BINARY, "application/octet-stream")),
        (["*/*"], OBJECT, (JSON, "application/json")),
    ],
)
def test_of_several_content_types_the_one_that_says_most_is_sent(content_types: list[str], schema: Any, expected: Any) -> None:
    body = takes(*content_types, schema=schema)
    assert (body.kind, body.content_type) == expected


@pytest.mark.parametrize("content_type", ["application/xml", "image/png", "multipart/mixed", "multipart/related"])
def test_a_content_type_that_cannot_be_made_of_its_schema_keeps_the_operation_out(content_type: str) -> None:
    assert unusable(sending(content_type, OBJECT)) == "/requestBody/content"


@pytest.mark.parametrize("hostile", ["a/b\r\nX-Evil: 1", "a/ü", "json", "a/b c"])
def test_no_content_type_ends_a_header(hostile: str) -> None:
    assert unusable(sending(hostile, {"type": "string"})) == "/requestBody/content"
    form = sending("multipart/form-data", OBJECT, encoding={"a": {"contentType": hostile}})
    assert unusable(form) == "/requestBody/content/multipart~1form-data/encoding/a"


def test_a_body_without_content_is_no_body() -> None:
    assert one({"requestBody": {"content": {}}}).takes is None
    assert unusable({"requestBody": {}}) == "/requestBody"
    assert unusable({"requestBody": {"$ref": "#/none"}}) == "/requestBody/$ref"


# ---- arguments ----------------------------------------------------------------------------------------------------------


def arguments(operation: Any, **more: Any) -> tuple[list[str], list[str]]:
    schema = one(operation, **more).input_schema
    return list(schema["properties"]), list(schema["required"])  # type: ignore[arg-type]


def test_the_fields_of_a_plain_object_are_arguments() -> None:
    schema = {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b"]}
    for content_type in ("application/json", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert arguments(sending(content_type, schema)) == (["a", "b"], ["b"])


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array"},
        {"oneOf": [OBJECT]},
        {**OBJECT, "additionalProperties": True},
        {"type": "object"},
        {"properties": {"a b": {}}},
        {"properties": {"a" * 65: {}}},
        True,
        {},
    ],
)
def test_any_other_body_is_one_argument(schema: Any) -> None:
    assert arguments(sending("application/json", schema)) == (["body"], ["body"])


def test_fields_that_are_also_parameters_stay_in_the_body() -> None:
    query = {"parameters": [{"name": "a", "in": "query"}]}
    assert arguments({**query, **sending("application/json", OBJECT)}) == (["a", "body"], ["body"])
    query = {"parameters": [{"name": "body", "in": "query"}]}
    assert arguments({**query, **sending("application/json", {"type": "array"})}) == (["body", "request_body"], ["request_body"])


def test_a_body_that_may_be_left_out_is_spread_only_if_it_wants_nothing() -> None:
    optional = {"requestBody": {"content": {"application/json": {"schema": OBJECT}}}}
    assert arguments(optional) == (["a"], [])
    wanting = {"requestBody": {"content": {"application/json": {"schema": {**OBJECT, "required": ["a"]}}}}}
    assert arguments(wanting) == (["body"], [])


def test_a_get_has_no_body() -> None:
    assert arguments(sending("application/json", OBJECT), method="get") == ([], [])


def test_a_body_is_described() -> None:
    operation = sending("text/plain", {"type": "string"})
    operation["requestBody"]["description"] = "What to say."
    assert one(operation).input_schema["properties"]["body"] == {"type": "string", "description": "What to say."}  # type: ignore[index]


# ---- forms --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "content_type", "version", "part"),
    [
        ({"type": "string"}, None, "3.0.3", Part(TEXT)),
        ({"type": "string", "format": "binary"}, None, "3.0.3", Part(BINARY)),
        ({"type": "string", "format": "byte"}, None, "3.0.3", Part(TEXT)),
        ({"type": "array", "items": {"type": "string", "format": "binary"}}, "image/png, image/jpeg", "3.0.3", Part(BINARY, "image/png")),
        ({"type": "string"}, "image/*", "3.0.3", Part(BINARY)),
        ({"type": "string"}, "text/csv", "3.0.3", Part(TEXT, "text/csv")),
        ({"type": "object"}, None, "3.0.3", Part(JSON)),
        ({"type": "object"}, "application/x+json", "3.0.3", Part(JSON, "application/x+json")),
        ({"type": "integer"}, None, "3.0.3", Part(TEXT)),
        ({}, None, "3.0.3", Part(TEXT)),
        ({}, None, "3.1.0", Part(BINARY)),
        ({"enum": ["a"]}, None, "3.1.0", Part(TEXT)),
        ({"contentMediaType": "image/png"}, None, "3.1.0", Part(BINARY, "image/png")),
        ({"type": "string", "contentMediaType": "image/png", "contentEncoding": "base64"}, None, "3.1.0", Part(TEXT)),
    ],
)
def test_a_part_is_what_its_schema_and_its_encoding_make_it(schema: Any, content_type: str | None, version: str, part: Part) -> None:
    encoding = {} if content_type is None else {"encoding": {"a": {"contentType": content_type}}}
    operation = one(sending("multipart/form-data", {"type": "object", "properties": {"a": schema}}, **encoding), version=version)
    assert operation.takes is not None
    assert operation.takes.parts == {"a": part}
    argument: Any = operation.input_schema["properties"]["a"]  # type: ignore[index]
    argument = argument.get("items", argument)
    assert (argument.get("contentEncoding") == "base64" and "format" not in argument) is (part.kind == BINARY or "contentEncoding" in schema)


def test_a_multipart_form_that_is_one_argument_says_the_same_of_its_parts() -> None:
    schema = {"type": "object", "properties": {"a": {"format": "binary", "type": "string"}}, "additionalProperties": True}
    body: Any = one(sending("multipart/form-data", schema)).input_schema["properties"]["body"]  # type: ignore[index]
    assert body["properties"]["a"] == {"type": "string", "contentEncoding": "base64"}


def test_a_forms_encoding_says_how_its_fields_are_written() -> None:
    encoding = {"a": {"style": "deepObject", "explode": True}, "b": {"explode": False}, "c": {"contentType": "application/json"}, "d": {}}
    takes = one(sending("application/x-www-form-urlencoded", OBJECT, encoding=encoding)).takes
    assert takes is not None
    assert {name: (style.style, style.explode, style.as_json) for name, style in takes.styles.items()} == {
        "a": ("deepObject", True, False), "b": ("form", False, False), "c": ("form", True, True),
    }  # fmt: skip
    bad = sending("application/x-www-form-urlencoded", OBJECT, encoding={"a": {"style": "matrix"}})
    assert unusable(bad) == "/requestBody/content/application~1x-www-form-urlencoded/encoding/a"
