"""Durations, sizes and money: exact integers, and a refusal of everything that isn't plainly one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from gateway.core.units import DURATION, SIZE, SPAN, duration_ms, size_bytes, usd_micros


@pytest.mark.parametrize(("text", "ms"), [("0s", 0), ("250ms", 250), ("90s", 90_000), ("30m", 1_800_000), ("24h", 86_400_000), ("7d", 604_800_000)])
def test_a_duration_is_a_whole_number_and_a_unit(text: str, ms: int) -> None:
    assert duration_ms(text) == ms
    assert re.search(DURATION["pattern"], text)
    assert bool(re.search(SPAN["pattern"], text)) is (ms > 0)


@pytest.mark.parametrize(
    ("value", "size"),
    [("0B", 0), ("512B", 512), ("1kB", 1000), ("256KiB", 262_144), ("1MiB", 1_048_576), ("2MB", 2_000_000), ("1GiB", 1 << 30), (5, 5)],
)
def test_a_size_is_bytes_or_a_whole_number_and_a_unit(value: Any, size: int) -> None:
    assert size_bytes(value) == size
    assert isinstance(value, int) or re.search(str(SIZE["pattern"]), value)


@pytest.mark.parametrize(("value", "micros"), [(2, 2_000_000), (2.00, 2_000_000), (0.05, 50_000), ("0.000001", 1), (0.1, 100_000), (0, 0)])
def test_money_is_counted_in_millionths_exactly(value: Any, micros: int) -> None:
    assert usd_micros(value) == micros


@pytest.mark.parametrize(
    ("convert", "value"),
    [
        *((duration_ms, value) for value in ("", "s", "1", "01s", "1.5s", "-1s", "1 s", "1s\n", "1S", "1w", "१s", "1१s", 90, None, True)),
        *((size_bytes, value) for value in ("", "B", "1", "01B", "1.5KiB", "-1B", "1KB", "1B\n", -1, 1.5, True, None)),
        *((usd_micros, value) for value in ("", "x", "nan", "inf", -1, 0.0000001, 10**10, True, None, [], "1,5", "1e999999999")),
    ],
)
def test_everything_else_is_refused_in_words_that_name_it(convert: Callable[[Any], int], value: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(value))):
        convert(value)
