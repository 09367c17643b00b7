"""loops: the same call with the same result again and again, short cycles, and refusals in a row; results that change are no loop.

It looks at the last 20 things that happened in the run, as (tool, fingerprint, result). The next call that would be dispatched is
intercepted with an explanation; after `close_after` interceptions, or 200 recorded refusals, the run ends blocked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from msgspec import Struct
from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.guards.guard import Bid, Fold, Guard, Section, Stage
from gateway.core.model import Finding
from gateway.core.run import Run, Tree

WINDOW = 20
MOST_REFUSALS = 200
_REFUSALS = "loop.refusals"

Seen = tuple[str, str, str | None]


class History(Struct, frozen=True):
    """`seen`: (tool, fingerprint, result or reason), the latest last. `in_row`: refusals since anything else. `refused`: all refusals."""

    seen: tuple[Seen, ...] = ()
    in_row: int = 0
    refused: int = 0
    intercepted: int = 0

    def results(self, tool: str, fingerprint: str) -> list[str | None]:
        """What this call came to, the latest first."""
        return [result for t, f, result in reversed(self.seen) if f == fingerprint and t == tool]

    def cycles(self, period: int, times: int, tool: str, fingerprint: str) -> bool:
        """Is the tail a cycle of this period, seen `times` times, which this call would go on with?"""
        tail = self.seen[-period * times :]
        if len(tail) < period * times or tail[-period][:2] != (tool, fingerprint):
            return False
        return len(set(tail[:period])) == period and all(tail[i] == tail[i % period] for i in range(len(tail)))

    def saw(self, seen: Seen) -> tuple[Seen, ...]:
        return (*self.seen[1 - WINDOW :], seen)


def _denied(fact: History, event: e.CallDenied, tree: Tree) -> History:
    """An interception is no new result: else the loop could go on right after it. One for refusals lets the next call through."""
    reason = event.findings[0]["reason"]
    looped = reason.startswith("loop.")
    seen = fact.seen if looped else fact.saw((event.tool, event.fingerprint, reason))
    in_row = 0 if reason == _REFUSALS else fact.in_row + 1
    return replace(fact, seen=seen, in_row=in_row, refused=fact.refused + 1, intercepted=fact.intercepted + looped)


def _replayed(fact: History, event: e.CallReplayed, tree: Tree) -> History:
    if event.same_call_id or event.joined:
        return fact
    seen = fact.saw((event.tool, event.fingerprint, event.result))
    return replace(fact, seen=seen, in_row=0, intercepted=fact.intercepted + (event.loop is not None))


def _settled(fact: History, event: e.CallSettled, tree: Tree) -> History:
    call = tree.calls[event.call]
    return replace(fact, seen=fact.saw((call.tool, call.fingerprint, event.result or event.reason)), in_row=0)


def _times(most: int, what: str) -> dict[str, Any]:
    """More than what can be seen would switch the guard off."""
    return {"type": "integer", "minimum": 1, "maximum": most, "description": what}


@dataclass(frozen=True)
class Loops(Guard):
    kind: ClassVar[str] = "loops"
    stage: ClassVar[Stage] = Stage.LIMIT
    schema: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "top": {
            "loops": {
                "type": "object",
                "description": "a mapping: how often what looks like a loop is let pass",
                "additionalProperties": False,
                "properties": {
                    "writes": _times(WINDOW, "the same write with the same result (3)"),
                    "reads": _times(WINDOW, "the same read with the same result (10)"),
                    "cycles": _times(WINDOW // 3, "the same cycle of 2 or 3 calls (3)"),
                    "refusals": _times(MOST_REFUSALS, "refusals in a row (10)"),
                    "close_after": _times(MOST_REFUSALS, "interceptions, then the run ends (3)"),
                },
            }
        }
    }
    per_rule: ClassVar[bool] = False
    start: ClassVar[History] = History()
    folds: ClassVar[Mapping[type[e.Event], Fold]] = {e.CallDenied: _denied, e.CallReplayed: _replayed, e.CallSettled: _settled}

    writes: int = 3
    reads: int = 10
    cycles: int = 3
    refusals: int = 10
    close_after: int = 3

    @classmethod
    def build(cls, section: Section) -> Self | None:
        part = section.data["top"].get("loops")
        if section.kind == "ceiling" and part is None:
            return None
        return cls(**(part or {}))

    def limit(self, bid: Bid) -> Sequence[Finding]:
        if not bid.tool or bid.poll:
            return ()
        fact = history(bid.tree.runs[bid.run])
        found = self._found(fact, bid)
        return () if found is None else (Finding(self.kind, *found, closes=fact.intercepted + 1 >= self.close_after),)

    def _found(self, fact: History, bid: Bid) -> tuple[str, str] | None:
        results = fact.results(bid.tool, bid.fingerprint)
        times = next((i for i, result in enumerate(results) if result != results[0]), len(results)) if results else 0
        if times >= (self.writes if bid.effect.writes else self.reads):
            return "loop.repeat", f"{bid.tool!r} was called {times} times with these arguments, with the same result each time."
        for period in (2, 3) if results else ():
            if fact.cycles(period, self.cycles, bid.tool, bid.fingerprint):
                return "loop.cycle", f"The last {period * self.cycles} calls are the same {period} calls, with the same results, in a circle."
        if fact.in_row >= self.refusals:
            return _REFUSALS, f"The last {fact.in_row} calls were all refused."
        return None


def history(run: Run) -> History:
    """The run's recent past as folded so far."""
    found = run.facts.get(Loops.kind)
    return found if isinstance(found, History) else Loops.start


def refused_out(run: Run) -> bool:
    """Would one more refusal be one too many?"""
    return history(run).refused + 1 >= MOST_REFUSALS
