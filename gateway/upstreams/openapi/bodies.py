"""Bodies of requests: JSON, forms, multipart forms, text, and bytes that an argument holds as base64.

A form's fields are written as their `encoding` says, else as OpenAPI's defaults do. The boundary of a multipart body is random, so that no
argument can hold it. Source: OpenAPI 3.1.1 §4.8.14, §4.8.15 (Media Type, Encoding Object); RFC 7578 (multipart/form-data).
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.core.model import Json
from gateway.upstreams.openapi.parameters import Parameter
from gateway.upstreams.sending import unsendable
from gateway.wire.json import dumps

JSON: Final = "json"
FORM: Final = "form"
MULTIPART: Final = "multipart"
TEXT: Final = "text"
BINARY: Final = "binary"


@dataclass(frozen=True, slots=True)
class Part:
    """How one field of a multipart body is written. `content_type`: as the document says, None for the default of its kind."""

    kind: str
    content_type: str | None = None


@dataclass(frozen=True, slots=True)
class Body:
    """What an operation takes. `argument`: the one that is the body; None if `fields` are arguments of their own.

    `styles` and `parts`: how the fields of a form and of a multipart form are written; one that isn't there has the defaults.
    """

    kind: str
    content_type: str
    argument: str | None
    required: bool = False
    fields: tuple[str, ...] = ()
    styles: Mapping[str, Parameter] = field(default_factory=dict)
    parts: Mapping[str, Part] = field(default_factory=dict)

    def written(self, arguments: Mapping[str, Json]) -> tuple[bytes, dict[str, str]]:
        """The body and the header that says what it is; nothing where there is none. Raises UpstreamFault `unsendable`."""
        if self.argument is not None:
            if self.argument not in arguments:
                return b"", {}
            value = arguments[self.argument]
        else:
            value = {name: arguments[name] for name in self.fields if name in arguments}
            if not value and not self.required:
                return b"", {}
        if self.kind == MULTIPART:
            boundary = secrets.token_hex(16)
            return self._multipart(value, boundary), {"content-type": f"{self.content_type}; boundary={boundary}"}
        return self._bytes(value), {"content-type": self.content_type}

    def _bytes(self, value: Json) -> bytes:
        if self.kind == JSON:
            return dumps(value)
        if self.kind == FORM:
            return "&".join(f"{name}={text}" for name, text in self._form(value)).encode("ascii")
        return _text(value, "body") if self.kind == TEXT else _decoded(value, self.argument or "body")

    def _form(self, value: Json) -> Iterator[tuple[str, str]]:
        for name, part in _object(value).items():
            yield from self.styles.get(name, Parameter(name, name, "query", as_json=_is_deep(part))).in_query(part)

    def _multipart(self, value: Json, boundary: str) -> bytes:
        written = b""
        for name, given in _object(value).items():
            part = self.parts.get(name)
            for item in given if isinstance(given, list) and (part is None or part.kind != JSON) else [given]:
                written += f"--{boundary}\r\n".encode() + _field(name, item, part or Part(_kind(item))) + b"\r\n"
        return written + f"--{boundary}--\r\n".encode()


def _field(name: str, value: Json, part: Part) -> bytes:
    """A part's head and content. In the name, what could end the head is written as browsers do."""
    shown = name.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22")
    filename = f'; filename="{shown}"' if part.kind == BINARY else ""
    content_type = part.content_type or {JSON: "application/json", TEXT: "text/plain; charset=utf-8"}.get(part.kind, "application/octet-stream")
    content = dumps(value) if part.kind == JSON else _decoded(value, name) if part.kind == BINARY else _text(value, name)
    return f'Content-Disposition: form-data; name="{shown}"{filename}\r\nContent-Type: {content_type}\r\n\r\n'.encode() + content


def _kind(value: Json) -> str:
    return JSON if isinstance(value, dict | list) else TEXT


def _is_deep(value: Json) -> bool:
    """Would the default style have no way to write it?"""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, dict) or any(isinstance(part, dict | list) for part in parts)


def _object(value: Json) -> Mapping[str, Json]:
    if not isinstance(value, dict):
        raise unsendable("the body is wanted as an object, since it is sent as a form")
    return value


def _text(value: Json, name: str) -> bytes:
    if value is None or isinstance(value, dict | list):
        raise unsendable(f"argument {name!r} is wanted as a string, number or boolean")
    return value.encode() if isinstance(value, str) else dumps(value)


def _decoded(value: Json, name: str) -> bytes:
    try:
        return base64.b64decode(value if isinstance(value, str) else "?", validate=True)
    except (binascii.Error, ValueError):
        raise unsendable(f"argument {name!r} is wanted as base64") from None
