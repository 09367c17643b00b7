"""Places in a JSON text: what a pointer names, found again in the text as it is written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.source import child
from gateway.upstreams.openapi.places import Places

TEXT = '{\n  "a": [1, {"b/c": "x,]}"}],\n  "~": {"": null}, "e": [] , "f":{} }'


@pytest.mark.parametrize(
    ("pointer", "line", "column"),
    [
        ("", 1, 1),
        ("/a", 2, 8),
        ("/a/0", 2, 9),
        ("/a/1", 2, 12),
        ("/a/1/b~1c", 2, 20),
        ("/~0", 3, 8),
        ("/~0/", 3, 13),
        ("/e", 3, 25),
        ("/f", 3, 34),
        ("/a/2", 2, 8),
        ("/a/1/none/of/this", 2, 12),
        ("/e/0", 3, 25),
        ("/none", 1, 1),
    ],
)
def test_a_pointer_leads_to_the_first_character_of_its_value(pointer: str, line: int, column: int) -> None:
    assert str(Places("x.json", TEXT).at(pointer)) == f"x.json:{line}:{column}"


def pointers(value: Any, at: str = "") -> list[tuple[str, Any]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(at, value), *(found for key, part in inside for found in pointers(part, child(at, key)))]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
    ),
    st.sampled_from([None, 0, 3]),
)
def test_whatever_stands_there_is_what_is_read_there(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    places = Places("x", text)
    lines = text.split("\n")
    for pointer, part in pointers(value):
        at = places.at(pointer)
        rest = "\n".join([lines[at.line - 1][at.column - 1 :], *lines[at.line :]])
        assert json.JSONDecoder().raw_decode(rest)[0] == part
