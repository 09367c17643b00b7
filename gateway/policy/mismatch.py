"""Why a value doesn't fit a schema, in words: where, what kind of thing was found, what is wanted. The verdict itself is `shapes`'.

At most 10 messages after a bounded look; what isn't described here (`unevaluatedItems`), or lies past the bound, is left out. A value is told
by its type and size only; names and limits are cut at 80 characters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import jsonschema_rs

from gateway.core.model import Json
from gateway.policy.schema_index import SchemaIndex, pointer

MAX_MESSAGES = 10
MAX_LOOKS = 2_000

_BARE = ("type", "const", "enum", "false")
_NEAREST = " alternatives, this is the nearest)"

Path = tuple[str | int, ...]

_LEAVES: dict[str, Callable[[Any], str]] = {
    "type": lambda wanted: " or ".join([wanted] if isinstance(wanted, str) else wanted),
    "enum": lambda options: f"one of {_cut(options)}",
    "const": lambda value: f"only {_cut(value)}",
    "minimum": lambda limit: f"at least {_cut(limit)}",
    "maximum": lambda limit: f"at most {_cut(limit)}",
    "exclusiveMinimum": lambda limit: f"more than {_cut(limit)}",
    "exclusiveMaximum": lambda limit: f"less than {_cut(limit)}",
    "multipleOf": lambda step: f"a multiple of {_cut(step)}",
    "minLength": lambda length: f"at least {_cut(length)} characters",
    "maxLength": lambda length: f"at most {_cut(length)} characters",
    "pattern": lambda pattern: f"a string that matches {_cut(pattern)}",
    "minItems": lambda count: f"at least {_cut(count)} items",
    "maxItems": lambda count: f"at most {_cut(count)} items",
    "uniqueItems": lambda _: "items that all differ",
    "minProperties": lambda count: f"at least {_cut(count)} members",
    "maxProperties": lambda count: f"at most {_cut(count)} members",
}


def explain(index: SchemaIndex, value: Json, where: str) -> tuple[str, ...]:
    """What is wrong with a value that doesn't fit; () if it can't be said."""
    found: list[str] = []
    try:
        for problem in islice(_Look(index).at(index.root, value, ()), MAX_MESSAGES):
            found.append(f"{where}{_place(problem.path)}: {problem.said}")
    except (_Enough, RecursionError):
        pass
    return tuple(dict.fromkeys(found))


class _Enough(Exception):
    """The bound of one explanation is reached."""


class _Problem(NamedTuple):
    path: Path
    keyword: str
    said: str
    wanted: str = ""


class _Look:
    """One walk through a value; `left` bounds it, large lists and objects count more."""

    def __init__(self, index: SchemaIndex) -> None:
        self.index = index
        self.left = MAX_LOOKS
        self.leaves: dict[int, list[tuple[str, Callable[[Json], bool]]]] = {}

    def at(self, schema: Any, value: Json, path: Path) -> Iterator[_Problem]:
        if schema is True:
            return
        self.left -= 1 + (len(value) // 64 if isinstance(value, dict | list) else 0)
        if self.left < 0:
            raise _Enough
        if not isinstance(schema, dict):
            if schema is False:
                yield _Problem(path, "false", "nothing may stand here")
            return
        if "$ref" in schema:
            yield from self.at(self.index.target(schema), value, path)
            if self.index.lone_refs:
                return
        for keyword, holds in self._leaves(schema):
            if not holds(value):
                wanted = _LEAVES[keyword](schema[keyword])
                yield _Problem(path, keyword, f"found {_kind(value)}, wanted {wanted}", wanted)
        yield from self._branches(schema, value, path)
        if isinstance(value, dict):
            yield from self._members(schema, value, path)
        elif isinstance(value, list):
            yield from self._items(schema, value, path)

    def fits(self, schema: Any, value: Json) -> bool:
        return next(self.at(schema, value, ()), None) is None

    def _leaves(self, schema: dict[str, Any]) -> list[tuple[str, Callable[[Json], bool]]]:
        known = self.leaves.get(id(schema))
        if known is None:
            known = self.leaves[id(schema)] = [(keyword, _holds({keyword: schema[keyword]})) for keyword in _LEAVES if keyword in schema]
        return known

    def _branches(self, schema: dict[str, Any], value: Json, path: Path) -> Iterator[_Problem]:
        for branch in schema.get("allOf", ()):
            yield from self.at(branch, value, path)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                yield from self._choice(keyword, schema[keyword], value, path)
        if "not" in schema and self.fits(schema["not"], value):
            yield _Problem(path, "not", f"found {_kind(value)} of a kind that is forbidden here")
        if "if" in schema:
            yield from self.at(schema.get("then" if self.fits(schema["if"], value) else "else", True), value, path)

    def _choice(self, keyword: str, branches: list[Any], value: Json, path: Path) -> Iterator[_Problem]:
        """All alternatives in one sentence if each wants just another thing here, else the problems of the nearest."""
        tried = [list(islice(self.at(branch, value, path), 3)) for branch in branches]
        fitting = tried.count([])
        if fitting > 1 and keyword == "oneOf":
            yield _Problem(path, keyword, f"fits {fitting} of {len(branches)} alternatives, only one may fit")
        if fitting:
            return
        if all(len(problems) == 1 and problems[0].wanted and problems[0].path == path for problems in tried):
            wanted = " or ".join(dict.fromkeys(problems[0].wanted for problems in tried))
            yield _Problem(path, "type", f"found {_kind(value)}, wanted {wanted}", wanted)
            return
        nearest = min(tried, key=lambda problems: (problems[0].path == path and problems[0].keyword in _BARE, len(problems)))
        for problem in nearest:
            said = problem.said if len(branches) == 1 or problem.said.endswith(_NEAREST) else f"{problem.said} ({len(branches)}{_NEAREST}"
            yield problem._replace(said=said, wanted="")

    def _members(self, schema: dict[str, Any], value: dict[str, Any], path: Path) -> Iterator[_Problem]:
        if missing := [name for name in schema.get("required", ()) if name not in value]:
            yield _Problem(path, "required", f"lacks {_names(missing)}")
        known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        unknown = []
        for name, item in value.items():
            wanted = [known[name]] if name in known else []
            wanted += [child for pattern, child in patterns.items() if _holds({"pattern": pattern})(name)]
            if not wanted and schema.get("additionalProperties") is False:
                unknown.append(name)
            for child in wanted or [schema.get("additionalProperties", True)] * (name not in unknown):
                yield from self.at(child, item, (*path, name))
        if unknown:
            yield _Problem(path, "additionalProperties", f"has unknown members: {_names(unknown)}")
        if unfit := [name for name in value if not self.fits(schema.get("propertyNames", True), name)]:
            yield _Problem(path, "propertyNames", f"has members whose names aren't allowed: {_names(unfit)}")
        yield from self._dependent(schema, value, path)

    def _dependent(self, schema: dict[str, Any], value: dict[str, Any], path: Path) -> Iterator[_Problem]:
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            for name, demand in schema.get(keyword, {}).items():
                if name in value and not isinstance(demand, list):
                    yield from self.at(demand, value, path)
                elif name in value and (missing := [other for other in demand if other not in value]):
                    yield _Problem(path, keyword, f"lacks {_names(missing)}, needed beside {_names([name])}")

    def _items(self, schema: dict[str, Any], value: list[Any], path: Path) -> Iterator[_Problem]:
        rest = schema.get("items", True)
        first = schema.get("prefixItems", [])
        if isinstance(rest, list):  # draft-07's tuple
            first, rest = rest, schema.get("additionalItems", True)
        for place, item in enumerate(value):
            yield from self.at(first[place] if place < len(first) else rest, item, (*path, place))
        if schema.get("minContains", 1) and "contains" in schema and not any(self.fits(schema["contains"], item) for item in value):
            yield _Problem(path, "contains", "none of the items is of the kind that must be among them")


def _holds(leaf: dict[str, Any]) -> Callable[[Json], bool]:
    return jsonschema_rs.Draft202012Validator(leaf, pattern_options=jsonschema_rs.RegexOptions()).is_valid


def _kind(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "an integer" if value % 1 == 0 else "a number"
        case str():
            return f"a string of {len(value)} characters"
        case list():
            return f"an array of {len(value)} items"
    return "an object"


def _names(names: list[Any]) -> str:
    return _cut(names)[1:].removesuffix("]")


def _cut(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:79] + "…"


def _place(path: Path) -> str:
    return pointer(tuple(str(part)[:80] for part in path))[:240]
