"""Calls: make one (the hot route), and look at one. A provider's tool-call object is taken as the model gave it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gateway.core.model import CallRequest, Completed, Held, Json, Malformed, Reply
from gateway.core.reasons import reason
from gateway.doors.http import Departure, header, trace_of
from gateway.doors.problems import Problem, problem
from gateway.doors.render import budget_headers, completed_json, held_json
from gateway.doors.rest.checks import checked
from gateway.doors.rest.operation import Answer, Exchange, Operation
from gateway.doors.rest.schemas import ARGUMENTS, COUNT, FORM, NAME, NAME_OR_NULL, PROVIDER_CALLS, WAIT, fields, refer
from gateway.ports import malformed
from gateway.wire import anthropic, openai
from gateway.wire.calls import MalformedCall

_OWN = fields(
    {
        "tool": NAME,
        "arguments": ARGUMENTS,
        "call_id": {**NAME_OR_NULL, "description": "The provider's id of this tool call."},
        "operation_id": {**NAME_OR_NULL, "description": "The business intent of a wanted repeat; a new one means: again."},
        "turn": {**COUNT, "type": ["integer", "null"]},
        "wait": {**WAIT, "type": ["number", "null"]},
    },
    "tool",
)
_PROVIDERS = (openai, anthropic)


async def make_call(x: Exchange) -> Answer | Problem:
    """Arguments that the provider cut off reach the engine as Malformed, so that they are recorded and counted like any refusal."""
    request = await _request(x)
    with Departure(x.receive) as gone:
        reply = await x.engine.call(x.caller, x.path["run"], request, gone=gone)
    if isinstance(reply, Completed) and "format" in x.query:
        message = provider_message(x.query["format"], request.call_id or reply.call, reply.result, x.body.get("type"))
        return Answer(200, message, [*_marks(reply), *budget_headers(reply.budget)])
    return _answer(x, reply)


async def show_call(x: Exchange) -> Answer | Problem:
    """The same answer as the call itself would get now; `wait` waits for it to change."""
    return _answer(x, await x.engine.call_state(x.caller, x.path["run"], x.path["call"], _ms(x.query.get("wait"))))


async def show_result(x: Exchange) -> Answer:
    """All of a result that was too long to be shown with its call."""
    return Answer(200, await x.engine.kept_aside(x.caller, x.path["run"], x.path["result"]))


def _answer(x: Exchange, reply: Reply) -> Answer | Problem:
    if isinstance(reply, Completed):
        return Answer(200, completed_json(reply))
    if isinstance(reply, Held):
        location = f"/v1/runs/{x.path['run']}/calls/{reply.call}".encode()
        return Answer(202, held_json(reply), [(b"location", location), (b"retry-after", str(reason(reply.reason).wait_s).encode())])
    return problem(reply)


def _marks(reply: Completed) -> list[tuple[bytes, bytes]]:
    """What a provider's message has no place for."""
    marks = {"call": reply.call, "status": reply.status, "replayed": str(reply.replayed).lower()}
    return [(f"gateway-{name}".encode(), value.encode()) for name, value in marks.items()]


def provider_message(form: str, call_id: str, result: Mapping[str, Json], call_type: Json = None) -> dict[str, Any]:
    """A result as the provider's tool-result message; a Responses `function_call` gets a Responses item."""
    if form == "anthropic":
        return anthropic.tool_result(call_id, result)
    return openai.function_call_output(call_id, result) if call_type == "function_call" else openai.tool_message(call_id, result)


# ---- reading ------------------------------------------------------------------------------------------------------------


async def read_call(x: Exchange, body: Mapping[str, Json], at: str) -> tuple[str, Json, str | None]:
    """Tool, arguments and call id from our own form or a provider's. Raises RequestFault if it names no tool."""
    provider = next((one for one in _PROVIDERS if one.is_call(body)), None)
    if provider is None:
        given = body.get("arguments")
        arguments = {} if given is None else given if isinstance(given, dict) else Malformed("the arguments are no JSON object")
        return await _own_name(x, body["tool"]), arguments, body.get("call_id")
    try:
        call = provider.read_call(body)
    except MalformedCall as wrong:
        if not wrong.tool:
            raise malformed(f"{at}: {wrong}") from None
        return await _own_name(x, wrong.tool), Malformed(str(wrong)), wrong.call_id
    checked({"tool": call.tool, "call_id": call.call_id}, _OWN)
    return await _own_name(x, call.tool), call.arguments, call.call_id


async def _own_name(x: Exchange, tool: str) -> str:
    """`upstream.tool`, also for the name that a provider's model was shown; a name that nobody has is refused further in."""
    return x.names().name(tool) or await x.engine.tool_named(x.caller, x.path["run"], tool) or tool


async def _request(x: Exchange) -> CallRequest:
    tool, arguments, call_id = await read_call(x, x.body, "the call")
    own = x.body if "tool" in x.body else {}
    turn, wait = own.get("turn"), own.get("wait")
    return CallRequest(
        tool,
        arguments,
        "rest",
        call_id,
        own.get("operation_id") or _idempotency_key(x),
        _turn(x) if turn is None else turn,
        _ms(x.query.get("wait") if wait is None else wait),
        trace_of(x.headers),
    )


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)


def _turn(x: Exchange) -> int:
    sent = header(x.headers, b"gateway-turn")
    if sent is None:
        return 0
    if not re.fullmatch(rb"[0-9]{1,9}", sent):
        raise malformed("Gateway-Turn is no whole number.")
    return int(sent)


def _idempotency_key(x: Exchange) -> str | None:
    """The header, quoted as the IETF's draft has it or raw; only from a principal whose keys are its harness's, not its model's."""
    sent = header(x.headers, b"idempotency-key")
    if sent is None or "idempotency_key" not in x.caller.principal.trust:
        return None
    text = sent.decode("latin-1").strip()
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = re.sub(r"\\(.)", r"\1", text[1:-1])
    if not re.fullmatch("[ -~]{1,256}", text):
        raise malformed("Idempotency-Key is not 1 to 256 printable ASCII characters.")
    return text


CALL = Operation(
    "POST", "/v1/runs/{run}/calls", make_call, "Make a tool call",
    {200: {"anyOf": [refer("CompletedCall"), refer("ToolResultMessage")]}, 202: refer("HeldCall")},
    {"oneOf": [_OWN, *PROVIDER_CALLS]},
    {"wait": WAIT, "format": FORM},
)  # fmt: skip
OPERATIONS = (
    CALL,
    Operation(
        "GET", "/v1/runs/{run}/calls/{call}", show_call, "Look at a call, or wait for it",
        {200: refer("CompletedCall"), 202: refer("HeldCall")}, query={"wait": WAIT},
    ),
    Operation("GET", "/v1/runs/{run}/results/{result}", show_result, "Read the whole of a long result", {200: {"type": "object"}}),
)  # fmt: skip
