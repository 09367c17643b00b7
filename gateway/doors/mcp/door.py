"""MCP over Streamable HTTP, revision 2026-07-28: each POST stands alone; no session, no GET stream.

What the protocol refuses (a bad envelope, an unknown method) is a JSON-RPC error with its HTTP status; what the gateway refuses about a tool
call is a result (`results`). Requests of the session era are told which revision is spoken. Origin and Host are checked before (`auth`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from gateway.core.model import CallRequest
from gateway.doors.http import MAX_BODY, CallerLeft, Departure, Headers, read_body, send_json
from gateway.doors.mcp import calls, listing, results
from gateway.doors.mcp.stream import Stream
from gateway.doors.problems import Problem, failure, problem, running
from gateway.engine import Caller, Engine
from gateway.ports import GatewayFault, RequestFault, malformed
from gateway.wire import json, jsonrpc, mcp, mcp_headers
from gateway.wire.jsonrpc import Notification, Request, Response, RpcError

log = logging.getLogger("gateway.mcp")

RUN_HEADER: Final = "gateway-run"
GATEWAY_ERROR: Final = -32000
"""JSON-RPC's code for a refusal of ours outside tool calls; its data is the problem."""

_ALLOW: Final = [(b"allow", b"POST"), (b"content-length", b"0")]
_EMPTY: Final = [(b"content-length", b"0")]
_ONCE: Final = frozenset(
    {mcp_headers.VERSION_HEADER, mcp_headers.METHOD_HEADER, mcp_headers.NAME_HEADER, RUN_HEADER, calls.CALL_ID_HEADER, calls.TURN_HEADER}
)
_STOPPING: Final = running("The gateway is stopping and can't wait for this call's result any longer.")
_WITHOUT_HEADER: Final = "2025-03-26"
"""What a request without a version header is taken for."""
_CAPABILITIES: Final = {"tools": {"listChanged": False}}
_INSTRUCTIONS: Final = (
    "Tools are governed. A result may say that a call was refused, and why, or that it is held for a person's approval: then nothing was "
    "executed, and making the same call again later gives its result."
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes and times of this door; tests shorten them."""

    body_bytes: int = MAX_BODY
    tools_a_page: int = 500
    list_ttl_ms: int = 60_000
    heartbeat_s: float = 15.0


class Rejected(RpcError):
    """Refused for its HTTP form, with a status that JSON-RPC codes don't give."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(jsonrpc.INVALID_REQUEST, message, None)
        self.status = status


@dataclass(frozen=True, slots=True)
class _Post:
    """One request as ASGI gives it, with its headers by lower-case name and whom it comes from."""

    scope: Scope
    receive: Receive
    send: Send
    headers: Mapping[str, str]
    caller: Caller


class McpDoor:
    """The ASGI endpoint of `/mcp` and `/r/{run_key}/mcp`.

    `names` gives the listed names of now; `server_info` is the protocol's Implementation: name, version.
    """

    def __init__(
        self,
        engine: Engine,
        authenticate: Callable[[Headers], Caller],
        names: Callable[[], mcp.ListedNames],
        *,
        server_info: Mapping[str, Any],
        limits: Limits = Limits(),
    ) -> None:
        self._engine = engine
        self._authenticate = authenticate
        self._server_info = server_info
        self._limits = limits
        self._names = names
        self._marks = listing.Marks()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await _empty(send, 405, _ALLOW)
            return
        id = None
        try:
            headers = _headers(scope["headers"])
            post = _Post(scope, receive, send, headers, self._authenticate(scope["headers"]))
            message = await self._read(post)
            if isinstance(message, Notification):
                await _empty(send, 202, _EMPTY)
                return
            id = message.id
            await self._answer(post, message)
        except CallerLeft:
            pass
        except RpcError as error:
            await send_json(scope, send, error.status if isinstance(error, Rejected) else mcp.http_status(error), error.answer())
        except GatewayFault as fault:
            _log(fault)
            await _tell(scope, send, problem(fault), id)
        except Exception:  # whatever went wrong here, the client waits for an answer that it can read
            log.exception("a request of the MCP door failed")
            await _tell(scope, send, failure(), id)

    async def _read(self, post: _Post) -> Request | Notification:
        _check_form(post.headers)
        body = await read_body(post.scope["headers"], post.receive, self._limits.body_bytes)
        try:
            message = json.parse(body)
        except json.JsonError as error:
            raise RpcError(jsonrpc.PARSE_ERROR, f"Parse error: {error}", None) from None
        if not mcp.is_2026(post.headers):
            raise _other_era(post.headers, jsonrpc.read(message))
        return mcp.inbound_2026(post.headers, message)

    async def _answer(self, post: _Post, request: Request) -> None:
        if request.method == "tools/call":
            await self._call(post, request)
            return
        if request.method == "tools/list":
            result = await self._list(post, request)
        else:
            result = mcp.discover(_CAPABILITIES, ttl_ms=self._limits.list_ttl_ms, instructions=_INSTRUCTIONS)
        await send_json(post.scope, post.send, 200, self._message(request, result))

    async def _list(self, post: _Post, request: Request) -> dict[str, Any]:
        usable = await self._engine.tools(post.caller, await self._run(post))
        tools, cursor = listing.page(usable, request.params.get("cursor"), self._limits.tools_a_page, request.id)
        return mcp.tools_list(listing.shown(tools, self._names()), ttl_ms=self._limits.list_ttl_ms, next_cursor=cursor)

    async def _call(self, post: _Post, request: Request) -> None:
        name, arguments = request.params.get("name"), request.params.get("arguments")
        if not (isinstance(name, str) and calls.NAME.fullmatch(name)):
            raise RpcError(jsonrpc.INVALID_PARAMS, "params.name must be the name of a tool", request.id)
        tool = self._names().name(name) or _unlisted(name)
        if isinstance(arguments, dict) and (marked := self._marks.of(self._engine.catalog.tool(tool))):
            mcp_headers.check_params(post.headers, marked, arguments, request.id)
        token = calls.progress_token(request.params["_meta"]) if _accepts(post.headers, "text/event-stream") else None
        call = calls.call_request(request, post.headers, post.scope["headers"], tool, token)
        stream = Stream(post.scope, post.send, token, self._limits.heartbeat_s)
        try:
            with Departure(post.receive) as gone:
                result = await self._governed(post, call, stream.progress if token is not None else None, gone)
        except asyncio.CancelledError:  # the server stops: a stream that has begun must still end with an answer
            await stream.answer(self._message(request, results.refused(_STOPPING, "admitted")))
            raise
        await stream.answer(self._message(request, result))

    async def _governed(
        self, post: _Post, call: CallRequest, progress: Callable[[Mapping[str, Any]], None] | None, gone: asyncio.Future[None]
    ) -> dict[str, Any]:
        try:
            return results.result_of(await self._engine.call(post.caller, await self._run(post), call, progress=progress, gone=gone))
        except GatewayFault as fault:
            _log(fault)
            return results.refused(problem(fault))
        except Exception:  # the model is told; the traceback is for us
            log.exception("a call of %s failed in the gateway", call.tool)
            return results.refused(failure())

    async def _run(self, post: _Post) -> str:
        """The run token's, else the one that the path or `Gateway-Run` names, else the principal's implicit one."""
        path: str = post.scope["path"]
        if post.caller.run is not None:
            return post.caller.run
        key = path[len("/r/") : -len("/mcp")] if path.startswith("/r/") else post.headers.get(RUN_HEADER)
        if key is None:
            return await self._engine.implicit_run(post.caller, calls.DOOR)
        if not calls.NAME.fullmatch(key):
            raise malformed("The run_key must have 1 to 256 characters, none of them a control character.")
        return await self._engine.run_by_key(post.caller, key, calls.DOOR)

    def _message(self, request: Request, result: Mapping[str, Any]) -> dict[str, Any]:
        return jsonrpc.result(request.id, mcp.complete(result, self._server_info))


def _headers(raw: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """By lower-case name. Raises RpcError -32020 for one that decides something and stands twice."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in raw}
    if len(headers) != len(raw):
        names = [name.decode("latin-1") for name, _ in raw]
        for name in _ONCE:
            if names.count(name) > 1:
                raise RpcError(jsonrpc.HEADER_MISMATCH, f"header {name} stands more than once", None)
    return headers


def _check_form(headers: Mapping[str, str]) -> None:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Rejected(415, f"Content-Type must be application/json, not {kind[:64]!r}")
    if not _accepts(headers, "application/json"):
        raise Rejected(406, "Accept must name application/json and text/event-stream")


def _accepts(headers: Mapping[str, str], kind: str) -> bool:
    accept = headers.get("accept")
    return accept is None or kind in accept or "*/*" in accept or kind.partition("/")[0] + "/*" in accept


def _other_era(headers: Mapping[str, str], message: Request | Notification | Response) -> RpcError:
    """A request of the session era. Its revision stands in the header, or in the params of `initialize`."""
    id, params = (message.id, message.params) if isinstance(message, Request) else (None, {})
    requested = headers.get(mcp_headers.VERSION_HEADER) or params.get("protocolVersion") or _WITHOUT_HEADER
    choice = {"supported": [mcp.VERSION_2026], "requested": str(requested)}
    return RpcError(jsonrpc.UNSUPPORTED_VERSION, "Unsupported protocol version", id, choice)


def _unlisted(name: str) -> str:
    """What a name that no tool has now would stand for; the engine refuses it by the rules for that name."""
    return name if "." in name else name.replace("__", ".", 1)


def _log(fault: GatewayFault) -> None:
    if not isinstance(fault, RequestFault):
        log.error("not answered as asked: %s", fault)


async def _tell(scope: Scope, send: Send, told: Problem, id: jsonrpc.Id | None) -> None:
    error = jsonrpc.error(id, GATEWAY_ERROR, told.body["detail"], told.body)
    await send_json(scope, send, told.status, error, told.headers)


async def _empty(send: Send, status: int, headers: list[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
