"""What a repeated call means: key, occurrence, earlier state -> answer (DESIGN §4). Correctness, not policy: no rule can change it.

Looked for first by the caller's trusted call_id, then by what is asked (tool, fingerprint, operation_id), in the run and in the runs it
continues.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.core.model import Effect
from gateway.core.policy import Idempotency
from gateway.core.run import CallRecord, Run, Tree


@dataclass(frozen=True, slots=True)
class Fresh:
    """Nothing binds this call: it is judged and dispatched as this occurrence."""

    occurrence: int


@dataclass(frozen=True, slots=True)
class Replay:
    """The record answers. `same_call_id`: found by the caller's own id, so it is no sign of a loop."""

    record: CallRecord
    same_call_id: bool = False


@dataclass(frozen=True, slots=True)
class Join:
    """The same call is running; its outcome is this call's."""

    record: CallRecord


@dataclass(frozen=True, slots=True)
class Waiting:
    """It is held, or (`ready`) approved and may go on."""

    record: CallRecord
    ready: bool


@dataclass(frozen=True, slots=True)
class Sticky:
    """A person said no to exactly this."""

    record: CallRecord


@dataclass(frozen=True, slots=True)
class Doubtful:
    """It may have happened; only a person or a probe can tell."""

    record: CallRecord


@dataclass(frozen=True, slots=True)
class Reused:
    """The same identity was used for something else."""

    what: str
    record: CallRecord


Repeat = Fresh | Replay | Join | Waiting | Sticky | Doubtful | Reused
Past = tuple[tuple[Tree, Run], ...]
"""The run and those it continues, newest first, each with its tree."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What identifies a call. `call_id` only if the principal is trusted with it."""

    turn: int
    call_id: str | None
    tool: str
    fingerprint: str
    operation_id: str | None
    effect: Effect
    idempotency: Idempotency


def judge(past: Past, asked: Asked) -> Repeat:
    """What the earlier record, if any, makes of this call."""
    tree, run = past[0]
    if asked.call_id is not None and (known := run.by_call_id.get((asked.turn, asked.call_id))) is not None:
        record = tree.calls[known]
        if (record.tool, record.fingerprint) != (asked.tool, asked.fingerprint):
            return Reused("call_id", record)
        return _answer(tree, record, asked, same_call_id=True)
    for tree, run in past:
        if asked.operation_id is not None and (known := run.by_operation.get(asked.operation_id)) is not None:
            record = tree.calls[known]
            if (record.tool, record.fingerprint) != (asked.tool, asked.fingerprint):
                return Reused("operation_id", record)
        if (known := run.by_print.get((asked.tool, asked.fingerprint, asked.operation_id))) is not None:
            return _answer(tree, tree.calls[known], asked)
    return Fresh(0)


def _answer(tree: Tree, record: CallRecord, asked: Asked, *, same_call_id: bool = False) -> Repeat:
    match record.state:
        case "held" | "ready":
            return Waiting(record, ready=record.state == "ready")
        case "admitted":
            return Join(record)
        case "in_doubt" | "abandoned":
            return Doubtful(record)
        case "denied" if record.reason == "approval.denied":
            return Sticky(record)
        case "succeeded" | "failed":
            return _settled(tree, record, asked, same_call_id=same_call_id)
    return Fresh(record.occurrence)


def _settled(tree: Tree, record: CallRecord, asked: Asked, *, same_call_id: bool) -> Repeat:
    if record.not_applied:
        if not record.answered:
            return Fresh(record.occurrence)
        if asked.idempotency.on_error == "retry" and not same_call_id:
            return Fresh(record.occurrence + 1)
    if same_call_id:
        return Replay(record, same_call_id=True)
    if asked.effect is Effect.READ_ONLY:
        return Fresh(record.occurrence + 1)
    if asked.effect is Effect.IDEMPOTENT_WRITE and superseded(tree, record):
        return Fresh(record.occurrence + 1)
    return Replay(record)


def superseded(tree: Tree, record: CallRecord) -> bool:
    """Was another write on its upstream admitted in this tree after the record was settled? Then the same write is a new one."""
    return tree.last_write.get(record.upstream, 0) > record.settled_seq


def executed_before(past: Past, tool: str, fingerprint: str) -> bool:
    """Has this tool run, or may it have, with these arguments under any operation? Then a new operation_id is a deliberate repeat."""
    return any(
        record.tool == tool and record.fingerprint == fingerprint and record.state not in ("denied", "cancelled")
        for tree, run in past
        for key, call in run.by_print.items()
        if key[0] == tool and key[1] == fingerprint and (record := tree.calls[call])
    )
