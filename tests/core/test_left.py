"""What every answer says is left: the least along the lineage, never negative, with a warning when it gets little."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.left import budget_left
from gateway.core.model import BudgetLeft
from tests.core.build import READ, World, opened, policy, rule


def left(world: World, run: str = "") -> BudgetLeft:
    return budget_left(world.tree(), run or world.run_id, world.now)


def test_what_has_no_cap_has_no_figure() -> None:
    budget = left(opened())
    assert (budget.tool_calls_left, budget.tokens_left, budget.cost_usd_left, budget.warning) == (None, None, None, None)
    assert (budget.turns_left, budget.final_turn) == ("unmetered", False)


def test_figures_count_what_is_spent_and_what_is_set_aside() -> None:
    world = opened(policy(rule("*", READ, usd_micros=250_000), turns=10, tool_calls=9, tokens=1_000, tokens_per_turn=100, usd_micros=2_000_000))
    world.begin()
    world.does("crm.get", a=1)
    world.call("crm.get", a=2)
    budget = left(world)
    assert (budget.turns_left, budget.tool_calls_left, budget.tokens_left, budget.cost_usd_left) == (9, 7, 900, 1.5)


def test_a_run_without_turns_says_so_even_where_turns_are_capped() -> None:
    assert left(opened(turns=5)).turns_left == "unmetered"


def test_turns_without_a_cap_have_no_figure_once_there_are_any() -> None:
    world = opened()
    world.begin()
    assert left(world).turns_left is None


def test_the_least_along_the_lineage_counts() -> None:
    world = opened(tool_calls=5, turns=9, usd_micros=1_000_000)
    child = world.open(parent=world.run_id, policies=policy(tool_calls=3, turns=20))
    world.begin(child)
    assert (left(world, child).tool_calls_left, left(world, child).turns_left, left(world, child).cost_usd_left) == (3, 8, 1.0)
    for number in range(3):
        world.does("crm.get", n=number)
    assert left(world, child).tool_calls_left == 2


def test_nothing_is_less_than_nothing() -> None:
    world = opened(tokens=10, close_on=())
    world.begin()
    world.uses(1, 50)
    assert (left(world).tokens_left, left(world).final_turn) == (0, True)


@pytest.mark.parametrize(("passed", "seconds"), [(0, 10.0), (2_500, 7.5), (10_000, 0.0), (99_000, 0.0)])
def test_time_is_told_as_a_moment_and_in_seconds(passed: int, seconds: float) -> None:
    world = opened(deadline_ms=10_000)
    deadline = world.run().deadline_at(world.now)
    world.wait(passed, sweep=False)
    assert (left(world).deadline_at, left(world).seconds_left) == (deadline, seconds)


def test_the_last_turn_is_told() -> None:
    world = opened(turns=2)
    world.begin()
    assert left(world).final_turn is False
    world.begin()
    assert left(world).final_turn is True


def test_the_last_turn_is_also_the_one_after_which_time_is_short() -> None:
    world = opened(deadline_ms=10_000)
    world.begin()
    world.wait(4_000)
    world.begin()
    world.wait(2_000, sweep=False)
    assert left(world).final_turn is False
    world.wait(1, sweep=False)
    assert left(world).final_turn is True


@pytest.mark.parametrize(
    ("caps", "used", "named"),
    [
        ({"tool_calls": 10}, 8, ""),
        ({"tool_calls": 10}, 9, "tool_calls"),
        ({"tool_calls": 10, "usd_micros": 100}, 9, "tool_calls, cost_usd"),
        ({"tool_calls": 0}, 0, ""),
    ],
)
def test_a_warning_names_what_is_under_a_fifth(caps: dict[str, Any], used: int, named: str) -> None:
    world = opened(policy(rule("*", READ, usd_micros=10), **caps))
    for number in range(used):
        world.call("crm.get", n=number)
    warning = left(world).warning
    assert warning is None if not named else warning is not None and f" {named}." in warning


def test_a_warning_comes_for_time_of_a_run_above_too_and_once() -> None:
    world = opened(deadline_ms=10_000, tool_calls=1)
    child = world.open(parent=world.run_id, policies=policy())
    world.call("crm.get", run=child)
    world.wait(8_000)
    assert "deadline" not in (left(world, child).warning or "")
    world.wait(1)
    assert " tool_calls, deadline." in (left(world, child).warning or "")
