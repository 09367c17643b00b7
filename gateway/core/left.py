"""What is left of a run's budget, as every answer tells it: the least along the lineage."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.core.guards.budgets import purse
from gateway.core.guards.turns import is_final
from gateway.core.model import BudgetLeft
from gateway.core.run import Run, Tree

_WARN_UNDER = 0.2


def budget_left(tree: Tree, run: str, now: int) -> BudgetLeft:
    """Figures for people and models; never negative. `warning` names what is under 20 %."""
    state = tree.runs[run]
    turns = tool_calls = tokens = cost = None
    low: list[str] = []
    for one in tree.lineage(run):
        used, limits = purse(one).used, one.limits
        turns = _least(turns, "turns", limits.turns, used.turns, low)
        tool_calls = _least(tool_calls, "tool_calls", limits.tool_calls, used.tool_calls, low)
        tokens = _least(tokens, "tokens", limits.tokens, used.tokens, low)
        cost = _least(cost, "cost_usd", limits.usd_micros, used.usd_micros, low)
    if any(_is_late(one, now) for one in tree.lineage(run)):
        low.append("deadline")
    deadline = tree.deadline_at(run, now)
    left_ms = max(0, deadline - now)
    return BudgetLeft(
        turns if state.last_turn else "unmetered", is_final(tree, state, now), tool_calls, tokens,
        None if cost is None else cost / 1_000_000, deadline, left_ms / 1000, _warning(low),
    )  # fmt: skip


def _least(so_far: int | None, name: str, limit: int | None, used: int, low: list[str]) -> int | None:
    if limit is None:
        return so_far
    left = max(0, limit - used)
    if left < limit * _WARN_UNDER and name not in low:
        low.append(name)
    return left if so_far is None else min(so_far, left)


def _is_late(run: Run, now: int) -> bool:
    whole = run.limits.deadline_ms
    return whole is not None and run.deadline_at(now) - now < whole * _WARN_UNDER


def _warning(low: Iterable[str]) -> str | None:
    names = ", ".join(low)
    return f"Less than 20 % left of: {names}. Plan to finish." if names else None
