"""MCP 2026-07-28: each POST stands alone; no session, no GET stream.

What a tool asks in the midst of a call is told as the request's result, with a state to bring back (`states`); closing the stream ends the
waiting. What the protocol refuses is a JSON-RPC error with its HTTP status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from gateway.core.model import Busy, CallRequest, Completed, Reply
from gateway.doors.http import Departure
from gateway.doors.mcp import results, tools
from gateway.doors.mcp.post import Post, Rejected, refusal
from gateway.doors.mcp.servers import Servers
from gateway.doors.mcp.states import Pending, States
from gateway.doors.mcp.stream import Line, Stream
from gateway.doors.mcp.subscriptions import Subscriptions
from gateway.doors.mcp.tools import Tools
from gateway.engine import Answers, Engine
from gateway.ports import Client, Clock
from gateway.wire import jsonrpc, mcp, mcp_input
from gateway.wire.jsonrpc import Request, RpcError

RESOURCE_NOT_FOUND: Final = -32002
"""The session era's code; 2026-07-28 says -32602."""


class Stateless:
    def __init__(
        self,
        engine: Engine,
        shared: Tools,
        servers: Servers,
        subscriptions: Subscriptions,
        secrets: Sequence[bytes],
        clock: Clock,
        server_info: Mapping[str, Any],
        ttl_ms: int,
        heartbeat_s: float,
    ) -> None:
        self._engine = engine
        self._tools = shared
        self._servers = servers
        self._subscriptions = subscriptions
        self._states = States(secrets, clock)
        self._server_info = server_info
        self._ttl_ms, self._heartbeat_s = ttl_ms, heartbeat_s

    async def serve(self, post: Post, body: Any) -> None:
        """Raises RpcError for what is no request of this revision."""
        request = mcp.inbound_2026(post.headers, body)
        line = Line(post.scope, post.send)
        if not isinstance(request, Request):
            await line.accept()
            return
        status, more = 200, list[tuple[bytes, bytes]]()
        try:
            message = await self._answer(post, request, line)
        except asyncio.CancelledError:  # the server stops: a stream that has begun must still end with an answer
            await line.end(self._message(request, tools.stopping()))
            raise
        except Exception as fault:  # noqa: BLE001  whatever went wrong here, the client waits for an answer that it can read
            status, message, more = refusal(fault, request.id)
        await line.end(message, status, more)

    def _answer(self, post: Post, request: Request, line: Line) -> Awaitable[dict[str, Any]]:
        match request.method:
            case "tools/call":
                return self._call(post, request, line)
            case "subscriptions/listen":
                return self._listen(post, request, line)
            case _:
                return self._told(post, request)

    # ---- tools/call -----------------------------------------------------------------------------------------------------

    async def _call(self, post: Post, request: Request, line: Line) -> dict[str, Any]:
        meta: dict[str, Any] = request.params["_meta"]
        info, level = meta.get(mcp.META_CLIENT_INFO), meta.get(mcp.META_LOG_LEVEL)
        token = self._tools.token(post, meta)
        call = await self._tools.call(post, request, meta, info.get("name") if isinstance(info, dict) else None, token)
        self._tools.check_params(post, request, call)
        stream = Stream(line, token, self._heartbeat_s)
        level = level if level in mcp_input.LEVELS else None
        client = self._tools.client(post, stream, level, mcp_input.askable(meta[mcp.META_CLIENT_CAPABILITIES]))
        try:
            with Departure(post.receive) as gone:
                if client.capabilities or "requestState" in request.params or "inputResponses" in request.params:
                    round = _Round(self._engine, self._states, post, request, call, client, gone)
                    said = await self._tools.govern(post, call, client, gone, round.ask, round.back)
                else:
                    said = await self._tools.govern(post, call, client, gone)
        finally:
            stream.stop()
        if isinstance(said, dict):
            return self._message(request, said)
        _refuse_lacking(said, request)
        return self._message(request, results.result_of(said))

    async def _listen(self, post: Post, request: Request, line: Line) -> dict[str, Any]:
        if not post.takes("text/event-stream"):
            raise Rejected(406, "Accept must name text/event-stream to listen", request.id)
        stream = Stream(line, None, self._heartbeat_s)
        try:
            return self._message(request, await self._subscriptions.listen(post, request, stream))
        finally:
            stream.stop()

    # ---- the rest -------------------------------------------------------------------------------------------------------

    async def _told(self, post: Post, request: Request) -> dict[str, Any]:
        match request.method:
            case "tools/list":
                listed, cursor = await self._tools.page(post, request)
                return self._message(request, mcp.tools_list(listed, ttl_ms=self._ttl_ms, next_cursor=cursor))
            case "server/discover":
                capabilities = {"tools": {"listChanged": True}, **self._servers.capabilities()}
                return self._message(request, mcp.discover(capabilities, ttl_ms=self._ttl_ms, instructions=tools.INSTRUCTIONS))
            case _:
                return self._message(request, await self._asked(post, request))

    async def _asked(self, post: Post, request: Request) -> Mapping[str, Any]:
        """Resources, prompts, completion; a server's own request state travels inside ours."""
        who, params = post.caller.principal.id, request.params
        mcp_input.responses(request)
        if (state := mcp_input.state(request)) is not None:
            theirs = self._states.theirs(state, who, request.method, params, request.id)
            params = {name: value for name, value in params.items() if name != "requestState"}
            params |= {} if theirs is None else {"requestState": theirs}
        capabilities = mcp_input.askable(params["_meta"][mcp.META_CLIENT_CAPABILITIES])
        try:
            result = await self._servers.answer(post, Request(request.id, request.method, params), capabilities)
        except RpcError as error:
            code = jsonrpc.INVALID_PARAMS if error.code == RESOURCE_NOT_FOUND else error.code
            raise RpcError(code, error.message, request.id, error.data) from None
        if mcp_input.is_input_required(result):
            if (unable := tools.cant_answer(capabilities, mcp_input.requests(result))) is not None:
                raise RpcError(jsonrpc.INTERNAL_ERROR, unable.message, request.id)
            again = self._states.of_request(who, request.method, request.params, result.get("requestState"))
            return {**result, "requestState": again}
        return mcp.cached(result, self._ttl_ms) if request.method in mcp.CACHED else result

    def _message(self, request: Request, result: Mapping[str, Any]) -> dict[str, Any]:
        return jsonrpc.result(request.id, mcp.complete(result, self._server_info))


@dataclass
class _Round:
    """One of the requests that a call takes until its tool has all answers. `given`: those that came with this one, and are not used yet."""

    engine: Engine
    states: States
    post: Post
    request: Request
    call: CallRequest
    client: Client
    gone: asyncio.Future[None]

    def __post_init__(self) -> None:
        self.given = mcp_input.responses(self.request)
        state = mcp_input.state(self.request)
        self.back = None if state is None else partial(self._back, state)

    async def _back(self, state: str, run: str) -> Reply:
        """Take the answers to the question that the state names."""
        pending = self.states.pending(state, run, self.call, self.request.id)
        answers, self.given = tools.done(self.given or {}), None
        return await self.engine.resume(self.post.caller, run, pending.call, pending.number, answers, client=self.client, gone=self.gone)

    def ask(self, run: str, asked: Busy) -> asyncio.Future[Answers] | dict[str, Any]:
        """Answers that came with the call are for its first question, as far as they fit; else the question is the result."""
        assert asked.question is not None
        requests = asked.question.requests
        fitting, self.given = {name: answer for name, answer in (self.given or {}).items() if name in requests}, None
        if fitting:
            return tools.done(fitting)
        again = self.states.of_call(run, self.call, Pending(asked.call, asked.question.number))
        return results.asked(asked, mcp_input.input_required(requests, again))


def _refuse_lacking(reply: Reply, request: Request) -> None:
    """An upstream that needs a capability which its client hasn't declared is answered as the protocol wants it, not as a result."""
    meta = reply.result.get("_meta") if isinstance(reply, Completed) else None
    error = meta.get(mcp.META_ERROR) if isinstance(meta, dict) else None
    if isinstance(error, dict) and error.get("code") == jsonrpc.MISSING_CAPABILITY:
        raise RpcError(jsonrpc.MISSING_CAPABILITY, str(error.get("message")), request.id, error.get("data"))
