"""The step that executes an approved call without its agent (`execute: at_once`), exactly as it was approved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.core import events as e
from gateway.core.decide.draft import Draft
from gateway.core.decide.turns import not_open
from gateway.core.policy import ToolRule
from gateway.core.run import CallRecord, stream_of
from gateway.core.streams import State


@dataclass(frozen=True)
class ReadyCommand:
    """An approved call to execute. `tool_digest`: the definition as it is now."""

    call: str
    rule: ToolRule
    tool_digest: str
    owner: str
    lease_ms: int


def execute(states: Mapping[str, State], command: ReadyCommand, now: int) -> tuple[Draft, CallRecord]:
    """Admit the ready call, unless its run is over, its time has lapsed or its tool has changed; the record says which."""
    draft = Draft(states, stream_of(command.call), now)
    record = draft.tree.calls[command.call]
    if record.state != "ready" or record.hold is None or not_open(draft, record.run):
        return draft, record
    hold = draft.tree.holds[record.hold]
    if hold.execute_by is not None and now >= hold.execute_by:
        draft.add(e.HoldExpired(record.run, record.id, hold.id, "approval.lapsed"))
    elif record.tool_digest != command.tool_digest or draft.tree.runs[record.run].policy_digest != record.policy_digest:
        draft.add(e.HoldVoided(record.run, record.id, hold.id, "the tool's definition or the policy changed"))
    else:
        deadline = min(now + command.rule.timeout_ms, draft.tree.deadline_at(record.run, now))
        draft.add(
            e.CallAdmitted(
                record.run, record.id, record.turn, record.call_id, record.tool, record.fingerprint, record.door, record.operation_id,
                record.arguments, record.key, record.occurrence, record.upstream, record.effect, 1, record.policy_digest, deadline, command.owner,
                deadline + command.lease_ms, record.usd_micros, hold.id,
            )
        )  # fmt: skip
    return draft, draft.tree.calls[record.id]
