"""Durations, sizes and money as people write them in YAML: exact integers out, never a float.

Every converter takes the plain value from the file and raises ValueError with a sentence that says what was wanted. The
`*_SCHEMA` beside each is what a document schema says about the same value.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_DURATION = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)")
_SIZE = re.compile(r"([0-9]{1,15})(B|KiB|MiB|GiB)")
_USD = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")

MAX_MS = 36_500 * _MS["d"]
MAX_BYTES = 1 << 50
MAX_USD = 10**9

DURATION_SCHEMA = {
    "type": "string",
    "pattern": f"^{_DURATION.pattern}$",
    "description": "a duration: a whole number and ms, s, m, h or d, such as 250ms, 90s, 30m, 24h, 7d",
}
SIZE_SCHEMA = {
    "type": ["string", "integer"],
    "pattern": f"^{_SIZE.pattern}$",
    "minimum": 0,
    "description": "a size: a whole number of bytes, or one with B, KiB, MiB or GiB, such as 256KiB",
}
USD_SCHEMA = {
    "type": ["number", "string"],
    "pattern": rf"^{_USD.pattern}$",
    "minimum": 0,
    "description": "dollars with at most 6 decimals, such as 2.00",
}


def duration_ms(value: Any) -> int:
    """`"90s"` -> 90000. Units ms, s, m, h, d; whole numbers; at most 100 years."""
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{_shown(value)} is not {DURATION_SCHEMA['description']}")
    ms = int(found[1]) * _MS[found[2]]
    if ms > MAX_MS:
        raise ValueError(f"{_shown(value)} is longer than 36500d, the longest duration")
    return ms


def size_bytes(value: Any) -> int:
    """`"256KiB"` -> 262144; a bare integer is bytes. Units B, KiB, MiB, GiB (powers of 1024); at most 1 PiB."""
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is not None:
        size = int(found[1]) * _BYTES[found[2]]
    elif isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        size = value
    else:
        raise ValueError(f"{_shown(value)} is not {SIZE_SCHEMA['description']}")
    if size > MAX_BYTES:
        raise ValueError(f"{_shown(value)} is more than 1 PiB, the largest size")
    return size


def usd_micros(value: Any) -> int:
    """`2.00`, `2` or `"2.00"` dollars -> 2000000 micro-dollars, exactly; floats by their shortest decimal form."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{_shown(value)} is not {USD_SCHEMA['description']}")
    if isinstance(value, str) and not _USD.fullmatch(value):
        raise ValueError(f"{_shown(value)} is not {USD_SCHEMA['description']}")
    dollars = Decimal(value) if isinstance(value, int) else Decimal(str(value))
    if not dollars.is_finite() or dollars < 0 or dollars > MAX_USD:
        raise ValueError(f"{_shown(value)} is not between 0 and {MAX_USD} dollars")
    micros = dollars.scaleb(6)
    if micros != micros.to_integral_value():
        raise ValueError(f"{_shown(value)} has more than 6 decimals; the smallest amount is 0.000001 dollars")
    return int(micros)


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"
    return text if len(text) <= 40 else f"{text[:37]}..."
