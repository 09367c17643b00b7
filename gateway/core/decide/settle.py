"""Steps after a dispatch: record the outcome, try again, or settle what a dead owner left. Each call gets at most one outcome."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from gateway.core import events as e
from gateway.core.decide.draft import Draft
from gateway.core.decide.starting import admit, may_start
from gateway.core.model import Amounts, Effect, Outcome, Payload
from gateway.core.outcomes import outcome_of_fault
from gateway.core.policy import Probe, ToolRule
from gateway.core.run import CallRecord, stream_of
from gateway.core.streams import State


class SettleCommand(Struct, frozen=True):
    """An attempt's outcome by its owner. `result` is the sealed payload of `outcome.result`, `whole` what it is only a note of.

    `probe`: how a doubt is found out.
    """

    call: str
    attempt: int
    owner: str
    outcome: Outcome
    result: Payload | None
    whole: Payload | None = None
    probe: Probe | None = None


def settle(states: Mapping[str, State], command: SettleCommand, now: int) -> tuple[Draft, str]:
    """Record the outcome, unless the call has one, is in doubt by now, or another attempt took over. The call's id: its record tells."""
    draft = Draft(states, stream_of(command.call), now)
    _settle(draft, command)
    return draft, command.call


def _settle(draft: Draft, command: SettleCommand) -> None:
    record = draft.tree.calls[command.call]
    if record.state == "admitted" and (record.attempt, record.owner) == (command.attempt, command.owner):
        record_outcome(draft, record, command.outcome, command.result, command.owner, command.probe)
        if command.whole is not None:
            draft.keep(command.whole)


def record_outcome(draft: Draft, record: CallRecord, outcome: Outcome, result: Payload | None, by: str, probe: Probe | None) -> None:
    """The event, its payload, and the ending of a run that waited for this call."""
    kept = draft.keep(result) if result is not None else None
    probe_at = draft.now + probe.after_ms if probe is not None and outcome.state == "in_doubt" else None
    draft.add(
        e.CallSettled(
            record.run, record.id, record.attempt, outcome.state, outcome.reason, kept, outcome.answered, outcome.not_applied, outcome.status,
            record.usd_micros, by, probe_at,
        )
    )  # fmt: skip
    if draft.is_ending(record.run):
        draft.settle_endings()


class AgainCommand(Struct, frozen=True):
    """Another attempt under the same key, after `outcome` (None: after a dead owner's attempt)."""

    call: str
    attempt: int
    rule: ToolRule
    owner: str
    lease_ms: int
    outcome: Outcome | None
    result: Payload | None = None


def again(states: Mapping[str, State], command: AgainCommand, now: int) -> tuple[Draft, str]:
    """Admit the next attempt if run, deadline, budget and the upstream's memory of the key allow; else the last fault stands."""
    draft = Draft(states, stream_of(command.call), now)
    _again(draft, command)
    return draft, command.call


def _again(draft: Draft, command: AgainCommand) -> None:
    record = draft.tree.calls[command.call]
    if record.state != "admitted" or record.attempt != command.attempt:
        return
    if not key_forgotten(record, command.rule, draft.now) and may_start(draft, record, command.rule, one_more(command.rule), again=True):
        admit(draft, record, command.rule, command.owner, command.lease_ms)
    else:
        record_outcome(draft, record, command.outcome or given_up(record), command.result, command.owner, command.rule.probe)


def key_forgotten(record: CallRecord, rule: ToolRule, now: int) -> bool:
    """May the upstream have forgotten the key since the first attempt?"""
    return record.effect is Effect.IDEMPOTENT_WRITE and now - (record.admitted_at or 0) > rule.upstream_key_ttl_ms


def one_more(rule: ToolRule) -> Amounts:
    """What another attempt takes from the purses."""
    return Amounts(tool_calls=1, usd_micros=rule.usd_micros)


def given_up(record: CallRecord) -> Outcome:
    """What a call comes to whose owner died and that may not be tried again."""
    return outcome_of_fault("cancelled", "The gateway stopped while this call was running.", record.effect)


def recover(
    states: Mapping[str, State], stream: str, commands: Iterable[AgainCommand | SettleCommand], now: int
) -> tuple[Draft, None]:
    """Settle what a dead owner left in one tree, by effect: reads and idempotent writes are tried again, the others are in doubt."""
    draft = Draft(states, stream, now)
    for command in commands:
        record = draft.tree.calls[command.call]
        if isinstance(command, SettleCommand):
            _settle(draft, command)
        elif record.effect is Effect.NON_IDEMPOTENT:
            lost = SettleCommand(record.id, command.attempt, record.owner, given_up(record), None, probe=command.rule.probe)
            _settle(draft, lost)
        else:
            _again(draft, command)
    return draft, None
