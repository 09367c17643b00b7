"""Requests checked against the very schemas that the OpenAPI document shows: a small part of JSON Schema, read literally.

Known words: type, enum, minimum, maximum, minLength, maxLength, pattern (whole), properties, required, additionalProperties, items,
maxItems, and oneOf, whose branch is the one that names the value's `type`, else the first. Mistakes name the field, the value, the wanted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

from gateway.ports import RequestFault

Schema = Mapping[str, Any]

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "null": (type(None),),
}  # fmt: skip
_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,18})?")
_SHOWN = 60


def checked(value: Any, schema: Schema) -> Any:
    """The body itself. Raises RequestFault `request.malformed` with every mistake."""
    if found := list(mistakes(value, schema, "")):
        raise RequestFault("request.malformed", "; ".join(found[:20]))
    return value


def checked_query(text: bytes, schemas: Mapping[str, Schema]) -> dict[str, Any]:
    """The query string's parameters, numbers as numbers. Raises RequestFault `request.malformed`."""
    query: dict[str, Any] = {}
    for name, written in parse_qsl(text.decode("latin-1"), keep_blank_values=True):
        if name in query:
            raise RequestFault("request.malformed", f"the query parameter {_shown(name)} stands twice")
        query[name] = _number(written) if schemas.get(name, {}).get("type") in ("integer", "number") else written
    schema = {"type": "object", "properties": schemas, "additionalProperties": False}
    return checked(query, schema)  # type: ignore[no-any-return]


def _number(text: str) -> Any:
    if not _NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)


def mistakes(value: Any, schema: Schema, at: str) -> Iterator[str]:
    """What is wrong with a value; `at` is where it stands, "" for the whole."""
    branch = _branch(value, schema["oneOf"]) if "oneOf" in schema else schema
    types = branch.get("type")
    if types is not None and not any(_is(value, name) for name in ([types] if isinstance(types, str) else types)):
        yield f"{at or 'the body'} is {_shown(value)}; wanted {types if isinstance(types, str) else ' or '.join(types)}"
    elif isinstance(value, dict):
        yield from _members(value, branch, at)
    elif isinstance(value, list):
        yield from _items(value, branch, at)
    else:
        yield from _plain(value, branch, at)


def _branch(value: Any, branches: list[Schema]) -> Schema:
    kind = value.get("type") if isinstance(value, dict) else None
    named = (branch for branch in branches if kind in branch["properties"].get("type", {}).get("enum", ()))
    return next(named, branches[0])


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name])


def _members(value: dict[str, Any], schema: Schema, at: str) -> Iterator[str]:
    known, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{_in(at, name)} is missing"
    for name, member in value.items():
        if name in known:
            yield from mistakes(member, known[name], _in(at, name))
        elif more is False:
            yield f"{_in(at, name)} is unknown here; known are {', '.join(sorted(known))}"
        elif more is not True:
            yield from mistakes(member, more, _in(at, name))


def _items(value: list[Any], schema: Schema, at: str) -> Iterator[str]:
    if len(value) > schema.get("maxItems", len(value)):
        yield f"{at} has {len(value)} items; at most {schema['maxItems']} are taken"
        return
    for index, item in enumerate(value):
        yield from mistakes(item, schema.get("items", {}), f"{at}[{index}]")


def _plain(value: Any, schema: Schema, at: str) -> Iterator[str]:
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at} is {_shown(value)}; wanted one of {', '.join(map(str, schema['enum']))}"
    if isinstance(value, str):
        low, high = schema.get("minLength", 0), schema.get("maxLength", len(value))
        if not low <= len(value) <= high:
            yield f"{at} has {len(value)} characters; wanted {low} to {high}"
        elif "pattern" in schema and not re.fullmatch(schema["pattern"], value):
            yield f"{at} is {_shown(value)}; wanted the form {schema['pattern']}"
    elif isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{at} is {_shown(value)}; wanted {schema.get('minimum', 'any')} to {schema.get('maximum', 'any')}"


def _in(at: str, name: str) -> str:
    name = name if name.isidentifier() and len(name) <= _SHOWN else _shown(name)
    return f"{at}.{name}" if at else name


def _shown(value: Any) -> str:
    """Short and escaped; containers only by their kind."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    text = ascii(value) if isinstance(value, str) else {None: "null", True: "true", False: "false"}.get(value, str(value))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
