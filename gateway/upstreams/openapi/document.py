"""An OpenAPI document: read strictly, JSON or YAML, with the place of everything, and its own references followed.

What makes the whole document unusable is a SourceError with every mistake; what only one operation trips over is `Unusable`, raised
where that operation is read. Nothing outside the file is ever read. Source: OpenAPI 3.0.4 and 3.1.1, RFC 6901 (JSON pointers).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from gateway.source import Mistake, Position, SourceError, child, read
from gateway.upstreams.openapi.places import Places
from gateway.wire.json import JsonError, parse

MAX_BYTES: Final = 32 * 1024 * 1024
MAX_DEPTH: Final = 128
MAX_HOPS: Final = 32

_VERSION: Final = re.compile(r"3\.([01])\.[0-9]+(-.*)?")
_UNREAD: Final = re.compile(r"/(examples?|x-[^/]*)(/|$)")
"""Parts of a document that no tool is made of: what is wrong in them doesn't matter."""
_NOTHING: Final = object()


class Unusable(Exception):
    """What stands at `pointer` can't be used; the text says why."""

    def __init__(self, pointer: str, message: str) -> None:
        super().__init__(message)
        self.pointer, self.message = pointer, message


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the document and where it stands."""

    value: Any
    pointer: str

    def get(self, *steps: str | int) -> Node | None:
        """What stands `steps` further in; None if there is nothing, or if this is no mapping."""
        value = self.value
        for step in steps:
            value = value.get(step, _NOTHING) if isinstance(value, dict) else _NOTHING
        return None if value is _NOTHING else Node(value, child(self.pointer, *steps))

    def text(self, key: str) -> str | None:
        """A text inside; what is no text counts as absent."""
        value = self.value.get(key) if isinstance(self.value, dict) else None
        return value if isinstance(value, str) else None

    def members(self) -> Iterator[tuple[str, Node]]:
        """Of a mapping, without its extensions. Raises Unusable for what is none."""
        if not isinstance(self.value, dict):
            raise Unusable(self.pointer, "a mapping is wanted here")
        for key, value in self.value.items():
            if not key.startswith("x-"):
                yield key, Node(value, child(self.pointer, key))

    def items(self) -> Iterator[Node]:
        """Of a list. Raises Unusable for what is none."""
        if not isinstance(self.value, list):
            raise Unusable(self.pointer, "a list is wanted here")
        for index, value in enumerate(self.value):
            yield Node(value, child(self.pointer, index))


@dataclass(frozen=True, slots=True)
class Document:
    """`is_30`: 3.0, where schemas are OpenAPI's own; from 3.1 on they are JSON Schema 2020-12. `at`: a pointer's place in the file."""

    root: Node
    is_30: bool
    at: Callable[[str], Position]

    def target(self, reference: Any, place: str) -> Node:
        """What a `$ref` that stands at `place` names. Raises Unusable if it leads out of the document, or nowhere."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise Unusable(place, f"the $ref {str(reference)[:80]!r} leads out of the document; only those that begin with #/ are followed")
        value = self.root.value
        for step in unquote(reference[1:]).split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
                value = value[int(step)]
            else:
                value = value.get(step, _NOTHING) if isinstance(value, dict) else _NOTHING
        if value is _NOTHING or not reference.startswith("#/"):
            raise Unusable(place, f"the $ref {reference[:80]!r} leads nowhere")
        return Node(value, unquote(reference[1:]))

    def resolved(self, node: Node) -> Node:
        """A mapping, its references followed. Raises Unusable for those that lead nowhere or in a circle, and for what is no mapping."""
        for _ in range(MAX_HOPS):
            if not isinstance(node.value, dict):
                raise Unusable(node.pointer, "a mapping is wanted here")
            if "$ref" not in node.value:
                return node
            node = self.target(node.value["$ref"], child(node.pointer, "$ref"))
        raise Unusable(node.pointer, "these references lead in a circle")


def load(path: Path, name: str) -> Document:
    """Read a document; `name` is what mistakes call the file. Raises SourceError with every mistake of the document as such."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise SourceError([Mistake(Position(name, 1, 1), f"can't be read: {error.strerror}")]) from None
    data, at = _json(name, text) if text.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[") else _yaml(name, text)
    if mistakes := [Mistake(at(pointer), message, pointer) for pointer, message in _wrong(data)]:
        raise SourceError(mistakes)
    return Document(Node(data, ""), data["openapi"].startswith("3.0."), at)


def _wrong(data: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(data, dict):
        yield "", "an OpenAPI document is a mapping with the keys openapi, info and paths"
        return
    version = data.get("openapi")
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        found = f"swagger {data['swagger']}" if "swagger" in data else f"openapi {version!r}"
        yield "/openapi", f"found {found[:40]}; documents of OpenAPI 3.0 and 3.1 are read"
    if not isinstance(data.get("paths"), dict):
        yield "/paths", "the mapping paths is missing"
    for key, kind in (("servers", list), ("components", dict), ("security", list)):
        if key in data and not isinstance(data[key], kind):
            yield f"/{key}", f"{key} is a {'list' if kind is list else 'mapping'}"


def _json(name: str, text: bytes) -> tuple[Any, Callable[[str], Position]]:
    decoded = text.decode("utf-8-sig", "replace")
    places = Places(name, decoded)
    if len(text) > MAX_BYTES:
        raise SourceError([Mistake(Position(name, 1, 1), f"the file has {len(text)} bytes; at most {MAX_BYTES} are read")])
    try:
        return parse(text.removeprefix(b"\xef\xbb\xbf"), max_depth=MAX_DEPTH), places.at
    except JsonError as error:
        before = len(text.removeprefix(b"\xef\xbb\xbf")[: error.offset or 0].decode(errors="replace"))
        raise SourceError([Mistake(places.position(before), f"not JSON: {error.message}")]) from None


def _yaml(name: str, text: bytes) -> tuple[Any, Callable[[str], Position]]:
    """Strict, but for keys: OpenAPI lets plain ones be any text, as in `200:`."""
    try:
        source = read(name, text, max_bytes=MAX_BYTES, plain_keys=True)
    except SourceError as error:
        wrong = [mistake for mistake in error.mistakes if mistake.pointer is None or not _UNREAD.search(mistake.pointer)]
        if wrong or error.partial is None:
            raise SourceError(wrong or error.mistakes) from None
        source = error.partial
    return source.data, source.at
