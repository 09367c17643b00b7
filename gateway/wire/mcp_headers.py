"""The HTTP headers in which MCP 2026-07-28 repeats parts of a request's body: what to send, and whether they agree.

`MCP-Protocol-Version`, `Mcp-Method`, `Mcp-Name` (the params' name or uri) and `Mcp-Param-X` for each argument that a
tool's schema marks with `x-mcp-header: X`. The body decides; a header that says otherwise refuses the request.
Header names are lower case here; values outside visible ASCII travel as `=?base64?…?=` over UTF-8.
Source: 2026-07-28, Streamable HTTP, "Request Metadata".
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from gateway.wire.jsonrpc import HEADER_MISMATCH, Id, Request, RpcError

VERSION_HEADER: Final = "mcp-protocol-version"
METHOD_HEADER: Final = "mcp-method"
NAME_HEADER: Final = "mcp-name"
PARAM_PREFIX: Final = "mcp-param-"
ANNOTATION: Final = "x-mcp-header"
NAMED_BY: Final[Mapping[str, str]] = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}

_OPEN, _CLOSE = "=?base64?", "?="
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PLAIN: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_FIELD: Final = re.compile(r"[\t\x20-\x7e]*")
_WHOLE: Final = re.compile(r"(-?[0-9]{1,20})(?:\.0+)?")
_BOOLEANS: Final = {True: "true", False: "false"}
_SAFE_INTEGER: Final = 2**53 - 1
_NO_SCHEMAS: Final = frozenset({"default", "const", "enum", "examples"})

Marked: TypeAlias = Mapping[str, tuple[str, ...]]
"""Lower-case header name -> path of the argument that it repeats."""


class HeaderError(ValueError):
    """A marked schema that the protocol forbids, or a value that no header can carry."""


def check_name(headers: Mapping[str, str], request: Request) -> None:
    """Raises RpcError -32020 unless `Mcp-Method` and, where the method names something, `Mcp-Name` agree."""
    if headers.get(METHOD_HEADER, "").strip(" \t") != request.method:
        raise _mismatch(METHOD_HEADER, "method", request.id)
    member = NAMED_BY.get(request.method)
    if member is not None and _sent(headers, NAME_HEADER, request.id) != request.params.get(member):
        raise _mismatch(NAME_HEADER, f"params.{member}", request.id)


def check_params(headers: Mapping[str, str], marked: Marked, arguments: Mapping[str, Any], id: Id) -> None:
    """Raises RpcError -32020 unless each marked argument's header agrees; an absent or null one has no header."""
    for header, path in marked.items():
        if not _agrees(_sent(headers, header, id), _at(arguments, path)):
            raise _mismatch(header, f"argument {'.'.join(path)}", id)


def mirrored(request: Mapping[str, Any], version: str, marked: Marked) -> dict[str, str]:
    """The headers of an outgoing request. Raises HeaderError for a marked argument that is no string, integer
    within 2^53 or boolean; nothing was sent then."""
    method, params = request["method"], request.get("params", {})
    headers = {VERSION_HEADER: version, METHOD_HEADER: method}
    named = params.get(NAMED_BY.get(method))
    if isinstance(named, str):
        headers[NAME_HEADER] = encoded(named)
    for header, path in marked.items():
        value = _at(params.get("arguments", {}), path)
        if value is not None:
            headers[header] = encoded(_text(value, path))
    return headers


def marked_arguments(schema: Mapping[str, Any]) -> Marked:
    """The marked arguments of a tool's input schema. Raises HeaderError for a mark that is no header name, stands
    twice, on a type other than string, integer and boolean, or off the chain of `properties` from the root: over
    Streamable HTTP a client must then leave the whole tool out."""
    marked: dict[str, tuple[str, ...]] = {}
    for mark, kind, path in _marks(schema, ()):
        if path is None:
            raise HeaderError(f"{ANNOTATION} {mark!r} stands where no argument can be read")
        if not isinstance(mark, str) or not _TOKEN.fullmatch(mark):
            raise HeaderError(f"{ANNOTATION} {mark!r} of {'.'.join(path)} is no header name")
        if kind not in ("string", "integer", "boolean"):
            raise HeaderError(f"{ANNOTATION} of {'.'.join(path)}: its type is {kind!r}, not string, integer or boolean")
        header = PARAM_PREFIX + mark.lower()
        if header in marked:
            raise HeaderError(f"{ANNOTATION} {mark!r} marks both {'.'.join(marked[header])} and {'.'.join(path)}")
        marked[header] = path
    return marked


def encoded(value: str) -> str:
    if _PLAIN.fullmatch(value) and not (value.startswith(_OPEN) and value.endswith(_CLOSE)):
        return value
    return _OPEN + binascii.b2a_base64(value.encode(), newline=False).decode() + _CLOSE


def decoded(value: str) -> str:
    """Raises HeaderError for a payload that is not canonical Base64 of UTF-8, or characters no header may hold."""
    if not (value.startswith(_OPEN) and value.endswith(_CLOSE) and len(value) >= len(_OPEN + _CLOSE)):
        if not _FIELD.fullmatch(value):
            raise HeaderError("characters outside visible ASCII")
        return value
    payload = value[len(_OPEN) : -len(_CLOSE)]
    try:
        raw = binascii.a2b_base64(payload)
        text = raw.decode()
    except ValueError as error:  # binascii.Error and UnicodeDecodeError
        raise HeaderError(f"not Base64 of UTF-8: {error}") from None
    if binascii.b2a_base64(raw, newline=False).decode() != payload:  # a2b_base64 skips what it doesn't know
        raise HeaderError("not canonical Base64")
    return text


def _sent(headers: Mapping[str, str], name: str, id: Id) -> str | None:
    value = headers.get(name)
    try:
        return None if value is None else decoded(value.strip(" \t"))
    except HeaderError as error:
        raise RpcError(HEADER_MISMATCH, f"header {name}: {error}", id) from None


def _agrees(sent: str | None, value: Any) -> bool:
    if value is None:
        return sent is None
    if isinstance(value, str):
        return sent == value
    if isinstance(value, bool):
        return sent == _BOOLEANS[value]
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        whole = _WHOLE.fullmatch(sent or "")
        return whole is not None and int(whole[1]) == value
    return True  # no header can repeat it: the tool's schema will refuse the argument


def _text(value: Any, path: tuple[str, ...]) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return _BOOLEANS[value]
    if isinstance(value, int) and abs(value) <= _SAFE_INTEGER:
        return str(value)
    raise HeaderError(f"argument {'.'.join(path)} can't be sent as a header: {str(value)[:64]}")


def _at(arguments: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if not isinstance(arguments, dict):
            return None
        arguments = arguments.get(name)
    return arguments


def _marks(schema: Any, path: tuple[str, ...] | None) -> Iterator[tuple[Any, Any, tuple[str, ...] | None]]:
    """Each mark with its schema's type and path; the path is None off the chain of `properties`, and at the root."""
    if isinstance(schema, list):
        for part in schema:
            yield from _marks(part, None)
    if not isinstance(schema, dict):
        return
    if ANNOTATION in schema:
        yield schema[ANNOTATION], schema.get("type"), path or None
    for keyword, part in schema.items():
        if keyword == "properties" and isinstance(part, dict):
            for name, inner in part.items():
                yield from _marks(inner, None if path is None else (*path, name))
        elif keyword not in _NO_SCHEMAS:
            yield from _marks(part, None)


def _mismatch(header: str, source: str, id: Id) -> RpcError:
    return RpcError(HEADER_MISMATCH, f"header {header} is missing or does not match the body's {source}", id)
