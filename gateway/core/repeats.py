"""What a repeated call means: key, occurrence, earlier state -> answer (DESIGN §4). Correctness, not policy: no rule can change it.

Looked for first by the caller's trusted call_id, then by what is asked (tool, fingerprint, operation_id), in the run and in the runs it
continues. Occurrences of one fingerprint only ever rise, so that no key is dispatched under two meanings.
"""

from __future__ import annotations

from immutables import Map
from msgspec import Struct

from gateway.core.model import Effect
from gateway.core.policy import Idempotency
from gateway.core.run import CallRecord, Run, Tree


class Fresh(Struct, frozen=True):
    """Nothing binds this call: it is judged and dispatched as this occurrence."""

    occurrence: int


class Replay(Struct, frozen=True):
    """The record answers. `same_call_id`: found by the caller's own id, so it is no sign of a loop."""

    record: CallRecord
    same_call_id: bool = False


class Join(Struct, frozen=True):
    """The same call is running; its outcome is this call's."""

    record: CallRecord


class Waiting(Struct, frozen=True):
    """It is held, or (`ready`) approved and may go on."""

    record: CallRecord
    ready: bool


class Sticky(Struct, frozen=True):
    """A person said no to exactly this."""

    record: CallRecord


class Doubtful(Struct, frozen=True):
    """It may have happened; only a person or a probe can tell."""

    record: CallRecord


class Reused(Struct, frozen=True):
    """The same identity was used for something else."""

    what: str
    record: CallRecord


Repeat = Fresh | Replay | Join | Waiting | Sticky | Doubtful | Reused
Past = tuple[tuple[Tree, Run], ...]
"""The run and those it continues, newest first, each with its tree."""


class Asked(Struct, frozen=True):
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
        if not _same(record, asked):
            return Reused("call_id", record)
        answer = _answer(past[:1], record, asked, same_call_id=True)
        if not isinstance(answer, Fresh):  # else a later call of the same key may still bind this one
            return answer
    for age, (tree, run) in enumerate(past):
        if asked.operation_id is not None and (known := run.by_operation.get(asked.operation_id)) is not None:
            record = tree.calls[known]
            if not _same(record, asked):
                return Reused("operation_id", record)
        answers = [_answer(past[: age + 1], record, asked) for record in _candidates(tree, run, asked)]
        if answers:
            return next((answer for answer in answers if not isinstance(answer, Fresh)), answers[0])
    return Fresh(0)


def _candidates(tree: Tree, run: Run, asked: Asked) -> list[CallRecord]:
    """The latest call of the same operation. Without one, a non_idempotent call is also a repeat of those that had one, the latest first:
    only a new operation_id says that it is wanted again."""
    operations = _operations(run, asked.tool, asked.fingerprint)
    known = operations.get(asked.operation_id)
    found = [] if known is None else [tree.calls[known]]
    if asked.operation_id is None and asked.effect is Effect.NON_IDEMPOTENT and len(operations) > len(found):
        others = [tree.calls[call] for operation, call in operations.items() if operation is not None]
        found += sorted(others, key=lambda record: int(record.id.rpartition("_")[2]), reverse=True)
    return found


def _same(record: CallRecord, asked: Asked) -> bool:
    return (record.tool, record.fingerprint) == (asked.tool, asked.fingerprint)


def _operations(run: Run, tool: str, fingerprint: str) -> Map[str | None, str]:
    """The latest call of each operation that asked for exactly this."""
    return run.by_print.get((tool, fingerprint), _NONE)


_NONE: Map[str | None, str] = Map()


def _answer(since: Past, record: CallRecord, asked: Asked, *, same_call_id: bool = False) -> Repeat:
    """`since`: the runs from the newest to the record's own."""
    match record.state:
        case "held" | "ready":
            return Waiting(record, ready=record.state == "ready")
        case "admitted":
            return Join(record)
        case "in_doubt" | "abandoned":
            return Doubtful(record)
        case "denied" if record.hold is not None and since[-1][0].holds[record.hold].state == "denied":
            return Sticky(record)
        case "succeeded" | "failed":
            return _settled(since, record, asked, same_call_id=same_call_id)
    return Fresh(record.occurrence)


def _settled(since: Past, record: CallRecord, asked: Asked, *, same_call_id: bool) -> Repeat:
    if record.not_applied and not record.answered:
        return Fresh(record.occurrence)
    if same_call_id:
        return Replay(record, same_call_id=True)
    freed = record.not_applied and asked.idempotency.on_error == "retry"
    again = asked.effect is Effect.IDEMPOTENT_WRITE and superseded(since, record)
    if freed or again or asked.effect is Effect.READ_ONLY:
        return Fresh(record.occurrence + 1)
    return Replay(record)


def superseded(since: Past, record: CallRecord) -> bool:
    """Was another write on its upstream admitted in these trees after the record was settled? Then the same write is a new one."""
    *newer, (own, _) = since
    return own.last_write.get(record.upstream, 0) > record.settled_seq or any(record.upstream in tree.last_write for tree, _ in newer)


def executed_before(past: Past, tool: str, fingerprint: str) -> bool:
    """Has this tool run, or may it have, with these arguments under any operation? Then a new operation_id is a deliberate repeat."""
    records = (tree.calls[call] for tree, run in past for call in _operations(run, tool, fingerprint).values())
    return any(record.state not in ("denied", "cancelled") and not record.not_applied for record in records)
