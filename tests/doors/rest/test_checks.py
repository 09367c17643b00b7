"""Requests against the schemas they are shown with."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.doors.rest.checks import checked, checked_query, mistakes
from gateway.ports import RequestFault

NAME = {"type": "string", "minLength": 1, "maxLength": 5, "pattern": "^[^\\x00-\\x1f]*$"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": NAME,
        "turn": {"type": ["integer", "null"], "minimum": 0, "maximum": 9},
        "wait": {"type": "number", "minimum": 0},
        "form": {"enum": ["a", "b"], "type": "string"},
        "flag": {"type": "boolean"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "list": {"type": "array", "maxItems": 2, "items": NAME},
        "any": {},
    },
    "required": ["name"],
    "additionalProperties": False,
}


def wrong(value: Any, schema: Any = SCHEMA) -> list[str]:
    return list(mistakes(value, schema))


@pytest.mark.parametrize(
    "value",
    [
        {"name": "x"},
        {"name": "x", "turn": None, "wait": 1.5, "form": "b", "flag": True, "labels": {"a": "b"}, "list": ["a", "b"], "any": [{}]},
        {"name": "ärger", "turn": 9, "wait": 0},
    ],
)
def test_what_fits_has_no_mistakes(value: Any) -> None:
    assert wrong(value) == []
    assert checked(value, SCHEMA) is value


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ([], "the body"),
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "too long"}, "name"),
        ({"name": "a\n"}, "name"),
        ({"name": 1}, "name"),
        ({"name": "x", "turn": -1}, "turn"),
        ({"name": "x", "turn": 10}, "turn"),
        ({"name": "x", "turn": True}, "turn"),
        ({"name": "x", "turn": 1.0}, "turn"),
        ({"name": "x", "turn": "1"}, "turn"),
        ({"name": "x", "wait": False}, "wait"),
        ({"name": "x", "form": "c"}, "form"),
        ({"name": "x", "flag": 1}, "flag"),
        ({"name": "x", "labels": {"a": 1}}, "labels.a"),
        ({"name": "x", "list": ["a", ""]}, "list[1]"),
        ({"name": "x", "list": ["a", "b", "c"]}, "list"),
        ({"name": "x", "nmae": "y"}, "nmae"),
    ],
)
def test_a_mistake_names_its_field(value: Any, named: str) -> None:
    assert len(wrong(value)) == 1
    assert wrong(value)[0].startswith(f"{named} ")
    with pytest.raises(RequestFault) as caught:
        checked(value, SCHEMA)
    assert caught.value.reason == "request.malformed"


def test_all_mistakes_are_told_at_once() -> None:
    assert len(wrong({"turn": -1, "oops": 1, "form": "c"})) == 4


def test_a_foreign_name_is_told_escaped_and_short() -> None:
    told = wrong({"name": "x", "\x1b[2J" + "y" * 500: 1})[0]
    assert "\x1b" not in told
    assert len(told) < 300


def test_a_union_is_judged_by_the_branch_that_names_the_type() -> None:
    union = {"oneOf": [SCHEMA, {"type": "object", "properties": {"type": {"enum": ["tool_use"]}, "id": NAME}}]}
    assert wrong({"type": "tool_use", "id": "x", "more": 1}, union) == []
    assert wrong({"type": "tool_use", "id": ""}, union) != []
    assert wrong({"type": "other", "name": "x"}, union) != []
    assert wrong({"name": "x"}, union) == []
    assert wrong({"type": ["tool_use"], "name": "x"}, union) != []
    assert wrong(7, union) != []


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 12) | st.floats(-1, 2).filter(lambda x: x != int(x)) | st.text("ab\x00", max_size=7),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*SCHEMA["properties"], "odd"]), inner, max_size=4),
    max_leaves=6,
)


@given(VALUES)
def test_the_verdict_is_json_schemas(value: Any) -> None:
    valid = jsonschema.Draft202012Validator(SCHEMA).is_valid(value)
    assert (not wrong(value)) == valid


# ---- queries ------------------------------------------------------------------------------------------------------------

QUERY = {"limit": {"type": "integer", "minimum": 1, "maximum": 500}, "wait": {"type": "number", "minimum": 0}, "before": NAME}


def test_a_querys_numbers_are_numbers_and_its_texts_texts() -> None:
    assert checked_query(b"limit=20&wait=1.5&before=12", QUERY) == {"limit": 20, "wait": 1.5, "before": "12"}
    assert checked_query(b"wait=30", QUERY) == {"wait": 30}
    assert checked_query(b"before=%C3%A4", QUERY) == {"before": "ä"}


@pytest.mark.parametrize(
    "query",
    [b"limit=0", b"limit=x", b"limit=1.5", b"limit=", b"wait=nan", b"wait=-1", b"wait=1e9", b"wait=inf", b"other=1", b"limit=1&limit=2", b"\xff=1"],
)
def test_a_query_that_does_not_fit_is_refused(query: bytes) -> None:
    with pytest.raises(RequestFault) as caught:
        checked_query(query, QUERY)
    assert caught.value.reason == "request.malformed"
