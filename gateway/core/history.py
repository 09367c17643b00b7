"""What each recorded event must have met, seen from the record alone: the promises of DESIGN §1 as far as a ledger can show them.

The fold refuses what the lifecycle tables forbid. Here stands what they can't say: who may vote, which key is whose, what a purse can pay, when
nothing may start any more. Amounts are counted anew from the events, never taken from the guards that kept them. `gateway verify` asks this
of every event, and so do the tests, which also know what reached the upstreams.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gateway.core import events as e
from gateway.core.canonical import call_key
from gateway.core.model import Effect
from gateway.core.principal import PrincipalState
from gateway.core.run import CallRecord, Tree


class Broken(NamedTuple):
    """A promise that an event breaks, in words."""

    promise: str
    message: str


class Seen(NamedTuple):
    """One event between the states of its tree."""

    before: Tree
    at: int
    event: Any
    after: Tree

    @property
    def record(self) -> CallRecord | None:
        """The event's call as it was; None for a new one."""
        return self.before.calls.get(self.event.call)


@dataclass(slots=True)
class Spent:
    """What a run and its descendants have set aside and spent, and what of it is live."""

    turns: int = 0
    tool_calls: int = 0
    tokens: int = 0
    usd_micros: int = 0
    in_flight: int = 0
    holds: int = 0

    def add(self, **amounts: int) -> None:
        for name, amount in amounts.items():
            setattr(self, name, getattr(self, name) + amount)


@dataclass(slots=True)
class TreeHistory:
    """The events of one run tree, in order. `_spent_keys`: key of a non_idempotent call -> the call whose dispatch it was for."""

    _spent: dict[str, Spent] = field(default_factory=dict)
    _in_turn: Counter[tuple[str, int]] = field(default_factory=Counter)
    _spent_keys: dict[str, str] = field(default_factory=dict)

    def saw(self, before: Tree, at: int, event: e.Event, after: Tree) -> Iterator[Broken]:
        """What this event breaks. `before` and `after` are the states around it."""
        seen = Seen(before, at, event, after)
        self._count(seen)
        for check in _CHECKS.get(type(event), ()):
            yield from check(self, seen)

    # ---- counting -------------------------------------------------------------------------------------------------------

    def _count(self, seen: Seen) -> None:
        amounts = _amounts(seen)
        if amounts:
            for run in seen.after.lineage(seen.event.run):
                self._spent.setdefault(run.id, Spent()).add(**amounts)
        if isinstance(seen.event, e.CallHeld | e.CallAdmitted) and seen.record is None:
            self._in_turn[seen.event.run, seen.event.turn] += 1

    def paid(self, seen: Seen) -> Iterator[Broken]:
        """P5: this run and every run above it can pay for what now stands in it."""
        event, tree = seen.event, seen.after
        shadowed = {finding["reason"].rpartition(".")[2] for finding in getattr(event, "shadowed", ()) if finding["guard"] == "budgets"}
        for run in tree.lineage(event.run):
            spent, limits = self._spent[run.id], run.limits
            counted = [
                ("turns", spent.turns, limits.turns), ("tool_calls", spent.tool_calls, limits.tool_calls),
                ("tokens", spent.tokens, limits.tokens), ("cost", spent.usd_micros, limits.usd_micros),
            ]  # fmt: skip
            if isinstance(event, e.CallHeld):
                counted.append(("open_holds", spent.holds, limits.open_holds))
            elif isinstance(event, e.CallAdmitted) and (event.attempt == 1 or (seen.record is not None and seen.record.state == "ready")):
                counted.append(("in_flight", spent.in_flight, limits.in_flight_calls))
            if not isinstance(event, e.TurnOpened) and event.turn and seen.record is None:
                counted.append(("tool_calls_per_turn", self._in_turn[event.run, event.turn], limits.tool_calls_per_turn))
            for name, amount, limit in counted:
                if limit is not None and amount > limit and name not in shadowed:
                    yield Broken("P5", f"{run.id} has {amount} of {name.replace('_', ' ')}; {limit} are allowed")

    # ---- keys -----------------------------------------------------------------------------------------------------------

    def keyed(self, seen: Seen) -> Iterator[Broken]:
        """P3: the key is that of this occurrence, and every attempt has the same one."""
        event, record, run = seen.event, seen.record, seen.after.runs[seen.event.run]
        if record is not None and _identity(record) != _identity(event):
            yield Broken("P3", f"{event.call} goes on as another call, or under another key, than it began")
        if run.continues is None:  # else the key is of a run in another stream
            operation = (record or event).operation_id  # a repeat that names none may go on with a call that did
            wanted = call_key(run.id, event.tool, event.fingerprint, operation, event.occurrence)
            if event.key != wanted:
                yield Broken("P3", f"the key of {event.call} is not the one of its run, tool, fingerprint, operation and occurrence")

    def spends_its_key(self, seen: Seen) -> Iterator[Broken]:
        """P2: a non_idempotent key is dispatched once, until it is recorded that nothing happened."""
        event, record = seen.event, seen.record
        if event.effect != Effect.NON_IDEMPOTENT:
            return
        spent_by = self._spent_keys.setdefault(event.key, event.call)
        if spent_by != event.call:
            yield Broken("P2", f"{event.call} is dispatched under the key of {spent_by}, which may have happened")
        elif record is not None and record.state == "admitted" and record.owner != event.owner:
            yield Broken("P2", f"{event.call} was on its way by {record.owner}, and {event.owner} dispatches it again")

    def frees_its_key(self, seen: Seen) -> Iterator[Broken]:
        if seen.after.calls[seen.event.call].not_applied:
            self._spent_keys.pop(seen.after.calls[seen.event.call].key, None)
        return iter(())


def _amounts(seen: Seen) -> dict[str, int]:
    """What an event adds to the purses of its run and the runs above."""
    event = seen.event
    match event:
        case e.TurnOpened():
            return {"turns": 1, "tokens": event.tokens}
        case e.UsageReported():
            return {"tokens": _tokens(seen.after, event) - _tokens(seen.before, event), "usd_micros": event.usd_micros}
        case e.CallHeld():
            return {"tool_calls": 1, "usd_micros": event.usd_micros, "holds": 1}
        case e.CallAdmitted() if event.hold is not None and seen.record is not None:
            return {"usd_micros": event.usd_micros - seen.record.usd_micros, "holds": -1, "in_flight": 1}
        case e.CallAdmitted():
            takes_off = seen.record is None or seen.record.state == "ready"  # else it is in flight already
            return {"tool_calls": 1, "usd_micros": event.usd_micros, "in_flight": int(takes_off)}
        case e.CallSettled() if seen.record is not None and seen.record.state == "admitted":
            return {"usd_micros": event.usd_micros - seen.record.usd_micros, "in_flight": -1}
        case e.CallCancelled() | e.HoldDenied() | e.HoldExpired() | e.HoldVoided() if seen.record is not None:
            return {"tool_calls": -1, "usd_micros": -seen.record.usd_micros, "holds": -1}
    return {}


def _tokens(tree: Tree, event: e.UsageReported) -> int:
    """A turn costs what is set aside for it, or what was reported if that is more."""
    turn = tree.runs[event.run].turns[event.turn]
    return max(turn.tokens, turn.reported)


def _identity(call: Any) -> tuple[Any, ...]:
    return call.tool, call.fingerprint, call.key, call.occurrence, call.upstream, str(call.effect)


# ---- what needs no memory -----------------------------------------------------------------------------------------------


def in_time(history: TreeHistory, seen: Seen) -> Iterator[Broken]:
    """P7: the run and every run above it took calls then."""
    tree, event = seen.before, seen.event
    for run in tree.lineage(event.run):
        if run.state != "open":
            yield Broken("P7", f"{run.id} was {run.state} when {_what(event)} began")
        if seen.at >= run.deadline_at(seen.at):
            yield Broken("P7", f"the deadline of {run.id} had passed when {_what(event)} began")


def inside_its_run(history: TreeHistory, seen: Seen) -> Iterator[Broken]:
    """P12: an attempt ends with its run, and its lease not before it."""
    event = seen.event
    if event.deadline_at > seen.before.deadline_at(event.run, seen.at) or event.lease_until < event.deadline_at:
        yield Broken("P12", f"{event.call} may run beyond its run's deadline, or its lease ends before its time")


def follows_its_attempts(history: TreeHistory, seen: Seen) -> Iterator[Broken]:
    wanted = 1 + (seen.record.attempt if seen.record is not None else 0)
    if seen.event.attempt != wanted:
        yield Broken("P2", f"attempt {seen.event.attempt} of {seen.event.call} where {wanted} was to follow")


def agreed_to(history: TreeHistory, seen: Seen) -> Iterator[Broken]:
    """P8: what was held is executed as it was approved, in time. That it was, the fold and `is_met` say."""
    event, record = seen.event, seen.record
    hold = seen.before.holds.get(event.hold or "")
    if hold is None or record is None:
        return
    if seen.at >= (hold.execute_by or 0):
        yield Broken("P8", f"the approval of {event.call} had lapsed")
    if event.policy_digest == record.policy_digest and event.usd_micros != record.usd_micros:
        yield Broken("P8", f"{event.call} costs {event.usd_micros} micro-dollars; what was approved cost {record.usd_micros}")


def may_be_cast(history: TreeHistory, seen: Seen) -> Iterator[Broken]:
    """P8: a vote is of somebody whom the policy names, never of who asked, once, in time, on what was shown."""
    event, tree = seen.event, seen.before
    hold = tree.holds[event.hold]
    names = {event.by, *(f"group:{group}" for group in event.groups)}
    if event.by in {name for run in tree.lineage(event.run) for name in (run.principal, run.opened_by)}:
        yield Broken("P8", f"{event.by} votes on {hold.id}, which their own run asks for")
    if not any(names & set(requirement.approvers) for requirement in hold.requirements):
        yield Broken("P8", f"{event.by} votes on {hold.id} and is nobody whom it asks")
    if any(vote.by == event.by for vote in hold.votes) or event.digest != hold.digest or seen.at >= hold.expires_at:
        yield Broken("P8", f"{event.by} votes on {hold.id} twice, too late, or on something else than it shows")


def is_met(history: TreeHistory, seen: Seen) -> Iterator[Broken]:
    hold = seen.before.holds[seen.event.hold]
    if not all(hold.met(requirement) for requirement in hold.requirements):
        yield Broken("P8", f"{hold.id} is approved by fewer than it asks for")


def may_be_said(history: TreeHistory, seen: Seen) -> Iterator[Broken]:
    """P4, P11, P13: an outcome is the running attempt's; an answer comes from who sent it; without one, a write is in doubt."""
    event, record = seen.event, seen.record
    assert record is not None, "the fold has refused it otherwise"
    if record.state != "admitted" or event.attempt != record.attempt:
        yield Broken("P4", f"an outcome of attempt {event.attempt} for {event.call}, which is {record.state} in attempt {record.attempt}")
    if event.answered and event.by != record.owner:
        yield Broken("P11", f"{event.by} records an answer to {event.call}, which {record.owner} had sent")
    if record.effect.writes and event.state in ("failed", "cancelled") and not (event.answered or event.not_applied):
        yield Broken("P13", f"{event.call} is {event.state}; a write that may have happened, and has no answer, is in doubt")


def may_end_a_doubt(history: TreeHistory, seen: Seen) -> Iterator[Broken]:
    """P13, P2: a doubt ends by a probe, or by a person who didn't ask for the call; only a person sends it once more."""
    event = seen.event
    if event.by in {name for run in seen.before.lineage(event.run) for name in (run.principal, run.opened_by)}:
        yield Broken("P13", f"{event.by} ends the doubt about {event.call}, which their own run asked for")
    if event.state == "ready" and event.by.startswith("probe:"):
        yield Broken("P13", f"{event.by} sends {event.call} once more; only a person may")


def equals_its_record(history: TreeHistory, seen: Seen) -> Iterator[Broken]:
    """P4: what a replay gives is what was recorded."""
    event, record = seen.event, seen.record
    if record is not None and (record.state not in ("succeeded", "failed") or event.result != record.result):
        yield Broken("P4", f"a repeat was answered from {event.call}, which is {record.state}, with something else than its result")


def is_over(history: TreeHistory, seen: Seen) -> Iterator[Broken]:
    if live := [call for run in seen.after.family(seen.event.run) for call in run.live]:
        yield Broken("P10", f"{seen.event.run} is closed while {', '.join(sorted(live))} is not over")


Check = Callable[[TreeHistory, Seen], Iterator[Broken]]
_CHECKS: dict[type[e.Event], tuple[Check, ...]] = {
    e.TurnOpened: (in_time, TreeHistory.paid),
    e.CallHeld: (in_time, TreeHistory.paid, TreeHistory.keyed),
    e.CallAdmitted: (
        in_time, inside_its_run, TreeHistory.paid, TreeHistory.keyed, follows_its_attempts, TreeHistory.spends_its_key, agreed_to,
    ),
    e.CallSettled: (may_be_said, TreeHistory.frees_its_key),
    e.CallReconciled: (may_end_a_doubt, TreeHistory.frees_its_key),
    e.CallReplayed: (equals_its_record,),
    e.VoteCast: (may_be_cast,),
    e.HoldApproved: (is_met,),
    e.RunClosed: (is_over,),
}  # fmt: skip


def _what(event: Any) -> str:
    return f"turn {event.turn}" if isinstance(event, e.TurnOpened) else str(event.call)


# ---- across streams -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Principals:
    """What principals' streams count, against the trees that they count in; asked once every stream's last state was seen."""

    _open_runs: dict[str, set[str]] = field(default_factory=dict)
    _open_holds: dict[str, set[str]] = field(default_factory=dict)
    _counted: dict[str, PrincipalState] = field(default_factory=dict)

    def saw(self, stream: str, state: Any) -> None:
        if isinstance(state, PrincipalState):
            self._counted[stream.partition(":")[2]] = state
        elif isinstance(state, Tree) and state.root:
            root = state.runs[state.root]
            holds = {hold.id for hold in state.holds.values() if hold.state in ("held", "approved")}
            self._open_holds.setdefault(root.principal, set()).update(holds)
            self._open_runs.setdefault(root.principal, set()).update({root.id} if root.state != "closed" else ())

    def broken(self) -> Iterator[tuple[str, Broken]]:
        """Principal and what is wrong with its counts."""
        for name in sorted(self._open_runs.keys() | self._counted.keys()):
            counted = self._counted.get(name, PrincipalState())
            for what, here, there in (("runs", self._open_runs, counted.open_runs), ("holds", self._open_holds, counted.open_holds)):
                if differing := here.get(name, set()) ^ set(there):
                    yield name, Broken("P6", f"open {what} are counted otherwise than they stand: {', '.join(sorted(differing)[:5])}")
