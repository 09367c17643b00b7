"""One run played in memory on the pure core: what a ledger would be told, without a ledger, an upstream or a clock.

Tests of policies and simulations are played here, so that they meet the same ladder, folds and decisions as a real run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gateway.core import events as e
from gateway.core.assess import Assessment, assess, review
from gateway.core.canonical import digest
from gateway.core.decide import calls, holds, runs, settle, turns
from gateway.core.decide.draft import Draft
from gateway.core.guards.budgets import SAYS_NOTHING
from gateway.core.guards.guard import RunFacts
from gateway.core.left import budget_left
from gateway.core.model import BudgetLeft, CallRequest, Finding, Json, Outcome, Payload, Principal, Tool
from gateway.core.policy import PolicySet
from gateway.core.run import Hold, Tree, principal_stream, stream_of
from gateway.core.streams import State, empty, evolve

OWNER = "play"
_LEASE_MS = 5_000
_OPEN_RUNS = 1_000_000
T = TypeVar("T")


@dataclass(frozen=True)
class Asked:
    """What a call came to: the ladder's finding, what the engine would do next, and the event that says so."""

    assessment: Assessment
    next: calls.Next
    events: tuple[e.Event, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.next.findings if isinstance(self.next, calls.Deny) else ()

    @property
    def shadowed(self) -> tuple[str, ...]:
        """Reasons that were only recorded."""
        return tuple(finding["reason"] for event in self.events for finding in getattr(event, "shadowed", ()))


@dataclass
class Play:
    """Mutable: `now` and `states` go on with what happens. `catalog` gives a tool by name, None where no upstream has it."""

    policies: PolicySet
    principal: Principal
    task_type: str
    catalog: Callable[[str], Tool | None]
    now: int
    goal: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    run: str = "run_played"

    def __post_init__(self) -> None:
        for stream in (self._stream, principal_stream(self.principal.id)):
            self.states.setdefault(stream, empty(stream))
        command = runs.OpenCommand(
            self.run, self.principal, self.policies, self.task_type, "play", SAYS_NOTHING, _OPEN_RUNS, goal=self.goal, labels=self.labels
        )  # fmt: skip
        self._decided(runs.open_root(self.states, command, self.now))

    @property
    def _stream(self) -> str:
        return stream_of(self.run)

    @property
    def tree(self) -> Tree:
        tree = self.states[self._stream]
        assert isinstance(tree, Tree)
        return tree

    @property
    def budget(self) -> BudgetLeft:
        return budget_left(self.tree, self.run, self.now)

    def call(self, request: CallRequest) -> Asked:
        """Judge one call and note what was decided; an admitted one runs until it is settled."""
        run = self.tree.runs[self.run]
        facts = RunFacts(self.run, run.task_type, run.goal, run.labels, run.policy)
        assessment = assess(self.policies, request, self.principal, facts, self.catalog(request.tool))
        command = calls.CallCommand(self.run, self.principal, request, assessment, _sealed(assessment.arguments), OWNER, _LEASE_MS, None)
        draft, next = calls.call(self.states, command, self.now)
        self._fold(draft)
        return Asked(assessment, next, tuple(event for stream, event in draft.events if stream == self._stream))

    def settle(self, asked: Asked, outcome: Outcome) -> Outcome:
        """What came of an admitted call, as it is recorded: reviewed by the rule it was admitted under."""
        assert isinstance(asked.next, calls.Admit)
        record, reviewed = self.tree.calls[asked.next.call], review(asked.assessment.rule, outcome)
        sealed = _sealed(reviewed.result) if reviewed.result is not None else None
        self._decided(settle.settle(self.states, settle.SettleCommand(record.id, record.attempt, OWNER, reviewed, sealed), self.now))
        return reviewed

    def open_turn(self) -> int | tuple[Finding, ...]:
        """The new turn's number, or why there is none."""
        return self._decided(turns.begin(self.states, self.run, self.policies.policy.guards, self.now))

    def usage(self, number: int, used: turns.Usage) -> None:
        self._decided(turns.usage(self.states, self.run, number, used, self.now))

    def vote(self, voter: Principal, vote: str, note: str = "") -> Hold | Finding:
        """One person's say on the latest call that waits. LookupError if none does."""
        waiting = [hold for hold in self.tree.holds.values() if hold.state in ("held", "approved")]
        if not waiting:
            raise LookupError("no call waits for anybody")
        hold = max(waiting, key=lambda one: int(one.id.rpartition("_")[2]))
        return self._decided(holds.vote(self.states, holds.VoteCommand(hold.id, voter, vote, hold.digest, note), self.now))

    def wait(self, ms: int) -> None:
        """Let time pass, and do what time alone does."""
        self.now += ms
        self._decided(runs.sweep(self.states, self._stream, self.now))

    def _decided(self, decision: tuple[Draft, T]) -> T:
        draft, answer = decision
        self._fold(draft)
        return answer

    def _fold(self, draft: Draft) -> None:
        for stream, event in draft.events:
            state = self.states[stream]
            self.states[stream] = evolve(state, state.seq + 1, self.now, event)


def _sealed(value: Json) -> Payload:
    """Equal data, equal hash; nothing is kept."""
    return Payload(digest(value), b"", b"")


def completed(structured: Any = None, *, error: str | None = None) -> dict[str, Json]:
    """A tool's answer as a CallToolResult: `structured` as data and as text, or the text of an error."""
    text = error or ("" if structured is None else json.dumps(structured, ensure_ascii=False))
    result: dict[str, Json] = {"content": [{"type": "text", "text": text}], "isError": error is not None}
    if error is None and isinstance(structured, dict):
        result["structuredContent"] = structured
    return result
