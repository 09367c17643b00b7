"""Canonical JSON: rfc8785 is the oracle for all it accepts; exact integers, refusals and keys have their own tests."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from enum import Enum
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.core.canonical import call_key, canonical, digest, fingerprint, number_text

INTEROPERABLE = st.integers(-(2**53) + 1, 2**53 - 1)
BITS = st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0]).filter(math.isfinite)
DECIMALS = st.builds(lambda digits, power: float(f"{digits}e{power}"), st.integers(-(10**17), 10**17), st.integers(-30, 30))
DOUBLES = st.one_of(BITS, DECIMALS, st.floats(allow_nan=False, allow_infinity=False), INTEROPERABLE.map(float))
# no plain lone surrogates, but all that lies on either side of them
TEXT = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from("\ud7ff\ue000\uffff\U00010000😀\x00\x1f\x7f\"\\/")))
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | INTEROPERABLE | DOUBLES | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=20,
)


@settings(max_examples=500, deadline=None)
@given(st.lists(DOUBLES, min_size=20, max_size=40))
@example([5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, -0.0, 0.0001, 9.999999999999999e-5])
@example([1e21, -1e21, 1e20, 999999999999999900000.0, 1e16, 9999999999999998.0, 123456789012345680.0])
@example([1e-6, 1e-7, 9.999999999999999e-7, 1.5e-6, -1.5e-7])
def test_doubles_are_written_as_ecmascript_writes_them(numbers: list[float]) -> None:
    for number in numbers:
        assert canonical([number]) == rfc8785.dumps([number])
    assert canonical(numbers) == rfc8785.dumps(numbers)


@settings(max_examples=2000, deadline=None)
@given(VALUES)
def test_each_value_has_the_text_of_rfc_8785(value: Any) -> None:
    text = canonical(value)
    assert text == rfc8785.dumps(value)
    assert canonical(json.loads(text)) == text


@pytest.mark.parametrize(("one", "two"), [(1.0, 1), (-0.0, 0), (0.0, 0), (1e20, 10**20), (-5.0, -5), ([100.0], [100])])
def test_numbers_that_ecmascript_prints_alike_are_one(one: Any, two: Any) -> None:
    assert canonical({"n": one}) == canonical({"n": two})


@pytest.mark.parametrize("number", [2**53, 2**53 + 1, -(2**53) - 1, 2**63, 2**64, 2**70 + 1, 10**30])
def test_an_integer_past_2_to_the_53_keeps_all_its_digits(number: int) -> None:
    assert canonical({"id": number, "float": 1.0}) == b'{"float":1,"id":%d}' % number
    assert canonical({"id": number}) == b'{"id":%d}' % number


def test_keys_are_ordered_by_utf_16_units() -> None:
    assert canonical({"\ue000": 1, "😀": 2, "\ud7ff": 3}) == '{"\ud7ff":3,"😀":2,"\ue000":1}'.encode()
    assert canonical([{"a": {"\uffff": 1, "\U00010000": 2}}]) == '[{"a":{"\U00010000":2,"\uffff":1}}]'.encode()


def test_a_tuple_is_an_array() -> None:
    assert canonical((1.0, (2,))) == b"[1,[2]]"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("wrap", [lambda n: n, lambda n: [1.0, n], lambda n: {"a": {"b": n}}])
def test_nan_and_infinity_are_refused(number: float, wrap: Any) -> None:
    with pytest.raises(ValueError, match=r"JSON compliant|JSON number"):
        canonical(wrap(number))
    with pytest.raises(ValueError, match="no JSON number"):
        number_text(number)


@pytest.mark.parametrize("value", ["\ud800", "a\udfff", {"\ud800": 1}, [1.0, "\udc00"], {"\udfff": 1.0, "é": 2}])
def test_a_lone_surrogate_is_refused(value: Any) -> None:
    with pytest.raises(UnicodeEncodeError):
        canonical(value)


def test_nesting_beyond_the_stack_is_refused() -> None:
    deep: Any = 1.0
    for _ in range(50_000):
        deep = [deep]
    with pytest.raises(ValueError, match="nested too deeply"):
        canonical(deep)


class Ours(int):
    pass


class Named(float, Enum):
    HALF = 0.5


def test_kinds_of_numbers_are_numbers() -> None:
    assert canonical([Ours(5), Named.HALF, True, 1.0]) == b"[5,0.5,true,1]"


@pytest.mark.parametrize("value", [b"bytes", {1, 2}, object(), {"a": [b""]}, {1: 2}, {(1,): 1}, {b"a": 1}, [1.0, {None: 1}]])
def test_what_is_no_json_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError):
        canonical(value)


def test_a_digest_is_sha_256_of_the_canonical_text() -> None:
    assert digest({"b": 1.0, "a": "é"}) == hashlib.sha256('{"a":"é","b":1}'.encode()).hexdigest()


def test_a_fingerprint_is_over_its_tag_the_tool_and_the_arguments() -> None:
    wanted = hashlib.sha256(b'["tcg1","billing.refund",{"amount":150}]').hexdigest()
    assert fingerprint("billing.refund", {"amount": 150.0}) == wanted
    assert fingerprint("billing.refund", {"amount": 151}) != wanted
    assert fingerprint("billing.refunds", {"amount": 150}) != wanted


def test_a_key_is_over_run_tool_fingerprint_operation_and_occurrence() -> None:
    wanted = hashlib.sha256(b'["tcg1","run_1","a.b","ff",null,0]').hexdigest()
    assert call_key("run_1", "a.b", "ff", None, 0) == wanted
    others = [("run_2", "a.b", "ff", None, 0), ("run_1", "a.c", "ff", None, 0), ("run_1", "a.b", "fe", None, 0), ("run_1", "a.b", "ff", "op", 0)]
    assert wanted not in {call_key(*parts) for parts in others}
    assert call_key("run_1", "a.b", "ff", None, 1) != wanted
