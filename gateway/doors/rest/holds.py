"""Holds: list, look at, approve, deny. Looking never decides."""

from __future__ import annotations

from gateway.doors.render import hold_json
from gateway.doors.rest.operation import Answer, Exchange, Operation
from gateway.doors.rest.schemas import LIMIT, NAME, NOTE, fields, refer

PAGE = 50
_STATES = ["held", "approved", "denied", "expired", "consumed", "void", "cancelled"]
_DIGEST = {**NAME, "description": "The digest that was shown; a vote on anything else isn't counted."}


async def list_holds(x: Exchange) -> Answer:
    views, after = await x.engine.holds(x.caller, state=x.query.get("state"), limit=x.query.get("limit", PAGE), before=x.query.get("before"))
    return Answer(200, {"holds": [hold_json(view) for view in views], "next": after})


async def show_hold(x: Exchange) -> Answer:
    return Answer(200, hold_json(await x.engine.hold(x.caller, x.path["hold"])))


async def approve(x: Exchange) -> Answer:
    return Answer(200, hold_json(await x.engine.vote(x.caller, x.path["hold"], "approve", x.body["digest"], x.body.get("note", ""))))


async def deny(x: Exchange) -> Answer:
    """The reason goes back to the model."""
    return Answer(200, hold_json(await x.engine.vote(x.caller, x.path["hold"], "deny", x.body["digest"], x.body.get("reason", ""))))


_HOLD = {200: refer("Hold")}
OPERATIONS = (
    Operation(
        "GET", "/v1/holds", list_holds, "List holds, newest first", {200: refer("Holds")},
        query={"state": {"enum": _STATES, "type": "string"}, "limit": LIMIT, "before": NAME},
    ),
    Operation("GET", "/v1/holds/{hold}", show_hold, "Look at a hold", _HOLD),
    Operation("POST", "/v1/holds/{hold}/approve", approve, "Say yes", _HOLD, fields({"digest": _DIGEST, "note": NOTE}, "digest")),
    Operation("POST", "/v1/holds/{hold}/deny", deny, "Say no, and why", _HOLD, fields({"digest": _DIGEST, "reason": NOTE}, "digest")),
)  # fmt: skip
