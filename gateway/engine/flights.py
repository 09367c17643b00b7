"""Dispatches in flight: one task each, from the durable intent to the recorded outcome, with all attempts in between.

Retries happen here and nowhere else. The time left is checked on the boottime clock just before the first byte; cancelling reaches the request
that is on the wire. An outcome that can't be recorded is offered again until its lease ends; meanwhile nobody is told it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway.core.assess import review
from gateway.core.decide import settle
from gateway.core.guards.result import linked
from gateway.core.model import Effect, Json, Outcome, Payload, Tool
from gateway.core.outcomes import called_off, outcome_of_answer, outcome_of_fault, standing
from gateway.core.policy import ToolRule
from gateway.core.run import CallRecord, Tree, stream_of
from gateway.engine.alarms import Alarms
from gateway.engine.desk import Decide, Desk
from gateway.engine.inquiry import NO_ANSWER, Answers, Inquiry
from gateway.ports import NOBODY, Client, Dispatch, LedgerFault, Unanswered, UpstreamFault

log = logging.getLogger("gateway.engine")

SAFETY_MS = 1_000
"""An upstream keeps its own deadline; this much later the engine ends the attempt itself."""

LONGEST_BACKOFF_MS = 30_000


class Landed(Struct, frozen=True):
    """How a flight ended: the record as it stands, the outcome with its result, and the tree they are in.

    `fenced`: the outcome isn't the record's; another process took the call over, or gave it up.
    """

    record: CallRecord
    outcome: Outcome
    tree: Tree
    fenced: bool = False


class Flight(Struct, eq=False):
    """One call on the wire. `riders`: who waits. `on_wire`: cancelling now reaches the upstream. `cancelled`: by us, on purpose.

    `stands`: what the call has come to so far; an attempt that didn't get through takes no doubt away. `outcome`: the latest attempt's, not
    recorded yet. `ends_at_boot`: the attempt's deadline on the clock that never jumps.
    """

    record: CallRecord
    rule: ToolRule
    arguments: Mapping[str, Json]
    trace: Mapping[str, str]
    client: Client = NOBODY
    inquiry: Inquiry | None = None
    task: asyncio.Task[Landed] | None = None
    riders: int = 0
    on_wire: bool = False
    cancelled: bool = False
    overran: bool = False
    ends_at_boot: int = 0
    stands: Outcome | None = None
    nap: asyncio.Future[None] | None = None
    outcome: Outcome | None = None

    def cancel(self) -> None:
        """End the attempt at the upstream, or the wait for the next one; the outcome is still recorded."""
        if not self.cancelled:
            self.cancelled = True
            if self.on_wire and self.task is not None:
                self.task.cancel()
            elif self.nap is not None:
                self.nap.cancel()

    def give_up(self) -> None:
        """The gateway stops: wait for no further try, and for no answer of the client's."""
        if self.nap is not None:
            self.nap.cancel()
        if self.inquiry is not None:
            self.inquiry.end()

    def overrun(self) -> None:
        """The upstream didn't keep its own deadline; end the attempt from here."""
        if self.on_wire and self.task is not None:
            self.overran = True
            self.task.cancel()


class Flights(Desk):
    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.flights: dict[str, Flight] = {}
        self.unrecorded: list[settle.SettleCommand] = []

    def launch(
        self,
        record: CallRecord,
        rule: ToolRule,
        arguments: Mapping[str, Json],
        client: Client = NOBODY,
        trace: Mapping[str, str] | None = None,
    ) -> Flight:
        """Dispatch an admitted call, unless the gateway has stopped. The task is kept until it has landed."""
        flight = self.flights[record.id] = Flight(record, rule, arguments, trace or {}, client)
        if client.capabilities:
            flight.inquiry = Inquiry(client, self.clock, record.deadline_at)
            flight.client = flight.inquiry.client
        flight.ends_at_boot = self._end_of(record)
        if self.over:
            flight.cancel()
        flight.task = asyncio.get_running_loop().create_task(self._fly(flight))
        flight.task.add_done_callback(lambda task: self._forget(flight, task))
        return flight

    def _end_of(self, record: CallRecord) -> int:
        """An attempt's deadline on the clock that never jumps: a wall clock that is set back grants no more, nor does a process that was stopped."""
        return self.clock.boot_ms() + record.deadline_at - self.clock.now_ms()

    def _forget(self, flight: Flight, task: asyncio.Task[Landed]) -> None:
        record = flight.record
        self.flights.pop(record.id, None)
        fault = asyncio.CancelledError("its task was cancelled") if task.cancelled() else task.exception()
        if fault is not None:
            log.error("call %s was not settled: %s", record.id, fault, exc_info=None if isinstance(fault, LedgerFault) else fault)
            self.unrecorded.append(self._settling(flight, flight.outcome or settle.given_up(record)))

    async def record_late(self) -> None:
        """Offer once more what nobody waits for any longer; where another attempt took over, its record stands. Raises LedgerFault."""
        while self.unrecorded:
            command = self.unrecorded[0]
            await self.decide([stream_of(command.call)], lambda states, now, c=command: settle.settle(states, c, now))  # type: ignore[misc]
            self.unrecorded.remove(command)

    async def ride(self, flight: Flight, gone: asyncio.Future[None] | None, wait_ms: int | None, answers: bool = False) -> Landed | None:
        """Wait for a flight; None when the time is up, the rider left, or the tool asks one who `answers`.

        A read that loses its last rider is cancelled, unless its tool waits for an answer: then the rider will come back."""
        task = flight.task
        assert task is not None
        flight.riders += 1
        try:
            if gone is None and wait_ms is None and not answers:
                return await asyncio.shield(task)
            await _either(task, gone, wait_ms, flight.inquiry.asked if answers and flight.inquiry else None)
            return task.result() if task.done() else None
        finally:
            flight.riders -= 1
            waits = flight.inquiry is not None and flight.inquiry.open is not None
            if flight.riders == 0 and not task.done() and not waits and flight.record.effect is Effect.READ_ONLY:
                flight.cancel()

    async def answered(self, flight: Flight, answers: asyncio.Future[Answers], gone: asyncio.Future[None] | None) -> Answers:
        """The client's answers, or that there are none because the call ended or the client left first."""
        assert flight.task is not None
        await _either(flight.task, gone, None, answers)
        if answers.done():
            return answers.result()
        answers.cancel()
        return Unanswered(NO_ANSWER, "The client left.")

    def cancel_flights(self, runs: set[str], turn: int | None = None) -> None:
        """Reach every call in flight of these runs (of one turn)."""
        for flight in list(self.flights.values()):
            if flight.record.run in runs and turn in (None, flight.record.turn):
                flight.cancel()

    # ---- one flight -----------------------------------------------------------------------------------------------------

    async def _fly(self, flight: Flight) -> Landed:
        while True:
            outcome = flight.outcome = self._linked(flight.record, review(flight.rule, standing(flight.stands, await self._attempt(flight))))
            if not outcome.retry or flight.record.attempt >= flight.rule.retry.attempts or flight.cancelled or self.stopping:
                return await self._settle(flight, outcome)
            wait = await self._wait(flight, outcome)
            if wait is not None:
                await self._nap(flight, wait)
            if wait is None or flight.cancelled or self.stopping:
                return await self._settle(flight, outcome)
            record, tree = await self._again(flight, outcome)
            if record.state != "admitted" or record.owner != self.owner:
                return self._landing(flight, outcome, record, tree)
            flight.record, flight.stands, flight.outcome, flight.ends_at_boot = record, outcome, None, self._end_of(record)

    async def _nap(self, flight: Flight, ms: int) -> None:
        """Wait for the next try; a cancel ends the waiting."""
        flight.nap = asyncio.ensure_future(self.clock.sleep(ms))
        try:
            await asyncio.wait({flight.nap})
        finally:
            flight.nap.cancel()
            flight.nap = None

    async def _wait(self, flight: Flight, outcome: Outcome) -> int | None:
        """How long until the next try: doubling, or as long as the upstream asks. None if the call is no longer ours then, or its run over."""
        record, now = flight.record, self.clock.now_ms()
        tree = await self.ledger.state(stream_of(record.run))
        longest = record.lease_until - SAFETY_MS - now
        wait = min(flight.rule.retry.backoff_ms << (record.attempt - 1), LONGEST_BACKOFF_MS, longest)
        wait = max(0, wait, outcome.retry_after_ms or 0)
        return wait if wait <= longest and now + wait < tree.deadline_at(record.run, now) else None

    async def _attempt(self, flight: Flight) -> Outcome:
        record = flight.record
        stream = stream_of(record.run)
        tree = self.ledger.at_hand(stream) or await self.ledger.state(stream)  # no older than the intent
        left = min(record.deadline_at - max(self.clock.now_ms(), tree.at), flight.ends_at_boot - self.clock.boot_ms())
        tool = self.catalog.tool(record.tool)
        if flight.cancelled or _stopped(tree, record):
            return called_off("Cancelled before it was sent; nothing was executed.")
        if left <= 0 or tool is None or _is_other(tool, record):
            kind, why = ("connect_timeout", "no time was left") if left <= 0 else ("unavailable", "it is gone" if tool is None else "it has changed")
            return outcome_of_fault(kind, f"{record.tool} was not sent: {why}.", record.effect)
        idempotency = flight.rule.idempotency
        dispatch = Dispatch(
            tool, flight.arguments, record.key, idempotency.send_as, record.deadline_at, left, record.effect is Effect.NON_IDEMPOTENT,
            call=record.id, attempt=record.attempt, trace=flight.trace, client=flight.client,
            max_bytes=flight.rule.read_bytes,
        )  # fmt: skip
        alarms = Alarms.of_loop()
        overdue = alarms.after((left + SAFETY_MS) / 1000, flight.overrun)
        try:
            flight.on_wire = True
            answer = await self.catalog.send(dispatch)
        except UpstreamFault as fault:
            return outcome_of_fault(
                fault.kind, fault.message, record.effect, status=fault.status, retry_after_ms=fault.retry_after_ms, idempotency=idempotency
            )
        except asyncio.CancelledError:
            if not flight.cancelled and not flight.overran:
                raise
            _uncancel()
            kind, how = ("cancelled", "was cancelled while it ran") if flight.cancelled else ("timeout", "did not answer in time")
            return outcome_of_fault(kind, f"{record.tool} {how}.", record.effect, idempotency=idempotency)
        finally:
            alarms.take_back(overdue)
            flight.on_wire = False
        return outcome_of_answer(answer.result, answer.status, record.effect, idempotency, answer.retry_after_ms)

    async def _settle(self, flight: Flight, outcome: Outcome) -> Landed:
        command = self._settling(flight, outcome)
        after, tree = await self._insist(flight.record, lambda states, now: settle.settle(states, command, now))
        return self._landing(flight, outcome, after, tree)

    def _landing(self, flight: Flight, outcome: Outcome, after: CallRecord, tree: Tree) -> Landed:
        fenced = (after.attempt, after.owner, after.state) != (flight.record.attempt, self.owner, outcome.state)
        if fenced:
            log.warning("call %s: its outcome %r came when it was %s already, and is not recorded", after.id, outcome.state, after.state)
        return Landed(after, outcome, tree, fenced)

    def _settling(self, flight: Flight, outcome: Outcome) -> settle.SettleCommand:
        record = flight.record
        whole = None if outcome.whole is None else self.ids.seal(stream_of(record.run), outcome.whole)
        return settle.SettleCommand(record.id, record.attempt, self.owner, outcome, self._sealed(record, outcome), whole, flight.rule.probe)

    def _linked(self, record: CallRecord, outcome: Outcome) -> Outcome:
        """A result that is too long to be shown can still be had, unless another attempt may take its place."""
        if outcome.whole is None or outcome.result is None or outcome.retry:
            return outcome if outcome.whole is None else replace(outcome, whole=None)
        kept = self.ids.seal(stream_of(record.run), outcome.whole)
        return replace(outcome, result=linked(outcome.result, record.run, record.id, kept.hash, len(kept.data)))

    async def _again(self, flight: Flight, outcome: Outcome) -> tuple[CallRecord, Tree]:
        record, result = flight.record, self._sealed(flight.record, outcome)
        command = settle.AgainCommand(record.id, record.attempt, flight.rule, self.owner, self.lease_ms, outcome, result)
        return await self._insist(record, lambda states, now: settle.again(states, command, now))

    def _sealed(self, record: CallRecord, outcome: Outcome) -> Payload | None:
        return None if outcome.result is None else self.ids.seal(stream_of(record.run), outcome.result)

    async def _insist(self, record: CallRecord, step: Decide[str]) -> tuple[CallRecord, Tree]:
        """What comes after a dispatch is offered to a ledger that fails again and again, until the lease ends. The record as it stands then."""
        stream = stream_of(record.run)
        while True:
            try:
                call, committed = await self.decide([stream], step)
                tree = committed.states[stream]
                return tree.calls[call], tree
            except LedgerFault:
                if self.clock.now_ms() >= record.lease_until:
                    raise
                await self.clock.sleep(100)

    async def value(self, stream: str, hash: str) -> Json:
        """The value behind a payload's hash; None if it was erased."""
        data = await self.ledger.payload(stream, hash)
        return None if data is None else self.ids.unseal(data)


def _is_other(tool: Tool, record: CallRecord) -> bool:
    """Has the definition become another since it was judged, and perhaps approved?"""
    return tool.unaccepted is not None or record.tool_digest not in ("", tool.digest)


def _stopped(tree: Tree, record: CallRecord) -> bool:
    """Has its turn, or its run, been ended or frozen since the intent? (A budget or loop that closed the run lets admitted calls finish.)"""
    turn = tree.runs[record.run].turns.get(record.turn)
    if turn is not None and turn.status == "cancelled":
        return True
    return any(one.state == "frozen" or one.status == "cancelled" or one.reason == "deadline_exceeded" for one in tree.lineage(record.run))


async def _either(
    task: asyncio.Future[Any], gone: asyncio.Future[None] | None, wait_ms: int | None, asked: asyncio.Future[Any] | None = None
) -> None:
    """Wait for the task, the caller's leaving, the time, or a question; `asyncio.wait` would cost three times as much on each call."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()

    def end(_: object = None) -> None:
        if not over.done():
            over.set_result(None)

    timer = loop.call_later(wait_ms / 1000, end) if wait_ms is not None else None
    watched = [one for one in (task, gone, asked) if one is not None]
    for one in watched:
        one.add_done_callback(end)
    try:
        await over
    finally:
        for one in watched:
            one.remove_done_callback(end)
        if timer is not None:
            timer.cancel()


def _uncancel() -> None:
    """The cancellation was for the attempt, not for recording its outcome."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
