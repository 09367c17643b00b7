"""What doors show of runs, turns, calls, holds and budgets, as JSON-ready dicts (DESIGN §8); and foreign text made safe to look at.

Field names are a contract: fields may be added, none renamed. Times are RFC 3339 in UTC with milliseconds.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from msgspec.structs import asdict

from gateway.core.model import BudgetLeft, Completed, Held, Requirement
from gateway.core.run import CallRecord, Hold, Run
from gateway.engine import HoldView, RunView, ToolView, TurnView
from gateway.ports import Recorded

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HIDDEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and marks that leave nothing to see, though their category doesn't say so."""


@lru_cache(4096)  # a run's deadline stands in each of its answers
def time_text(ms: int | None) -> str | None:
    """Milliseconds since the epoch as RFC 3339."""
    if ms is None:
        return None
    return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def budget_json(left: BudgetLeft) -> dict[str, Any]:
    return {
        "turns_left": left.turns_left,
        "final_turn": left.final_turn,
        "tool_calls_left": left.tool_calls_left,
        "tokens_left": left.tokens_left,
        "cost_usd_left": left.cost_usd_left,
        "deadline": time_text(left.deadline_at),
        "seconds_left": left.seconds_left,
        "warning": left.warning,
    }


def budget_headers(left: BudgetLeft) -> list[tuple[bytes, bytes]]:
    """The same as `Gateway-Budget-*`, for answers whose body is somebody else's form; what is unlimited is left out."""
    shown = ((name, value) for name, value in budget_json(left).items() if value is not None)
    return [(f"gateway-budget-{name.replace('_', '-')}".encode(), str(value).encode()) for name, value in shown]


# ---- runs and turns -----------------------------------------------------------------------------------------------------


def run_json(view: RunView) -> dict[str, Any]:
    """A run as its owner sees it. `status` is the terminal one once closed, until then the state."""
    run = view.run
    return {
        "run": run.id,
        "status": run.status if run.state == "closed" else run.state,
        "reason": run.reason,
        "policy": {"name": run.policy, "digest": run.policy_digest},
        "budget": budget_json(view.budget),
        "tools": list(view.tools),
        "calls": dict(view.calls),
        "awaiting_approval": view.awaiting_approval,
        **_asked_for(run),
        "opened_at": time_text(run.opened_at),
        "closed_at": time_text(run.closed_at),
        "handoff": None if run.handoff is None else dict(run.handoff),
    }


def _asked_for(run: Run) -> dict[str, Any]:
    return {
        "run_key": run.run_key,
        "task_type": run.task_type,
        "goal": run.goal,
        "labels": dict(run.labels),
        "parent_run": run.parent,
        "continues": run.continues,
        "principal": run.principal,
        "turns": run.last_turn,
    }


def row_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a view; columns that end in `_at` hold times. The stream is nobody's business."""
    return {name: time_text(value) if name.endswith("_at") else value for name, value in row.items() if name not in ("stream", "due_at")}


def turn_json(view: TurnView) -> dict[str, Any]:
    """A turn with what became of each call that its model asked for, in the model's order."""
    turn = view.turn
    return {
        "turn": turn.number,
        "status": turn.status or turn.state,
        "digest": turn.digest,
        "opened_at": time_text(turn.opened_at),
        "closed_at": time_text(turn.closed_at),
        "calls": [
            {
                "call_id": one.call_id, "tool": one.tool, "call": one.call, "status": one.state, "synthetic": one.synthetic,
                "result": one.result,
            }
            for one in view.results
        ],
        "budget": budget_json(view.budget),
    }  # fmt: skip


def event_json(recorded: Recorded) -> dict[str, Any]:
    return {
        "seq": recorded.seq,
        "event_id": recorded.event_id,
        "at": time_text(recorded.at),
        "kind": type(recorded.event).__name__,
        "event": asdict(recorded.event),
        "hash": recorded.hash,
    }


# ---- calls and holds ----------------------------------------------------------------------------------------------------


def completed_json(reply: Completed) -> dict[str, Any]:
    return {
        "call": reply.call,
        "status": reply.status,
        "reason": reply.reason,
        "replayed": reply.replayed,
        "message": reply.message,
        "differences": reply.differences,
        "result": reply.result,
        "budget": budget_json(reply.budget),
    }


def held_json(reply: Held) -> dict[str, Any]:
    """`url` is where the hold can be read and decided, below the gateway's own address."""
    hold = {"hold": reply.hold, "url": f"/v1/holds/{reply.hold}", "expires_at": time_text(reply.expires_at)}
    return {
        "call": reply.call,
        "status": reply.state,
        "reason": reply.reason,
        "hold": hold,
        "message": reply.message,
        "budget": budget_json(reply.budget),
    }


_RECONCILED = {
    "succeeded": "It counts as done: a repeat is answered from the record.",
    "admitted": "It is being sent once more, under its key.",
    "failed": "It counts as not done and was not sent again; a repeat is a new call under its key.",
    "abandoned": "It stays unknown, and is never sent again.",
}


def reconciled_json(record: CallRecord) -> dict[str, Any]:
    """What a person's word made of a call in doubt."""
    return {
        "call": record.id,
        "run": record.run,
        "tool": record.tool,
        "status": record.state,
        "reason": record.reason,
        "attempt": record.attempt,
        "message": _RECONCILED[record.state],
    }


def hold_json(view: HoldView) -> dict[str, Any]:
    """All that an approver must see, and the digest that a vote must echo."""
    hold, call, run = view.hold, view.call, view.run
    editable = set.intersection(*(set(one.editable) for one in hold.requirements)) if hold.requirements else set()
    return {
        "hold": hold.id,
        "status": hold.state,
        "reason": hold.reason,
        "digest": hold.digest,
        "run": hold.run,
        "call": hold.call,
        "tool": call.tool,
        "effect": call.effect.value,
        "arguments": view.arguments,
        "show": hold.show,
        "rule": hold.requirements[0].rule if hold.requirements else None,
        "principal": run.principal,
        "goal": run.goal,
        "requirements": [_requirement(hold, one) for one in hold.requirements],
        "votes": [{"by": vote.by, "vote": vote.vote, "at": time_text(vote.at), "note": vote.note} for vote in hold.votes],
        "editable": sorted(editable),
        "held_at": time_text(hold.held_at),
        "expires_at": time_text(hold.expires_at),
        "execute_by": time_text(hold.execute_by),
        "ended_by": hold.ended_by,
        "note": hold.note,
    }


def _requirement(hold: Hold, one: Requirement) -> dict[str, Any]:
    return {"rule": one.rule, "approvers": list(one.approvers), "quorum": one.quorum, "met": hold.met(one)}


def tool_json(view: ToolView) -> dict[str, Any]:
    """A definition is shown where there is something to decide on."""
    tool, pin = view.tool, view.pin
    return {
        "tool": view.name,
        "state": view.state,
        "note": None if tool is None else tool.unaccepted or tool.unsupported,
        "digest": None if tool is None else tool.digest,
        "accepted": None if pin is None else {"digest": pin.digest, "by": pin.by or None, "at": time_text(pin.at)},
        "definition": None if tool is None or tool.usable else tool.definition,
        "accepted_definition": view.accepted,
    }


# ---- foreign text -------------------------------------------------------------------------------------------------------


def visible(text: str) -> str:
    """Text from agents, tools or people, for a terminal, log line, page or notification: whatever would act or hide is shown instead.

    Control characters (so also terminal escapes and line breaks) become their pictures; bidirectional and zero-width characters, odd
    spaces, blanks, private and unassigned ones become `<U+202E>`. Markup is the surface's own to escape.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_shown, text))


def _shown(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    is_selector = 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF or 0x180B <= code <= 0x180F
    if character != " " and (is_selector or character in _BLANK or unicodedata.category(character) in _HIDDEN):
        return f"<U+{code:04X}>"
    return character
