"""Requests checked against the very schemas that the OpenAPI document shows: a small part of JSON Schema, read literally.

Known words: type, enum, minimum, maximum, minLength, maxLength, pattern (whole), properties, required, additionalProperties, items,
maxItems, and oneOf, whose branch is the one that names the value's `type`, else the first. Mistakes name the field, the value, the wanted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

from gateway.ports import malformed

Schema = Mapping[str, Any]

_KINDS: Mapping[type, str] = {dict: "object", list: "array", str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,18})?")
_SHOWN = 60


def checked(value: Any, schema: Schema) -> Any:
    """The body itself. Raises RequestFault `request.malformed` with every mistake."""
    if found := list(mistakes(value, schema)):
        raise malformed("; ".join(found[:20]))
    return value


def checked_query(text: bytes, schemas: Mapping[str, Schema]) -> dict[str, Any]:
    """The query string's parameters, numbers as numbers. Raises RequestFault `request.malformed`."""
    query: dict[str, Any] = {}
    for name, written in parse_qsl(text.decode("latin-1"), keep_blank_values=True):
        if name in query:
            raise malformed(f"the query parameter {_shown(name)} stands twice")
        query[name] = _number(written) if schemas.get(name, {}).get("type") in ("integer", "number") else written
    schema = {"type": "object", "properties": schemas, "additionalProperties": False}
    return checked(query, schema)  # type: ignore[no-any-return]


def _number(text: str) -> Any:
    if not _NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)


def mistakes(value: Any, schema: Schema, at: tuple[str | int, ...] = ()) -> Iterator[str]:
    """What is wrong with a value that was parsed from JSON; `at` is the way to it from the whole."""
    if "oneOf" in schema:
        schema = _branch(value, schema["oneOf"])
    types = schema.get("type")
    if types is not None and not _is(_KINDS[type(value)], types):
        yield f"{_place(at)} is {_shown(value)}; wanted {types if isinstance(types, str) else ' or '.join(types)}"
    elif type(value) is str:
        yield from _text(value, schema, at)
    elif type(value) is dict:
        yield from _members(value, schema, at)
    elif type(value) is list:
        yield from _items(value, schema, at)
    elif type(value) in (int, float) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{_place(at)} is {_shown(value)}; wanted {schema.get('minimum', 'any')} to {schema.get('maximum', 'any')}"


def _branch(value: Any, branches: list[Schema]) -> Schema:
    kind = value.get("type") if type(value) is dict else None
    named = (branch for branch in branches if kind in branch["properties"].get("type", {}).get("enum", ()))
    return branches[0] if kind is None else next(named, branches[0])


def _is(kind: str, types: str | list[str]) -> bool:
    if type(types) is str:
        return kind == types or (kind == "integer" and types == "number")
    return kind in types or (kind == "integer" and "number" in types)


def _members(value: dict[str, Any], schema: Schema, at: tuple[str | int, ...]) -> Iterator[str]:
    known, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{_place((*at, name))} is missing"
    for name, member in value.items():
        if name in known:
            yield from mistakes(member, known[name], (*at, name))
        elif more is False:
            yield f"{_place((*at, name))} is unknown here; known are {', '.join(sorted(known))}"
        elif more is not True:
            yield from mistakes(member, more, (*at, name))


def _items(value: list[Any], schema: Schema, at: tuple[str | int, ...]) -> Iterator[str]:
    if len(value) > schema.get("maxItems", len(value)):
        yield f"{_place(at)} has {len(value)} items; at most {schema['maxItems']} are taken"
        return
    for index, item in enumerate(value):
        yield from mistakes(item, schema.get("items", {}), (*at, index))


def _text(value: str, schema: Schema, at: tuple[str | int, ...]) -> Iterator[str]:
    low, high = schema.get("minLength", 0), schema.get("maxLength", len(value))
    if "enum" in schema and value not in schema["enum"]:
        yield f"{_place(at)} is {_shown(value)}; wanted one of {', '.join(schema['enum'])}"
    elif not low <= len(value) <= high:
        yield f"{_place(at)} has {len(value)} characters; wanted {low} to {high}"
    elif "pattern" in schema and not re.fullmatch(schema["pattern"], value):
        yield f"{_place(at)} is {_shown(value)}; wanted the form {schema['pattern']}"


def _place(at: tuple[str | int, ...]) -> str:
    """`calls[2].tool`; a name from the sender is shortened and escaped."""
    place = ""
    for step in at:
        name = step if isinstance(step, int) or (step.isidentifier() and len(step) <= _SHOWN) else _shown(step)
        place += f"[{name}]" if isinstance(step, int) else f".{name}" if place else str(name)
    return place or "the body"


def _shown(value: Any) -> str:
    """Short and escaped; containers only by their kind."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    text = ascii(value) if isinstance(value, str) else {None: "null", True: "true", False: "false"}.get(value, str(value))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
