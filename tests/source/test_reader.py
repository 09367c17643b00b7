"""What strict YAML reads, what it refuses, and where it says so; with the C parser and with the Python one."""

import json

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.source import Position, Source, SourceError, child, read, reader

either_parser = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
"""The fixture below sets the parser once for all examples of a test."""


@pytest.fixture(params=["C", "Python"], autouse=True)
def parser(request, monkeypatch):
    loader = yaml.CSafeLoader if request.param == "C" else yaml.SafeLoader
    monkeypatch.setattr(reader, "_LOADER", loader)


def data(text: str):
    return read("f.yaml", text.encode()).data


def refused(text: str | bytes) -> SourceError:
    with pytest.raises(SourceError) as caught:
        read("f.yaml", text if isinstance(text, bytes) else text.encode())
    return caught.value


def places(text: str | bytes) -> list[tuple[int, int]]:
    return [(mistake.position.line, mistake.position.column) for mistake in refused(text).mistakes]


# ---- what is read -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True), ("false", False), ("null", None), ("0", 0), ("-0", 0), ("12", 12), ("-7", -7), ("1.50", 1.5), ("1e5", 1e5),
        ("-1.5E-3", -0.0015), ("18446744073709551617", 18446744073709551617), ("0.0", 0.0), ("0e9", 0.0),
    ],
)  # fmt: skip
def test_plain_json_values_are_read_as_json_does(text, value):
    got = data(f"v: {text}")["v"]
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "90s", "256KiB", "127.0.0.1:8700", "args.amount > 100.0", "args.currency == principal.claims.currency", "sqlite:gateway.db",
        "GET /orders/*", "crm.get_*", "-y", "--", "./data", "1.2.3", "2026-11", "12:99", "NOT", "yes please", "nully", "1e", "0xZZ",
        "NaN", "Infinity", "http://127.0.0.1:9001/mcp", "1 000", "e5", "+", "-", "._", "null1", "8700:8700",
    ],
)  # fmt: skip
def test_other_plain_values_are_text(text):
    assert data(f"v: {text}" if text != "-" else "v: '-'") == {"v": text}


@pytest.mark.parametrize("quoted", ["'NO'", '"NO"', "|-\n  NO", ">-\n  NO"])
def test_what_is_quoted_is_text(quoted):
    assert data(f"v: {quoted}") == {"v": "NO"}


def test_lists_mappings_comments_and_folded_text_are_read():
    assert data("# c\na:\n  - {b: [1, two]}   # d\n  - >-\n    x\n    y\nc: {}\nd: []\n") == {
        "a": [{"b": [1, "two"]}, "x y"],
        "c": {},
        "d": [],
    }


def test_a_byte_order_mark_is_skipped():
    source = read("f.yaml", b"\xef\xbb\xbfa: 1")
    assert source.data == {"a": 1}
    assert source.key_at("/a") == Position("f.yaml", 1, 1)


def test_one_document_may_be_marked_as_such():
    assert data("---\na: 1\n...\n") == {"a": 1}


def _as_yaml(value) -> str:
    """JSON that is YAML too: as text, but escaped where YAML would change or not print a character."""
    text = json.dumps(value, ensure_ascii=False)
    return reader._UNFIT.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=80), inner),
    max_leaves=20,
)


@either_parser
@given(_JSON)
def test_any_json_value_reads_back_equal(value):
    assert data(_as_yaml(value)) == value


@either_parser
@given(st.text("0123456789+-._:eExXobTtZ aAfFnNyYsSuUlLrR~<=", min_size=1, max_size=12).map(str.strip).filter(bool))
def test_no_plain_value_means_one_thing_to_yaml_1_1_and_another_here(text):
    tag = yaml.SafeLoader("").resolve(yaml.ScalarNode, text, (True, False))
    try:
        value = reader._plain(text)
    except ValueError:
        return
    assert isinstance(value, str) == (tag == "tag:yaml.org,2002:str") or value == json.loads(text)


# ---- what YAML 1.1 would have read as something else --------------------------------------------------------------------

SURPRISES = [
    "NO", "no", "No", "yes", "YES", "on", "Off", "y", "N", "True", "FALSE", "~", "Null", "NULL", "010", "-012", "08", "0o17", "0x1f", "-0xFF",
    "0b101", "1_000", "+1", "+1.5", "1.", ".5", "-.5", "1_0.5", "01.5", "+1e3", "1:30", "190:20:30", "01:30", "1:30.5", ".inf", "-.Inf", ".NaN",
    "2026-11-29", "2026-1-2T03:04:05Z", "2026-11-29 10:00:00 +01:00", "2001-12-14t21:59:43.10-05:00", "<<", "=",
]  # fmt: skip


@pytest.mark.parametrize("text", SURPRISES)
def test_a_plain_value_that_yaml_reads_as_something_else_is_refused_at_its_place(text):
    assert places(f"ok: 1\nv:   {text}\n") == [(2, 6)]


@pytest.mark.parametrize("text", SURPRISES)
def test_the_same_in_quotes_is_text(text):
    assert data(f"v: '{text}'") == {"v": text}


@pytest.mark.parametrize("text", ["1", "true", "null", "1.5", *SURPRISES])
def test_a_key_that_is_not_text_is_refused_at_its_place(text):
    assert places(f"a: {{ {text}: x }}") == [(1, 6)]


def test_the_words_of_yaml_are_shown_and_other_values_are_not():
    assert "NO" in str(refused("v: NO"))
    assert "0123456" not in str(refused("v: 0123456"))


@pytest.mark.parametrize("text", ["v:", "v: # nothing", "v:\nw: 1", "- a\n-\n", "{v: }", "{v}", "---\n"])
def test_a_missing_value_is_refused(text):
    assert len(places(text)) == 1


@pytest.mark.parametrize("text", ["1e400", "-1e400", "1e-400", "9" * 401])
def test_a_number_that_can_not_be_kept_is_refused(text):
    assert places(f"v: {text}") == [(1, 4)]


# ---- what is refused ----------------------------------------------------------------------------------------------------


def test_a_duplicate_key_is_refused_with_both_positions():
    error = refused("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\na: 4\n")
    assert [(m.position.line, m.position.column) for m in error.mistakes] == [(5, 3), (6, 1)]
    assert "line 3, column 3" in error.mistakes[0].message
    assert "line 1, column 1" in error.mistakes[1].message


def test_mistakes_inside_a_second_value_are_found_too():
    assert places("a: 1\na: {b: NO}\n") == [(2, 1), (2, 8)]


def test_anchors_and_aliases_are_refused_each_at_its_place():
    assert places("a: &x 1\nb: *x\nc: &y [1]\nd: &z\ne: 1\n") == [(1, 4), (2, 4), (3, 4), (4, 4), (4, 4)]


@pytest.mark.parametrize("text", ["!!str 1", "! x", "!mine [1]", "!!python/object/apply:os.system ['x']", "!!binary aGk="])
def test_tags_are_refused(text):
    assert places(f"a: {text}") == [(1, 4)]


def test_merge_keys_are_refused():
    assert places("a:\n  <<: {b: 1}\n") == [(2, 3)]


def test_a_second_document_is_refused_at_its_mark():
    assert places("a: 1\n---\nb: 2\n") == [(2, 1)]


@pytest.mark.parametrize("text", ["%YAML 1.1\n---\na: 1", "%TAG ! tag:x,2000:\n---\na: 1", "%MINE x\n---\na: 1"])
def test_directives_are_refused(text):
    assert [line for line, _ in places(text)] == [1]


@pytest.mark.parametrize("text", ["? [a]\n: b\n", "{[a]: b}", "{a: 1}: b\n"])
def test_a_key_that_is_a_list_or_mapping_is_refused(text):
    assert places(text) == [(1, 3 if text[0] == "?" else 2 if text[1] == "[" else 1)]


@pytest.mark.parametrize(
    ("text", "place"),
    [("\ta: 1", (1, 1)), ("a:\n\t- b", (2, 1)), ("a: b: c", (1, 5)), ("a: [1, 2\n", (2, 1)), ("a: @x", (1, 4)), ("a: 1\n  b: 2\n", (2, 4))],
)
def test_a_syntax_error_is_a_mistake_with_its_place(text, place):
    error = refused(text)
    assert (error.mistakes[-1].position.line, error.mistakes[-1].position.column) == place
    assert error.partial is None


def test_mistakes_before_a_syntax_error_are_still_said():
    assert places("a: NO\nb: c: d\n") == [(1, 4), (2, 5)]


def test_nesting_beyond_64_levels_is_refused_and_64_are_read():
    assert data("[" * 64 + "]" * 64)
    assert places("[" * 65 + "]" * 65) == [(1, 65)]
    assert places("{v: NO, w: " + "[" * 500 + "]" * 500 + ", x: NO}") == [(1, 5), (1, 75), (1, 1017)]


def test_a_file_above_one_mebibyte_is_refused_unread():
    assert read("f.yaml", b"a: 1\n#" + b"x" * (1024 * 1024 - 6)).data == {"a": 1}
    assert places(b"a: 1\n#" + b"x" * (1024 * 1024 - 5)) == [(1, 1)]


@pytest.mark.parametrize(("text", "place"), [(b"\xff", (1, 1)), ("é: 1\nb: ü".encode() + b"\xc3", (2, 5)), ("a: 1".encode("utf-16"), (1, 1))])
def test_what_is_not_utf_8_is_refused_at_its_place(text, place):
    assert places(text) == [place]


@pytest.mark.parametrize("character", ["\x00", "\x07", "\x7f", "\x85", "\u2028", "\u2029", "\ufeff", "\ufffe"])
def test_a_character_that_yaml_would_change_or_not_print_is_refused(character):
    assert places(f"a: 1\nb: 'x{character}y'") == [(2, 6)]


def test_half_a_surrogate_pair_is_refused():
    assert [line for line, _ in places('a: 1\nb: "\\ud83d"')] == [2]


@pytest.mark.parametrize("text", ["", "# only this\n", "\n\n"])
def test_an_empty_file_is_refused(text):
    assert places(text) == [(1, 1)]


def test_all_mistakes_come_at_once_sorted_one_a_line():
    error = refused("a: NO\nb: 1:30\nc: {d: 010, d: 2}\ne: &x 1\nf: *x\ng: !!str 3\n1: 2\nh:\ni: [2026-11-29, ~]\n")
    lines = str(error).splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        "f.yaml:1:4", "f.yaml:2:4", "f.yaml:3:8", "f.yaml:3:13", "f.yaml:4:4", "f.yaml:5:4", "f.yaml:6:4", "f.yaml:7:1", "f.yaml:8:3",
        "f.yaml:9:5", "f.yaml:9:17",
    ]  # fmt: skip
    assert list(error.mistakes) == sorted(error.mistakes)


@either_parser
@given(st.text(max_size=60) | st.text("[]{}:,-?&*!|>'\"%@`#ab01~\n \t", max_size=60))
def test_no_text_raises_anything_but_a_source_error(text):
    try:
        read("f.yaml", text.encode(errors="surrogatepass"))
    except SourceError as error:
        found = error.mistakes
    else:
        found = ()
    assert all(mistake.position.line >= 1 and mistake.position.column >= 1 for mistake in found)


# ---- places -------------------------------------------------------------------------------------------------------------


def test_every_value_and_key_has_its_place():
    source = read("f.yaml", "é:   {ü: [1,  'x']}\nb:\n  - c: 2\n".encode())
    place = {pointer: (position.line, position.column) for pointer, position in source.positions.items()}
    keys = {pointer: (position.line, position.column) for pointer, position in source.keys.items()}
    assert place == {
        "": (1, 1),
        "/é": (1, 6),
        "/é/ü": (1, 10),
        "/é/ü/0": (1, 11),
        "/é/ü/1": (1, 15),
        "/b": (3, 3),
        "/b/0": (3, 5),
        "/b/0/c": (3, 8),
    }
    assert keys == {"/é": (1, 1), "/é/ü": (1, 7), "/b": (2, 1), "/b/0/c": (3, 5)}


def test_a_place_that_is_not_there_is_its_nearest_parents():
    source = read("f.yaml", b"a: {b: 1}\nc: [x]")
    assert source.at("/a/b/c/d") == source.at("/a/b") == Position("f.yaml", 1, 8)
    assert source.at("/zzz") == Position("f.yaml", 1, 1)
    assert source.key_at("/a/zzz") == Position("f.yaml", 1, 4)
    assert source.key_at("/c/0") == Position("f.yaml", 2, 5)
    assert Source("g", None, {}).at("/x") == Position("g", 1, 1)


def test_keys_with_slashes_and_tildes_are_escaped_in_pointers():
    source = read("f.yaml", b"a/b: {c~d: 1}")
    assert child("", "a/b", "c~d", 0) == "/a~1b/c~0d/0"
    assert source.at("/a~1b/c~0d") == Position("f.yaml", 1, 12)


def test_what_could_be_read_is_kept_beside_the_mistakes():
    partial = refused("a: 1\nb: NO\nb: 2\n").partial
    assert partial is not None
    assert partial.data == {"a": 1, "b": "NO"}
