"""The nouns that do something by themselves: principals, amounts, effects, outcomes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gateway.core.model import NOTHING, Amounts, Effect, Malformed, Outcome, Principal


@pytest.mark.parametrize(
    ("names", "matches"),
    [({"agent:a"}, True), ({"group:g"}, True), ({"agent:b", "group:h"}, False), ({"g"}, False), ({"group:agent:a"}, False), (set(), False)],
)
def test_a_principal_is_meant_by_its_id_or_a_group(names: set[str], matches: bool) -> None:
    assert Principal("agent:a", frozenset({"g"})).matches(frozenset(names)) is matches


def test_amounts_add_and_take_away_each_by_itself() -> None:
    one, two = Amounts(1, 2, 3, 4), Amounts(10, 20, 30, 40)
    assert (one + two, two - one, one + NOTHING) == (Amounts(11, 22, 33, 44), Amounts(9, 18, 27, 36), one)


def test_only_reading_leaves_the_world_as_it_was() -> None:
    assert [effect for effect in Effect if not effect.writes] == [Effect.READ_ONLY]


def test_an_outcome_is_changed_by_making_another() -> None:
    first = Outcome("failed", "tool.error")
    assert (replace(first, state="in_doubt"), first) == (Outcome("in_doubt", "tool.error"), Outcome("failed", "tool.error"))


def test_malformed_arguments_are_their_own_reason() -> None:
    assert f"{Malformed('no object')}" == "no object"
