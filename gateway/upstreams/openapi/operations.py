"""Operations of a document as tools: what their arguments are, where each goes, and what keeps one from being a tool.

Parameters are arguments of the same name. A JSON or form body whose schema is a plain object gives its properties as arguments of their
own, so that policies can speak of them; any other body is one argument, `body`. What the credentials fill in is no argument.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.core.model import Json
from gateway.source import child
from gateway.upstreams.credentials import Credentials
from gateway.upstreams.http_request import PLACEHOLDER, RESERVED
from gateway.upstreams.openapi.bodies import Body
from gateway.upstreams.openapi.content import Content
from gateway.upstreams.openapi.document import Document, Node, Unusable
from gateway.upstreams.openapi.parameters import STYLES, Parameter
from gateway.upstreams.openapi.request import Operation
from gateway.upstreams.openapi.schemas import Schemas, described

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch")
MAX_DESCRIPTION: Final = 2_000
MAX_NAME: Final = 100

_HINTS: Final[Mapping[str, Mapping[str, Json]]] = {
    "put": {"readOnlyHint": False, "idempotentHint": True},
    "delete": {"readOnlyHint": False, "idempotentHint": True, "destructiveHint": True},
    "post": {"readOnlyHint": False},
    "patch": {"readOnlyHint": False},
}
"""By method; the others only read (RFC 9110 §9.2)."""
_IGNORED: Final = frozenset(["accept", "content-type", "authorization"])
"""Header parameters that OpenAPI itself says to pass over."""
_PATH: Final = re.compile(r"/[\x21\x22\x24-\x3e\x40-\x7e]*")
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_ARGUMENT: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SEPARATORS: Final = re.compile(r"[^A-Za-z0-9_./-]+")
_WORDS: Final = re.compile(r"[^A-Za-z0-9]+")
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class Found:
    """An operation of the document as it is written: its method and path, its path item, itself."""

    method: str
    path: str
    item: Node
    node: Node

    def __str__(self) -> str:
        return f"{self.method.upper()} {self.path}"

    @property
    def tags(self) -> list[str]:
        tags = self.node.value.get("tags")
        return [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []


class Reader:
    """Reads the operations of one document; `credentials` are the upstream's."""

    def __init__(self, document: Document, credentials: Credentials) -> None:
        self._document, self._credentials = document, credentials
        self._schemas = Schemas(document)
        self._content = Content(document, self._schemas)

    def read(self, found: Found, name: str) -> Operation:
        """Raises Unusable."""
        properties: dict[str, Any] = {}
        parameters, required = [], []
        for parameter, schema, is_required in self._parameters(found):
            parameters.append(parameter)
            properties[parameter.argument] = schema
            required += [parameter.argument] if is_required else []
        _check_path(found, parameters)
        takes = self._takes(found, properties, required)
        summary, text = found.node.text("summary"), found.node.text("description")
        hints = {**_HINTS.get(found.method, {"readOnlyHint": True}), **({"title": summary} if summary else {})}
        return Operation(
            name, _short("\n\n".join(filter(None, (summary, text))) or str(found)), found.method.upper(), found.path,
            self._input_schema(properties, required), annotations=hints, parameters=tuple(parameters), takes=takes,
        )  # fmt: skip

    def _takes(self, found: Found, properties: dict[str, Any], required: list[str]) -> Body | None:
        """The body; its arguments go into `properties` and `required`. OpenAPI passes over the body of a method that only reads."""
        written = self._content.of(found.node) if found.method not in ("get", "head") else None
        if written is None:
            return None
        fields = written.fields
        if fields is not None and not fields.keys() & properties.keys() and all(map(_ARGUMENT.fullmatch, fields)):
            properties |= fields
            required += written.required_fields
            return written.body(None)
        argument = next(name for name in ("body", "request_body", *map("body_{}".format, range(1000))) if name not in properties)
        properties[argument] = written.schema
        required += [argument] if written.required else []
        return written.body(argument)

    def _input_schema(self, properties: Mapping[str, Any], required: list[str]) -> dict[str, Any]:
        schema = {"type": "object", "properties": dict(properties), "required": required, "additionalProperties": False}
        definitions = self._schemas.definitions(schema)
        return {**schema, "$defs": definitions} if definitions else schema

    # ---- parameters -----------------------------------------------------------------------------------------------------

    def _parameters(self, found: Found) -> Iterator[tuple[Parameter, Any, bool]]:
        """Each with its argument's schema, and whether it must be there."""
        nodes = self._nodes(found)
        for ((place, name), node), argument in zip(nodes.items(), _arguments(found, list(nodes)), strict=True):
            content = node.get("content")
            media = self._json(content) if content is not None else node
            style = node.text("style") or STYLES[place][0]
            if style not in STYLES[place]:
                raise Unusable(child(node.pointer, "style"), f"the style {style!r} of the {place} parameter {name!r} can't be sent")
            explode = node.value.get("explode", style == "form") is True
            schema = described(self._schemas.of(media.get("schema") or Node({}, node.pointer)), node)
            is_required = place == "path" or node.value.get("required") is True
            yield Parameter(name, argument, place, style, explode, content is not None), schema, is_required

    def _nodes(self, found: Found) -> dict[tuple[str, str], Node]:
        """By place and name: those of the path, then those of the operation, which replace them; without what is filled in for the tool."""
        nodes: dict[tuple[str, str], Node] = {}
        for owner in (found.item, found.node):
            for item in written.items() if (written := owner.get("parameters")) is not None else ():
                node = self._document.resolved(item)
                name, place = node.text("name"), node.text("in")
                if not name or place is None or place not in STYLES:
                    raise Unusable(node.pointer, "a parameter has a name, and in: path, query, header or cookie")
                if not self._is_filled_in(place, name, node):
                    nodes[place, name] = node
        return nodes

    def _is_filled_in(self, place: str, name: str, node: Node) -> bool:
        """By the credentials or by the gateway itself, or not at all."""
        taken = self._credentials.header_names
        if place == "query":
            return name in self._credentials.query
        if place == "cookie":
            return "cookie" in taken
        if place == "header" and not _TOKEN.fullmatch(name):
            raise Unusable(node.pointer, f"{name[:64]!r} is no header's name")
        return place == "header" and name.lower() in _IGNORED | RESERVED | taken

    def _json(self, content: Node) -> Node:
        """The media type of a parameter that is a document of its own."""
        media = dict(content.members())
        if list(media) != ["application/json"]:
            raise Unusable(content.pointer, "a parameter with content is sent as application/json only")
        return media["application/json"]


def find(document: Document) -> Iterator[Found | Unusable]:
    """All operations in the order of the document, and what stands in the place of one."""
    for path, item in Node(document.root.value["paths"], "/paths").members():
        try:
            node = document.resolved(item)
        except Unusable as unusable:
            yield unusable
            continue
        for method in METHODS:
            if (operation := node.get(method)) is not None:
                is_one = isinstance(operation.value, dict)
                yield Found(method, path, node, operation) if is_one else Unusable(operation.pointer, "a mapping is wanted here")


def names(found: Iterable[Found]) -> list[str]:
    """A name for each: its operationId, else its method and path; those that would be named alike all get a hash of their own."""
    found = list(found)
    plain = [_SEPARATORS.sub("_", one.node.text("operationId") or "").strip("_") or _WORDS.sub("_", str(one)).strip("_").lower() for one in found]
    count = Counter(plain)
    return [name if count[name] == 1 and len(name) <= MAX_NAME else _hashed(name, one) for name, one in zip(plain, found, strict=True)]


def _hashed(name: str, found: Found) -> str:
    return f"{name[: MAX_NAME - 9]}_{hashlib.sha256(str(found).encode()).hexdigest()[:8]}"


def _check_path(found: Found, parameters: Iterable[Parameter]) -> None:
    if not _PATH.fullmatch(found.path):
        raise Unusable(child("/paths", found.path), "a path begins with / and has no characters that a URL writes in percent signs, no ? and no #")
    blanks, known = set(PLACEHOLDER.findall(found.path)), {one.name for one in parameters if one.place == "path"}
    if blanks != known:
        raise Unusable(found.node.pointer, f"its path has {sorted(blanks)}, its path parameters are {sorted(known)}")


def _arguments(found: Found, keys: Sequence[tuple[str, str]]) -> list[str]:
    """The arguments of parameters by (place, name): the names as models may have them, with the place before those that are alike."""
    plain = [_UNFIT.sub("_", name).strip("_")[:64] or place for place, name in keys]
    alike = {name for name, count in Counter(plain).items() if count > 1}
    arguments = [f"{place}_{name}"[:64] if name in alike else name for (place, _), name in zip(keys, plain, strict=True)]
    if len(set(arguments)) < len(arguments):
        raise Unusable(found.node.pointer, f"its parameters can't be told apart by name: {', '.join(sorted(arguments))}"[:400])
    return arguments


def _short(text: str) -> str:
    return text if len(text) <= MAX_DESCRIPTION else f"{text[: MAX_DESCRIPTION - 1]}…"
