"""Rows of the views, projected from states: what lists show and what the sweep looks for. A view can be rebuilt from events at any time.

The first column is the row's id. A row is written only when it changed. `due_at` is when the sweep must look: of a run in
the root's row, for the whole tree but its calls; of a call in its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any, Final, NamedTuple

from gateway.core.deployment import Deployment
from gateway.core.events import CallAdmitted, CallSettled, Event, ToolsAccepted, ToolsPinned
from gateway.core.run import CallRecord, Hold, Tree, Vote, idle_at

COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "runs": (
        "run", "principal", "opened_by", "policy", "policy_digest", "task_type", "door", "parent", "run_key", "continues", "goal",
        "state", "status", "reason", "turns", "opened_at", "closed_at", "due_at", "stream",
    ),
    "calls": (
        "call", "run", "turn", "call_id", "tool", "upstream", "effect", "state", "reason", "fingerprint", "key", "occurrence", "attempt",
        "operation_id", "hold", "arguments", "result", "status", "usd_micros", "door", "asked_at", "admitted_at", "settled_at", "stream", "due_at",
    ),
    "holds": (
        "hold", "run", "call", "principal", "tool", "digest", "state", "reason", "show", "held_at", "expires_at", "execute_by",
        "ended_by", "stream",
    ),
    "votes": ("id", "hold", "by", "vote", "at", "note", "stream"),
    "tools": ("tool", "digest", "stream"),
}  # fmt: skip

FILTERS: Final[dict[str, frozenset[str]]] = {
    "runs": frozenset({"run", "principal", "policy", "task_type", "parent", "run_key", "state", "status", "reason", "stream"}),
    "calls": frozenset({
        "call", "run", "turn", "call_id", "tool", "upstream", "effect", "state", "reason", "fingerprint", "key", "operation_id", "hold", "stream",
    }),
    "holds": frozenset({"hold", "run", "call", "principal", "tool", "state", "stream"}),
    "votes": frozenset({"id", "hold", "by", "vote", "stream"}),
}  # fmt: skip
"""What lists can be filtered by."""

_RUN: Final = attrgetter(
    "id", "principal", "opened_by", "policy", "policy_digest", "task_type", "door", "parent", "run_key", "continues", "goal",
    "state", "status", "reason", "last_turn", "opened_at", "closed_at",
)  # fmt: skip
_CALL: Final = attrgetter(
    "id", "run", "turn", "call_id", "tool", "upstream", "effect.value", "state", "reason", "fingerprint", "key", "occurrence", "attempt",
    "operation_id", "hold", "arguments", "result", "status", "usd_micros", "door", "asked_at", "admitted_at", "settled_at",
)  # fmt: skip


class Row(NamedTuple):
    """A row that a view now has in place of any other with this id."""

    view: str
    id: str
    values: tuple[Any, ...]


def changes(
    before: Any, after: Any, stream: str, event: Event, root: tuple[Any, ...] | None
) -> tuple[list[Row], tuple[Any, ...] | None, CallRecord | None]:
    """The rows that `event` changed, the root's row in `runs`, and the call whose row (`call_row`) it changed. `root`: that row as it was written
    last, None if not known."""
    if isinstance(after, Tree):
        run: str = event.run  # type: ignore[attr-defined]  # all events of a tree are RunEvents
        if root is not None and only_a_call(before, after, event):
            return [], root, after.calls[event.call]  # type: ignore[attr-defined]
        row = _run(after, stream, after.root)
        rows = [Row("runs", after.root, row)] if row != root else []
        if run != after.root:
            values = _run(after, stream, run)
            if run not in before.runs or values != _run(before, stream, run):
                rows.append(Row("runs", run, values))
        record = after.calls.get(getattr(event, "call", ""))
        if record is None:
            return rows, row, None
        if record.hold is not None:
            rows += _hold(before, after, stream, record.hold)
        return rows, row, None if record is before.calls.get(record.id) else record
    if isinstance(event, ToolsPinned | ToolsAccepted):
        return [_tool(tool, digest, stream) for tool, digest in event.tools.items()], None, None
    return [], None, None


def call_row(record: CallRecord, stream: str, due_at: int | None) -> tuple[Any, ...]:
    """A call's row in `calls`; `due_at` is the tree's `call_due_at`."""
    return (*_CALL(record), stream, due_at)


def everything(state: Any, stream: str) -> Iterator[Row]:
    """All rows of a stream, from its state."""
    if isinstance(state, Tree):
        nothing = Tree()
        yield from (Row("runs", run, _run(state, stream, run)) for run in state.runs)
        yield from (Row("calls", call.id, call_row(call, stream, state.call_due_at(call))) for call in state.calls.values())
        for hold in state.holds:
            yield from _hold(nothing, state, stream, hold)
    elif isinstance(state, Deployment):
        yield from (_tool(tool, pin.digest, stream) for tool, pin in state.pins.items())


def only_a_call(before: Tree, after: Tree, event: Event) -> bool:
    """Did a call without a hold start or end in a lone, open, unpaused run, and move none of the times in its row? Spares making the row."""
    if len(after.runs) != 1 or not (type(event) is CallSettled or (type(event) is CallAdmitted and event.hold is None)):
        return False
    was, now = before.runs[after.root], after.runs[after.root]
    quiet = was.state == now.state == "open" and was.paused_at is None and now.paused_at is None
    return quiet and (was.active_at == now.active_at or idle_at(was) == idle_at(now))


def _run(tree: Tree, stream: str, run: str) -> tuple[Any, ...]:
    return (*_RUN(tree.runs[run]), tree.due_at() if run == tree.root else None, stream)


def _hold(before: Tree, after: Tree, stream: str, id: str) -> list[Row]:
    """A hold's row and its new votes', if it changed."""
    hold, earlier = after.holds[id], before.holds.get(id)
    if hold is earlier:
        return []
    call, run = after.calls[hold.call], after.runs[hold.run]
    values = (
        hold.id, hold.run, hold.call, run.principal, call.tool, hold.digest, hold.state, hold.reason, hold.show, hold.held_at,
        hold.expires_at, hold.execute_by, hold.ended_by, stream,
    )  # fmt: skip
    votes = hold.votes[len(earlier.votes) if earlier else 0 :]
    return [Row("holds", hold.id, values), *(_vote(hold, vote, stream) for vote in votes)]


def _vote(hold: Hold, vote: Vote, stream: str) -> Row:
    id = f"{hold.id}/{vote.by}"
    return Row("votes", id, (id, hold.id, vote.by, vote.vote, vote.at, vote.note, stream))


def _tool(tool: str, digest: str, stream: str) -> Row:
    return Row("tools", tool, (tool, digest, stream))
