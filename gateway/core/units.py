"""How people write durations, sizes and money in YAML, and the integers they become. Raise ValueError that says what was wanted."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any

_DURATION_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 1_000, "MB": 1_000_000}

DURATION_PATTERN = r"^(0|[1-9]\d{0,9})(ms|s|m|h|d)$"
SIZE_PATTERN = r"^(0|[1-9]\d{0,9})(B|KiB|MiB|GiB|kB|MB)$"

DURATION = {"type": "string", "pattern": DURATION_PATTERN, "description": "a duration: a whole number and ms, s, m, h or d, such as 90s"}
SPAN = {"type": "string", "pattern": r"^[1-9]\d{0,9}(ms|s|m|h|d)$", "description": "a duration above 0, such as 250ms, 90s, 30m, 24h or 7d"}
SIZE = {"type": ["string", "integer"], "pattern": SIZE_PATTERN, "minimum": 1, "description": "a size: whole bytes, or with a unit such as 256KiB"}
USD = {"type": "number", "minimum": 0, "description": "dollars with at most 6 decimals, such as 2.00"}
"""What a document schema says about such values."""


def duration_ms(text: Any) -> int:
    """`250ms 90s 30m 24h 7d` -> milliseconds."""
    found = re.fullmatch(DURATION_PATTERN, text, re.ASCII) if isinstance(text, str) else None
    if found is None:
        raise ValueError(f"{text!r} is no duration; write a whole number and a unit, like 250ms, 90s, 30m, 24h or 7d")
    return int(found[1]) * _DURATION_MS[found[2]]


def size_bytes(value: Any) -> int:
    """`256KiB`, `1MiB`, `512B` or a plain integer -> bytes."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    found = re.fullmatch(SIZE_PATTERN, value, re.ASCII) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{value!r} is no size; write whole bytes, or a number and a unit, like 512B, 256KiB or 1MiB")
    return int(found[1]) * _SIZE[found[2]]


def usd_micros(value: Any) -> int:
    """`2.00`, `0.05` or "0.05" -> millionths of a dollar, exactly."""
    try:
        amount = Decimal(str(value)) if not isinstance(value, bool) else Decimal("nan")
        micros = amount * 1_000_000
        if micros != micros.to_integral_value() or not 0 <= micros < 10**15:
            raise InvalidOperation
    except ArithmeticError:
        raise ValueError(f"{value!r} is no amount in dollars; write a number from 0 with at most 6 decimals, like 2.00") from None
    return int(micros)
