"""What clients see of tools. The schemas are judged by the library that the official Python client judges with."""

from __future__ import annotations

import jsonschema
import pytest

from gateway.core.model import Finding, Held, Refused
from gateway.doors.mcp.listing import Marks, page, shown
from gateway.doors.mcp.results import result_of
from gateway.engine import ListedTool
from gateway.wire.jsonrpc import RpcError
from gateway.wire.mcp import ListedNames
from tests.doors.mcp.stage import LEFT, tool


def listed(*tools):
    return [ListedTool(one, one.definition, "read_only") for one in tools]


def show(**definition):
    one = tool("crm.echo", **definition)
    return shown(listed(one), ListedNames([one.name]))[0]


def test_a_definition_is_shown_untouched_but_for_its_name():
    definition = {"title": "Echo", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}, "_meta": {"x": 1}, "new": [1]}
    assert show(**definition) == {"name": "crm__echo", **definition}


def test_a_short_name_takes_the_place_of_the_prefixed_one():
    one = tool("crm.echo")
    assert shown([ListedTool(one, one.definition, "read_only", "say")], ListedNames([one.name]))[0]["name"] == "say"


def test_names_that_would_be_shown_alike_are_kept_apart():
    one, two = tool("crm.a_b"), tool("crm.a.b")
    names = [each["name"] for each in shown(listed(one, two), ListedNames(["crm.a_b", "crm.a.b"]))]
    assert len(set(names)) == 2


NODE = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "definitions": {"node": {"type": "object", "properties": {"next": {"$ref": "#/definitions/node"}, "n": {"type": "integer"}}, "required": ["n"]}},
    "properties": {"first": {"$ref": "#/definitions/node"}, "whole": {"$ref": "#"}},
    "required": ["first"],
}


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ({"first": {"n": 1, "next": {"n": 2}}}, True),
        ({"first": {"n": 1, "next": {}}}, False),
        ({"first": {"n": 1}, "whole": {"first": {"n": 1}}}, True),
        ({"first": {"n": 1}, "whole": {}}, False),
        ({}, False),
        ([], False),
    ],
)
def test_an_output_schema_still_means_the_same_for_the_tool_s_own_results(value, fits):
    schema = show(outputSchema=NODE)["outputSchema"]
    assert (schema["type"], schema["$schema"]) == ("object", NODE["$schema"])
    for judged in (NODE, schema):
        assert jsonschema.validators.validator_for(judged)(judged).is_valid(value) is fits


@pytest.mark.parametrize(
    "reply",
    [
        Held("call_1", "hold_1", 0, "approval.required", "", LEFT),
        Refused(None, (Finding("x", "run.unknown", "No."),)),
        Refused("c", (Finding("x", "tool.unknown", "No."),), LEFT),
    ],
)
def test_an_output_schema_leaves_room_for_what_the_gateway_itself_answers(reply):
    schema = show(outputSchema=NODE)["outputSchema"]
    jsonschema.validate(result_of(reply)["structuredContent"], schema)


def test_a_schema_with_its_own_id_keeps_its_references():
    inner = {**NODE, "$id": "https://example.com/node"}
    schema = show(outputSchema=inner)["outputSchema"]
    assert schema["anyOf"][0] == {name: part for name, part in inner.items() if name != "$schema"}
    assert jsonschema.Draft7Validator(schema).is_valid({"first": {"n": 1, "next": {"n": 2}}})


def test_an_output_that_need_be_no_object_stays_so():
    schema = show(outputSchema={"type": "array", "items": {"type": "string"}})["outputSchema"]
    valid = jsonschema.Draft202012Validator(schema).is_valid
    assert (valid(["a"]), valid([1]), valid({"call": None, "status": 403})) == (True, False, True)


def test_pages_end_with_the_name_that_the_next_begins_after():
    tools = listed(*[tool(f"crm.t{n}") for n in range(3)])
    first, cursor = page(tools, None, 2, 1)
    rest, end = page(tools, cursor, 2, 1)
    assert ([one.tool.name for one in first], [one.tool.name for one in rest], end) == (["crm.t0", "crm.t1"], ["crm.t2"], None)
    assert page(tools, None, 3, 1)[1] is None
    assert page([], None, 3, 1) == ([], None)
    with pytest.raises(RpcError):
        page(tools, "crm.gone", 2, 1)


def test_marks_follow_the_definition():
    marks = Marks()
    marked = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
    assert marks.of(tool("crm.echo", inputSchema=marked)) == {"mcp-param-a": ("a",)}
    assert marks.of(tool("crm.echo")) == {}
    assert marks.of(None) == {}


@pytest.mark.parametrize("schema", [None, True, {"type": "object", "properties": {"a": {"type": "array", "x-mcp-header": "A"}}}])
def test_a_definition_that_no_client_may_use_marks_nothing(schema):
    assert Marks().of(tool("crm.echo", inputSchema=schema)) == {}
