"""turns: a call must stand in a turn that is open, and not in the last one (which is for the final answer)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from gateway.core.guards.budgets import purse
from gateway.core.guards.guard import Bid, Guard, Section, Stage
from gateway.core.model import Finding
from gateway.core.run import Run, Tree


@dataclass(frozen=True)
class Turns(Guard):
    kind: ClassVar[str] = "turns"
    stage: ClassVar[Stage] = Stage.LIMIT
    schema: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "run": {"require_turns": {"type": "boolean", "description": "true to refuse calls that belong to no declared or metered turn (false)"}}
    }
    per_rule: ClassVar[bool] = False

    @classmethod
    def build(cls, section: Section) -> Self | None:
        """A ceiling's stands beside the policy's, so that a rule of the policy can't shadow it away."""
        run = section.data["run"]
        return cls() if section.kind == "policy" or "budgets" in run or "require_turns" in run else None

    def limit(self, bid: Bid) -> Sequence[Finding]:
        found = self._found(bid) if bid.tool else None
        return () if found is None else (found,)

    def _found(self, bid: Bid) -> Finding | None:
        run = bid.tree.runs[bid.run]
        turn = run.turns.get(bid.turn)
        if bid.turn and turn is None:
            return unknown(run, bid.turn)
        if not bid.turn and run.limits.require_turns:
            return Finding(self.kind, "turn.required", "This run takes only calls that belong to a declared turn.")
        if turn is not None and turn.state == "closed":
            return over(bid.turn, f"is {turn.status}")
        if bid.turn in (0, run.last_turn) and is_final(bid.tree, run, bid.now):
            return Finding(self.kind, "turn.final", "This is the last turn that the budget can pay; it is for the answer, not for tools.")
        return None


def unknown(run: Run, number: int) -> Finding:
    return Finding(Turns.kind, "turn.unknown", f"Turn {number} was never opened; the latest is {run.last_turn}.")


def over(number: int, how: str) -> Finding:
    return Finding(Turns.kind, "turn.not_open", f"Turn {number} {how}.")


def is_final(tree: Tree, run: Run, now: int) -> bool:
    """Is the latest turn the last one that turns, tokens, cost or time can pay, here or up the lineage? Undeclared turns have no last one.

    Time pays for another turn while more is left than the longest turn so far took.
    """
    paying = [up for up in tree.lineage(run.id) if up.last_turn]
    if not paying:
        return False
    short = tree.deadline_at(run.id, now) - now < run.longest_turn_ms
    return short or any(purse(up).last_turn_paid(up.limits) for up in paying)
