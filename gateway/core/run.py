"""What a run tree's stream folds to: runs, their turns, calls and holds, and small indexes for O(1) questions.

Children live in their root's tree, so that one purse is one state. All maps are persistent: an event costs the same on the
10,000th call as on the first. `evolve.py` makes the next state; nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from immutables import Map
from msgspec import Struct, field

from gateway.core.model import Effect, Limits, Requirement


class Vote(Struct, frozen=True):
    """One person's say. `groups` as authenticated then."""

    by: str
    vote: str
    groups: tuple[str, ...]
    at: int
    note: str = ""


class Hold(Struct, frozen=True):
    """A call that waits for people. `digest` is what a vote must echo; `reason` says how it ended without a yes."""

    id: str
    call: str
    run: str
    digest: str
    requirements: tuple[Requirement, ...]
    show: str
    held_at: int
    expires_at: int
    execute_within_ms: int
    state: str = "held"
    votes: tuple[Vote, ...] = ()
    execute_by: int | None = None
    ended_by: str | None = None
    note: str = ""
    reason: str | None = None

    def met(self, requirement: Requirement) -> bool:
        """Do the approvals so far satisfy one requirement?"""
        names = frozenset(requirement.approvers)
        yes = sum(1 for v in self.votes if v.vote == "approve" and (v.by in names or any(f"group:{g}" in names for g in v.groups)))
        return yes >= requirement.quorum

    @property
    def at_once(self) -> bool:
        """Does the gateway execute the approved call itself?"""
        return any(requirement.execute == "at_once" for requirement in self.requirements)

    @property
    def due_at(self) -> int | None:
        """When it expires or lapses; None once ended."""
        return {"held": self.expires_at, "approved": self.execute_by}.get(self.state)


class CallRecord(Struct, frozen=True):
    """One call. `arguments` and `result` are payload hashes. `usd_micros`: pending while live, the posted actual after.

    `probe_at`, `probes`: when a doubt is asked about next, and how often it was.
    """

    id: str
    run: str
    turn: int
    call_id: str | None
    tool: str
    fingerprint: str
    operation_id: str | None
    arguments: str | None
    asked_at: int
    door: str
    state: str = "new"
    upstream: str = ""
    effect: Effect = Effect.NON_IDEMPOTENT
    key: str = ""
    occurrence: int = 0
    attempt: int = 0
    policy_digest: str = ""
    tool_digest: str = ""
    usd_micros: int = 0
    deadline_at: int = 0
    owner: str = ""
    lease_until: int = 0
    admitted_at: int | None = None
    hold: str | None = None
    reason: str | None = None
    result: str | None = None
    answered: bool = False
    not_applied: bool = False
    status: int | None = None
    settled_at: int | None = None
    settled_seq: int = 0
    probe_at: int | None = None
    probes: int = 0

    @property
    def refusal(self) -> str:
        """The reason of a call that was refused, or has no answer to show: there always is one."""
        assert self.reason is not None
        return self.reason


class Turn(Struct, frozen=True):
    """One model call and what it asked for. `tokens`: set aside for it; `reported`: what usage reports added up to.

    `paused_ms`: the run's pauses before it opened.
    """

    number: int
    opened_at: int
    tokens: int = 0
    reported: int = 0
    paused_ms: int = 0
    state: str = "open"
    status: str | None = None
    digest: str | None = None
    asked: tuple[Map[str, Any], ...] = ()
    closed_at: int | None = None


class Run(Struct, frozen=True):
    """One task of one agent. `facts`: each LIMIT guard's little state, by kind. `live`: held, ready and admitted calls with their state.

    `by_print`: (tool, fingerprint) -> operation_id -> the latest call; refused calls bind nothing and stand in no index.
    """

    id: str
    principal: str
    opened_by: str
    policy: str
    policy_digest: str
    limits: Limits
    task_type: str
    opened_at: int
    door: str
    parent: str | None = None
    run_key: str | None = None
    continues: str | None = None
    goal: str | None = None
    labels: Map[str, str] = field(default_factory=Map)
    state: str = "open"
    status: str | None = None
    reason: str | None = None
    ended_by: str | None = None
    handoff: Map[str, Any] | None = None
    closed_at: int | None = None
    active_at: int = 0
    paused_ms: int = 0
    paused_at: int | None = None
    last_turn: int = 0
    longest_turn_ms: int = 0
    turns: Map[int, Turn] = field(default_factory=Map)
    open_turns: int = 0
    live: Map[str, str] = field(default_factory=Map)
    in_doubt: int = 0
    by_call_id: Map[tuple[int, str], str] = field(default_factory=Map)
    by_print: Map[tuple[str, str], Map[str | None, str]] = field(default_factory=Map)
    by_operation: Map[str, str] = field(default_factory=Map)
    facts: Map[str, Any] = field(default_factory=Map)

    @property
    def takes_calls(self) -> bool:
        return self.state == "open"

    @property
    def age_out_at(self) -> int:
        """The run's greatest age, pauses included."""
        return self.opened_at + self.limits.max_age_ms

    def deadline_at(self, now: int) -> int:
        """Opened + deadline + all pauses so far, never past `max_age`."""
        if self.limits.deadline_ms is None:
            return self.age_out_at
        return min(self.age_out_at, self.opened_at + self.limits.deadline_ms + self.paused(now))

    def paused(self, now: int) -> int:
        """All pauses so far, in ms."""
        return self.paused_ms + (now - self.paused_at if self.paused_at is not None else 0)


class Tree(Struct, frozen=True):
    """The state of one run stream. `last_write`: upstream -> seq of the last admitted write on it (DESIGN §4, supersession)."""

    seq: int = 0
    at: int = 0
    root: str = ""
    asked: int = 0
    runs: Map[str, Run] = field(default_factory=Map)
    calls: Map[str, CallRecord] = field(default_factory=Map)
    holds: Map[str, Hold] = field(default_factory=Map)
    last_write: Map[str, int] = field(default_factory=Map)

    def lineage(self, run: str) -> tuple[Run, ...]:
        """The run and its ancestors, itself first."""
        found = self.runs[run]
        if found.parent is None:
            return (found,)
        line = [found]
        while (parent := line[-1].parent) is not None:
            line.append(self.runs[parent])
        return tuple(line)

    def in_order(self) -> list[Run]:
        """All runs as they were opened, so parents before their children; maps have no order of their own."""
        return sorted(self.runs.values(), key=lambda run: int(run.id.partition(".")[2] or 0))

    def family(self, run: str) -> Iterator[Run]:
        """The run and all its descendants, itself first."""
        return (one for one in self.in_order() if any(up.id == run for up in self.lineage(one.id)))

    def deadline_at(self, run: str, now: int) -> int:
        """The earliest deadline along the lineage; there is always one (`max_age`)."""
        found = self.runs[run]
        return found.deadline_at(now) if found.parent is None else min(one.deadline_at(now) for one in self.lineage(run))

    def busy(self, *states: str) -> set[str]:
        """Runs in which, or below which, a call is live (in one of these states)."""
        live = (run for run in self.runs.values() if run.live and (not states or any(state in states for state in run.live.values())))
        return {up.id for run in live for up in self.lineage(run.id)}

    def due_at(self) -> int | None:
        """When something next happens by itself (hold, deadline, idle), as a lower bound; None once everything is closed.

        What can't come by time alone doesn't count, so that the sweep isn't kept busy by runs that wait for people. A call in flight doesn't
        change it, so that a run's row needn't be written with every call.
        """
        waits, busy = self.busy("held", "ready"), self.busy()
        times: list[int] = []
        for run in self.runs.values():
            if run.id in waits:
                times += self._hold_ends(run)
            if run.state in ("open", "frozen"):
                times.append(self._end_of(run))
                if run.id not in waits:
                    times.append(idle_at(run))
            elif run.state == "closing" and run.id not in busy:
                times.append(0)
        return min(times, default=None)

    def call_due_at(self, call: CallRecord) -> int | None:
        """When any process must look after a call: its lease ends, it should have run at once by then, its doubt is to be probed."""
        if call.state == "admitted":
            return call.lease_until
        if call.state == "ready" and (hold := self.holds.get(call.hold or "")) is not None and hold.at_once:
            return hold.votes[-1].at + _AT_ONCE_MS
        return call.probe_at

    def _hold_ends(self, run: Run) -> Iterator[int]:
        for call, state in run.live.items():
            hold = self.holds.get(self.calls[call].hold or "") if state != "admitted" else None
            if hold is not None and hold.due_at is not None:
                yield hold.due_at

    def _end_of(self, run: Run) -> int:
        """While a run is paused its deadline keeps its distance: unless it has passed, only age can end the run."""
        end = ends_at(run, self.at)
        return run.age_out_at if run.paused_at is not None and end > self.at else end


_AT_ONCE_MS = 5_000
"""How long whoever took the last vote has for starting the call."""

_IDLE_GRAIN_MS = 60_000


def ends_at(run: Run, now: int) -> int:
    """When time alone closes the run: its deadline, or its greatest age where the deadline only refuses."""
    return run.deadline_at(now) if "deadline" in run.limits.close_on else run.age_out_at


def idle_at(run: Run) -> int:
    """When a silent run is given up, rounded up to a minute so that a busy run's row needn't change with every call."""
    return (run.active_at // _IDLE_GRAIN_MS + 1) * _IDLE_GRAIN_MS + run.limits.idle_after_ms


@lru_cache(maxsize=16_384)
def stream_of(id: str) -> str:
    """The stream that holds a run, call or hold, from its id alone: `run_R`, `run_R.2`, `call_R_7`, `hold_R_7` -> `run_R`."""
    return "run_" + id.partition("_")[2].partition("_")[0].partition(".")[0]


def principal_stream(principal: str) -> str:
    return f"principal:{principal}"
