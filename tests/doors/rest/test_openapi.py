"""The OpenAPI document is whole: every route is in it, every reference leads somewhere, every schema is one."""

import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from gateway.doors.rest import RestDoor
from gateway.doors.rest.door import OPERATIONS
from gateway.doors.rest.openapi import document
from tests.doors.rest.stage import Stage

DOCUMENT = document(OPERATIONS, "1.2.3")


def everything(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for member in value.values():
            yield from everything(member)
    elif isinstance(value, list):
        for item in value:
            yield from everything(item)


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in DOCUMENT["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


@pytest.mark.anyio
async def test_every_route_is_in_the_document_and_none_else(it: Stage) -> None:
    door: RestDoor = it.door
    routed = {re.sub(r":turn\}", "}", route.path) for route in door._router.routes}  # type: ignore[attr-defined]
    assert routed == set(DOCUMENT["paths"])
    assert {(one.path, one.method.lower()) for one in OPERATIONS} <= {(path, method) for path, method, _ in operations()}


def test_the_document_names_its_version_and_its_bearer() -> None:
    assert DOCUMENT["openapi"] == "3.1.0"
    assert DOCUMENT["info"]["version"] == "1.2.3"
    assert DOCUMENT["security"] == [{"bearer": []}]
    assert DOCUMENT["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"


def test_each_operation_has_its_own_id_and_a_summary() -> None:
    ids = [operation["operationId"] for _, _, operation in operations()]
    assert len(ids) == len(set(ids))
    assert all(operation["summary"] for _, _, operation in operations())


def test_each_parameter_of_a_path_is_described_and_required() -> None:
    for path, _, operation in operations():
        described = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "path" and one["required"]}
        assert described == set(re.findall(r"\{(\w+)\}", path))


def test_every_operation_may_answer_with_a_problem() -> None:
    for _, _, operation in operations():
        assert list(operation["responses"]["default"]["content"]) == ["application/problem+json"]
        assert any(status.startswith("2") for status in operation["responses"])
        assert all(response["description"] for response in operation["responses"].values())


def test_every_reference_leads_somewhere_and_every_component_is_used() -> None:
    used = {one["$ref"].removeprefix("#/components/schemas/") for one in everything(DOCUMENT) if "$ref" in one}
    assert used == set(DOCUMENT["components"]["schemas"])


def test_every_schema_is_a_json_schema() -> None:
    schemas = list(DOCUMENT["components"]["schemas"].values())
    schemas += [one["schema"] for one in everything(DOCUMENT["paths"]) if "schema" in one]
    for schema in schemas:
        jsonschema.Draft202012Validator.check_schema(schema)
