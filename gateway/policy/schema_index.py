"""A JSON Schema read as data before any engine sees it: limits, references, and how the work of judging can grow. Schemas are hostile.

Refused with the pointer of the place: what is too large or deep, references that leave the document or lead nowhere, dynamic references, and
schemas whose branches multiply (a chain of 40 definitions that each name the next one twice takes the engine hours).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

from gateway.core.canonical import canonical

MAX_DEPTH = 64
MAX_BYTES = 262_144
MAX_COST = 100_000

LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
MAPS = ("properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions")
SINGLES = (
    "not", "if", "then", "else", "contains", "propertyNames", "items", "additionalItems", "additionalProperties", "unevaluatedItems",
    "unevaluatedProperties",
)  # fmt: skip
_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
_ITEM, _MEMBER = -1, -2
_REST = {"additionalProperties": _MEMBER, "unevaluatedProperties": _MEMBER, "items": _ITEM, "additionalItems": _ITEM, "unevaluatedItems": _ITEM}
_NAMES = 500
_WIDE = ("enum", "required", "properties", "patternProperties", "dependentRequired")
_BASE = "http://schema.invalid/"


class ShapeError(Exception):
    """A schema that can't be enforced, by its writer's fault. `pointer` is the JSON pointer of the place inside the schema."""

    def __init__(self, message: str, pointer: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.pointer = pointer


def pointer(path: tuple[str | int, ...] | list[str | int]) -> str:
    """The JSON pointer of a path."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


class SchemaIndex:
    """A private copy of a schema, every reference in it resolved. Raises ShapeError; read-only once made."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.root: dict[str, Any] = _copy(dict(schema))
        self.lone_refs = any(f"draft-0{number}" in str(self.root.get("$schema")) for number in (6, 7))
        """Up to draft-07, what stands beside a `$ref` means nothing."""
        self.patterns = 0
        self._resources: dict[str, Any] = {}
        self._anchors: dict[str, Any] = {}
        self._known: set[int] = set()
        self._targets: dict[int, Any] = {}
        self._unresolved: list[tuple[dict[str, Any], str, str]] = []
        self._enter(self.root, "", _BASE)
        while self._unresolved:
            referring, place, base = self._unresolved.pop()
            target = self._targets[id(referring)] = self._resolve(referring["$ref"], place + "/$ref", base)
            self._enter(target, place + "/$ref", base)
        self.cost = self._cost()
        if self.cost > MAX_COST:
            raise ShapeError(f"its branches multiply: one value could need {self.cost:.0e} steps, at most {MAX_COST} are taken")

    def target(self, schema: dict[str, Any]) -> Any:
        """What this schema's `$ref` means; None if it has none."""
        return self._targets.get(id(schema))

    def _enter(self, schema: Any, place: str, base: str) -> None:
        """Note the names that each subschema can be called by, and the references it makes."""
        waiting = [(schema, place, base)]
        while waiting:
            schema, place, base = waiting.pop()
            if not isinstance(schema, dict) or id(schema) in self._known:
                continue
            self._known.add(id(schema))
            base = self._named(schema, place, base)
            for keyword in ("$dynamicRef", "$recursiveRef"):
                if keyword in schema:
                    raise ShapeError(f"{keyword} isn't supported", f"{place}/{keyword}")
            if "$ref" in schema:
                self._unresolved.append((schema, place, base))
            self.patterns += ("pattern" in schema) + len(_as_map(schema.get("patternProperties")))
            waiting += [(child, place + pointer(path), base) for path, child in children(schema)]

    def _named(self, schema: dict[str, Any], place: str, base: str) -> str:
        """The base URI inside this schema."""
        identifier = schema.get("$id", "")
        if isinstance(identifier, str) and identifier.startswith("#"):  # draft-07's anchor
            self._anchors[base + identifier] = schema
        elif isinstance(identifier, str):
            base = urldefrag(_joined(base, identifier, place + "/$id")).url
        self._resources.setdefault(base, schema)
        if "$anchor" in schema:
            self._anchors[f"{base}#{schema['$anchor']}"] = schema
        return base

    def _resolve(self, reference: Any, place: str, base: str) -> Any:
        if not isinstance(reference, str):
            raise ShapeError("a $ref is a text", place)
        uri, fragment = urldefrag(base + reference if reference.startswith("#") else _joined(base, reference, place))
        if uri not in self._resources:
            raise ShapeError(f"the $ref {reference[:80]!r} leads out of the schema; remote references are never fetched", place)
        if fragment and not fragment.startswith("/"):
            found = self._anchors.get(f"{uri}#{fragment}", _NOTHING)
        else:
            found = _follow(self._resources[uri], unquote(fragment))
        if not isinstance(found, dict | bool):
            raise ShapeError(f"the $ref {reference[:80]!r} leads to no schema", place)
        return found

    def _cost(self) -> int:
        """An upper bound of the evaluations that any one place of a value can need.

        A recursive reference counts once: the engine remembers its verdicts on those, and on no others.
        """
        known: dict[int, _Work] = {}
        begun: set[int] = set()
        waiting: list[tuple[Any, bool]] = [(self.root, False)]
        while waiting:
            schema, ready = waiting.pop()
            if not isinstance(schema, dict):
                continue
            if ready:
                known[id(schema)] = self._work(schema, known)
            elif id(schema) not in begun:
                begun.add(id(schema))
                waiting.append((schema, True))
                waiting += [(child, False) for _, child in children(schema)]
                waiting.append((self.target(schema), False))
        return known[id(self.root)].total

    def _work(self, schema: dict[str, Any], known: dict[int, _Work]) -> _Work:
        here = [known.get(id(self.target(schema)), _ONE)]
        below: dict[str | int, int] = {}
        each = 0
        for path, child in children(schema):
            work = known.get(id(child), _ONE)
            if path[0] in _IN_PLACE:
                here.append(work)
            elif path[0] in ("properties", "prefixItems") or (path[0] == "items" and len(path) > 1):
                below[path[1]] = work.total
            elif path[0] in ("patternProperties", "contains", "propertyNames"):
                each += work.total
            elif path[0] in _REST:
                below[_REST[path[0]]] = max(work.total, below.get(_REST[path[0]], 0))
        again = 4 if "unevaluatedProperties" in schema or "unevaluatedItems" in schema else 1  # the engine judges the branches anew for these
        wide = sum(len(schema[keyword]) for keyword in _WIDE if isinstance(schema.get(keyword), dict | list))
        rest: dict[str | int, int] = {_MEMBER: each, _ITEM: each}
        own = _Work(1 + wide, rest | {name: cost + each for name, cost in below.items()})
        return reduce(_Work.plus, [work.times(again) for work in here], own)


class _Work(NamedTuple):
    """Evaluations at one place of a value, and at each place just below it; `_MEMBER` and `_ITEM` stand for all that aren't named."""

    here: int
    below: dict[str | int, int]

    @property
    def total(self) -> int:
        return self.here + max(self.below.values(), default=0)

    def at(self, name: str | int) -> int:
        return self.below.get(name, self.below.get(_ITEM if isinstance(name, int) else _MEMBER, 0))

    def plus(self, other: _Work) -> _Work:
        names: set[str | int] = {*self.below, *other.below}
        if len(names) > _NAMES:
            largest = max(self.below.values(), default=0) + max(other.below.values(), default=0)
            return _Work(self.here + other.here, {_MEMBER: largest, _ITEM: largest})
        return _Work(self.here + other.here, {name: self.at(name) + other.at(name) for name in names})

    def times(self, count: int) -> _Work:
        return self if count == 1 else _Work(self.here * count, {name: cost * count for name, cost in self.below.items()})


_ONE = _Work(1, {})
_NOTHING = object()


def children(schema: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """(path, subschema) of each direct subschema; malformed keywords have none."""
    for keyword in SINGLES:
        if isinstance(schema.get(keyword), dict | bool):
            yield (keyword,), schema[keyword]
    for keyword in LISTS:
        if isinstance(schema.get(keyword), list):
            yield from (((keyword, index), child) for index, child in enumerate(schema[keyword]))
    for keyword in MAPS:
        yield from (((keyword, name), child) for name, child in _as_map(schema.get(keyword)).items() if isinstance(child, dict | bool))


def _joined(base: str, reference: str, place: str) -> str:
    try:
        return urljoin(base, reference)
    except ValueError:
        raise ShapeError(f"{reference[:80]!r} is no URI", place) from None


def _as_map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _copy(schema: Mapping[str, Any]) -> dict[str, Any]:
    level: list[Any] = [schema]
    for _ in range(MAX_DEPTH):
        level = [item for value in level for item in (value.values() if isinstance(value, dict) else value) if isinstance(item, dict | list)]
    if level:
        raise ShapeError(f"nested deeper than {MAX_DEPTH}")
    try:
        text = canonical(schema)
    except (TypeError, ValueError) as error:
        raise ShapeError(f"it is no JSON: {error}") from None
    if len(text) > MAX_BYTES:
        raise ShapeError(f"{len(text)} bytes; at most {MAX_BYTES}")
    copied: dict[str, Any] = json.loads(text)
    return copied


def _follow(schema: Any, path: str) -> Any:
    for part in path.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, dict):
            schema = schema.get(name, _NOTHING)
        elif isinstance(schema, list) and name.isdecimal() and int(name) < len(schema):
            schema = schema[int(name)]
        else:
            return _NOTHING
    return schema
