"""The one JSON reader and writer: strict in, exact out.

Refused: duplicate keys, NaN and Infinity, numbers beyond a double, lone surrogates, nesting past `max_depth`,
invalid UTF-8, a byte order mark, anything after the document. Integers stay exact up to 4,300 digits.

Two readers give one answer. orjson is quick but keeps the last of two equal keys and rounds integers past 64 bits;
yet when writing its value again gives the same tokens, neither can have happened. Every other body (escapes, huge
integers, mistakes) is read by the standard library with a hook for each rule.
"""

from __future__ import annotations

import json
import math
import re
from itertools import accumulate
from typing import Any, Final

import orjson

MAX_DEPTH: Final = 64
MAX_DIGITS: Final = 4300  # CPython's own bound: beyond it, reading an integer takes quadratic time

_SPACES: Final = b" \t\r\n"
_NOT_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_BRACE_OR_STRING: Final = re.compile(r'[{}]|("(?:[^"\\]++|\\.)*+")(?:[ \t\n\r]*+(:))?', re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)


class JsonError(ValueError):
    """A body that is not the JSON we accept. `offset` is in bytes; None where the position is not known."""

    def __init__(self, message: str, offset: int | None = None) -> None:
        super().__init__(message if offset is None else f"{message} at byte {offset}")
        self.message = message
        self.offset = offset


class _DuplicateKey(Exception):
    """Raised inside the decoder, which knows the key but not where it stands."""


def parse(body: bytes, *, max_depth: int = MAX_DEPTH) -> Any:
    """The value of a whole UTF-8 document. Raises JsonError, by the sender's fault."""
    if body.count(b"[") + body.count(b"{") > max_depth and _is_deeper(body, max_depth):
        raise JsonError(f"nested deeper than {max_depth} levels")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _parse_exactly(body)
    # What comes back token for token was read exactly. Spaces tell no tokens of a well-formed body apart, so that they need not agree; not
    # even those in strings: two different strings may look alike without them, but none goes missing.
    written = orjson.dumps(value)
    if written == body or written.translate(None, _SPACES) == body.translate(None, _SPACES):
        return value
    return _parse_exactly(body)


def dumps(value: Any) -> bytes:
    """Compact UTF-8. Integers of any size are written in full; floats read back as they were.

    Raises TypeError for what is no JSON value. A NaN would become null: nothing that `parse` returns holds one.
    """
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        if "64-bit" not in str(error):
            raise
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _is_deeper(body: bytes, limit: int) -> bool:
    """A step in or out for each bracket outside strings; linear, so that no hostile body holds up the loop here."""
    outside_strings = body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]
    steps = b"".join(outside_strings).translate(_STEPS, _NOT_BRACKETS)
    return max(accumulate(memoryview(steps).cast("b")), default=0) > limit


def _parse_exactly(body: bytes) -> Any:
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise JsonError("not UTF-8", error.start) from None
    _refuse_lone_surrogates(text)
    try:
        return _decode(text)
    except json.JSONDecodeError as error:
        raise JsonError(error.msg, _bytes_before(text, error.pos)) from None
    except _DuplicateKey:
        raise _duplicate_key(text) from None


def _refuse_lone_surrogates(text: str) -> None:
    if "\\ud" not in text and "\\uD" not in text:
        return
    for escape in _ESCAPE.finditer(text):
        if escape[1]:
            raise JsonError(f"lone surrogate \\{escape[1]}", _bytes_before(text, escape.start()))


def _duplicate_key(text: str) -> JsonError:
    """The first key of the document that its object already has. Called only when there is one."""
    seen: list[set[str]] = []
    for token in _BRACE_OR_STRING.finditer(text):
        if token[0] == "{":
            seen.append(set())
        elif token[0] == "}":
            seen.pop()
        elif token[2]:
            key = json.loads(token[1])
            if key in seen[-1]:
                return JsonError(f"duplicate key {key[:64]!r}", _bytes_before(text, token.start()))
            seen[-1].add(key)
    raise AssertionError("the decoder met a duplicate key that is not there")


def _bytes_before(text: str, position: int) -> int:
    return len(text[:position].encode())


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _DuplicateKey
    return members


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise JsonError(f"an integer of {len(digits)} characters; at most {MAX_DIGITS} are read")
    return int(digits)


def _float(literal: str) -> float:
    value = float(literal)
    if math.isinf(value):
        raise JsonError(f"number {literal[:32]} does not fit a double")
    return value


def _constant(name: str) -> Any:
    raise JsonError(f"{name} is not JSON")


_decode: Final = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant).decode
