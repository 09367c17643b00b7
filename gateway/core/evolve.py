"""state + event -> next state, for run trees: one small function a kind. An event that the tables forbid raises and changes nothing.

So does one that names a run, turn, call or hold that isn't there. A busy child keeps the runs above it from counting as silent.

Each LIMIT guard's little state is folded here too: `guard.fold(fact, event, tree before)`, for the event's run, and for its ancestors
where the guard says `tree = True` (purses).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from immutables import Map

from gateway.core import events as e
from gateway.core.guards import FOLDED
from gateway.core.lifecycle import CALL, HOLD, LIVE_CALL, RUN, SETTLED_INPUT, TURN, IllegalTransition, state_of, step
from gateway.core.model import Effect, Limits, Requirement
from gateway.core.run import CallRecord, Hold, Run, Tree, Turn, Vote, but

Evolver = Callable[[Tree, int, int, Any], Tree]


def evolve_tree(tree: Tree, seq: int, at: int, event: e.Event) -> Tree:
    """The next state of a run stream. Raises IllegalTransition, and TypeError for an event of another kind of stream."""
    evolver = _EVOLVERS.get(type(event))
    if not isinstance(event, e.RunEvent) or evolver is None:
        raise TypeError(f"{type(event).__name__} has no place in a run's stream")
    try:
        after = evolver(tree, seq, at, event)
    except KeyError as missing:
        raise IllegalTransition(f"{type(event).__name__} names {missing}, which isn't there") from None
    runs = _folded(tree, after.runs, event) if isinstance(event, FOLDED.kinds) else after.runs
    run = runs[event.run]
    if run.limits.pause_while_held:
        runs = _paused(runs, event.run, at)
    if run.parent is not None:
        runs = _awake(runs, event.run)
    return but(after, seq=seq, at=at, runs=runs)


def _folded(tree: Tree, runs: Map[str, Run], event: Any) -> Map[str, Run]:
    run: str | None = event.run
    while run is not None:
        state = runs[run]
        facts = state.facts
        for guard in FOLDED.guards:
            if guard.tree or run == event.run:
                fact = facts.get(guard.kind, guard.start)
                folded = guard.fold(fact, event, tree)
                if folded is not fact:
                    facts = facts.set(guard.kind, folded)
        if facts is not state.facts:
            runs = runs.set(run, but(state, facts=facts))
        run = state.parent
    return runs


def _paused(runs: Map[str, Run], id: str, at: int) -> Map[str, Run]:
    """Start or end a pause: a held or ready call, no admitted call, no open turn (DESIGN §5)."""
    run = runs[id]
    states = set(run.live.values())
    pausing = bool(states) and "admitted" not in states and not run.open_turns
    if pausing and run.paused_at is None:
        return runs.set(id, but(run, paused_at=at))
    if not pausing and run.paused_at is not None:
        return runs.set(id, but(run, paused_at=None, paused_ms=run.paused_ms + at - run.paused_at))
    return runs


def _awake(runs: Map[str, Run], id: str) -> Map[str, Run]:
    """Activity counts for the runs above too."""
    run = runs[id]
    while run.parent is not None and (up := runs[run.parent]).active_at < run.active_at:
        up = but(up, active_at=run.active_at)
        runs, run = runs.set(up.id, up), up
    return runs


def _with_run(tree: Tree, run: Run, **changes: Any) -> Tree:
    return but(tree, runs=tree.runs.set(run.id, but(run, **changes)))


# ---- run ----------------------------------------------------------------------------------------------------------------


def _opened(tree: Tree, seq: int, at: int, event: e.RunOpened) -> Tree:
    limits = Limits(**{**event.limits, "close_on": tuple(event.limits["close_on"])})
    run = Run(
        event.run, event.principal, event.opened_by, event.policy, event.policy_digest, limits, event.task_type, at, event.door, event.parent,
        event.run_key, event.continues, event.goal, Map(event.labels), step(RUN, state_of(tree.runs.get(event.run)), "open"), active_at=at,
    )  # fmt: skip
    return but(tree, root=tree.root or event.run, runs=tree.runs.set(run.id, run))


def _frozen(tree: Tree, seq: int, at: int, event: e.RunFrozen) -> Tree:
    run = tree.runs[event.run]
    return _with_run(tree, run, state=step(RUN, run.state, "freeze"))


def _resumed(tree: Tree, seq: int, at: int, event: e.RunResumed) -> Tree:
    run = tree.runs[event.run]
    return _with_run(tree, run, state=step(RUN, run.state, "resume"), active_at=at)


def _closing(tree: Tree, seq: int, at: int, event: e.RunClosing) -> Tree:
    run = tree.runs[event.run]
    handoff = Map(event.handoff) if event.handoff is not None else None
    state = step(RUN, run.state, "close")
    return _with_run(tree, run, state=state, status=event.status, reason=event.reason, ended_by=event.by, handoff=handoff)


def _closed(tree: Tree, seq: int, at: int, event: e.RunClosed) -> Tree:
    run = tree.runs[event.run]
    return _with_run(tree, run, state=step(RUN, run.state, "done"), closed_at=at)


# ---- turn ---------------------------------------------------------------------------------------------------------------


def _turn_opened(tree: Tree, seq: int, at: int, event: e.TurnOpened) -> Tree:
    run = tree.runs[event.run]
    state = step(TURN, state_of(run.turns.get(event.turn)), "open")
    turn = Turn(event.turn, at, event.tokens, paused_ms=run.paused(at), state=state)
    longest = run.longest_turn_ms
    if (last := run.turns.get(run.last_turn)) is not None:
        longest = max(longest, at - last.opened_at - (turn.paused_ms - last.paused_ms))
    turns = run.turns.set(turn.number, turn)
    open_turns = run.open_turns + 1
    return _with_run(tree, run, turns=turns, last_turn=turn.number, longest_turn_ms=longest, open_turns=open_turns, active_at=at)


def _turn_answered(tree: Tree, seq: int, at: int, event: e.TurnAnswered) -> Tree:
    run = tree.runs[event.run]
    turn = run.turns[event.turn]
    after = but(turn, state=step(TURN, turn.state, "answer"), digest=event.digest, asked=tuple(Map(call) for call in event.calls))
    return _with_run(tree, run, turns=run.turns.set(turn.number, after), open_turns=run.open_turns - 1, active_at=at)


def _turn_closed(tree: Tree, seq: int, at: int, event: e.TurnClosed) -> Tree:
    run = tree.runs[event.run]
    turn = run.turns[event.turn]
    after = but(turn, state=step(TURN, turn.state, "close"), status=event.status, closed_at=at)
    return _with_run(tree, run, turns=run.turns.set(turn.number, after), open_turns=run.open_turns - (turn.state == "open"))


def _usage(tree: Tree, seq: int, at: int, event: e.UsageReported) -> Tree:
    run = tree.runs[event.run]
    turn = run.turns[event.turn]
    lowered = event.source == "reporter"
    after = but(turn, reported=turn.reported + event.tokens, tokens=0 if lowered else turn.tokens)
    return _with_run(tree, run, turns=run.turns.set(turn.number, after), active_at=at)


# ---- call ---------------------------------------------------------------------------------------------------------------

_NO_OPERATIONS: Map[str | None, str] = Map()


def _indexed(run: Run, record: CallRecord, turn: int, call_id: str | None) -> dict[str, Any]:
    """The changes of a run's indexes that make `record` findable by what was asked."""
    what = (record.tool, record.fingerprint)
    operations = run.by_print.get(what, _NO_OPERATIONS).set(record.operation_id, record.id)
    changes: dict[str, Any] = {"by_print": run.by_print.set(what, operations)}
    if call_id is not None:
        changes["by_call_id"] = run.by_call_id.set((turn, call_id), record.id)
    if record.operation_id is not None:
        changes["by_operation"] = run.by_operation.set(record.operation_id, record.id)
    return changes


def _asked(event: e.CallAsked, at: int) -> CallRecord:
    return CallRecord(
        event.call, event.run, event.turn, event.call_id, event.tool, event.fingerprint, event.operation_id, event.arguments, at, event.door
    )  # fmt: skip


def _denied(tree: Tree, seq: int, at: int, event: e.CallDenied) -> Tree:
    run = tree.runs[event.run]
    state = step(CALL, state_of(tree.calls.get(event.call)), "refuse")
    record = but(_asked(event, at), state=state, reason=event.findings[0]["reason"], settled_at=at)
    changed = _with_run(tree, run, active_at=at)
    return but(changed, asked=tree.asked + 1, calls=tree.calls.set(record.id, record))


def _held(tree: Tree, seq: int, at: int, event: e.CallHeld) -> Tree:
    run = tree.runs[event.run]
    state = step(CALL, state_of(tree.calls.get(event.call)), "hold")
    record = but(
        _asked(event, at), state=state, upstream=event.upstream, effect=Effect(event.effect), key=event.key,
        occurrence=event.occurrence, policy_digest=event.policy_digest, tool_digest=event.tool_digest, usd_micros=event.usd_micros, hold=event.hold,
    )  # fmt: skip
    hold = Hold(
        event.hold, event.call, event.run, event.digest, tuple(_requirement(r) for r in event.requirements), event.show, at, event.expires_at,
        event.execute_within_ms, step(HOLD, state_of(tree.holds.get(event.hold)), "hold"),
    )  # fmt: skip
    live = run.live.set(record.id, record.state)
    changed = _with_run(tree, run, live=live, active_at=at, **_indexed(run, record, event.turn, event.call_id))
    return but(changed, asked=tree.asked + 1, calls=tree.calls.set(record.id, record), holds=tree.holds.set(hold.id, hold))


def _requirement(row: dict[str, Any]) -> Requirement:
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    return Requirement(**fields)


def _admitted(tree: Tree, seq: int, at: int, event: e.CallAdmitted) -> Tree:
    run = tree.runs[event.run]
    before = tree.calls.get(event.call)
    record = but(
        before or _asked(event, at), state=step(CALL, state_of(before), "admit"), upstream=event.upstream,
        effect=Effect(event.effect), key=event.key, occurrence=event.occurrence, attempt=event.attempt, policy_digest=event.policy_digest,
        usd_micros=event.usd_micros, deadline_at=event.deadline_at, owner=event.owner, lease_until=event.lease_until,
        admitted_at=before.admitted_at if before and before.admitted_at else at,
    )  # fmt: skip
    indexes = _indexed(run, record, event.turn, event.call_id) if event.attempt == 1 else {}
    after = but(run, live=run.live.set(record.id, record.state), active_at=at, **indexes)
    writes = tree.last_write.set(record.upstream, seq) if record.effect.writes else tree.last_write
    changed = but(
        tree, runs=tree.runs.set(run.id, after), asked=tree.asked + (before is None), calls=tree.calls.set(record.id, record), last_write=writes
    )  # fmt: skip
    if event.hold != (before.hold if before and before.state == "ready" else None):
        raise IllegalTransition(f"{event.call} consumes {event.hold}: an approved call consumes its own hold, no other call any")
    return changed if event.hold is None else _with_hold(changed, event.hold, "admit")


def _settled(tree: Tree, seq: int, at: int, event: e.CallSettled) -> Tree:
    run, record = tree.runs[event.run], tree.calls[event.call]
    state = step(CALL, record.state, SETTLED_INPUT[event.state])
    after = but(
        record, state=state, reason=event.reason, result=event.result, answered=event.answered, not_applied=event.not_applied,
        status=event.status, usd_micros=event.usd_micros, settled_at=at, settled_seq=seq,
    )  # fmt: skip
    doubts = run.in_doubt + (state == "in_doubt") - (record.state == "in_doubt")
    changed = but(run, live=_without(run.live, record.id), in_doubt=doubts, active_at=at)
    return but(tree, runs=tree.runs.set(run.id, changed), calls=tree.calls.set(record.id, after))


def _replayed(tree: Tree, seq: int, at: int, event: e.CallReplayed) -> Tree:
    run = tree.runs[event.run]
    changes: dict[str, Any] = {"active_at": at}
    if event.call_id is not None and (event.turn, event.call_id) not in run.by_call_id and event.call in tree.calls:
        changes["by_call_id"] = run.by_call_id.set((event.turn, event.call_id), event.call)
    return _with_run(tree, run, **changes)


def _cancelled(tree: Tree, seq: int, at: int, event: e.CallCancelled) -> Tree:
    changed = _ended(tree, event.call, "withdraw", at, event.reason)
    return _with_hold(changed, tree.calls[event.call].hold or "", "withdraw", ended_by=event.by)


def _ended(tree: Tree, call: str, by: str, at: int, reason: str | None) -> Tree:
    record = tree.calls[call]
    run = tree.runs[record.run]
    after = but(record, state=step(CALL, record.state, by), reason=reason, settled_at=None if by == "approve" else at)
    live = run.live.set(call, after.state) if after.state in LIVE_CALL else _without(run.live, call)
    return but(_with_run(tree, run, live=live), calls=tree.calls.set(call, after))


def _without(live: Map[str, str], call: str) -> Map[str, str]:
    return live.delete(call) if call in live else live


# ---- hold ---------------------------------------------------------------------------------------------------------------


def _with_hold(tree: Tree, hold: str, by: str, **changes: Any) -> Tree:
    before = tree.holds[hold]
    return but(tree, holds=tree.holds.set(hold, but(before, state=step(HOLD, before.state, by), **changes)))


def _voted(tree: Tree, seq: int, at: int, event: e.VoteCast) -> Tree:
    hold = tree.holds[event.hold]
    vote = Vote(event.by, event.vote, tuple(event.groups), at, event.note)
    return _with_hold(tree, hold.id, "vote", votes=(*hold.votes, vote))


def _approved(tree: Tree, seq: int, at: int, event: e.HoldApproved) -> Tree:
    return _with_hold(_ended(tree, event.call, "approve", at, None), event.hold, "approve", execute_by=event.execute_by)


def _hold_denied(tree: Tree, seq: int, at: int, event: e.HoldDenied) -> Tree:
    changes = {"ended_by": event.by, "note": event.note, "reason": "approval.denied"}
    return _with_hold(_ended(tree, event.call, "deny", at, "approval.denied"), event.hold, "deny", **changes)


def _expired(tree: Tree, seq: int, at: int, event: e.HoldExpired) -> Tree:
    return _with_hold(_ended(tree, event.call, "expire", at, event.reason), event.hold, "expire", reason=event.reason)


def _voided(tree: Tree, seq: int, at: int, event: e.HoldVoided) -> Tree:
    return _with_hold(_ended(tree, event.call, "void", at, "approval.void"), event.hold, "void", reason="approval.void", note=event.what)


_EVOLVERS: dict[type[e.Event], Evolver] = {
    e.RunOpened: _opened,
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
    e.CallReplayed: _replayed,
    e.CallCancelled: _cancelled,
    e.VoteCast: _voted,
    e.HoldApproved: _approved,
    e.HoldDenied: _hold_denied,
    e.HoldExpired: _expired,
    e.HoldVoided: _voided,
}

