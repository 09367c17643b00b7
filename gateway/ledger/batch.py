"""One batch of the writer, before its commit: steps decided in order over each other's effects, and the rows that they make.

A job changes the batch wholly or, when anything in it raises, not at all. Nothing here waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import count
from secrets import token_hex
from typing import Final

from msgspec import Struct, field

from gateway.core.events import Event
from gateway.core.run import CallRecord
from gateway.ledger import views
from gateway.ledger.codec import encode, link
from gateway.ledger.states import Evolve, Head
from gateway.ledger.store import EventRow, PayloadRow, Rows
from gateway.ports import Committed, Decision, LedgerFault, Step

_PROCESS: Final = token_hex(8)
_EVENT_IDS: Final[Iterator[str]] = (f"{_PROCESS}-{number:x}" for number in count(1))


class Job(Struct, eq=False):
    """A step on its way through the writer. `outcome` is known before it is durable; `waiter` gets it after, and then neither is held here:
    a fault's traceback holds the writer's frames, these hold their jobs, and so the fault would hold itself."""

    streams: Sequence[str]
    step: Step
    waiter: asyncio.Future[Committed] | None
    outcome: Committed | BaseException | None = None

    def answer(self) -> None:
        """Tell the caller, if it is still there."""
        outcome, self.outcome = self.outcome, None
        self._tell(outcome)

    def fail(self, message: str) -> None:
        """Tell the caller that nothing happened; each gets its own exception."""
        self.outcome = None
        self._tell(LedgerFault(message))

    def _tell(self, outcome: Committed | BaseException | None) -> None:
        """What can't cross a future, or would look like a cancelled caller, is wrapped."""
        waiter, self.waiter = self.waiter, None
        if waiter is None or waiter.done():
            return
        if isinstance(outcome, Committed):
            waiter.set_result(outcome)
        elif isinstance(outcome, Exception) and not isinstance(outcome, StopIteration):
            waiter.set_exception(outcome)
        else:
            waiter.set_exception(RuntimeError(f"the step raised {outcome!r}"))


class Batch(Struct, eq=False):
    """`heads`: every stream the jobs name, moved on by each job; `changed`: those with new events."""

    evolve: Evolve
    now: int
    heads: dict[str, Head]
    rows: Rows = field(default_factory=Rows)
    changed: set[str] = field(default_factory=set)

    def decide(self, job: Job) -> None:
        """Run the job's step; its outcome is a Committed, or what it raised."""
        try:
            job.outcome = self._apply(job)
        except BaseException as fault:  # noqa: BLE001 a step's fault is its caller's, whatever it is; the writer lives on
            job.outcome = fault

    def _apply(self, job: Job) -> Committed:
        heads, at = {}, self.now
        for stream in job.streams:
            head = self.heads.get(stream)
            if head is None:
                raise LedgerFault(f"{stream} can't be read")
            heads[stream] = head
            at = max(at, head.state.at)
        decision = job.step({stream: head.state for stream, head in heads.items()}, at)
        events, changed, calls = [], [], {}
        for stream, event in decision.events:
            heads[stream], row, rows, call = self._append(heads[stream], stream, at, event)
            events.append(row)
            changed += rows
            if call is not None:
                calls[call.id] = (call, stream, heads[stream].state.call_due_at(call))
        self._keep(decision, heads, events, changed)
        self.rows.calls.update(calls)
        return Committed(decision.answer, at, {stream: head.state for stream, head in heads.items()})

    def _append(self, head: Head, stream: str, at: int, event: Event) -> tuple[Head, EventRow, list[views.Row], CallRecord | None]:
        before = head.state
        seq, event_id, kind, version, body = before.seq + 1, next(_EVENT_IDS), type(event).__name__, event.VERSION, encode(event)
        hash = link(head.hash, stream, seq, event_id, at, kind, version, body)
        state = self.evolve(before, seq, at, event)
        changed, root, call = views.changes(before, state, stream, event, head.row)
        return Head(state, hash, head.saved, root), EventRow(stream, seq, event_id, at, kind, version, body, hash), changed, call

    def _keep(self, decision: Decision, heads: dict[str, Head], events: list[EventRow], changed: list[views.Row]) -> None:
        """Make a job's effects the batch's, once nothing can raise any more."""
        rows, policies = self.rows, dict(decision.policies) if decision.policies else {}
        payloads = [PayloadRow(stream, each.hash, each.salt, each.data) for stream, each in decision.payloads]
        for view, id, values in changed:
            rows.views.setdefault(view, {})[id] = values
        for row in events:
            self.changed.add(row.stream)
        self.heads.update(heads)
        rows.events += events
        rows.payloads += payloads
        rows.policies.update(policies)
