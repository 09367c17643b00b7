"""A document with mistakes: the rest is judged all the same, and nothing is said that only follows from another mistake."""

from __future__ import annotations

from typing import Any

from gateway.core.guards.guard import ConditionFault
from gateway.policy.compile import schema
from gateway.policy.document import Document
from gateway.source import Mistake, Position, read, read_and_check

TEXT = b"""\
version: 1
name: Not a name
defaults: {timeout: soon, result: {max_bytes: 5}}
tools:
  - {tool: a.b, effect: perhaps, shadow: [loops, allow]}
  - {effect: read_only}
  - {tool: c.d}
"""


def document(text: bytes = TEXT) -> Document:
    return Document(*read_and_check("p.yaml", text, schema()))


def test_what_cannot_be_used_is_left_out_and_rules_keep_their_places() -> None:
    data: Any = document().data
    assert "name" not in data
    assert data["defaults"] == {"result": {"max_bytes": 5}}
    assert data["tools"] == [{"tool": "a.b", "shadow": []}, None, {"tool": "c.d"}]


def test_a_complaint_around_or_inside_what_was_left_out_is_no_news() -> None:
    one = document()
    before = len(one.mistakes)
    for pointer in ("/defaults", "/defaults/timeout", "/defaults/timeout/x", "/tools/0", "/tools/1/tool", "/name"):
        one.report(pointer, "follows")
    assert len(one.mistakes) == before
    for pointer in ("/defaults/timeouts", "/defaults/result", "/tools/2", "/tools/0/tool"):
        assert one.sound(pointer)
        one.report(pointer, "news")
    assert len(one.mistakes) == before + 4


def test_a_file_that_is_no_mapping_holds_nothing() -> None:
    one = document(b"[1, 2]\n")
    assert (one.data, one.part("run")) == ({}, {})
    assert one.mistakes


def test_places_are_those_of_keys() -> None:
    assert document().where("/defaults/timeout") == "p.yaml:3"
    assert document().where("/nowhere") == "p.yaml:1"


def clean() -> Document:
    return Document(read("p.yaml", b"a: {x: 1}\nb: 2\n"), [])


def test_an_expression_is_compiled_or_its_mistake_told_with_the_character() -> None:
    one = clean()
    condition = one.condition("args.x > 1", frozenset({"args"}), "/a/x")
    assert condition is not None
    assert condition({"args": {"x": 2}}) is True
    assert one.value("args.x", frozenset({"args"}), "/a/x") is not None
    assert one.condition("arg.x > 1", frozenset({"args"}), "/a/x") is None
    assert one.mistakes[0].position == Position("p.yaml", 1, 8)
    assert "character 1 " in one.mistakes[0].message


def test_conditions_raise_the_fault_that_the_ladder_turns_into_a_denial() -> None:
    condition = clean().condition("args.x > 1", frozenset({"args"}), "/a")
    assert condition is not None
    try:
        condition({"args": {}})
    except ConditionFault:
        return
    raise AssertionError("a missing field must not be judged")


def test_a_schema_is_compiled_or_its_mistake_told_at_its_own_place() -> None:
    one = Document(read("p.yaml", b"schema:\n  properties:\n    x: {type: nothing}\n"), [])
    assert one.shape({"type": "object"}, "/schema") is not None
    assert one.shape(one.data["schema"], "/schema") is None
    assert one.mistakes[0].position == Position("p.yaml", 3, 15)


def test_the_messages_of_a_shape_name_what_it_judges() -> None:
    for pointer, name in (("/tools/0/result/schema", "result"), ("/tools/0/arguments/schema", "arguments")):
        shape = clean().shape({"type": "object"}, pointer)
        assert shape is not None
        assert shape([])[0].startswith(name)


def test_a_value_that_cannot_be_converted_is_a_mistake_and_its_default_goes_on() -> None:
    one = clean()
    assert one.converted(int, "7", "/b", 0) == 7
    assert one.converted(int, "x", "/b", 5) == 5
    assert [mistake.position.line for mistake in one.mistakes] == [2]


def test_digests_are_over_canonical_json_and_empty_once_there_is_a_mistake() -> None:
    one = clean()
    assert one.digest({"a": 1.0, "b": 2}) == one.digest({"b": 2, "a": 1})
    assert len(one.digest(1)) == 64
    one.mistakes.append(Mistake(Position("p.yaml", 1, 1), "any"))
    assert one.digest(1) == ""
