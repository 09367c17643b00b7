"""What is left of a run's budget, as every answer tells it: the least along the lineage."""

from __future__ import annotations

from gateway.core.guards.budgets import purse
from gateway.core.guards.turns import is_final
from gateway.core.model import BudgetLeft
from gateway.core.run import Run, Tree

_WARN_UNDER = 0.2


def budget_left(tree: Tree, run: str, now: int) -> BudgetLeft:
    """Figures for people and models; never negative. `warning` names what is under 20 %."""
    state, lineage = tree.runs[run], tree.lineage(run)
    left, low = _left(lineage[0])
    for up in lineage[1:]:
        more, scarce = _left(up)
        left = [b if a is None else a if b is None else min(a, b) for a, b in zip(left, more, strict=True)]
        low += [name for name in scarce if name not in low]
    ends = [one.deadline_at(now) for one in lineage]
    if [end for one, end in zip(lineage, ends, strict=True) if _is_late(one, end - now)]:
        low.append("deadline")
    deadline = min(ends)
    turns, tool_calls, tokens, micros = left
    return BudgetLeft(
        turns if state.last_turn else "unmetered", is_final(tree, state, now), tool_calls, tokens, None if micros is None else micros / 1_000_000,
        deadline, max(0, deadline - now) / 1000, f"Less than 20 % left of: {', '.join(low)}. Plan to finish." if low else None,
    )  # fmt: skip


def _left(run: Run) -> tuple[list[int | None], list[str]]:
    """What this run's own caps leave, by turns, tool calls, tokens and cost, and the names of those that are nearly spent."""
    fact, limits = purse(run), run.limits
    posted, pending = fact.posted, fact.pending
    left: list[int | None] = []
    low: list[str] = []
    for name, cap, used in (
        ("turns", limits.turns, posted.turns + pending.turns),
        ("tool_calls", limits.tool_calls, posted.tool_calls + pending.tool_calls),
        ("tokens", limits.tokens, posted.tokens + pending.tokens),
        ("cost_usd", limits.usd_micros, posted.usd_micros + pending.usd_micros),
    ):
        rest = None if cap is None else cap - used if cap > used else 0
        if rest is not None and cap is not None and rest < cap * _WARN_UNDER:
            low.append(name)
        left.append(rest)
    return left, low


def _is_late(run: Run, left_ms: int) -> bool:
    whole = run.limits.deadline_ms
    return whole is not None and left_ms < whole * _WARN_UNDER
