"""MCP 2024-11-05 … 2025-11-25: `initialize`, then messages that name a session; answers as JSON or as the event stream of their POST.

A client that leaves has cancelled nothing; `notifications/cancelled` does. What a tool asks goes to its caller as a request on the stream of the
call's POST. Once a request has an id its errors travel with HTTP 200: clients of this era give up their session on other statuses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.core.model import Busy
from gateway.doors.mcp import results, tools
from gateway.doors.mcp.post import SESSION_HEADER, Post, Rejected, refusal
from gateway.doors.mcp.questions import Questions
from gateway.doors.mcp.servers import CAPABILITY, Servers
from gateway.doors.mcp.sessions import Session, Sessions
from gateway.doors.mcp.stream import Line, Stream
from gateway.doors.mcp.subscriptions import Subscriptions
from gateway.doors.mcp.tools import Tools
from gateway.engine import Answers, Engine
from gateway.ports import Clock, Unanswered
from gateway.wire import jsonrpc, mcp, mcp_input
from gateway.wire.jsonrpc import Notification, Request, Response, RpcError

MAX_BATCH: Final = 50
MAX_ROUNDS: Final = 10
ANSWER_S: Final = 300.0
"""A call's own time ends its questions earlier."""
_TOO_LATE: Final = Unanswered(jsonrpc.INTERNAL_ERROR, "The client did not answer in time.")
_NO_STREAM: Final = Unanswered(tools.CANT_ANSWER, "The client's POST accepts no event stream, so it can't be asked anything.")


class InSession:
    def __init__(
        self,
        engine: Engine,
        shared: Tools,
        servers: Servers,
        subscriptions: Subscriptions,
        secrets: Sequence[bytes],
        clock: Clock,
        server_info: Mapping[str, Any],
        heartbeat_s: float,
    ) -> None:
        self._engine = engine
        self._tools = shared
        self._servers = servers
        self._subscriptions = subscriptions
        self._sessions = Sessions(secrets, clock)
        self._questions = Questions()
        self._server_info = server_info
        self._heartbeat_s = heartbeat_s
        self._running: dict[tuple[str, str | int], asyncio.Future[None]] = {}

    async def end(self, post: Post) -> None:
        """DELETE."""
        session = self._session(post)
        self._sessions.end(session)
        await self._subscriptions.forget(session.id)
        await Line(post.scope, post.send).accept()

    async def serve(self, post: Post, body: Any) -> None:
        """Raises RpcError for what is no message of this era, and Rejected 404 for a session that is unknown or over."""
        if isinstance(body, dict) and body.get("method") == "initialize":
            await self._initialize(post, body)
            return
        session = self._session(post)
        if isinstance(body, list) and not session.has_batches:
            raise RpcError(jsonrpc.INVALID_REQUEST, f"revision {session.version} has no batches", None)
        if isinstance(body, list) and not 0 < len(body) <= MAX_BATCH:
            raise RpcError(jsonrpc.INVALID_REQUEST, f"a batch has 1 to {MAX_BATCH} messages", None)
        messages = [jsonrpc.read(one) for one in (body if isinstance(body, list) else [body])]
        self._take([one for one in messages if not isinstance(one, Request)], session)
        requests = [one for one in messages if isinstance(one, Request)]
        line = Line(post.scope, post.send)
        if not requests:
            await line.accept()
            return
        try:
            answers = await asyncio.gather(*(self._answer(post, session, one, line) for one in requests))
        except asyncio.CancelledError:  # the server stops: a stream that has begun must still end with an answer
            answers = [jsonrpc.result(one.id, tools.stopping()) for one in requests]
            await line.end(answers if isinstance(body, list) else answers[0])
            raise
        await line.end(list(answers) if isinstance(body, list) else answers[0])

    async def _initialize(self, post: Post, body: Any) -> None:
        request = jsonrpc.read(body)
        if not isinstance(request, Request):
            raise RpcError(jsonrpc.INVALID_REQUEST, "initialize is a request", None)
        session = self._sessions.begin(post.caller.principal.id, request.params)
        offered = {name: {"subscribe": True} if name == "resources" else {} for name in self._servers.capabilities()}
        result = mcp.initialize_result(session.version, {"tools": {}, "logging": {}, **offered}, self._server_info, tools.INSTRUCTIONS)
        line = Line(post.scope, post.send, [(SESSION_HEADER.encode(), session.id.encode())])
        await line.end(jsonrpc.result(request.id, result))

    def _session(self, post: Post) -> Session:
        id = post.headers.get(SESSION_HEADER)
        if id is None:
            raise Rejected(400, "Mcp-Session-Id is missing: begin with initialize, or speak revision 2026-07-28 (MCP-Protocol-Version)")
        found = self._sessions.find(id, post.caller.principal.id)
        if found is None:
            raise Rejected(404, "There is no such session, or no more: begin a new one with initialize")
        return found

    # ---- what has no answer ---------------------------------------------------------------------------------------------

    def _take(self, messages: Sequence[Notification | Response], session: Session) -> None:
        """Raises Rejected 409 for an answer that no question waits for here."""
        for message in messages:
            if isinstance(message, Response):
                if not self._questions.answered(session.id, message):
                    raise Rejected(409, "Nothing waits for this answer: it came too late, or to another process of the gateway")
            elif message.method == "notifications/cancelled":
                id: Any = message.params.get("requestId")
                gone = self._running.get((session.id, id)) if type(id) in (str, int) else None
                if gone is not None and not gone.done():
                    gone.set_result(None)

    # ---- requests -------------------------------------------------------------------------------------------------------

    async def _answer(self, post: Post, session: Session, request: Request, line: Line) -> dict[str, Any]:
        try:
            return jsonrpc.result(request.id, await self._result(post, session, request, line))
        except Exception as fault:  # noqa: BLE001  whatever went wrong here, the client waits for an answer that it can read
            if isinstance(fault, RpcError):
                fault.id = request.id
            return refusal(fault, request.id)[1]

    async def _result(self, post: Post, session: Session, request: Request, line: Line) -> Mapping[str, Any]:
        match request.method:
            case "tools/call":
                return await self._call(post, session, request, line)
            case "tools/list":
                listed, cursor = await self._tools.page(post, request)
                return {"tools": listed} if cursor is None else {"tools": listed, "nextCursor": cursor}
            case "ping":
                return {}
            case "logging/setLevel":
                level = request.params.get("level")
                if level not in mcp_input.LEVELS:
                    raise RpcError(jsonrpc.INVALID_PARAMS, f"params.level must be one of {', '.join(mcp_input.LEVELS)}", request.id)
                self._sessions.set_level(session, level)
                return {}
            case "resources/subscribe" | "resources/unsubscribe":
                await self._subscriptions.subscribe(post, request, session.id)
                return {}
            case method if method in CAPABILITY:
                return await self._asked(post, session, request, line)
        raise RpcError(jsonrpc.METHOD_NOT_FOUND, "Method not found", request.id, request.method)

    async def _call(self, post: Post, session: Session, request: Request, line: Line) -> dict[str, Any]:
        meta = _meta(request)
        token = self._tools.token(post, meta)
        call = await self._tools.call(post, request, meta, session.client, token)
        stream = Stream(line, token, self._heartbeat_s)
        client = self._tools.client(post, stream, self._sessions.level(session), session.capabilities)
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        running = self._running[session.id, request.id] = gone

        def ask(run: str, asked: Busy) -> asyncio.Future[Answers]:
            assert asked.question is not None
            return asyncio.ensure_future(self._pose(post, session, stream, asked.question.requests))

        try:
            with self._subscriptions.told(session.id, stream):
                said = await self._tools.govern(post, call, client, gone, ask)
                return said if isinstance(said, dict) else results.result_of(said)
        finally:
            stream.stop()
            if self._running.get((session.id, request.id)) is running:
                del self._running[session.id, request.id]

    async def _pose(self, post: Post, session: Session, stream: Stream, requests: Mapping[str, Any]) -> Answers:
        if not post.takes("text/event-stream"):
            return _NO_STREAM
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._questions.ask(session.id, stream.say, requests)
        except TimeoutError:
            return _TOO_LATE

    async def _asked(self, post: Post, session: Session, request: Request, line: Line) -> Mapping[str, Any]:
        """Resources, prompts, completion; what a 2026 server asks meanwhile is asked here, and the request made again."""
        stream, again = Stream(line, None, self._heartbeat_s), request
        try:
            for _ in range(MAX_ROUNDS):
                result = await self._servers.answer(post, again, session.capabilities)
                if not mcp_input.is_input_required(result):
                    return result
                asked, state = mcp_input.requests(result), result.get("requestState")
                answers = tools.cant_answer(session.capabilities, asked) or await self._pose(post, session, stream, asked)
                if isinstance(answers, Unanswered):
                    raise RpcError(answers.code, answers.message, request.id)
                more = {"inputResponses": answers} | ({} if state is None else {"requestState": state})
                again = Request(request.id, request.method, request.params | more)
        finally:
            stream.stop()
        raise RpcError(jsonrpc.INTERNAL_ERROR, f"the server still asked for input after {MAX_ROUNDS} rounds", request.id)


def _meta(request: Request) -> Mapping[str, Any]:
    meta = request.params.get("_meta")
    if meta is not None and not isinstance(meta, dict):
        raise RpcError(jsonrpc.INVALID_PARAMS, "params._meta must be an object", request.id)
    return meta or {}
