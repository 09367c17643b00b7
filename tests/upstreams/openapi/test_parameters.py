"""Every style of a parameter by the tables of the specification, and what none of them can carry."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.ports import UpstreamFault
from gateway.upstreams.openapi.parameters import Parameter

COLORS, POINT = ["blue", "black"], {"R": 100, "G": 200}


def query(value: Any, style: str = "form", explode: bool = True, name: str = "color", **more: Any) -> str:
    return "&".join(f"{key}={text}" for key, text in Parameter(name, "color", "query", style, explode, **more).in_query(value))


def path(value: Any, explode: bool = False) -> str:
    return Parameter("color", "color", "path", "simple", explode).in_path(value)


def refused(act: Any) -> bool:
    with pytest.raises(UpstreamFault) as caught:
        act()
    return caught.value.kind == "unsendable"


@pytest.mark.parametrize(
    ("style", "explode", "value", "expected"),
    [
        ("form", True, "blue", "color=blue"),
        ("form", True, "", "color="),
        ("form", True, COLORS, "color=blue&color=black"),
        ("form", True, POINT, "R=100&G=200"),
        ("form", False, COLORS, "color=blue,black"),
        ("form", False, POINT, "color=R,100,G,200"),
        ("spaceDelimited", False, COLORS, "color=blue%20black"),
        ("spaceDelimited", False, POINT, "color=R%20100%20G%20200"),
        ("spaceDelimited", True, COLORS, "color=blue&color=black"),
        ("pipeDelimited", False, COLORS, "color=blue%7Cblack"),
        ("pipeDelimited", False, POINT, "color=R%7C100%7CG%7C200"),
        ("deepObject", True, POINT, "color%5BR%5D=100&color%5BG%5D=200"),
        ("deepObject", True, {"a": {"b": 1}}, "color%5Ba%5D%5Bb%5D=1"),
        ("form", True, None, ""),
        ("form", True, [], ""),
        ("form", False, [], ""),
        ("form", True, True, "color=true"),
        ("form", True, 2**70, f"color={2**70}"),
        ("form", True, 0.5, "color=0.5"),
        ("form", True, "a b&c=d#ü", "color=a%20b%26c%3Dd%23%C3%BC"),
        ("form", True, "a,b", "color=a%2Cb"),
    ],
)
def test_a_query_is_written_in_the_style_that_is_said(style: str, explode: bool, value: Any, expected: str) -> None:
    assert query(value, style, explode) == expected


def test_a_parameter_with_content_is_one_json_text() -> None:
    assert parse_qsl(query({"lat": 1.5, "a": [None]}, as_json=True)) == [("color", '{"lat":1.5,"a":[null]}')]


@pytest.mark.parametrize(
    ("explode", "value", "expected"),
    [
        (False, "blue", "blue"),
        (False, COLORS, "blue,black"),
        (False, POINT, "R,100,G,200"),
        (True, COLORS, "blue,black"),
        (True, POINT, "R=100,G=200"),
        (False, "a/b c", "a%2Fb%20c"),
    ],
)
def test_a_path_is_written_in_the_style_simple(explode: bool, value: Any, expected: str) -> None:
    assert path(value, explode) == expected


def test_headers_and_cookies_are_written() -> None:
    header, cookie = Parameter("X-A", "a", "header", "simple", False), Parameter("a;b", "a", "cookie", "form", False)
    assert (header.in_header(COLORS), header.in_header("a b"), header.in_header(5)) == ("blue,black", "a b", "5")
    assert (cookie.in_cookie("x; y=z\r\n"), cookie.in_cookie(COLORS)) == ("a%3Bb=x%3B%20y%3Dz%0D%0A", "a%3Bb=blue,black")


@pytest.mark.parametrize("value", [[["a"]], [{}], [None], {"a": None}, {"a": []}])
@pytest.mark.parametrize(("style", "explode"), [("form", True), ("form", False), ("pipeDelimited", False), ("deepObject", True)])
def test_what_no_style_defines_is_refused(value: Any, style: str, explode: bool) -> None:
    assert refused(lambda: query(value, style, explode))


@pytest.mark.parametrize(
    ("style", "value"),
    [("form", ["a,b"]), ("spaceDelimited", ["a b"]), ("pipeDelimited", ["a|b"]), ("form", {"a,b": 1}), ("form", {"a": "b,c"})],
)
def test_an_item_that_holds_the_delimiter_would_be_read_as_two_and_is_refused(style: str, value: Any) -> None:
    assert refused(lambda: query(value, style, explode=False))


@pytest.mark.parametrize(
    "act",
    [
        lambda: path(["a,b"]),
        lambda: path({"a=b": 1}, explode=True),
        lambda: path({"a": "b=c"}, explode=True),
        lambda: path(None),
        lambda: path(".."),
        lambda: path("../x"),
        lambda: path("a\r\nb"),
        lambda: path(["..", "/"]),
        lambda: Parameter("X", "x", "header", "simple", False).in_header("a\r\nb: c"),
        lambda: Parameter("X", "x", "header", "simple", False).in_header("ü"),
        lambda: Parameter("X", "x", "header", "simple", False).in_header(["a,b"]),
        lambda: Parameter("x", "x", "cookie").in_cookie(["a"]),
        lambda: query([1], "deepObject"),
    ],
)
def test_what_could_leave_its_place_is_refused(act: Any) -> None:
    assert refused(act)


TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8)


@given(st.lists(TEXT, min_size=1, max_size=4), st.sampled_from(["form", "spaceDelimited", "pipeDelimited"]), st.booleans())
def test_a_list_comes_back_as_it_was_or_is_refused(value: list[str], style: str, explode: bool) -> None:
    try:
        text = query(value, style, explode)
    except UpstreamFault:
        return
    pairs = parse_qsl(text, keep_blank_values=True)
    delimiter = {"form": ",", "spaceDelimited": " ", "pipeDelimited": "|"}[style]
    assert [item for name, each in pairs for item in ([each] if explode else each.split(delimiter))] == value
    assert {name for name, _ in pairs} == {"color"}


@given(st.dictionaries(TEXT, TEXT, min_size=1, max_size=3))
def test_the_members_of_a_deep_object_keep_their_names(value: dict[str, str]) -> None:
    assert parse_qsl(query(value, "deepObject"), keep_blank_values=True) == [(f"color[{key}]", text) for key, text in value.items()]
