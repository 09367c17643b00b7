"""Turns: open, answer, report usage, look at, cancel."""

from __future__ import annotations

from typing import Any

from gateway.doors.render import turn_json
from gateway.doors.rest.calls import provider_message, read_call
from gateway.doors.rest.operation import Answer, Exchange, Operation
from gateway.doors.rest.schemas import ARGUMENTS, COUNT, FORM, NAME, NAME_OR_NULL, NOTHING, PROVIDER_CALLS, fields, refer
from gateway.engine import AskedCall, UsageRequest
from gateway.ports import malformed

_ASKED = fields({"call_id": NAME, "tool": NAME, "arguments": ARGUMENTS}, "call_id", "tool")
_ANSWER = fields(
    {
        "calls": {"type": "array", "maxItems": 256, "items": {"oneOf": [_ASKED, *PROVIDER_CALLS]}},
        "digest": {**NAME_OR_NULL, "description": "Of the model's message, as the harness computes it."},
    }
)
_USAGE = fields(
    {
        "model": NAME_OR_NULL,
        **dict.fromkeys(("input", "output", "cache_creation", "cache_read"), COUNT),
        "cost_usd": {"type": ["number", "string", "null"], "minimum": 0, "maxLength": 32},
    }
)


async def open_turn(x: Exchange) -> Answer:
    view = await x.engine.open_turn(x.caller, x.path["run"])
    location = f"/v1/runs/{x.path['run']}/turns/{view.turn.number}".encode()
    return Answer(201, turn_json(view), [(b"location", location)])


async def show_turn(x: Exchange) -> Answer:
    """With `format`, each recorded result also as the provider's message, so that a restarted worker needs no second model call."""
    body = turn_json(await x.engine.turn(x.caller, *_where(x)))
    if "format" in x.query:
        for one in body["calls"]:
            one["message"] = None if one["result"] is None else provider_message(x.query["format"], one["call_id"], one["result"])
    return Answer(200, body)


async def answer_turn(x: Exchange) -> Answer:
    calls = [await _asked(x, call, f"calls[{index}]") for index, call in enumerate(x.body.get("calls", ()))]
    return Answer(200, turn_json(await x.engine.answer_turn(x.caller, *_where(x), calls, x.body.get("digest"))))


async def report_usage(x: Exchange) -> Answer:
    return Answer(200, turn_json(await x.engine.report_usage(x.caller, *_where(x), UsageRequest(**x.body))))


async def cancel_turn(x: Exchange) -> Answer:
    return Answer(200, turn_json(await x.engine.cancel_turn(x.caller, *_where(x))))


def _where(x: Exchange) -> tuple[str, int]:
    return x.path["run"], x.path["turn"]


async def _asked(x: Exchange, call: dict[str, Any], at: str) -> AskedCall:
    tool, arguments, call_id = await read_call(x, call, at)
    if not call_id:
        raise malformed(f"{at}: the call has no id")
    return AskedCall(call_id, tool, arguments)


_TURN = {200: refer("Turn")}
OPERATIONS = (
    Operation("POST", "/v1/runs/{run}/turns", open_turn, "Begin a turn", {201: refer("Turn")}, NOTHING),
    Operation("GET", "/v1/runs/{run}/turns/{turn}", show_turn, "Look at a turn and its results", _TURN, query={"format": FORM}),
    Operation("POST", "/v1/runs/{run}/turns/{turn}/answer", answer_turn, "Record what the model asked for", _TURN, _ANSWER),
    Operation("POST", "/v1/runs/{run}/turns/{turn}/usage", report_usage, "Report what the model call used", _TURN, _USAGE),
    Operation("POST", "/v1/runs/{run}/turns/{turn}/cancel", cancel_turn, "End a turn; the run stays open", _TURN, NOTHING),
)
