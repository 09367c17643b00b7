"""Tools' definitions: look at what is accepted and what is held back, and accept. For operators; looking is for viewers too."""

from __future__ import annotations

from gateway.doors.render import tool_json
from gateway.doors.rest.operation import Answer, Exchange, Operation
from gateway.doors.rest.schemas import NAME, fields, refer

_DIGESTS = {
    "type": "object",
    "description": "Full name -> the digest that was shown; a definition that is another by now isn't accepted, and then none of them is.",
    "additionalProperties": NAME,
}


async def list_definitions(x: Exchange) -> Answer:
    return Answer(200, {"tools": [tool_json(view) for view in await x.engine.definitions(x.caller)]})


async def accept_definitions(x: Exchange) -> Answer:
    return Answer(200, {"tools": [tool_json(view) for view in await x.engine.accept_definitions(x.caller, x.body["tools"])]})


_TOOLS = {200: refer("Definitions")}
OPERATIONS = (
    Operation("GET", "/v1/tools", list_definitions, "List all tools, with what is held back", _TOOLS),
    Operation("POST", "/v1/tools/accept", accept_definitions, "Accept changed or new definitions", _TOOLS, fields({"tools": _DIGESTS}, "tools")),
)
