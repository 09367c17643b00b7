"""The JSON reader holds each refusal with its place, and its two readers can't be told apart."""

from __future__ import annotations

import json as stdlib
import math
import random
import time
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.wire import json
from gateway.wire.json import JsonError, dumps, parse

CALL = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hi","amount":12.5,"tags":["a","b"]},'
    b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":1}}}'
)


def refusal(body: bytes, **more: Any) -> JsonError:
    with pytest.raises(JsonError) as caught:
        parse(body, **more)
    return caught.value


def strictly(body: bytes) -> Any:
    """The rules said once more, slowly and by other means: the oracle."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        assert len(set(keys)) == len(keys)
        return dict(pairs)

    def constant(name: str) -> Any:
        raise AssertionError(name)

    def check(value: Any, depth: int) -> None:
        inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
        assert depth <= 64 or not isinstance(value, (dict, list))
        assert not isinstance(value, float) or math.isfinite(value)
        for text in [value, *value] if isinstance(value, (dict, list)) else [value]:
            assert not isinstance(text, str) or not any("\ud800" <= char <= "\udfff" for char in text)
        for part in inner:
            check(part, depth + 1)

    value = stdlib.loads(body.decode("utf-8"), object_pairs_hook=members, parse_constant=constant)
    check(value, 1)
    return value


def outcome(read: Any, body: bytes) -> str:
    try:
        return repr(read(body))
    except (ValueError, AssertionError, RecursionError):
        return "refused"


# -- what is read ---------------------------------------------------------------------------------------------------------


def test_a_document_reads_the_same_compact_spaced_and_escaped() -> None:
    value = parse(CALL)
    assert value["params"]["arguments"] == {"text": "hi", "amount": 12.5, "tags": ["a", "b"]}
    assert parse(stdlib.dumps(value).encode()) == value
    assert parse(b" " + CALL + b"\r\n\t") == value
    assert parse(CALL.replace(b"echo", b"\\u0065cho")) == value


def test_spaces_between_tokens_say_nothing_and_those_in_strings_stay() -> None:
    assert parse(b'{ "a b" : "c  d",\r\n\t"ab" : [1 , 2] }\n') == {"a b": "c  d", "ab": [1, 2]}
    assert refusal(b'{ "a" : 1 , "a" : 1 }').message == "duplicate key 'a'"
    assert parse(b"[ 18446744073709551616 , 1 ]") == [2**64, 1]


@pytest.mark.parametrize("digits", [2**53 + 1, 2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**4299, -(10**4299) + 1])
def test_an_integer_of_any_size_is_exact(digits: int) -> None:
    body = b'{"id":%d}' % digits if abs(digits) < 10**100 else b'{"id":' + str(digits).encode() + b"}"
    read = parse(body)["id"]
    assert type(read) is int
    assert read == digits
    assert dumps({"id": digits}) == body


def test_minus_zero_and_exponents_keep_their_kind() -> None:
    assert [repr(parse(text)) for text in (b"-0", b"-0.0", b"1E2", b"1.0", b"5e-324")] == ["0", "-0.0", "100.0", "1.0", "5e-324"]


def test_64_levels_are_read_in_each_mix() -> None:
    assert parse(b"[" * 64 + b"]" * 64) is not None
    assert parse(b'{"a":[' * 32 + b"]}" * 32) is not None
    assert parse(b"[" + b",".join([b'{"a":[]}'] * 500) + b"]") is not None


def test_brackets_inside_strings_are_no_levels() -> None:
    assert parse(b'["' + b"[{" * 200 + b'\\"[["]') == ["[{" * 200 + '"[[']


def test_a_surrogate_pair_and_an_escaped_backslash_before_u_are_read() -> None:
    assert parse(b'"\\ud83d\\ude00"') == "\U0001f600"
    assert parse(b'"\\\\ud800"') == "\\ud800"


# -- what is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "offset"),
    [
        (b'{"a":1,"a":1}', 7),
        (b'{"a":1, "\\u0061":2}', 8),
        (b'{"x":{"k":[{"b":1,"\xc3\xa9":2,"\xc3\xa9":3}]}}', 25),
        (b'{"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}],"a":0}', 41),
        (b'{"__proto__":1,"c":"}","__proto__":2}', 23),
        (b'{"a":{"b":1},"b":2,"c":1,"c":2}', 25),
        (b'{"a":"x","b":"x","c":1,"c":2}', 23),
    ],
)
def test_a_duplicate_key_is_refused_with_its_position(body: bytes, offset: int) -> None:
    assert refusal(body).offset == offset


def test_the_same_key_in_different_objects_is_fine() -> None:
    assert parse(b'{"a": {"a": 1}, "b": [{"a": 1}, {"a": 1}]}')["b"] == [{"a": 1}, {"a": 1}]


@pytest.mark.parametrize(
    ("body", "offset"),
    [
        (b'["\\ud800"]', 2),
        (b'{"\\uDC00":1}', 2),
        (b'"\\ud800\\ud800"', 1),
        (b'"\\ud83d\\ude00\\ude00"', 13),
        (b'"\xc3\xa9\\ud800x"', 3),
    ],
)
def test_a_lone_surrogate_is_refused_in_values_and_keys(body: bytes, offset: int) -> None:
    assert refusal(body).offset == offset


@pytest.mark.parametrize("body", [b"NaN", b"[Infinity]", b'{"a":-Infinity}', b"1e400", b"-1e400", b'{"a": 1e400}'])
def test_what_no_finite_double_holds_is_refused(body: bytes) -> None:
    refusal(body)


@pytest.mark.parametrize("body", [b"1" * 4301, b'{"a": -' + b"9" * 5000 + b"}", b"[" + b"1" * 100_000 + b"]"])
def test_an_absurd_integer_is_refused_cleanly(body: bytes) -> None:
    refusal(body)


@pytest.mark.parametrize(
    "body",
    [b"[" * 65 + b"]" * 65, b'{"a":' * 65 + b"1" + b"}" * 65, b"[" * 100_000, b"[" * 3000 + b"}" * 3000, b'{"a":[' * 2000],
    ids=["65 arrays", "65 objects", "unclosed", "crossed", "mixed"],
)
def test_nesting_past_64_is_refused(body: bytes) -> None:
    refusal(body)


def test_the_depth_bound_is_the_callers() -> None:
    assert parse(b"[[1]]", max_depth=2) == [[1]]
    with pytest.raises(JsonError):
        parse(b"[[[1]]]", max_depth=2)


@pytest.mark.parametrize(
    ("body", "offset"),
    [
        (b'"\xff"', 1),
        (b'{"a":"\xed\xa0\x80"}', 6),
        (b"\xef\xbb\xbf{}", 0),
        (b"{} x", 3),
        (b'{"a":1}{"a":2}', 7),
        (b"", 0),
        (b'{"a":1', 6),
        (b"[1,]", 3),
        (b"'a'", 0),
        (b'"\t"', 1),
        (b"\x0c1", 0),
        (b"{}\x00", 2),
        ('"é" é'.encode(), 5),
        ("{}".encode("utf-16"), 0),
    ],
)
def test_text_that_is_no_single_utf8_document_is_refused_with_its_place(body: bytes, offset: int) -> None:
    assert refusal(body).offset == offset


@pytest.mark.parametrize(
    "body", [b"01", b"1.", b".5", b"+1", b"1e", b"0x10", b"1_000", "١".encode(), b"nan", b"True", b"[1 2]", b'{"a" 1}', b"{1:2}"]
)
def test_what_python_would_take_for_a_value_is_refused(body: bytes) -> None:
    refusal(body)


# -- both readers agree ---------------------------------------------------------------------------------------------------

SPACES = st.sampled_from(["", "", "", " ", "\n", "\t ", "\r\n"])
NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["-0", "-0.0", "0", "1E5", "1e400", "1e-400", "0.1e1", "18446744073709551616", "NaN", "-Infinity", "01", "1.", "-"]),
)
ATOMS = st.sampled_from(["true", "false", "null", "nul", "{}", "[]"])
PIECES = st.sampled_from(
    [
        "a",
        "b",
        ":",
        '": ',
        "{",
        "]",
        "\\\\",
        '\\"',
        "\\u0061",
        "\\ud83d\\ude00",
        "\\ud800",
        "\\uDC00",
        "é",
        "\U0001f600",
        "\\/",
        "\x7f",
        "\n",
    ]
)
STRINGS = st.lists(PIECES, max_size=4).map(lambda pieces: '"' + "".join(pieces).replace('": ', '\\": ') + '"')


def _array(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(lambda gap, items: "[" + gap + (gap + ",").join(items) + "]", SPACES, st.lists(parts, max_size=4))


def _object(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    keys = st.one_of(st.sampled_from(['"a"', '"b"', '"\\u0061"', '"c"', '"d"']), STRINGS)
    members = st.lists(st.builds(lambda key, gap, value: key + gap + ":" + gap + value, keys, SPACES, parts), max_size=4)
    return st.builds(lambda gap, items: "{" + gap + ("," + gap).join(items) + gap + "}", SPACES, members)


TEXTS = st.recursive(st.one_of(NUMBERS, ATOMS, STRINGS), lambda parts: st.one_of(_array(parts), _object(parts)), max_leaves=12)


@settings(max_examples=1500, deadline=None)
@given(TEXTS)
@example('{"a":"\\u003a","a":":"}')
@example('{"a":1e20,"b":100000000000000000000}')
def test_it_reads_what_the_rules_say_and_nothing_else(text: str) -> None:
    body = text.encode()
    assert outcome(parse, body) == outcome(strictly, body)


@settings(max_examples=500, deadline=None)
@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
        lambda v: st.one_of(st.lists(v, max_size=4), st.dictionaries(st.text(), v, max_size=4)),
        max_leaves=20,
    )
)
def test_what_is_written_reads_back_the_same(value: Any) -> None:
    assert repr(parse(dumps(value))) == repr(value)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_mutated_bodies_get_the_same_answer_from_both(seed: int) -> None:
    rng = random.Random(seed)
    sources = [CALL, stdlib.dumps(stdlib.loads(CALL)).encode(), b'{"a":[1.5,"\\ud83d\\ude00",{"b":null}],"c":-12}']
    for _ in range(50):
        body = bytearray(rng.choice(sources))
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(len(body))
            piece = rng.choice([b'"', b"{", b"}", b"[", b"]", b":", b",", b"\\", b"0", b"e9", b" ", b"\xff", b'"a":1,', b"\\ud800"])
            body[place : place + rng.choice([0, 1, 3])] = piece
        assert outcome(parse, bytes(body)) == outcome(strictly, bytes(body))


def test_a_short_way_never_answers_what_the_long_one_refuses() -> None:
    for body in (b'{"a":1,"a":2}', b"18446744073709551616", b"[1e30,2]"):
        assert outcome(parse, body) == outcome(json._parse_exactly, body)


# -- hostile size ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [b'"' + b'\\"' * 500_000, b"[" * 100 + b'"' + b'\\"' * 500_000, (b"[" * 64 + b"]" * 64 + b",") * 8000, b'{"a":' * 200_000],
    ids=["escapes", "nested escapes", "many deep arrays", "deep"],
)
def test_a_hostile_megabyte_is_answered_soon(body: bytes) -> None:
    refusal(body)  # quadratic work here would run for minutes


def test_how_deep_a_body_is_takes_time_by_its_length_and_not_by_its_depth() -> None:
    began = time.process_time()
    assert "nested" in refusal(b"[" * 2_000_000 + b"]" * 2_000_000, max_depth=128).message
    assert time.process_time() - began < 0.8  # a pass over it for each level took twice that


# -- writing --------------------------------------------------------------------------------------------------------------


def test_it_writes_compact_utf8() -> None:
    assert dumps({"a": [1, 1.5, "é", None, True], "b": {}}) == '{"a":[1,1.5,"é",null,true],"b":{}}'.encode()


def test_a_huge_integer_does_not_change_how_the_rest_is_written() -> None:
    value = {"id": 2**70, "text": "é\n", "x": 0.1, "list": [1, 2]}
    assert dumps(value) == '{"id":1180591620717411303424,"text":"é\\n","x":0.1,"list":[1,2]}'.encode()


@pytest.mark.parametrize("value", [{1: 2}, {"a": b"x"}, "\ud800", {"a": {1, 2}}])
def test_what_is_no_json_is_not_written(value: Any) -> None:
    with pytest.raises(TypeError):
        dumps(value)


def test_a_nan_beside_a_huge_integer_is_not_written() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        dumps([2**70, math.nan])


def test_the_encoder_still_names_integers_past_64_bits() -> None:
    with pytest.raises(orjson.JSONEncodeError, match="64-bit"):
        orjson.dumps(2**64)
