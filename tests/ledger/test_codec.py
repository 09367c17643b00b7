"""Events as text: every kind comes back as it was, and what can't be read whole is refused."""

from __future__ import annotations

import json
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import NODEFAULT
from msgspec.structs import fields

from gateway.core import events as events_module
from gateway.core.events import KINDS, Event, RunFrozen, RunOpened, TurnAnswered, VoteCast
from gateway.ledger.codec import Unreadable, decode, encode, genesis, link

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALAR = st.none() | st.booleans() | st.integers() | TEXT
JSON = st.recursive(SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=6)


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field, by its annotation."""
    if get_origin(hint) is tuple:
        return st.lists(values(get_args(hint)[0]), max_size=3).map(tuple)
    if get_origin(hint) is dict:
        return st.dictionaries(TEXT, values(get_args(hint)[1]), max_size=3)
    if get_args(hint):
        return st.one_of(*map(values, get_args(hint)))
    return {str: TEXT, int: st.integers(), bool: st.booleans(), type(None): st.none(), Any: JSON}[hint]


def events(kind: type[Event]) -> st.SearchStrategy[Event]:
    hints = get_type_hints(kind)
    required = {each.name: values(hints[each.name]) for each in fields(kind) if each.default is each.default_factory is NODEFAULT}
    optional = {each.name: values(hints[each.name]) for each in fields(kind) if each.name not in required}
    return st.fixed_dictionaries(required, optional=optional).map(lambda given: kind(**given))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@given(data=st.data())
def test_every_event_comes_back_as_it_was(kind: type[Event], data: st.DataObject) -> None:
    event = data.draw(events(kind))
    assert decode(kind.__name__, kind.VERSION, encode(event)) == event


def test_every_kind_is_known_by_its_class_name() -> None:
    assert all(name == kind.__name__ for name, kind in KINDS.items())
    all_ = {each for each in vars(events_module).values() if isinstance(each, type) and issubclass(each, Event)}
    bases = {base for each in all_ for base in each.__mro__[1:]}
    assert {each.__name__ for each in all_ - bases} == set(KINDS)


def test_fields_at_their_defaults_are_not_written() -> None:
    assert json.loads(encode(RunFrozen("run_1", "user:mia"))) == {"run": "run_1", "by": "user:mia"}
    assert json.loads(encode(RunFrozen("run_1", "user:mia", "why"))) == {"run": "run_1", "by": "user:mia", "note": "why"}


def test_tuples_come_back_as_tuples_and_arrays_inside_dicts_as_lists() -> None:
    vote = VoteCast("run_1", "call_1", "hold_1", "user:mia", "approve", ("a", "b"), "digest")
    assert decode("VoteCast", 1, encode(vote)) == vote
    turn = TurnAnswered("run_1", 1, None, ({"call_id": "x", "arguments": ["a"]},))
    assert decode("TurnAnswered", 1, encode(turn)) == turn


def test_a_text_that_is_nul_or_outside_the_basic_plane_survives() -> None:
    event = RunFrozen("run_1", "user:\x00\U0001f600", "\u2028")
    assert decode("RunFrozen", 1, encode(event)) == event


@pytest.mark.parametrize("bad", ["\ud800", object(), {"in": object()}])
def test_what_has_no_text_is_refused_when_written(bad: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode(RunFrozen("run_1", bad))


@pytest.mark.parametrize(
    ("kind", "version", "body"),
    [
        ("RunMelted", 1, '{"run":"r"}'),
        ("Event", 1, "{}"),
        ("RunFrozen", 2, '{"run":"r","by":"b"}'),
        ("RunFrozen", 1, '{"run":"r","by":"b","colour":"blue"}'),
        ("RunFrozen", 1, '{"run":"r"}'),
        ("RunFrozen", 1, '{"run":"r","by":"b","by":"c"}'),
        ("RunFrozen", 1, '{"run":"r","by":'),
        ("RunFrozen", 1, '["run"]'),
        ("RunFrozen", 1, "null"),
        ("VoteCast", 1, '{"groups":7}'),
    ],
)
def test_what_cannot_be_read_whole_is_refused(kind: str, version: int, body: str) -> None:
    with pytest.raises(Unreadable):
        decode(kind, version, body)


def test_whatever_depth_can_be_written_can_be_read() -> None:
    deep: Any = "end"
    for _ in range(240):
        deep = {"in": deep}
    opened = RunOpened("run_1", "a", "a", "p", "d", {"deep": deep}, "t", "rest")
    assert decode("RunOpened", 1, encode(opened)) == opened


def test_each_column_of_a_row_and_the_row_before_it_change_the_hash() -> None:
    row = ("before", "run_1", 3, "id-1", 5, "RunFrozen", 1, '{"run":"run_1"}')
    others = [(*row[:n], f"{value}1" if isinstance(value, str) else value + 1, *row[n + 1 :]) for n, value in enumerate(row)]
    hashes = {link(*row), *(link(*other) for other in others)}  # type: ignore[arg-type]
    assert len(hashes) == 1 + len(row)
    assert link("p", "a", 1, "i", 1, "k", 1, "bc") != link("p", "ab", 1, "i", 1, "k", 1, "c")
    assert genesis("run_1") != genesis("run_2")
