"""Which of an operation's content types is sent, and what its arguments are then.

JSON before forms before text before bytes: of several, the one that says most about its arguments. Bytes are base64 to the tool's caller.
A body is spread into arguments only if it is required, or requires nothing itself: else leaving it out couldn't be told from giving nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.upstreams.openapi.bodies import BINARY, FORM, JSON, MULTIPART, TEXT, Body, Part
from gateway.upstreams.openapi.document import Document, Node, Unusable
from gateway.upstreams.openapi.parameters import STYLES, Parameter
from gateway.upstreams.openapi.schemas import Schemas, described

_BASE64: Final[Mapping[str, Any]] = {"type": "string", "contentEncoding": "base64"}
_TEXTUAL: Final = ("xml", "yaml", "graphql", "javascript", "ndjson", "jsonl", "csv")

_MEDIA_TYPE: Final = re.compile(r"[a-z0-9!#$&^_.+*-]{1,127}/[a-z0-9!#$&^_.+*-]{1,127}")
_TELLING: Final = frozenset(["enum", "const", "oneOf", "anyOf", "allOf", "not", "contentEncoding"])
"""What says of a schema without a type what its values are."""


@dataclass(frozen=True, slots=True)
class Written:
    """A body that can be sent. `schema`: of the whole; `fields`: of each argument, None if it can't be spread into several."""

    kind: str
    content_type: str
    required: bool
    schema: Any
    fields: Mapping[str, Any] | None = None
    required_fields: tuple[str, ...] = ()
    styles: Mapping[str, Parameter] = field(default_factory=dict)
    parts: Mapping[str, Part] = field(default_factory=dict)

    def body(self, argument: str | None) -> Body:
        """`argument`: the one that is the body, None for one that is spread."""
        return Body(self.kind, self.content_type, argument, self.required, tuple(self.fields or ()), self.styles, self.parts)


class Content:
    """The bodies of one document's operations."""

    def __init__(self, document: Document, schemas: Schemas) -> None:
        self._document, self._schemas = document, schemas

    def of(self, operation: Node) -> Written | None:
        """None if the operation takes no body. Raises Unusable if none of its content types can be sent."""
        written = operation.get("requestBody")
        if written is None:
            return None
        body = self._document.resolved(written)
        content = body.get("content")
        if content is None:
            raise Unusable(body.pointer, "a request body has the key content")
        kinds = {kind: (name, media) for name, media in reversed(list(content.members())) if (kind := self._kind(name, media))}
        for kind in (JSON, MULTIPART, FORM, TEXT, BINARY):
            if kind in kinds:
                return self._written(kind, *kinds[kind], body)
        if content.value:
            raise Unusable(content.pointer, f"none of {', '.join(content.value)[:200]} can be sent; JSON, forms, texts and bytes can")
        return None

    def _kind(self, name: str, media: Node) -> str | None:
        essence, schema = _essence(name), media.get("schema")
        if not _MEDIA_TYPE.fullmatch(essence):
            return None
        types = _types(self._schemas.meant(schema)) if schema is not None else set()
        if _is_json(essence) or (essence.endswith("/*") and types and "string" not in types):
            return JSON
        if essence in ("multipart/form-data", "application/x-www-form-urlencoded"):
            return MULTIPART if essence.startswith("multipart") else FORM
        if types - {"string", "null"} or essence.startswith("multipart/"):
            return None
        return TEXT if essence.startswith("text/") or essence.endswith(_TEXTUAL) else BINARY

    def _written(self, kind: str, name: str, media: Node, body: Node) -> Written:
        required, content_type = body.value.get("required") is True, _content_type(kind, _essence(name))
        if kind in (TEXT, BINARY):
            return Written(kind, content_type, required, described(dict(_BASE64) if kind == BINARY else {"type": "string"}, body))
        node = media.get("schema") or Node({}, media.pointer)
        schema, fields = self._schemas.of(node), self._schemas.fields(node)
        styles = self._styles(media) if kind == FORM else {}
        if fields is None:
            return Written(kind, content_type, required, described(schema, body), styles=styles)
        parts = {name: self._part(name, field, media) for name, field in fields.nodes.items()} if kind == MULTIPART else {}
        each = {name: self._field(field, parts.get(name)) for name, field in fields.nodes.items()}
        if kind == MULTIPART:
            schema = {"type": "object", "properties": each, "required": list(fields.required)}
        spread = each if fields.closed and (required or not fields.required) else None
        return Written(kind, content_type, required, described(schema, body), spread, fields.required, styles, parts)

    def _field(self, node: Node, part: Part | None) -> Any:
        """The schema of one property; bytes are base64 here, in a list too."""
        schema = self._schemas.of(node)
        if part is None or part.kind != BINARY or not isinstance(schema, dict):
            return schema
        said = {name: schema[name] for name in ("title", "description") if name in schema}
        return {**said, "type": "array", "items": dict(_BASE64)} if "array" in _types(self._schemas.meant(node)) else {**said, **_BASE64}

    def _styles(self, media: Node) -> dict[str, Parameter]:
        """How a form's fields are written where `encoding` says so; a style goes before a content type."""
        styles = {}
        for name, encoding in _encodings(media):
            style = encoding.text("style")
            if style is not None and style not in STYLES["query"]:
                raise Unusable(encoding.pointer, f"the style {style!r} can't be sent in a form")
            if style is not None or "explode" in encoding.value:
                explode = encoding.value.get("explode", style in (None, "form"))
                styles[name] = Parameter(name, name, "query", style or "form", explode is True)
            elif _is_json(_essence(encoding.text("contentType") or "")):
                styles[name] = Parameter(name, name, "query", as_json=True)
        return styles

    def _part(self, name: str, node: Node, media: Node) -> Part:
        """OpenAPI's defaults: objects are JSON, what is bytes or says nothing of itself is bytes, the rest is text."""
        schema = self._schemas.meant(node)
        if "array" in _types(schema):
            schema = self._schemas.meant(schema.get("items") or Node({}, schema.pointer))
        value, declared = schema.value if isinstance(schema.value, dict) else {}, _declared(media, name)
        if _is_json(declared) or _types(schema) & {"object", "array"}:
            return Part(JSON, declared or None)
        says_nothing = not self._document.is_30 and not _types(schema) and not value.keys() & _TELLING
        is_raw = says_nothing or value.get("format") == "binary" or ("contentMediaType" in value and "contentEncoding" not in value)
        if is_raw or (declared and not declared.startswith("text/")):
            kind = declared or _essence(schema.text("contentMediaType") or "")
            return Part(BINARY, kind if _MEDIA_TYPE.fullmatch(kind) and "*" not in kind else None)
        return Part(TEXT, declared or None)


def _declared(media: Node, name: str) -> str:
    """The content type that `encoding` gives a field, the first of several; empty if it gives none. Raises Unusable."""
    encoding = media.get("encoding", name)
    declared = _essence((encoding.text("contentType") or "").partition(",")[0]) if encoding is not None else ""
    if encoding is not None and declared and not _MEDIA_TYPE.fullmatch(declared):
        raise Unusable(encoding.pointer, "the contentType of this field is none")
    return declared


def _encodings(media: Node) -> list[tuple[str, Node]]:
    encoding = media.get("encoding")
    return [(name, each) for name, each in encoding.members() if isinstance(each.value, dict)] if encoding is not None else []


def _content_type(kind: str, essence: str) -> str:
    """What is sent for a content type of the document, which may be a range."""
    if "*" in essence:
        return "application/json" if kind == JSON else "application/octet-stream"
    return f"{essence}; charset=utf-8" if kind == TEXT else essence


def _essence(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _is_json(essence: str) -> bool:
    return essence == "application/json" or essence.endswith("+json")


def _types(schema: Node) -> set[str]:
    """Those that a schema names; of one that only has properties, an object."""
    value = schema.value if isinstance(schema.value, dict) else {}
    named = value.get("type", "object" if "properties" in value else [])
    return {named} if isinstance(named, str) else {one for one in named if isinstance(one, str)} if isinstance(named, list) else set()
