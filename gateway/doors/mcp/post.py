"""One HTTP request at the MCP door, of either era: its headers, its body as JSON, and the run that it is about."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from starlette.types import Receive, Scope, Send

from gateway.doors.http import read_body
from gateway.doors.mcp import calls
from gateway.doors.problems import failure, problem
from gateway.engine import Caller, Engine
from gateway.ports import GatewayFault, RequestFault, malformed
from gateway.wire import json, jsonrpc, mcp, mcp_headers
from gateway.wire.jsonrpc import RpcError

log = logging.getLogger("gateway.mcp")

GATEWAY_ERROR: Final = -32000
"""JSON-RPC's code for a refusal of ours outside tool calls; its data is the problem."""
RUN_HEADER: Final = "gateway-run"
SESSION_HEADER: Final = "mcp-session-id"
_ONCE: Final = frozenset(
    {
        mcp_headers.VERSION_HEADER, mcp_headers.METHOD_HEADER, mcp_headers.NAME_HEADER, RUN_HEADER, SESSION_HEADER, calls.CALL_ID_HEADER,
        calls.TURN_HEADER,
    }
)  # fmt: skip


class Rejected(RpcError):
    """Refused for its HTTP form, with a status that JSON-RPC codes don't give."""

    def __init__(self, status: int, message: str, id: jsonrpc.Id | None = None) -> None:
        super().__init__(jsonrpc.INVALID_REQUEST, message, id)
        self.status = status


def refusal(fault: Exception, id: jsonrpc.Id | None) -> tuple[int, dict[str, Any], list[tuple[bytes, bytes]]]:
    """What a request gets that ended in a fault, outside of calls: HTTP status, JSON-RPC error, headers. What is our fault is logged."""
    if isinstance(fault, RpcError):
        return (fault.status if isinstance(fault, Rejected) else mcp.http_status(fault)), fault.answer(), []
    if isinstance(fault, GatewayFault):
        told = problem(fault)
        if not isinstance(fault, RequestFault):
            log.error("not answered as asked: %s", fault)
    else:
        told = failure()
        log.error("a request of the MCP door failed", exc_info=fault)
    return told.status, jsonrpc.error(id, GATEWAY_ERROR, told.body["detail"], told.body), list(told.headers)


class Post(Struct, frozen=True):
    """One request as ASGI gives it, with its headers by lower-case name and whom it comes from."""

    scope: Scope
    receive: Receive
    send: Send
    headers: Mapping[str, str]
    caller: Caller

    def takes(self, kind: str) -> bool:
        """Does the client accept an answer of this media type?"""
        accept = self.headers.get("accept")
        return accept is None or kind in accept or "*/*" in accept or kind.partition("/")[0] + "/*" in accept

    async def body(self, limit: int) -> Any:
        """The JSON of the body. Raises Rejected for its declared form, RpcError -32700 for what is no JSON, RequestFault for its size."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Rejected(415, f"Content-Type must be application/json, not {kind[:64]!r}")
        if not self.takes("application/json"):
            raise Rejected(406, "Accept must name application/json and text/event-stream")
        body = await read_body(self.scope, self.receive, limit)
        try:
            return json.parse(body)
        except json.JsonError as error:
            raise RpcError(jsonrpc.PARSE_ERROR, f"Parse error: {error}", None) from None

    async def run(self, engine: Engine) -> str:
        """The run token's, else the one that the path or `Gateway-Run` names, else the principal's implicit one."""
        path: str = self.scope["path"]
        if self.caller.run is not None:
            return self.caller.run
        key = path[len("/r/") : -len("/mcp")] if path.startswith("/r/") else self.headers.get(RUN_HEADER)
        if key is None:
            return await engine.implicit_run(self.caller, calls.DOOR)
        if not calls.NAME.fullmatch(key):
            raise malformed("The run_key must have 1 to 256 characters, none of them a control character.")
        return await engine.run_by_key(self.caller, key, calls.DOOR)


def headers_of(raw: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """By lower-case name. Raises RpcError -32020 for one that decides something and stands twice."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in raw}
    if len(headers) != len(raw):
        names = [name.decode("latin-1") for name, _ in raw]
        for name in _ONCE:
            if names.count(name) > 1:
                raise RpcError(jsonrpc.HEADER_MISMATCH, f"header {name} stands more than once", None)
    return headers
