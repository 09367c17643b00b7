"""States as text: they come back equal, and a text can make nothing but the states of one package."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from gateway.core import streams
from gateway.core.model import Effect, Limits
from gateway.core.principal import PrincipalState
from gateway.ledger.checkpoint import Checkpoints
from gateway.ledger.codec import Unreadable
from tests.ledger.runs import RUN, admit, hold, open_run, settle, vote
from tests.ledger.tally import Tally

CORE = Checkpoints("gateway.core")
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.integers() | st.tuples(st.integers(), st.none() | st.booleans())
LEAVES = KEYS | st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(Effect) | st.builds(Limits, turns=st.integers())
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.frozensets(KEYS, max_size=3)
        | st.dictionaries(KEYS, inner, max_size=3).map(Map)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def same(one: Any, other: Any) -> bool:
    return one == other and type(one) is type(other)


@given(VALUES)
def test_every_value_comes_back_equal_and_of_its_own_type(value: Any) -> None:
    assert same(CORE.load(CORE.dump(value)), value)


def test_a_run_tree_comes_back_equal_with_its_guards_facts() -> None:
    state: Any = streams.empty(RUN)
    for seq, event in enumerate([open_run(), admit(1), settle(1), hold(2), vote("user:mia", 2), admit(3)], 1):
        state = streams.evolve(state, seq, seq, event)
    back = CORE.load(CORE.dump(state))
    assert back == state
    assert back.runs[RUN].facts
    assert streams.evolve(back, 7, 7, settle(3)) == streams.evolve(state, 7, 7, settle(3))


def test_fields_at_their_defaults_are_not_written() -> None:
    assert json.loads(CORE.dump(PrincipalState(seq=3))) == ["c", "principal:PrincipalState", {"seq": 3}]


@dataclass(frozen=True)
class Stranger:
    x: int = 1


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize("value", [Stranger(), Colour.RED, object(), b"bytes", {1: 2}, {"a"}, Tally()])
def test_only_states_of_the_package_can_be_written(value: Any) -> None:
    with pytest.raises(TypeError):
        CORE.dump(value)


@pytest.mark.parametrize(
    "text",
    [
        '["c","os:system",{"command":"true"}]',
        '["c","..os:system",{}]',
        '["c","run:but",{}]',
        '["c","run:Map",{}]',
        '["c","run:dataclass",{}]',
        '["c","run:Tree.lineage",{}]',
        '["c","nowhere:Tree",{}]',
        '["c","run:Tree",{"colour":1}]',
        '["c","run:Tree"]',
        '["e","model:Effect","harmless"]',
        '["m","key without value"]',
        '["x",1]',
        "[]",
        '[["c"],1]',
        "{",
    ],
)
def test_a_text_can_make_nothing_else(text: str) -> None:
    with pytest.raises(Unreadable):
        CORE.load(text)
