"""Reconciling: a person ends a doubt with what they found out. What did not happen may be sent once more, by their word alone."""

from __future__ import annotations

from typing import NamedTuple

from gateway.core.canonical import canonical
from gateway.core.decide import doubts
from gateway.core.model import Finding, Json
from gateway.core.policy import ToolRule
from gateway.core.run import CallRecord, Tree, stream_of
from gateway.engine.api import Caller
from gateway.engine.calls import no_such_call
from gateway.engine.desk import fault, stopping
from gateway.engine.runs import Runs, forbidden


class Word(NamedTuple):
    """What a person says of a call: one of `doubts.OUTCOMES`, and why. `result`: the tool's JSON answer, if it happened and is known."""

    outcome: str
    why: str
    result: Json = None


class Doubts(Runs):
    async def reconcile(self, who: Caller, run: str, call: str, word: Word) -> CallRecord:
        """End a call's doubt. `run` is the call's, or one above it. The record as it is then: `admitted` if it is being sent once more.

        Raises RequestFault: run.unknown, call.unknown, auth.forbidden, call.not_in_doubt, gateway.stopping.
        """
        record, rule, approvers = await self._to_reconcile(who, run, call)
        if self.stopping:
            raise fault(stopping())
        arguments, tool = await self._arguments(record), self.catalog.tool(record.tool)
        again = doubts.Again(rule, tool.digest, self.owner, self.lease_ms) if rule and tool and arguments is not None else None
        result = self.ids.seal(stream_of(call), _as_result(word))
        command = doubts.ReconcileCommand(call, who.principal, word.outcome, word.why, approvers, result, again)
        answer, committed = await self.decide([stream_of(call)], lambda states, now: doubts.reconcile(states, command, now))
        if isinstance(answer, Finding):
            raise fault(answer)
        after: CallRecord = committed.states[stream_of(call)].calls[answer]
        if after.state == "admitted" and again is not None and arguments is not None:
            self.launch(after, again.rule, arguments)
        return after

    async def _to_reconcile(self, who: Caller, run: str, call: str) -> tuple[CallRecord, ToolRule | None, frozenset[str]]:
        """The call, its rule, and whom that names; for those who may neither reconcile nor see it there is no such run."""
        tree = await self.ledger.state(stream_of(run)) if run.startswith("run_") else Tree()
        record = tree.calls.get(call)
        if record is not None and run in {one.id for one in tree.lineage(record.run)}:
            rule = await self._rule(record) if record.policy_digest else None
            approvers = _approvers(tree, record, rule)
            if who.run is None and doubts.may_reconcile(who.principal, approvers, tree, record):
                return record, rule, approvers
            await self.seen(who, run)
            raise forbidden("It takes an operator, or a person whom the call's rule names as approver, who didn't ask for it.")
        await self.seen(who, run)
        raise no_such_call(run, call)


def _approvers(tree: Tree, record: CallRecord, rule: ToolRule | None) -> frozenset[str]:
    """Whom the call waited for, or would wait for if it were repeated on purpose."""
    hold, repeat = tree.holds.get(record.hold or ""), rule.repeat if rule is not None else None
    wanted = hold.requirements if hold is not None else (repeat,) if repeat is not None else ()
    return frozenset(name for one in wanted for name in one.approvers)


def _as_result(word: Word) -> dict[str, Json]:
    """The tool's answer as an HTTP tool's would be given; without one, the person's word."""
    if word.result is None:
        return {"content": [{"type": "text", "text": f"It happened, as a person found out: “{word.why}”"}], "isError": False}
    as_data = {"structuredContent": word.result} if isinstance(word.result, dict) else {}
    return {"content": [{"type": "text", "text": canonical(word.result).decode()}], **as_data, "isError": False}
