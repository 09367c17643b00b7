"""The step that executes an approved call without its agent (`execute: at_once`), exactly as it was approved."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from gateway.core import events as e
from gateway.core.decide.draft import Draft
from gateway.core.decide.starting import admit, may_start
from gateway.core.model import NOTHING
from gateway.core.policy import ToolRule
from gateway.core.run import CallRecord, Hold, stream_of
from gateway.core.streams import State


class ReadyCommand(Struct, frozen=True):
    """An approved call to execute. `tool_digest`: the definition as it is now."""

    call: str
    rule: ToolRule
    tool_digest: str
    owner: str
    lease_ms: int


def execute(states: Mapping[str, State], command: ReadyCommand, now: int) -> tuple[Draft, str]:
    """Admit the ready call, unless its time has lapsed or what was approved has changed; it stays ready while run or budget allow no start."""
    draft = Draft(states, stream_of(command.call), now)
    record = draft.tree.calls[command.call]
    if record.state != "ready" or record.hold is None:
        return draft, record.id
    hold = draft.tree.holds[record.hold]
    if not draft.expire(hold):
        _go_on(draft, record, hold, command)
    return draft, record.id


def _go_on(draft: Draft, record: CallRecord, hold: Hold, command: ReadyCommand) -> None:
    if record.tool_digest != command.tool_digest or draft.tree.runs[record.run].policy_digest != record.policy_digest:
        draft.add(e.HoldVoided(record.run, record.id, hold.id, "the tool's definition or the policy changed"))
    elif may_start(draft, record, command.rule, NOTHING):
        admit(draft, record, command.rule, command.owner, command.lease_ms, hold.id)
