"""What an HTTP tool answered, in the form of an MCP CallToolResult, without loss.

The body is one text block, or a base64 resource where it isn't text; a JSON object is also `structuredContent`. An error is every
status that isn't a success, redirects included: they are not followed.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from email.message import Message
from functools import lru_cache
from typing import Final

from gateway.core.model import Json
from gateway.ports import Answer
from gateway.upstreams.http_faults import retry_after_ms
from gateway.wire.json import JsonError, parse

_TEXTUAL: Final = ("json", "xml", "yaml", "javascript", "x-www-form-urlencoded")
_CHARSETS: Final = frozenset({"utf-8", "utf8", "us-ascii", "iso-8859-1", "windows-1252", "utf-16"})
"""Others may be slow on purpose (idna is quadratic); such a body travels as bytes."""


def answer_of(status: int, headers: Mapping[str, str], body: bytes, tool: str) -> Answer:
    """`headers` find their names in any case. `tool`: the full name, for the URI of a binary body."""
    shown = body and not 300 <= status < 400
    content = [block(headers.get("Content-Type", ""), body, tool)] if shown else _instead(status, headers)
    result = {"content": content, "isError": status >= 300, **structured(body)}
    return Answer(result, status, retry_after_ms(headers) if status >= 400 else None)


def _instead(status: int, headers: Mapping[str, str]) -> list[dict[str, Json]]:
    """What is said of an answer whose body says nothing."""
    if 300 <= status < 400:
        location = headers.get("Location", "nowhere")[:500]
        return [{"type": "text", "text": f"status {status}: a redirect to {location}, which is not followed"}]
    return [] if status < 300 else [{"type": "text", "text": f"status {status}, without a body"}]


def block(kind: str, body: bytes, tool: str) -> dict[str, Json]:
    """A body as content: text where it is declared as such and can be read so; of no kind in particular, where it is UTF-8."""
    charset = _charset(kind)
    if charset is not None:
        try:
            return {"type": "text", "text": body.decode(charset)}
        except UnicodeDecodeError:
            pass
    resource = {"uri": f"tool:{tool}", "mimeType": kind or "application/octet-stream", "blob": base64.b64encode(body).decode()}
    return {"type": "resource", "resource": resource}


@lru_cache(maxsize=64)
def _charset(content_type: str) -> str | None:
    """The charset of a text, UTF-8 if it names none; None for one that isn't read, or for no text. Reading a header takes long."""
    if not content_type:
        return "utf-8"
    header = Message()
    header["Content-Type"] = content_type
    charset = header.get_content_charset("utf-8")
    textual = header.get_content_maintype() == "text" or header.get_content_subtype().endswith(_TEXTUAL)
    return charset if textual and charset in _CHARSETS else None


def structured(body: bytes) -> dict[str, Json]:
    """The member `structuredContent` of a result whose body is a JSON object; else nothing."""
    if not body.lstrip(b" \t\r\n").startswith(b"{"):
        return {}
    try:
        return {"structuredContent": parse(body)}
    except JsonError:
        return {}
