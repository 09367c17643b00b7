"""`tools/list` and `tools/call` as both eras share them: what is listed, how a call is governed, and what is said of what came of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from gateway.core.model import Busy, CallRequest, Json, Reply
from gateway.doors.mcp import calls, listing, results
from gateway.doors.mcp.post import Post
from gateway.doors.mcp.stream import Stream
from gateway.doors.problems import failure, problem, running
from gateway.engine import Answers, Engine
from gateway.ports import NOBODY, Client, GatewayFault, RequestFault, Unanswered
from gateway.wire import jsonrpc, mcp, mcp_headers, mcp_input
from gateway.wire.jsonrpc import Request, RpcError

log = logging.getLogger("gateway.mcp")

CANT_ANSWER: Final = jsonrpc.METHOD_NOT_FOUND
STOPPING: Final = running("The gateway is stopping and can't wait for this call's result any longer.")

Said = Reply | dict[str, Any]
"""A reply of the engine, or the result that says why there is none."""

Ask = Callable[[str, Busy], asyncio.Future[Answers] | dict[str, Any]]
"""`ask(run, asked)`: what will be answered, or the result that tells the client the question."""

Back = Callable[[str], Awaitable[Reply]]
"""`back(run)`: goes on with the call that the client's answers belong to."""

INSTRUCTIONS: Final = (
    "Tools are governed. A result may say that a call was refused, and why, or that it is held for a person's approval: then nothing was "
    "executed, and making the same call again later gives its result."
)


class Tools:
    def __init__(self, engine: Engine, names: Callable[[], mcp.ListedNames], page_size: int) -> None:
        self._engine = engine
        self._names = names
        self._page_size = page_size
        self._marks = listing.Marks()

    async def page(self, post: Post, request: Request) -> tuple[list[dict[str, Json]], str | None]:
        """One page of what the run may use, and the cursor of the next."""
        usable = await self._engine.tools(post.caller, await post.run(self._engine))
        tools, cursor = listing.page(usable, request.params.get("cursor"), self._page_size, request.id)
        return listing.shown(tools, self._names()), cursor

    async def call(self, post: Post, request: Request, meta: Mapping[str, Any], client: str | None, token: str | int | None) -> CallRequest:
        """Raises RpcError -32602 for a name, an identity or a turn that isn't one."""
        name = request.params.get("name")
        if not (isinstance(name, str) and calls.NAME.fullmatch(name)):
            raise RpcError(jsonrpc.INVALID_PARAMS, "params.name must be the name of a tool", request.id)
        tool = self._names().name(name) or await self._short(post, name) or _unlisted(name)
        return calls.call_request(request, meta, post.headers, post.scope["headers"], tool, client, token)

    async def _short(self, post: Post, name: str) -> str | None:
        """The tool that the run's policy lists under this name. Why there is no such run is told by the call itself."""
        try:
            return await self._engine.tool_named(post.caller, await post.run(self._engine), name)
        except GatewayFault:
            return None

    def check_params(self, post: Post, request: Request, call: CallRequest) -> None:
        """2026-07-28: the headers that repeat arguments agree with them. Raises RpcError -32020."""
        arguments = request.params.get("arguments")
        if isinstance(arguments, dict) and (marked := self._marks.of(self._engine.catalog.tool(call.tool))):
            mcp_headers.check_params(post.headers, marked, arguments, request.id)

    @staticmethod
    def token(post: Post, meta: Mapping[str, Any]) -> str | int | None:
        token = calls.progress_token(meta)
        return token if token is not None and post.takes("text/event-stream") else None

    @staticmethod
    def client(post: Post, stream: Stream, level: str | None, capabilities: Mapping[str, Json]) -> Client:
        """The caller, as far as it listens and can be asked."""
        if stream.token is None and level is None and not capabilities:
            return NOBODY
        if level is not None and not post.takes("text/event-stream"):
            level = None
        progress = stream.progress if stream.token is not None else None
        return Client(progress, stream.log if level is not None else None, level, capabilities)

    async def govern(
        self, post: Post, call: CallRequest, client: Client, gone: asyncio.Future[None], ask: Ask | None = None, back: Back | None = None
    ) -> Said:
        """From the call, or from an answer that a client brings `back`, to a reply; faults are results that a model can read."""
        try:
            run = await post.run(self._engine)
            if back is None:
                reply = await self._engine.call(post.caller, run, call, client=client, gone=gone)
            else:
                reply = await back(run)
            while ask is not None and isinstance(reply, Busy) and reply.question is not None:
                unable = cant_answer(client.capabilities, reply.question.requests)
                answers = done(unable) if unable else ask(run, reply)
                if isinstance(answers, dict):
                    return answers
                reply = await self._engine.resume(post.caller, run, reply.call, reply.question.number, answers, client=client, gone=gone)
            return reply
        except RpcError:
            raise
        except GatewayFault as fault:
            if not isinstance(fault, RequestFault):
                log.error("not answered as asked: %s", fault)
            return results.refused(problem(fault))
        except Exception:  # the model is told; the traceback is for us
            log.exception("a call of %s failed in the gateway", call.tool)
            return results.refused(failure())


def done(answers: Answers) -> asyncio.Future[Answers]:
    future: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
    future.set_result(answers)
    return future


def stopping() -> dict[str, Any]:
    """The result of a call that the gateway can't wait for any longer: a stream that has begun must still end with an answer."""
    return results.refused(STOPPING, "admitted")


def cant_answer(capabilities: Mapping[str, Json], requests: Mapping[str, Any]) -> Unanswered | None:
    """What an upstream gets that asks a client for more than it can do."""
    missing = mcp_input.lacking(capabilities, requests)
    return None if missing is None else Unanswered(CANT_ANSWER, f"The client has no capability to be asked that: {missing}")


def _unlisted(name: str) -> str:
    """What a name that no tool has now would stand for; the engine refuses it by the rules for that name."""
    return name if "." in name else name.replace("__", ".", 1)
