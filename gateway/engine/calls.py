"""The one loop: assess, transact, dispatch, settle, answer.

A dispatch is a `Flight`: a task of its own, so that a client that leaves doesn't take the outcome with it. Those who wait for it are counted;
a read whose last waiter has left is cancelled, a write never is, except with its run or turn.
"""

from __future__ import annotations

import asyncio

from msgspec import Struct

from gateway.core.assess import Assessment, assess
from gateway.core.decide import calls
from gateway.core.guards.approval import asks
from gateway.core.guards.guard import RunFacts
from gateway.core.left import budget_left
from gateway.core.model import (
    Busy,
    CallRequest,
    Completed,
    Doubt,
    Failed,
    Finding,
    Held,
    Json,
    Malformed,
    Outcome,
    Refused,
    Reply,
)  # fmt: skip
from gateway.core.outcomes import in_doubt
from gateway.core.policy import PolicySet
from gateway.core.reasons import reason
from gateway.core.repeats import Doubtful, Join
from gateway.core.run import CallRecord, Hold, Run, Tree, stream_of
from gateway.engine.api import Caller
from gateway.engine.desk import fault, stopping
from gateway.engine.errands import Errands
from gateway.engine.flights import Flight, Landed
from gateway.engine.inquiry import Answers
from gateway.ports import NOBODY, Client, RequestFault


class Wish(Struct, eq=False):
    """One caller's call on its way through the loop. `gone` is done once the caller has left."""

    who: Caller
    run: Run
    request: CallRequest
    client: Client
    gone: asyncio.Future[None] | None
    patience_end: int | None = None


class Calls(Errands):
    async def call(
        self, who: Caller, run: str, request: CallRequest, *, client: Client = NOBODY, gone: asyncio.Future[None] | None = None
    ) -> Reply:
        """Govern one call. Refusals are values; raises RequestFault only for run.unknown, and LedgerFault when nothing could be recorded."""
        _, state = await self.owned(who, run)
        if self.stopping:
            return Refused(None, (stopping(),))
        wish = Wish(who, state, request, client, gone)
        digest = state.policy_digest
        streams = [stream_of(run)] if state.continues is None else await self.streams_of(state)
        while True:
            policies = self.policies.by_digest(digest) or await self.governing(digest)
            command = self._command(wish, self._assess(wish, policies))
            answer, committed = await self.decide(streams, lambda states, now, c=command: calls.call(states, c, now))  # type: ignore[misc]
            if isinstance(answer, calls.Reassess):
                digest = answer.digest
            elif not isinstance(answer, calls.Wait) or not await self._decided(wish, answer.hold):
                return await self._reply(wish, command, answer, committed.states[streams[0]])

    # ---- before the queue -----------------------------------------------------------------------------------------------

    def _assess(self, wish: Wish, policies: PolicySet) -> Assessment:
        run = wish.run
        facts = RunFacts(run.id, run.task_type, run.goal, run.labels, run.policy)
        name = wish.request.tool
        tool = self.catalog.tool(name)
        return assess(policies, wish.request, wish.who.principal, facts, tool, None if tool else self.catalog.away(name))

    def _command(self, wish: Wish, found: Assessment) -> calls.CallCommand:
        arguments = found.arguments
        kept = None if isinstance(arguments, Malformed) else self.ids.seal(stream_of(wish.run.id), arguments)
        caps = self.caps(wish.who.principal)
        return calls.CallCommand(wish.run.id, wish.who.principal, wish.request, found, kept, self.owner, self.lease_ms, caps.open_holds)

    # ---- what was decided -----------------------------------------------------------------------------------------------

    async def _reply(self, wish: Wish, command: calls.CallCommand, answer: calls.Next, tree: Tree) -> Reply:
        match answer:
            case calls.Admit(call):
                found, record = command.assessment, tree.calls[call]
                flight = self.launch(record, found.rule, found.arguments, wish.client, wish.request.trace)
                return await self._ridden(wish, flight, None)
            case Join(record):
                return await self._join(wish, command, record)
            case calls.Answered(record):
                return await self._from_record(wish, command, record)
            case Doubtful(record):
                return Doubt(record.id, in_doubt(_DOUBT), budget_left(tree, wish.run.id, tree.at))
            case calls.Deny(call, findings):
                return Refused(call, findings, budget_left(tree, wish.run.id, tree.at))
            case calls.Wait(call, hold):
                return await self._held(wish, call, hold)
        raise AssertionError(f"no reply for {answer!r}")

    async def _ridden(self, wish: Wish, flight: Flight, wait_ms: int | None) -> Reply:
        landed = await self.ride(flight, wish.gone, wait_ms, bool(wish.client.capabilities))
        if landed is None:
            return await self._busy(wish, flight.record, flight)
        return await self._from_record(wish, None, landed.record, _ELSEWHERE) if landed.fenced else self._landed(wish, landed)

    async def _busy(self, wish: Wish, record: CallRecord, flight: Flight | None = None) -> Busy:
        tree, run, now = await self._budget(wish)
        question = flight.inquiry.open if flight is not None and flight.inquiry is not None and wish.client.capabilities else None
        return Busy(record.id, budget_left(tree, run, now), question)

    async def _budget(self, wish: Wish) -> tuple[Tree, str, int]:
        tree = await self.ledger.state(stream_of(wish.run.id))
        return tree, wish.run.id, self.clock.now_ms()

    # ---- people ---------------------------------------------------------------------------------------------------------

    async def _decided(self, wish: Wish, hold: Hold) -> bool:
        """Wait for people within the caller's patience: True if the hold has become something else."""
        if wish.patience_end is None:
            wait = wish.request.wait_ms if wish.request.wait_ms is not None else min(r.hold_open_ms for r in hold.requirements)
            wish.patience_end = self.clock.boot_ms() + wait
        left = wish.patience_end - self.clock.boot_ms()
        return left > 0 and await self.until(stream_of(hold.id), lambda tree: tree.holds[hold.id].state != "held", left, wish.gone)

    async def _held(self, wish: Wish, call: str, hold: Hold) -> Reply:
        tree, run, now = await self._budget(wish)
        record = tree.calls[call]
        wait = asks(
            f"Not executed yet: {record.tool!r} waits for approval ({hold.id}). Make the same call again later to get its result; "
            "it will be executed once."
        )
        return Held(call, hold.id, hold.expires_at, wait.reason, wait.message, budget_left(tree, run, now), record.state)

    # ---- flights --------------------------------------------------------------------------------------------------------

    def _landed(self, wish: Wish, landed: Landed) -> Reply:
        """What a flight's end means for its own caller."""
        now = self.clock.now_ms()
        record, outcome = landed.record, landed.outcome
        left = budget_left(landed.tree, wish.run.id, now)
        if record.state == "in_doubt":
            return Doubt(record.id, in_doubt(outcome.message or _DOUBT), left)
        if not outcome.answered or outcome.result is None:
            return Failed(record.id, outcome, left)
        return Completed(record.id, record.state, outcome.result, left, record.reason)

    async def _join(self, wish: Wish, command: calls.CallCommand, record: CallRecord) -> Reply:
        """Wait for the one dispatch, here or in another process; its record is then this call's answer too."""
        if (flight := self.flights.get(record.id)) is not None:
            was_left = flight.cancelled
            landed = await self.ride(flight, wish.gone, self._patience(wish), bool(wish.client.capabilities))
            if landed is None:
                return await self._busy(wish, record, flight)
            if was_left and landed.record.state == "cancelled":  # its last waiter had gone before this one came
                return await self.call(wish.who, wish.run.id, wish.request, client=wish.client, gone=wish.gone)
        elif not await self.until(stream_of(record.id), lambda tree: tree.calls[record.id].state != "admitted", self._patience(wish), wish.gone):
            return await self._busy(wish, record)
        answer, _ = await self.decide(
            await self.streams_of(wish.run), lambda states, now: calls.joined(states, command, record.id, now)
        )  # fmt: skip
        assert isinstance(answer, calls.Answered)
        return await self._from_record(wish, command, answer.record, _JOINED)

    async def resume(
        self,
        who: Caller,
        run: str,
        call: str,
        number: int,
        answers: asyncio.Future[Answers],
        *,
        client: Client,
        gone: asyncio.Future[None] | None = None,
    ) -> Reply:
        """Answer what a running call's tool asked, as soon as the client's answers are there, and wait on for the call.

        What has ended is answered from the record; what another process runs, which no answer reaches from here, is still running. Raises
        RequestFault: run.unknown, call.unknown."""
        tree, state = await self.owned(who, run)
        record = _call_of(tree, run, call)
        wish = Wish(who, state, CallRequest(record.tool, {}, "mcp"), client, gone)
        flight = self.flights.get(call)
        if flight is None or flight.inquiry is None:
            return await self._as_it_stands(wish, record)
        flight.inquiry.listener = client
        flight.inquiry.answer(number, await self.answered(flight, answers, gone))
        return await self._ridden(wish, flight, None)

    def _patience(self, wish: Wish) -> int:
        return wish.request.wait_ms if wish.request.wait_ms is not None else 20_000

    # ---- the record -----------------------------------------------------------------------------------------------------

    async def _from_record(self, wish: Wish, command: calls.CallCommand | None, record: CallRecord, message: str | None = None) -> Reply:
        """Answer from what stands in the ledger."""
        tree, run, now = await self._budget(wish)
        left = budget_left(tree, run, now)
        if record.state == "admitted":
            return Busy(record.id, left)
        if record.state in ("in_doubt", "abandoned"):
            return Doubt(record.id, in_doubt(_DOUBT if record.state == "in_doubt" else _ABANDONED), left)
        if record.result is None or not record.answered:
            return Failed(record.id, _unanswered(record), left)
        result = await self.value(stream_of(record.id), record.result)
        if result is None:
            return Refused(record.id, (_expired(f"{record.id} was executed once; its result is no longer kept."),), left)
        text = (message or _REPLAYED).format(call=record.id)
        return Completed(record.id, record.state, result, left, record.reason, True, text, await self._differences(command, record))

    async def _differences(self, command: calls.CallCommand | None, record: CallRecord) -> Json:
        """Where `key_from` made two calls the same: argument -> [what ran, what was asked]."""
        if command is None or not command.assessment.rule.idempotency.key_from or record.arguments is None:
            return None
        ran = await self.value(stream_of(record.id), record.arguments) or {}
        asked = command.assessment.arguments
        names = sorted({*ran, *asked})
        return {name: [ran.get(name), asked.get(name)] for name in names if ran.get(name) != asked.get(name)} or None

    async def call_state(self, who: Caller, run: str, call: str, wait_ms: int | None) -> Reply:
        """How a call stands, waiting up to `wait_ms` for it to change. Raises RequestFault: run.unknown, call.unknown."""
        tree, state = await self.seen(who, run)
        record = _call_of(tree, run, call)
        wish = Wish(who, state, CallRequest(record.tool, {}, "rest", wait_ms=wait_ms), NOBODY, None)
        if wait_ms and record.state in ("held", "admitted"):
            before = record.state
            await self.until(stream_of(run), lambda now: now.calls[call].state != before, wait_ms)
            record = (await self.ledger.state(stream_of(run))).calls[call]
        return await self._as_it_stands(wish, record)

    async def kept_aside(self, who: Caller, run: str, key: str) -> Json:
        """A result that was too long to be shown, by the key in its note. Raises RequestFault: run.unknown, result.expired."""
        await self.seen(who, run)
        value = await self.value(stream_of(run), key)
        if value is None:
            raise fault(_expired(f"Run {run} keeps no result {key[:100]!r}, or no more."))
        return value

    async def _as_it_stands(self, wish: Wish, record: CallRecord) -> Reply:
        tree, run, now = await self._budget(wish)
        left = budget_left(tree, run, now)
        if record.state in ("held", "ready"):
            return await self._held(wish, record.id, tree.holds[record.hold or ""])
        if record.state == "admitted":
            return Busy(record.id, left)
        if record.state == "denied":
            return Refused(record.id, (Finding("record", record.refusal, f"{record.id} was refused ({record.reason})."),), left)
        return await self._from_record(wish, None, record, _RECORDED)


_REPLAYED = (
    "Recorded result of {call}: nothing was executed now. If it must really happen again, the harness has to give a new operation_id."
)
_JOINED = "The same call was running already ({call}); this is its result, nothing was executed twice."
_ELSEWHERE = "Another process of the gateway went on with {call}; this is its result."
_RECORDED = "Recorded result of {call}."
def _expired(message: str) -> Finding:
    return Finding("repeats", "result.expired", message)


_DOUBT = "It was sent, and nobody knows whether it took effect. It will not be sent again; a person has to find out."
_ABANDONED = "It was sent, and it could not be found out whether it took effect. It will not be sent again."


def _call_of(tree: Tree, run: str, call: str) -> CallRecord:
    record = tree.calls.get(call)
    if record is None or record.run != run:
        raise no_such_call(run, call)
    return record


def no_such_call(run: str, call: str) -> RequestFault:
    return RequestFault("call.unknown", f"Run {run} has no call {call!r}.")


def _unanswered(record: CallRecord) -> Outcome:
    code = record.refusal
    return Outcome(record.state, code, f"{record.id}: {reason(code).title.lower()}.", status=record.status, not_applied=record.not_applied)

