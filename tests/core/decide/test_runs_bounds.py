"""What bounds runs that cost nothing by themselves: runs of a tree, one implicit run, a child in its parent's last turn."""

from __future__ import annotations

import pytest

from gateway.core.decide import runs
from tests.core.build import READ, World, opened, policy, rule, verdict


def test_a_tree_holds_only_so_many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "TREE_RUNS", 3)
    world = World()
    first = world.open()
    assert [isinstance(world.open(parent=first), str) for _ in range(2)] == [True, True]
    assert world.open(parent=first).reason == "budget.open_runs"


def test_a_second_implicit_run_is_the_first_while_that_is_open() -> None:
    world = World()
    first = world.open(implicit=True)
    assert (world.open(implicit=True), world.existed) == (first, True)
    world.finish(first)
    assert world.open(implicit=True) != first


def test_a_child_that_declares_no_turns_stands_in_its_parents_last_one() -> None:
    world = opened(policy(rule("crm.get", READ), turns=2))
    child = world.open(parent=world.run_id)
    world.begin()
    assert verdict(world.call("crm.get", run=child, a=1)) == "allow"
    world.begin()
    assert verdict(world.call("crm.get", run=child, a=2)) == "turn.final"
