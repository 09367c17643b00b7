"""Operations as tools: names, descriptions, hints, parameters of path and operation, and what keeps one from being a tool."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.upstreams.openapi import operations
from gateway.upstreams.openapi.operations import Found, find
from tests.upstreams.openapi.stage import FLEET, SHOP, document, one, own, read, unusable

ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}


def names(*written: Any) -> list[str]:
    """Of operations by (method, path, operationId)."""
    paths: dict[str, Any] = {}
    for method, path, id in written:
        paths.setdefault(path, {})[method] = {} if id is None else {"operationId": id}
    return [operation.name for operation in read(paths)]


@pytest.mark.parametrize(
    ("id", "name"),
    [("getOrder", "getOrder"), ("repos/list.all-of_us", "repos/list.all-of_us"), ("get order (all)", "get_order_all"), ("ü", "get_orders_all"),
     (None, "get_orders_all"), ("", "get_orders_all")],
)  # fmt: skip
def test_a_tool_is_named_by_its_operation_id_else_by_method_and_path(id: str | None, name: str) -> None:
    assert names(("get", "/orders/all", id)) == [name]


def test_names_that_would_be_alike_or_too_long_have_a_hash_that_depends_on_nothing_else() -> None:
    first, second, third = names(("get", "/a", "x y"), ("get", "/b", "x_y"), ("get", "/c", "z"))
    assert len({first, second}) == 2
    assert (first[:4], second[:4], third) == ("x_y_", "x_y_", "z")
    assert names(("get", "/b", "x_y"), ("get", "/a", "x y")) == [second, first]
    (long,) = names(("get", "/a", "x" * 200))
    assert len(long) == operations.MAX_NAME


def test_every_tool_says_what_it_does_and_what_its_method_suggests() -> None:
    tools = {it.name: it.definition() for api in (own(SHOP), own(FLEET)) for it in api.operations}
    assert tools["getOrder"]["description"] == "One order\n\nWith its lines."
    assert tools["getOrder"]["annotations"] == {"readOnlyHint": True, "title": "One order"}
    assert tools["putOrder"]["description"] == "PUT /orders/{order_id}"
    assert tools["putOrder"]["annotations"] == {"readOnlyHint": False, "idempotentHint": True}
    assert tools["delete_orders_order_id"]["annotations"] == {"readOnlyHint": False, "idempotentHint": True, "destructiveHint": True}
    assert tools["createOrder"]["annotations"] == {"readOnlyHint": False}
    assert one({}, method="head").annotations == {"readOnlyHint": True}
    assert len(one({"description": "x" * 9000}).description) == operations.MAX_DESCRIPTION


def test_parameters_of_the_operation_replace_those_of_the_path() -> None:
    paths = {
        "/x/{id}": {
            "parameters": [ID, {"name": "a", "in": "query", "schema": {"type": "string"}}],
            "get": {"parameters": [{"name": "a", "in": "query", "required": True, "schema": {"type": "integer"}}]},
            "delete": {},
        }
    }
    get, delete = sorted(read(paths), key=lambda it: it.method, reverse=True)
    assert get.input_schema == {
        "type": "object", "properties": {"id": {"type": "integer"}, "a": {"type": "integer"}}, "required": ["id", "a"], "additionalProperties": False,
    }  # fmt: skip
    assert delete.input_schema["properties"] == {"id": {"type": "integer"}, "a": {"type": "string"}}


def test_parameters_may_be_references_and_are_described() -> None:
    components = {"parameters": {"Id": {"$ref": "#/components/parameters/Real"}, "Real": {**ID, "description": "Which."}}}
    (it,) = read({"/x/{id}": {"get": {"parameters": [{"$ref": "#/components/parameters/Id"}]}}}, components=components)
    assert it.input_schema["properties"] == {"id": {"description": "Which.", "type": "integer"}}


@pytest.mark.parametrize(
    ("schema", "expected"), [(False, False), (True, {"description": "Why."}), ({"description": "Own."}, {"description": "Own."})]
)
def test_a_description_of_its_own_stays_and_what_nothing_satisfies_stays_so(schema: Any, expected: Any) -> None:
    operation = one({"parameters": [{"name": "a", "in": "query", "description": "Why.", "schema": schema}]}, method="get")
    assert operation.input_schema["properties"] == {"a": expected}


def arguments(*parameters: tuple[str, str]) -> list[str]:
    written = [{"name": name, "in": place} for place, name in parameters]
    return list(one({"parameters": written}, method="get").input_schema["properties"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ([("query", "a"), ("header", "b")], ["a", "b"]),
        ([("query", "a"), ("header", "a")], ["query_a", "header_a"]),
        ([("query", "$filter[x]")], ["filter_x"]),
        ([("query", "a_b"), ("query", "a b")], None),
        ([("query", "ü")], ["query"]),
        ([("query", "x" * 100)], ["x" * 64]),
    ],
)
def test_arguments_have_names_that_models_may_have(parameters: list[tuple[str, str]], expected: list[str] | None) -> None:
    if expected is None:
        assert unusable({"parameters": [{"name": name, "in": place} for place, name in parameters]}) == ""
    else:
        assert arguments(*parameters) == expected


def with_(**parameter: Any) -> dict[str, Any]:
    return {"parameters": [{"name": "a", "in": "query", **parameter}]}


@pytest.mark.parametrize(
    ("operation", "path", "where"),
    [
        (with_(style="matrix"), "/x", "/parameters/0/style"),
        (with_(style="deepObject", **{"in": "header"}), "/x", "/parameters/0/style"),
        (with_(**{"in": "body"}), "/x", "/parameters/0"),
        (with_(name=""), "/x", "/parameters/0"),
        (with_(name="a b", **{"in": "header"}), "/x", "/parameters/0"),
        (with_(content={"application/xml": {}}), "/x", "/parameters/0/content"),
        (with_(content={"application/json": {}, "text/plain": {}}), "/x", "/parameters/0/content"),
        (with_(schema={"$ref": "#/none"}), "/x", "/parameters/0/schema/$ref"),
        (with_(schema=5), "/x", "/parameters/0/schema"),
        ({"parameters": {}}, "/x", "/parameters"),
        ({"parameters": [5]}, "/x", "/parameters/0"),
        ({"parameters": [{"$ref": "other.yaml"}]}, "/x", "/parameters/0/$ref"),
        ({}, "/x/{id}", ""),
        ({"parameters": [ID]}, "/x", ""),
    ],
)
def test_what_cannot_be_a_tool_says_so_at_its_place(operation: dict[str, Any], path: str, where: str) -> None:
    assert unusable(operation, path) == where


@pytest.mark.parametrize("path", ["x", "/a b", "/a?b", "/a#b", "/ü", "/a\r\nb"])
def test_a_path_that_is_none_says_so(path: str) -> None:
    assert unusable({}, path) == f"/paths/{path.replace('/', '~1')}"


def test_a_whole_path_item_that_is_none_does_not_hide_the_others() -> None:
    paths = {"/a": 5, "/b": {"$ref": "#/none"}, "/c": {"get": {}, "post": 5, "trace": {}, "x-get": {}}, "x-d": {"get": {}}}
    everything = list(find(document({"paths": paths})))
    assert [str(it) for it in everything if isinstance(it, Found)] == ["GET /c"]
    assert len(everything) == 4


def test_tags_are_texts() -> None:
    (it,) = find(document({"paths": {"/c": {"get": {"tags": ["a", 5]}}}}))
    assert isinstance(it, Found)
    assert it.tags == ["a"]
