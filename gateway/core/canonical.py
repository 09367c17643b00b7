"""Canonical JSON, and the digests built on it: RFC 8785 (JCS), plus integers of any size written exactly.

One value has one text, whatever its spelling on the wire: members in UTF-16 order, numbers as ECMAScript prints them, so that 1.0 and 1
(and -0 and 0) are the same. RFC 8785 would round 2^53 + 1; two ids must never share a key, so here every integer keeps all its digits.
The C encoder does the work wherever its text can't differ: no float that ECMAScript prints otherwise, no keys that could order otherwise
(UTF-16 and code points part beyond U+D7FF).
"""

from __future__ import annotations

import hashlib
import re
from json.encoder import encode_basestring
from math import isfinite
from typing import Any

import msgspec

_encode = msgspec.json.Encoder(order="deterministic").encode
_SIMPLE = {str, int, bool, type(None)}
_PLAIN = re.compile(r"[A-Za-z0-9_./-]*")  # needs no escape; ids and fingerprints never do
_BEYOND = re.compile("[\ud800-\U0010ffff]")


def canonical(value: Any) -> bytes:
    """The canonical UTF-8 text of a JSON value (None, bool, int, float, str, list, dict with str keys).

    Raises ValueError for NaN, infinities, lone surrogates, integers of over 4,300 digits (Python won't print them) and nesting beyond
    Python's stack; TypeError for what is no JSON.
    """
    try:
        return _encoded(value) or _written(value).encode()
    except RecursionError:
        raise ValueError("nested too deeply for canonical JSON") from None


def digest(value: Any) -> str:
    """Hex SHA-256 of the canonical text; raises like `canonical`."""
    return hashlib.sha256(canonical(value)).hexdigest()


def fingerprint(tool: str, arguments: Any) -> str:
    """What is asked (DESIGN §4): `tool` is `upstream.tool`, `arguments` those dispatched, or the part of them that `key_from` picks."""
    return digest(["tcg1", tool, arguments])


def call_key(run: str, tool: str, fingerprint: str, operation_id: str | None, occurrence: int) -> str:
    """The idempotency key of one occurrence of a call (DESIGN §4); `occurrence` counts from 0."""
    if operation_id is None and _PLAIN.fullmatch(tool):
        text = f'["tcg1","{run}","{tool}","{fingerprint}",null,{occurrence}]'
        return hashlib.sha256(text.encode()).hexdigest()
    return digest(["tcg1", run, tool, fingerprint, operation_id, occurrence])


def number_text(number: float) -> str:
    """A finite float as ECMAScript's Number::toString prints it (RFC 8785 §3.2.2.3); raises ValueError for the others."""
    if not isfinite(number):
        raise ValueError(f"{number!r} is no JSON number")
    mantissa, _, exponent = float.__repr__(number).partition("e")
    mantissa = mantissa.removesuffix(".0")
    if not exponent:
        return "0" if number == 0 else mantissa
    power = int(exponent)
    sign, digits = "-" * (number < 0), mantissa.lstrip("-").replace(".", "")
    if 0 < power < 21:
        return sign + digits.ljust(power + 1, "0")
    if -7 < power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    return f"{mantissa}e{power:+d}"


def _encoded(value: Any) -> bytes | None:
    """The C encoder's text; None where that may not be the canonical one, or the encoder knows no such type (a kind of str)."""
    try:
        text = _encode(value)
    except TypeError:
        return None
    return None if _differs(value, not text.isascii() and _BEYOND.search(text.decode()) is not None) else text


def _differs(value: Any, exotic: bool) -> bool:
    """May the C encoder's text be another than the canonical? `exotic`: the text holds a character beyond U+D7FF, perhaps in a key."""
    if isinstance(value, dict):
        if exotic and not all(map(str.isascii, value)):
            return True
        value = value.values()
    elif not isinstance(value, list | tuple):
        return type(value) not in _SIMPLE and not (type(value) is float and 1e-4 <= abs(value) < 2**53 and value % 1)
    for item in value:  # noqa: SIM110  `any` over a generator takes twice as long
        if type(item) is not str and _differs(item, exotic):
            return True
    return False


def _written(value: Any) -> str:
    if isinstance(value, str):
        return encode_basestring(value)
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise TypeError("an object's keys are text in JSON")
        members = sorted(value.items(), key=lambda member: member[0].encode("utf-16-be"))
        return "{" + ",".join(f"{encode_basestring(name)}:{_written(item)}" for name, item in members) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_written, value)) + "]"
    if isinstance(value, float):
        return number_text(value)
    if value is None or isinstance(value, bool):
        return _encode(value).decode()
    if isinstance(value, int):
        return int.__repr__(value)
    raise TypeError(f"a value of type {type(value).__name__} is no JSON")
