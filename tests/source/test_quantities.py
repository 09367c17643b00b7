"""Durations, sizes and money: exact integers, helpful refusals."""

import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.source import DURATION_SCHEMA, SIZE_SCHEMA, USD_SCHEMA, duration_ms, size_bytes, usd_micros


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("250ms", 250),
        ("90s", 90_000),
        ("30m", 1_800_000),
        ("24h", 86_400_000),
        ("7d", 604_800_000),
        ("0s", 0),
        ("36500d", 3_153_600_000_000),
    ],
)
def test_durations_become_milliseconds(text, ms):
    assert duration_ms(text) == ms
    assert re.search(DURATION_SCHEMA["pattern"], text)


@pytest.mark.parametrize(
    "value", ["90", "90 s", "1.5h", "1h30m", "-1s", "s", "", "90S", "9٣s", "90s\n", "36501d", "9" * 16 + "s", 90, 90.0, None, True, ["90s"]]
)
def test_what_is_no_duration_is_refused(value):
    with pytest.raises(ValueError, match=" is "):
        duration_ms(value)


@pytest.mark.parametrize(("value", "size"), [("512B", 512), ("256KiB", 262_144), ("1MiB", 1_048_576), ("2GiB", 2_147_483_648), (0, 0), (4096, 4096)])
def test_sizes_become_bytes(value, size):
    assert size_bytes(value) == size
    assert isinstance(value, int) or re.search(SIZE_SCHEMA["pattern"], value)


@pytest.mark.parametrize("value", ["256KB", "256", "1.5MiB", "-1B", "1mib", "1 MiB", "", -1, 1.0, True, None, {}, 1 << 51, "1048577GiB"])
def test_what_is_no_size_is_refused(value):
    with pytest.raises(ValueError, match=" is "):
        size_bytes(value)


@pytest.mark.parametrize(
    ("value", "micros"),
    [(2.00, 2_000_000), ("2.00", 2_000_000), (50, 50_000_000), (0.05, 50_000), (0.000001, 1), ("0.000001", 1), (0, 0), (1.1, 1_100_000)],
)
def test_dollars_become_micro_dollars_exactly(value, micros):
    assert usd_micros(value) == micros
    assert not isinstance(value, str) or re.search(USD_SCHEMA["pattern"], value)


@pytest.mark.parametrize("value", [0.1 + 0.2, 0.0000001, 1.0000001])
def test_an_amount_below_a_micro_dollar_is_refused_and_never_rounded(value):
    with pytest.raises(ValueError, match="6 decimals"):
        usd_micros(value)


@pytest.mark.parametrize(
    "value", [-1, -0.01, "-1", "0.0000001", "1.0000000", "1e3", "", "2,00", "$2", float("nan"), float("inf"), 1e30, 10**10, True, None, []]
)
def test_what_is_no_amount_of_money_is_refused(value):
    with pytest.raises(ValueError, match=" is "):
        usd_micros(value)


@given(st.integers(0, 10**14))
def test_no_micro_dollar_is_lost_on_the_way_through_text(micros):
    assert usd_micros(f"{Decimal(micros).scaleb(-6):f}") == micros


def test_a_long_value_is_shortened_in_the_message():
    with pytest.raises(ValueError, match="xxx") as caught:
        duration_ms("x" * 5000)
    assert len(str(caught.value)) < 300
