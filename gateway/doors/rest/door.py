"""Performs REST operations: authenticate, check, ask the engine, answer. The hot route is met before any routing (FACTS §1)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from starlette.convertors import Convertor, register_url_convertor
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from gateway.core.model import BudgetLeft
from gateway.doors.auth import Authenticator
from gateway.doors.http import CallerLeft, read_body, send_json, send_problem
from gateway.doors.problems import Problem, failure, problem
from gateway.doors.render import visible
from gateway.doors.rest import calls, doubts, holds, runs, tools, turns
from gateway.doors.rest.checks import checked, checked_query
from gateway.doors.rest.openapi import document
from gateway.doors.rest.operation import Answer, Exchange, Operation
from gateway.engine import Caller, Engine, fault, stopping
from gateway.ports import GatewayFault, RequestFault, malformed
from gateway.wire import json
from gateway.wire.mcp import ListedNames

OPERATIONS: tuple[Operation, ...] = (
    *runs.OPERATIONS, *turns.OPERATIONS, *calls.OPERATIONS, *doubts.OPERATIONS, *holds.OPERATIONS, *tools.OPERATIONS,
)  # fmt: skip
_STOPPING = fault(stopping("The gateway is stopping; make the same call again to learn what became of it."))
_BEFORE_RUN, _AFTER_RUN = "/v1/runs/", "/calls"

log = logging.getLogger("gateway.rest")


class _TurnNumber(Convertor[int]):
    """A turn's number in a path: as long as any could be, so that no digits can be too many to read."""

    regex = "[0-9]{1,9}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("turn", _TurnNumber())



class RestDoor:
    """Plain ASGI. `names` gives the listed names of now; `ready` returns when calls can be taken and raises a GatewayFault until then."""

    def __init__(
        self, engine: Engine, authenticate: Authenticator, names: Callable[[], ListedNames], ready: Callable[[], Awaitable[None]], version: str
    ) -> None:
        self._engine = engine
        self._authenticate = authenticate
        self._ready = ready
        self._names = names
        self._document = document(OPERATIONS, version)
        paths = {operation.path: _Path(self._perform) for operation in OPERATIONS}
        for operation in OPERATIONS:
            paths[operation.path].operations[operation.method] = operation
        routes = [Route(path.replace("{turn}", "{turn:turn}"), endpoint=endpoint) for path, endpoint in paths.items()]
        self._router = Router([*routes, *self._open_to_all()], redirect_slashes=False, default=_unknown)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        try:
            if scope["method"] == "POST" and path.startswith(_BEFORE_RUN) and path.endswith(_AFTER_RUN) and path.count("/") == 4:
                scope["path_params"] = {"run": path[len(_BEFORE_RUN) : -len(_AFTER_RUN)]}
                await self._perform(calls.CALL, scope, receive, send)
            else:
                await self._router(scope, receive, send)
        except CallerLeft:
            pass
        except asyncio.CancelledError:  # the server stops and can't wait any longer; what was dispatched is still recorded
            await send_problem(scope, send, problem(_STOPPING))
            raise
        except Exception:  # the door's last line: the log gets the traceback, the caller an answer
            log.exception("%s %s failed", scope["method"], visible(path))
            await send_problem(scope, send, failure())

    async def _perform(self, operation: Operation, scope: Scope, receive: Receive, send: Send) -> None:
        caller = None
        try:
            caller = self._authenticate(scope["headers"])
            answer = await operation.perform(await self._exchange(operation, caller, scope, receive))
        except GatewayFault as fault:
            if not isinstance(fault, RequestFault):
                log.error("%s %s: %s", scope["method"], visible(scope["path"]), fault)
            answer = problem(fault, await self._budget(caller, scope["path_params"]))
        await (send_problem(scope, send, answer) if isinstance(answer, Problem) else send_json(scope, send, *_parts(answer)))

    async def _exchange(self, operation: Operation, caller: Caller, scope: Scope, receive: Receive) -> Exchange:
        headers, query = scope["headers"], scope["query_string"]
        body = await read_body(scope, receive) if operation.takes is not None else b""
        return Exchange(
            self._engine,
            self._authenticate,
            self._names,
            caller,
            scope["path_params"],
            checked_query(query, operation.query) if query else {},
            checked(_parsed(body), operation.takes) if operation.takes is not None else {},
            headers,
            receive,
        )

    async def _budget(self, caller: Caller | None, path: Mapping[str, Any]) -> BudgetLeft | None:
        """The run's, for errors that don't know it."""
        if caller is None or "run" not in path:
            return None
        try:
            return (await self._engine.run(caller, path["run"])).budget
        except GatewayFault:
            return None

    def _open_to_all(self) -> list[Route]:
        async def healthz(scope: Scope, receive: Receive, send: Send) -> None:
            await send_json(scope, send, 200, {"status": "alive"})

        async def readyz(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await self._ready()
            except GatewayFault as fault:
                await send_problem(scope, send, problem(fault))
            else:
                await send_json(scope, send, 200, {"status": "ready"})

        async def openapi(scope: Scope, receive: Receive, send: Send) -> None:
            await send_json(scope, send, 200, self._document)

        endpoints = {"/healthz": healthz, "/readyz": readyz, "/openapi.json": openapi}
        return [Route(path, endpoint=_Get(endpoint)) for path, endpoint in endpoints.items()]


def _parts(answer: Answer) -> tuple[int, Any, Any]:
    return answer.status, answer.body, answer.headers


def _parsed(body: bytes) -> Any:
    try:
        return json.parse(body) if body.strip() else {}
    except json.JsonError as wrong:
        raise malformed(f"The body is no JSON as it is taken here: {wrong}.") from None


class _Path:
    """All operations of one path; a method that none has is answered with those there are."""

    def __init__(self, perform: Callable[[Operation, Scope, Receive, Send], Awaitable[None]]) -> None:
        self.operations: dict[str, Operation] = {}
        self._perform = perform

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        operation = self.operations.get("GET" if scope["method"] == "HEAD" else scope["method"])
        if operation is None:
            await _wrong_method(scope, send, sorted(self.operations))
        else:
            await self._perform(operation, scope, receive, send)


class _Get:
    """An endpoint for GET and HEAD."""

    def __init__(self, answer: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._answer(scope, receive, send) if scope["method"] in ("GET", "HEAD") else _wrong_method(scope, send, ["GET"]))


async def _wrong_method(scope: Scope, send: Send, allowed: list[str]) -> None:
    wrong = problem(RequestFault("route.method", f"{scope['method']} is not for this path; {', '.join(allowed)} is."))
    await send_problem(scope, send, replace(wrong, headers=((b"allow", ", ".join(allowed).encode()),)))


async def _unknown(scope: Scope, receive: Receive, send: Send) -> None:
    await send_problem(scope, send, problem(RequestFault("route.unknown", f"There is nothing at {scope['path'][:200]!r}.")))
