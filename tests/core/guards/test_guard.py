"""What holds for every guard, so that a new one is picked up everywhere and can't be half a guard."""

from __future__ import annotations

import pytest

from gateway.core.guards import FOLDINGS, GUARDS, SHARED
from gateway.core.guards.guard import Guard, Placed
from gateway.core.model import Limits
from tests.core.guards.given import Written, ask, bid, given, policy

HOMES = {"top", "run", "defaults", "rule"}


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.kind)
def test_each_guard_names_its_file_and_its_homes(guard: type[Guard]) -> None:
    assert guard.__module__.rpartition(".")[2] == guard.kind
    assert guard.schema.keys() <= HOMES - (set() if guard.per_rule else {"rule"})


def test_no_two_guards_share_a_kind_or_a_key() -> None:
    for names in (
        [guard.kind for guard in GUARDS],
        *([name for guard in GUARDS for name in guard.schema.get(home, ())] for home in HOMES),
    ):
        assert len(names) == len(set(names))


def test_guards_with_a_little_state_are_folded_and_purses_up_the_lineage() -> None:
    assert {folding.kind for foldings in FOLDINGS.values() for folding in foldings} == {"budgets", "loops"}
    assert {folding.kind for foldings in SHARED.values() for folding in foldings} == {"budgets"}


def test_a_guard_that_overrides_nothing_says_nothing() -> None:
    guard, run = Guard(), given(policy(limits=Limits()))
    assert (guard.bind(ask({})), list(guard.check(ask({}))), guard.require(ask({})), list(guard.limit(bid(run)))) == ({}, [], None, [])
    assert guard.review({"content": []}) == ({"content": []}, None)
    with pytest.raises(NotImplementedError):
        Guard.build(Written().section)


def test_a_shadow_suspends_what_does_not_bind_and_a_skipped_rule_enforces_nothing() -> None:
    def enforced(**placed: bool) -> list[str]:
        placed_one = Placed(Guard(), "p.yaml:1", **placed)
        return [code for code in ("arguments.invalid", "arguments.bound") if placed_one.enforces(code)]

    assert enforced() == ["arguments.invalid", "arguments.bound"]
    assert enforced(shadow=True) == ["arguments.bound"]
    assert enforced(shadow=True, skipped=True) == []
