"""state + event -> next state, for run trees: one small function a kind. An event that the tables forbid raises and changes nothing.

So does one that names a run, turn, call or hold that isn't there. A busy child keeps the runs above it from counting as silent.

Each LIMIT guard's little state is folded here too, by the guard's own `folds`: for the event's run, and for its ancestors where the guard
says `tree = True` (purses).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from immutables import Map
from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.guards import FOLDINGS, SHARED, Folding
from gateway.core.lifecycle import CALL, HOLD, LIVE_CALL, RECONCILED_INPUT, RUN, SETTLED_INPUT, TURN, IllegalTransition, state_of, step
from gateway.core.model import Effect, Limits, Requirement
from gateway.core.run import CallRecord, Hold, Run, Tree, Turn, Vote

Change = dict[str, Any]
Evolver = Callable[[Tree, Run, int, int, Any], tuple[Change, Change]]
"""What an event changes in its run, and what in the tree beside its runs; both are given as they were before."""


def evolve_tree(tree: Tree, seq: int, at: int, event: e.Event) -> Tree:
    """The next state of a run stream. Raises IllegalTransition, and TypeError for an event of another kind of stream."""
    if isinstance(event, e.RunOpened):
        run, others = _opened(tree, at, event)
    else:
        run, others = _changed(tree, seq, at, event)
    runs = tree.runs.set(run.id, run)
    return replace(tree, seq=seq, at=at, runs=runs if run.parent is None else _above(tree, runs, run, event), **others)


def _changed(tree: Tree, seq: int, at: int, event: Any) -> tuple[Run, Change]:
    evolver = _EVOLVERS.get(type(event))
    if evolver is None:
        raise TypeError(f"{type(event).__name__} has no place in a run's stream")
    try:
        run = tree.runs[event.run]
        change, others = evolver(tree, run, seq, at, event)
    except KeyError as missing:
        raise IllegalTransition(f"{type(event).__name__} names {missing}, which isn't there") from None
    if type(event) in FOLDINGS:
        change["facts"] = _folded(run.facts, event, tree, FOLDINGS)
    after = replace(run, **change)
    return (_paused(after, at) if run.limits.pause_while_held else after), others


def _folded(facts: Map[str, Any], event: e.Event, tree: Tree, foldings: Mapping[type[e.Event], tuple[Folding, ...]]) -> Map[str, Any]:
    for kind, start, fold in foldings.get(type(event), ()):
        fact = facts.get(kind, start)
        folded = fold(fact, event, tree)
        if folded is not fact:
            facts = facts.set(kind, folded)
    return facts


def _paused(run: Run, at: int) -> Run:
    """Start or end a pause: a held or ready call, no admitted call, no open turn (DESIGN §5)."""
    states = set(run.live.values())
    pausing = bool(states) and "admitted" not in states and not run.open_turns
    if pausing and run.paused_at is None:
        return replace(run, paused_at=at)
    if not pausing and run.paused_at is not None:
        return replace(run, paused_at=None, paused_ms=run.paused_ms + at - run.paused_at)
    return run


def _above(tree: Tree, runs: Map[str, Run], run: Run, event: Any) -> Map[str, Run]:
    """The runs above share the purse, and a busy child keeps them from counting as silent."""
    while run.parent is not None:
        up = runs[run.parent]
        facts = _folded(up.facts, event, tree, SHARED)
        if facts is not up.facts or up.active_at < run.active_at:
            up = replace(up, facts=facts, active_at=max(up.active_at, run.active_at))
            runs = runs.set(up.id, up)
        run = up
    return runs


# ---- run ----------------------------------------------------------------------------------------------------------------


def _opened(tree: Tree, at: int, event: e.RunOpened) -> tuple[Run, Change]:
    limits = Limits(**{**event.limits, "close_on": tuple(event.limits["close_on"])})
    run = Run(
        event.run, event.principal, event.opened_by, event.policy, event.policy_digest, limits, event.task_type, at, event.door, event.parent,
        event.run_key, event.continues, event.goal, Map(event.labels), step(RUN, state_of(tree.runs.get(event.run)), "open"), active_at=at,
    )  # fmt: skip
    return run, {"root": tree.root or event.run}


def _frozen(tree: Tree, run: Run, seq: int, at: int, event: e.RunFrozen) -> tuple[Change, Change]:
    return {"state": step(RUN, run.state, "freeze")}, {}


def _resumed(tree: Tree, run: Run, seq: int, at: int, event: e.RunResumed) -> tuple[Change, Change]:
    return {"state": step(RUN, run.state, "resume"), "active_at": at}, {}


def _closing(tree: Tree, run: Run, seq: int, at: int, event: e.RunClosing) -> tuple[Change, Change]:
    handoff = Map(event.handoff) if event.handoff is not None else None
    state = step(RUN, run.state, "close")
    return {"state": state, "status": event.status, "reason": event.reason, "ended_by": event.by, "handoff": handoff}, {}


def _closed(tree: Tree, run: Run, seq: int, at: int, event: e.RunClosed) -> tuple[Change, Change]:
    return {"state": step(RUN, run.state, "done"), "closed_at": at}, {}


# ---- turn ---------------------------------------------------------------------------------------------------------------


def _turn_opened(tree: Tree, run: Run, seq: int, at: int, event: e.TurnOpened) -> tuple[Change, Change]:
    state = step(TURN, state_of(run.turns.get(event.turn)), "open")
    turn = Turn(event.turn, at, event.tokens, paused_ms=run.paused(at), state=state)
    longest = run.longest_turn_ms
    if (last := run.turns.get(run.last_turn)) is not None:
        longest = max(longest, at - last.opened_at - (turn.paused_ms - last.paused_ms))
    turns = run.turns.set(turn.number, turn)
    return {"turns": turns, "last_turn": turn.number, "longest_turn_ms": longest, "open_turns": run.open_turns + 1, "active_at": at}, {}


def _turn_answered(tree: Tree, run: Run, seq: int, at: int, event: e.TurnAnswered) -> tuple[Change, Change]:
    turn = run.turns[event.turn]
    after = replace(turn, state=step(TURN, turn.state, "answer"), digest=event.digest, asked=tuple(Map(call) for call in event.calls))
    return {"turns": run.turns.set(turn.number, after), "open_turns": run.open_turns - 1, "active_at": at}, {}


def _turn_closed(tree: Tree, run: Run, seq: int, at: int, event: e.TurnClosed) -> tuple[Change, Change]:
    turn = run.turns[event.turn]
    after = replace(turn, state=step(TURN, turn.state, "close"), status=event.status, closed_at=at)
    return {"turns": run.turns.set(turn.number, after), "open_turns": run.open_turns - (turn.state == "open")}, {}


def _usage(tree: Tree, run: Run, seq: int, at: int, event: e.UsageReported) -> tuple[Change, Change]:
    turn = run.turns[event.turn]
    lowered = event.source == "reporter"
    after = replace(turn, reported=turn.reported + event.tokens, tokens=0 if lowered else turn.tokens)
    return {"turns": run.turns.set(turn.number, after), "active_at": at}, {}


# ---- call ---------------------------------------------------------------------------------------------------------------

_NO_OPERATIONS: Map[str | None, str] = Map()


def _indexed(run: Run, record: CallRecord, turn: int, call_id: str | None) -> Change:
    """The changes of a run's indexes that make `record` findable by what was asked."""
    what = (record.tool, record.fingerprint)
    operations = run.by_print.get(what, _NO_OPERATIONS).set(record.operation_id, record.id)
    change: Change = {"by_print": run.by_print.set(what, operations)}
    if call_id is not None:
        change["by_call_id"] = run.by_call_id.set((turn, call_id), record.id)
    if record.operation_id is not None:
        change["by_operation"] = run.by_operation.set(record.operation_id, record.id)
    return change


def _asked(event: e.CallAsked, at: int, **fields: Any) -> CallRecord:
    return CallRecord(
        id=event.call, run=event.run, turn=event.turn, call_id=event.call_id, tool=event.tool, fingerprint=event.fingerprint,
        operation_id=event.operation_id, arguments=event.arguments, asked_at=at, door=event.door, **fields,
    )  # fmt: skip


def _denied(tree: Tree, run: Run, seq: int, at: int, event: e.CallDenied) -> tuple[Change, Change]:
    state = step(CALL, state_of(tree.calls.get(event.call)), "refuse")
    record = _asked(event, at, state=state, reason=event.findings[0]["reason"], settled_at=at)
    return {"active_at": at}, {"asked": tree.asked + 1, "calls": tree.calls.set(record.id, record)}


def _held(tree: Tree, run: Run, seq: int, at: int, event: e.CallHeld) -> tuple[Change, Change]:
    state = step(CALL, state_of(tree.calls.get(event.call)), "hold")
    record = _asked(
        event, at, state=state, upstream=event.upstream, effect=Effect(event.effect), key=event.key, occurrence=event.occurrence,
        policy_digest=event.policy_digest, tool_digest=event.tool_digest, usd_micros=event.usd_micros, hold=event.hold,
    )  # fmt: skip
    hold = Hold(
        event.hold, event.call, event.run, event.digest, tuple(_requirement(r) for r in event.requirements), event.show, at, event.expires_at,
        event.execute_within_ms, step(HOLD, state_of(tree.holds.get(event.hold)), "hold"),
    )  # fmt: skip
    change = {"live": run.live.set(record.id, record.state), "active_at": at, **_indexed(run, record, event.turn, event.call_id)}
    return change, {"asked": tree.asked + 1, "calls": tree.calls.set(record.id, record), "holds": tree.holds.set(hold.id, hold)}


def _requirement(row: dict[str, Any]) -> Requirement:
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    return Requirement(**fields)


def _admitted(tree: Tree, run: Run, seq: int, at: int, event: e.CallAdmitted) -> tuple[Change, Change]:
    before = tree.calls.get(event.call)
    if event.hold != _to_consume(tree, before):
        raise IllegalTransition(f"{event.call} consumes {event.hold}: an approved call consumes its own hold, no other call any")
    admission = {
        "state": step(CALL, state_of(before), "admit"), "upstream": event.upstream, "effect": Effect(event.effect), "key": event.key,
        "occurrence": event.occurrence, "attempt": event.attempt, "policy_digest": event.policy_digest, "usd_micros": event.usd_micros,
        "deadline_at": event.deadline_at, "owner": event.owner, "lease_until": event.lease_until,
        "admitted_at": at if before is None or before.admitted_at is None else before.admitted_at,
    }  # fmt: skip
    record = _asked(event, at, **admission) if before is None else replace(before, **admission)
    change = {"live": run.live.set(record.id, record.state), "active_at": at}
    if event.attempt == 1:
        change |= _indexed(run, record, event.turn, event.call_id)
    others: Change = {"calls": tree.calls.set(record.id, record)}
    if before is None:
        others["asked"] = tree.asked + 1
    if record.effect.writes:
        others["last_write"] = tree.last_write.set(record.upstream, seq)
    if event.hold is not None:
        others |= _hold(tree, event.hold, "admit")
    return change, others


def _to_consume(tree: Tree, before: CallRecord | None) -> str | None:
    """The hold that lets a ready call go; one that is ready because it did not happen has none, or has consumed it."""
    hold = tree.holds.get(before.hold or "") if before is not None and before.state == "ready" else None
    return hold.id if hold is not None and hold.state == "approved" else None


def _settled(tree: Tree, run: Run, seq: int, at: int, event: e.CallSettled) -> tuple[Change, Change]:
    record = tree.calls[event.call]
    if record.state != "admitted":
        raise IllegalTransition(f"{event.call} is {record.state}; only an admitted call is settled")
    state = step(CALL, record.state, SETTLED_INPUT[event.state])
    after = replace(
        record, state=state, reason=event.reason, result=event.result, answered=event.answered, not_applied=event.not_applied,
        status=event.status, usd_micros=event.usd_micros, settled_at=at, settled_seq=seq, probe_at=event.probe_at, probes=0,
    )  # fmt: skip
    doubts = run.in_doubt + (state == "in_doubt")
    return {"live": _without(run.live, record.id), "in_doubt": doubts, "active_at": at}, {"calls": tree.calls.set(record.id, after)}


def _probed(tree: Tree, run: Run, seq: int, at: int, event: e.CallProbed) -> tuple[Change, Change]:
    record = _doubted(tree, event.call)
    return {}, {"calls": tree.calls.set(record.id, replace(record, probe_at=event.again_at, probes=record.probes + 1))}


_RECONCILED: dict[str, Change] = {
    "succeeded": {"reason": None, "answered": True},
    "failed": {"reason": "call.not_applied", "not_applied": True},
    "ready": {"reason": None},
    "abandoned": {},
}


def _reconciled(tree: Tree, run: Run, seq: int, at: int, event: e.CallReconciled) -> tuple[Change, Change]:
    """`settled_seq` stays: another write that came after the doubt began supersedes the call, whenever somebody found out."""
    record = _doubted(tree, event.call)
    state = step(CALL, record.state, RECONCILED_INPUT[event.state])
    after = replace(record, state=state, result=event.result or record.result, settled_at=at, probe_at=None, **_RECONCILED[state])
    live = run.live.set(record.id, state) if state in LIVE_CALL else run.live
    return {"live": live, "in_doubt": run.in_doubt - 1}, {"calls": tree.calls.set(record.id, after)}


def _doubted(tree: Tree, call: str) -> CallRecord:
    record = tree.calls[call]
    if record.state != "in_doubt":
        raise IllegalTransition(f"{call} is {record.state}; this is about calls in doubt only")
    return record


def _replayed(tree: Tree, run: Run, seq: int, at: int, event: e.CallReplayed) -> tuple[Change, Change]:
    change: Change = {"active_at": at}
    if event.call_id is not None and (event.turn, event.call_id) not in run.by_call_id and event.call in tree.calls:
        change["by_call_id"] = run.by_call_id.set((event.turn, event.call_id), event.call)
    return change, {}


def _cancelled(tree: Tree, run: Run, seq: int, at: int, event: e.CallCancelled) -> tuple[Change, Change]:
    hold = tree.calls[event.call].hold or ""
    change, others = _ended(tree, run, event.call, "withdraw", at, event.reason)
    return change, others | _hold(tree, hold, "withdraw", ended_by=event.by)


def _ended(tree: Tree, run: Run, call: str, by: str, at: int, reason: str | None) -> tuple[Change, Change]:
    record = tree.calls[call]
    after = replace(record, state=step(CALL, record.state, by), reason=reason, settled_at=None if by == "approve" else at)
    live = run.live.set(call, after.state) if after.state in LIVE_CALL else _without(run.live, call)
    return {"live": live}, {"calls": tree.calls.set(call, after)}


def _without(live: Map[str, str], call: str) -> Map[str, str]:
    return live.delete(call) if call in live else live


# ---- hold ---------------------------------------------------------------------------------------------------------------


def _hold(tree: Tree, hold: str, by: str, **changes: Any) -> Change:
    before = tree.holds[hold]
    return {"holds": tree.holds.set(hold, replace(before, state=step(HOLD, before.state, by), **changes))}


def _voted(tree: Tree, run: Run, seq: int, at: int, event: e.VoteCast) -> tuple[Change, Change]:
    vote = Vote(event.by, event.vote, tuple(event.groups), at, event.note)
    return {}, _hold(tree, event.hold, "vote", votes=(*tree.holds[event.hold].votes, vote))


def _approved(tree: Tree, run: Run, seq: int, at: int, event: e.HoldApproved) -> tuple[Change, Change]:
    change, others = _ended(tree, run, event.call, "approve", at, None)
    return change, others | _hold(tree, event.hold, "approve", execute_by=event.execute_by)


def _refused(
    tree: Tree, run: Run, event: e.HoldDenied | e.HoldExpired | e.HoldVoided, by: str, at: int, reason: str, **more: Any
) -> tuple[Change, Change]:
    """The hold and its call end together, for one reason."""
    change, others = _ended(tree, run, event.call, by, at, reason)
    return change, others | _hold(tree, event.hold, by, reason=reason, **more)


def _hold_denied(tree: Tree, run: Run, seq: int, at: int, event: e.HoldDenied) -> tuple[Change, Change]:
    return _refused(tree, run, event, "deny", at, "approval.denied", ended_by=event.by, note=event.note)


def _expired(tree: Tree, run: Run, seq: int, at: int, event: e.HoldExpired) -> tuple[Change, Change]:
    return _refused(tree, run, event, "expire", at, event.reason)


def _voided(tree: Tree, run: Run, seq: int, at: int, event: e.HoldVoided) -> tuple[Change, Change]:
    return _refused(tree, run, event, "void", at, "approval.void", note=event.what)


_EVOLVERS: dict[type[e.Event], Evolver] = {
    e.RunFrozen: _frozen,
    e.RunResumed: _resumed,
    e.RunClosing: _closing,
    e.RunClosed: _closed,
    e.TurnOpened: _turn_opened,
    e.TurnAnswered: _turn_answered,
    e.TurnClosed: _turn_closed,
    e.UsageReported: _usage,
    e.CallDenied: _denied,
    e.CallHeld: _held,
    e.CallAdmitted: _admitted,
    e.CallSettled: _settled,
    e.CallProbed: _probed,
    e.CallReconciled: _reconciled,
    e.CallReplayed: _replayed,
    e.CallCancelled: _cancelled,
    e.VoteCast: _voted,
    e.HoldApproved: _approved,
    e.HoldDenied: _hold_denied,
    e.HoldExpired: _expired,
    e.HoldVoided: _voided,
}

