"""What the engine replied, as a CallToolResult: the tool's own untouched, everything else said in words and in fields.

A refusal is an `isError` result, never a protocol error: only so can a model read it. A held call is no error, lest the model "repair" it.
What we add to `_meta` has our prefix; what an upstream wrote under that prefix is dropped.
"""

from __future__ import annotations

from typing import Any

from gateway.core.model import BudgetLeft, Busy, Completed, Doubt, Failed, Held, Json, Refused, Reply
from gateway.core.reasons import reason
from gateway.doors.problems import Problem, problem
from gateway.doors.render import budget_json, held_json
from gateway.wire import mcp


def result_of(reply: Reply) -> dict[str, Any]:
    """The result of any reply; an upstream's is not copied deeply, and not changed."""
    match reply:
        case Completed():
            return _completed(reply)
        case Held():
            return _held(reply)
        case Refused():
            return refused(problem(reply), "denied")
        case Busy():
            return refused(problem(reply), "admitted")
        case Doubt():
            return refused(problem(reply), "in_doubt")
        case Failed():
            return refused(problem(reply), reply.outcome.state)


def refused(told: Problem, status: str = "denied") -> dict[str, Any]:
    """`status`: the call's state; a request that never became a call counts as denied."""
    body = told.body
    messages = dict.fromkeys([body["detail"], *(finding["message"] for finding in body["findings"]), body["hint"]])
    result = mcp.call_result_text("\n".join(messages), True, body)
    result["_meta"] = {mcp.META_CALL: _call(body["call"], status, body["reason"])}
    if body["budget"] is not None:
        result["_meta"][mcp.META_BUDGET] = body["budget"]
    return result


def asked(reply: Busy, question: dict[str, Any]) -> dict[str, Any]:
    """What a running call's tool asks its client, with how the call stands."""
    return {**question, "_meta": _ours(_call(reply.call, "admitted", None), reply.budget)}


def _completed(reply: Completed) -> dict[str, Any]:
    call = _call(reply.call, reply.status, reply.reason, replayed=reply.replayed)
    if reply.message is not None:
        call["message"] = reply.message
    if reply.differences is not None:
        call["differences"] = reply.differences
    theirs = reply.result.get("_meta")
    kept = mcp.strip_ours(theirs) if isinstance(theirs, dict) else {}
    return {**reply.result, "_meta": kept | _ours(call, reply.budget)}


def _held(reply: Held) -> dict[str, Any]:
    row = reason(reply.reason)
    result = mcp.call_result_text(f"{reply.message}\n{row.hint}", False, held_json(reply))
    call = _call(reply.call, reply.state, row.code, hold=reply.hold)
    return {**result, "_meta": _ours(call, reply.budget)}


def _call(call: str | None, status: str, code: str | None, *, replayed: bool = False, hold: str | None = None) -> dict[str, Json]:
    return {"call": call, "status": status, "reason": code, "replayed": replayed, "hold": hold}


def _ours(call: dict[str, Json], budget: BudgetLeft) -> dict[str, Json]:
    return {mcp.META_CALL: call, mcp.META_BUDGET: budget_json(budget)}
