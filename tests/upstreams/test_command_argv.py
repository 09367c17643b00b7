"""Words of a command: one word stays one word, and no value passes for an option."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.ports import UpstreamFault
from gateway.upstreams.command_argv import MAX_WORD, argv


def refused(template, arguments, **more) -> bool:
    with pytest.raises(UpstreamFault) as caught:
        argv(template, arguments, **more)
    return caught.value.kind == "unsendable"


@pytest.mark.parametrize(
    ("template", "arguments", "words"),
    [
        (["x", "{args.a}"], {"a": "b c; $(d) `e` 'f' \"g\" *"}, ["x", "b c; $(d) `e` 'f' \"g\" *"]),
        (["x", "--a={args.a}"], {"a": "-b"}, ["x", "--a=-b"]),
        (["x", "--", "{args.a}"], {"a": "-b"}, ["x", "--", "-b"]),
        (["x", "{args.a}:{args.b}"], {"a": 5, "b": True}, ["x", "5:true"]),
        (["x", "{args.a}"], {"a": 2**70}, ["x", str(2**70)]),
        (["x", "{args.a}", "y"], {"a": ["b", 5]}, ["x", "b", "5", "y"]),
        (["x", "{args.a}", "y"], {"a": []}, ["x", "y"]),
        (["x", "{args.a}", "--b={args.b}", "y"], {"a": None}, ["x", "y"]),
        (["x", "{args.a}"], {"a": ""}, ["x", ""]),
        (["x", "{args.a}"], {"a": "{args.b}"}, ["x", "{args.b}"]),
        (["x", "{other}", "{args.}"], {}, ["x", "{other}", "{args.}"]),
    ],
)
def test_arguments_fill_their_words(template, arguments, words):
    assert argv(template, arguments) == words


@pytest.mark.parametrize("value", ["-rf", "--", "-", ["a", "-b"]])
def test_a_value_that_would_pass_for_an_option_is_refused(value):
    assert refused(["rm", "{args.a}"], {"a": value})


def test_a_dash_that_an_argument_brings_guards_nothing():
    assert refused(["x", "{args.a}", "{args.b}"], {"a": "--", "b": "-c"})
    assert refused(["x", "{args.a}{args.b}"], {"a": "", "b": "-c"})


@pytest.mark.parametrize("value", ["a\0b", "x" * (MAX_WORD + 1), {}, [["a"]], [None], [{}]])
def test_what_is_no_word_is_refused(value):
    assert refused(["x", "{args.a}"], {"a": value})
    assert refused(["x", "-a{args.a}"], {"a": value})


def test_a_list_is_no_part_of_a_word():
    assert refused(["x", "a={args.a}"], {"a": ["b"]})


def test_an_argument_without_a_place_is_refused_unless_it_goes_elsewhere():
    assert refused(["x", "{args.a}"], {"a": 1, "z": 2})
    assert argv(["x", "{args.a}"], {"a": 1, "z": 2}, all_placed=False) == ["x", "1"]


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_every_text_is_one_word_as_it_is_or_refused(value):
    try:
        words = argv(["x", "{args.a}", "--b={args.a}", "--", "{args.a}"], {"a": value})
    except UpstreamFault:
        assert value.startswith("-") or "\0" in value
        return
    assert words == ["x", value, f"--b={value}", "--", value]
