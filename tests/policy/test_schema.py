"""The document schema: what the guards say stands in it by itself, and editors can read it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gateway.core.guards import GUARDS
from gateway.core.guards.guard import Guard
from gateway.policy.schema import SHADOWABLE, document_schema

PLACES = {"top": (), "run": ("run",), "defaults": ("defaults",), "rule": ("tools", "items")}


def properties(home: str) -> dict[str, Any]:
    at: Any = document_schema()
    for step in PLACES[home]:
        at = at["items"] if step == "items" else at["properties"][step]
    found: dict[str, Any] = at["properties"]
    return found


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.kind)
def test_each_guards_sections_stand_in_their_homes(guard: type[Guard]) -> None:
    for home, sections in guard.schema.items():
        assert sections.items() <= properties(home).items()


def test_no_guard_takes_a_key_that_belongs_to_none() -> None:
    for home in PLACES:
        own = [name for guard in GUARDS for name in guard.schema.get(home, ())]
        assert len(properties(home)) - len(own) == {"top": 11, "run": 0, "defaults": 1, "rule": 14}[home]


def test_it_is_a_json_schema_in_plain_json() -> None:
    schema = document_schema()
    Draft202012Validator.check_schema(schema)
    assert json.loads(json.dumps(schema)) == schema


def mappings(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield path, schema
        for name, inner in schema.items():
            yield from mappings(inner, f"{path}/{name}")
    elif isinstance(schema, list):
        for inner in schema:
            yield from mappings(inner, path)


def test_every_key_tells_an_editor_what_it_is_and_no_mapping_takes_unknown_keys() -> None:
    for path, mapping in mappings(document_schema()):
        for name, one in mapping.get("properties", {}).items():
            assert one.get("description"), f"{path}: {name} has no description"
        if mapping.get("properties"):
            assert mapping["additionalProperties"] is False, path


def test_what_must_never_be_suspended_cannot_be_named_in_shadow() -> None:
    assert set(SHADOWABLE) == {guard.kind for guard in GUARDS} - {"allow", "approval"}
    assert properties("rule")["shadow"]["items"]["enum"] == list(SHADOWABLE)


def test_two_calls_give_two_copies_so_that_nobody_can_spoil_the_others() -> None:
    document_schema()["properties"].clear()
    assert document_schema()["properties"]
