"""What is done without a caller: calls that a dead owner left, approved calls that run at once, probes of calls in doubt.

Each is one decision on the state as it is then, so that of several processes that see the same need one acts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

from gateway.core.assess import review
from gateway.core.decide import doubts, ready, settle
from gateway.core.guards.guard import ConditionFault
from gateway.core.guards.result import structured
from gateway.core.model import Effect, Json, Outcome
from gateway.core.outcomes import called_off, outcome_of_answer, outcome_of_fault
from gateway.core.policy import PolicySet, Probe, ToolRule
from gateway.core.run import CallRecord, stream_of
from gateway.engine.desk import Decide
from gateway.engine.flights import SAFETY_MS, Flights
from gateway.ports import Dispatch, LedgerFault, PolicyError, UpstreamFault

log = logging.getLogger("gateway.engine")

PROBE_TIMEOUT_MS = 30_000
"""For a probe whose tool no rule of the policy names."""


class Errands(Flights):
    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.errands: set[asyncio.Task[None]] = set()
        self.probing: set[str] = set()

    def _run(self, errand: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(errand)
        self.errands.add(task)
        task.add_done_callback(self._ran_errand)
        return task

    def _ran_errand(self, task: asyncio.Task[None]) -> None:
        self.errands.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            log.error("an errand failed; the sweep will see to it: %s", fault, exc_info=None if isinstance(fault, LedgerFault) else fault)

    # ---- a dead owner's calls -------------------------------------------------------------------------------------------

    async def recover(self, stream: str, records: Sequence[CallRecord]) -> None:
        """Settle what dead owners left of one tree: rerun under the same key, or in doubt, by effect."""
        found = await asyncio.gather(*map(self._recovery, records))
        commands = [command for command, _ in found]
        _, committed = await self.decide([stream], lambda states, now: settle.recover(states, stream, commands, now))
        for record, (command, arguments) in zip(records, found, strict=True):
            after: CallRecord = committed.states[stream].calls[record.id]
            ours = (after.state, after.attempt, after.owner) == ("admitted", record.attempt + 1, self.owner)
            if ours and record.id not in self.flights and isinstance(command, settle.AgainCommand) and arguments is not None:
                self.launch(after, command.rule, arguments).stands = settle.given_up(record)

    async def _recovery(self, record: CallRecord) -> tuple[settle.AgainCommand | settle.SettleCommand, dict[str, Json] | None]:
        """What is to be decided about one call, and what would be dispatched."""
        if record.owner == self.owner:  # no flight came of it: whoever wanted it was gone before it could be sent
            never = called_off("It was never sent.") if record.attempt == 1 else settle.given_up(record)  # an attempt before it may have been
            return settle.SettleCommand(record.id, record.attempt, self.owner, never, None), None
        rule = await self._rule(record)
        arguments = await self._arguments(record) if record.effect is not Effect.NON_IDEMPOTENT else {}
        if rule is None or arguments is None:
            probe = rule.probe if rule is not None else None
            return settle.SettleCommand(record.id, record.attempt, record.owner, settle.given_up(record), None, probe=probe), None
        return settle.AgainCommand(record.id, record.attempt, rule, self.owner, self.lease_ms, None), arguments

    async def _done(self, record: CallRecord, step: Decide[str]) -> CallRecord:
        """The record after a step about it."""
        call, committed = await self.decide([stream_of(record.run)], step)
        after: CallRecord = committed.states[stream_of(record.run)].calls[call]
        return after

    async def _rule(self, record: CallRecord) -> ToolRule | None:
        """The rule that the call was judged by; None if it can't be read any more."""
        try:
            return (await self.governing(record.policy_digest)).rule_for(record.tool)
        except PolicyError as wrong:
            log.error("call %s can't be judged again: %s", record.id, wrong)
            return None

    async def _arguments(self, record: CallRecord) -> dict[str, Json] | None:
        """What was dispatched; None if it was erased."""
        found = await self.value(stream_of(record.run), record.arguments) if record.arguments else None
        return found if isinstance(found, dict) else None

    # ---- approved calls that run at once --------------------------------------------------------------------------------

    def execute_ready(self, record: CallRecord) -> None:
        """`execute: at_once`: run an approved call without waiting for the agent to repeat it."""
        if not self.stopping:
            self._run(self.run_ready(record))

    async def run_ready(self, record: CallRecord) -> None:
        rule, arguments = await self._rule(record), await self._arguments(record)
        if rule is None or arguments is None:
            return
        tool = self.catalog.tool(record.tool)
        command = ready.ReadyCommand(record.id, rule, tool.digest if tool else "", self.owner, self.lease_ms)
        after = await self._done(record, lambda states, now: ready.execute(states, command, now))
        if after.state == "admitted" and after.owner == self.owner and record.id not in self.flights:  # else its agent was quicker
            self.launch(after, rule, arguments)

    # ---- probes ---------------------------------------------------------------------------------------------------------

    def start_probe(self, record: CallRecord) -> None:
        """Ask, once at a time, what became of a call in doubt. The gateway's own read: it costs no budget."""
        if record.id not in self.probing:
            self.probing.add(record.id)
            self._run(self._probe(record)).add_done_callback(lambda _: self.probing.discard(record.id))

    async def _probe(self, record: CallRecord) -> None:
        policies = await self.governing(record.policy_digest)
        probe = policies.rule_for(record.tool).probe
        assert probe is not None, "only a rule with a probe sets the time for one"
        arguments = await self._arguments(record)
        if arguments is None:
            found, message, answer = "failed", "The call's arguments are no longer kept, so nobody can be asked about it.", None
        else:
            answer = await self._answer(record, probe, policies, arguments)
            found, message = doubts.found_out(probe, answer)
        result = self.ids.seal(stream_of(record.run), _told(message, answer, policies, probe)) if found == "happened" else None
        command = doubts.ProbedCommand(record.id, record.probes, probe, found, message, result, hopeless=arguments is None)
        await self._done(record, lambda states, now: doubts.probed(states, command, now))

    async def _answer(self, record: CallRecord, probe: Probe, policies: PolicySet, arguments: dict[str, Json]) -> Outcome:
        """One read, never tried again at once."""
        rule, tool = policies.rule_for(probe.tool), self.catalog.tool(probe.tool)
        if tool is None or (rule.listed and rule.effect.writes):
            kind = "unavailable" if tool is None else "unsendable"
            return outcome_of_fault(kind, "", Effect.READ_ONLY)
        timeout_ms = rule.timeout_ms if rule.listed else PROBE_TIMEOUT_MS
        try:
            asked = {name: value({"args": arguments}) for name, value in probe.arguments}
            dispatch = Dispatch(tool, asked, "", None, self.clock.now_ms() + timeout_ms, timeout_ms, call=record.id, attempt=0)
            async with asyncio.timeout((timeout_ms + SAFETY_MS) / 1000):
                answer = await self.catalog.send(dispatch)
        except ConditionFault as fault:
            return outcome_of_fault("unsendable", str(fault), Effect.READ_ONLY)
        except (UpstreamFault, TimeoutError) as fault:
            return outcome_of_fault(getattr(fault, "kind", "timeout"), str(fault), Effect.READ_ONLY)
        return outcome_of_answer(answer.result, answer.status, Effect.READ_ONLY)


def _told(message: str, answer: Outcome | None, policies: PolicySet, probe: Probe) -> dict[str, Json]:
    """What a repeat of a call that did happen is answered with; what the probe read stands in it only if the agent might read it itself."""
    rule = policies.rule_for(probe.tool)
    seen = review(rule, answer) if answer is not None and rule.listed else None
    found = structured(seen.result) if seen is not None and seen.state == "succeeded" and seen.result is not None else None
    text = f"{message} Its own answer was lost."
    return {"content": [{"type": "text", "text": text}], "structuredContent": {"found_by": probe.tool, "found": found}, "isError": False}
