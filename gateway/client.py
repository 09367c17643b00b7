"""A Python client for agent loops that don't speak MCP, in a sync and an async form.

    with Gateway("http://127.0.0.1:8700", key) as gateway, gateway.run(run_key="ticket-881") as run:
        turn = run.turn()
        order = run.call("crm.get_order", {"order_id": "A-17"}, call_id="toolu_1", turn=turn.number)

A held call, and one that is running elsewhere, is waited for by making the same call again within `patience_s`; so is one whose connection
broke, since the gateway answers a repeat from its record. Leaving the block finishes the run, or cancels it after an exception.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Generic, Self, TypeVar

import httpx

from gateway.client_flows import (
    PATIENCE_S,
    Ask,
    Budget,
    CallResult,
    Connection,
    Flow,
    GatewayError,
    StillHeld,
    Turn,
    asking,
    calling,
    ending,
    listing,
    opening,
    turning,
    voting,
)

__all__ = ["AsyncGateway", "AsyncRun", "Budget", "CallResult", "Gateway", "GatewayError", "Run", "StillHeld", "Turn"]

T = TypeVar("T")
Body = dict[str, Any]
Coming = Coroutine[Any, Any, T]

# How results come, at once or to be awaited:
CallT = TypeVar("CallT")
TurnT = TypeVar("TurnT")
BodyT = TypeVar("BodyT")
ListT = TypeVar("ListT")
RunT = TypeVar("RunT")


class _Run(Generic[CallT, TurnT, BodyT]):
    """A run that was opened, and what can be asked about it. Acts with the run's own token, which can do nothing else."""

    def __init__(self, drive: Any, opened: Mapping[str, Any]) -> None:
        self.opened = opened
        self.id: str = opened["run"]
        self.token: str = opened["token"]
        self.tools: Sequence[str] = opened["tools"]
        self._called: Callable[[Flow[CallResult]], CallT] = drive
        self._turned: Callable[[Flow[Turn]], TurnT] = drive
        self._told: Callable[[Flow[Body]], BodyT] = drive

    def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        call_id: str | None = None,
        operation_id: str | None = None,
        turn: int | None = None,
        patience_s: float = PATIENCE_S,
    ) -> CallT:
        """Make a tool call. Raises GatewayError for a refusal, StillHeld when people take longer than `patience_s`."""
        given = {"tool": tool, "arguments": arguments or {}, "call_id": call_id, "operation_id": operation_id, "turn": turn}
        return self._called(calling(self._ask("/calls", {name: value for name, value in given.items() if value is not None}), patience_s))

    def model_call(self, call: Mapping[str, Any], *, turn: int | None = None, patience_s: float = PATIENCE_S) -> CallT:
        """Make the tool call that an OpenAI or Anthropic model asked for, given as the provider's own object."""
        return self._called(calling(self._ask("/calls", call, headers={} if turn is None else {"gateway-turn": str(turn)}), patience_s))

    def turn(self) -> TurnT:
        """Declare the next model call."""
        return self._turned(turning(self._ask("/turns", {})))

    def answer(self, turn: int, calls: Sequence[Mapping[str, Any]], digest: str | None = None) -> TurnT:
        """Record what the model asked for, before any of it runs."""
        return self._turned(turning(self._ask(f"/turns/{turn}/answer", {"calls": calls, "digest": digest})))

    def usage(self, turn: int, **figures: Any) -> TurnT:
        """Report what a model call used: model, input, output, cache_creation, cache_read, cost_usd."""
        return self._turned(turning(self._ask(f"/turns/{turn}/usage", figures)))

    def state(self) -> BodyT:
        return self._told(asking(Ask("GET", f"/v1/runs/{self.id}", bearer=self.token)))

    def finish(self, handoff: Mapping[str, Any] | None = None) -> BodyT:
        return self._told(ending(self.id, self.token, handoff))

    def cancel(self) -> BodyT:
        return self._told(asking(self._ask("/cancel", {})))

    def _ask(self, path: str, body: Mapping[str, Any], **more: Any) -> Ask:
        return Ask("POST", f"/v1/runs/{self.id}{path}", body, self.token, **more)


class Run(_Run[CallResult, Turn, Body]):
    """A run in a sync loop."""


class AsyncRun(_Run[Coming[CallResult], Coming[Turn], Coming[Body]]):
    """A run in an async loop: what it returns is awaited."""


# ---- the gateway --------------------------------------------------------------------------------------------------------


class _Gateway(Connection, Generic[BodyT, ListT, RunT]):
    """`drive` performs a flow to its end; `run` makes the run that was opened."""

    def __init__(self, url: str, key: str, timeout_s: float, drive: Any, run: Callable[[Any, Mapping[str, Any]], Any]) -> None:
        super().__init__(url, key, timeout_s)
        self._told: Callable[[Flow[Body]], BodyT] = drive
        self._listed: Callable[[Flow[list[Body]]], ListT] = drive
        self._opened: Callable[[Flow[Any]], RunT] = drive
        self._made = lambda opened: run(drive, opened)

    def open_run(self, **asked: Any) -> RunT:
        """Open a run that outlives any block."""
        return self._opened(opening(asked, self._made))

    def hold(self, hold: str) -> BodyT:
        return self._told(asking(Ask("GET", f"/v1/holds/{hold}")))

    def holds(self, state: str = "held") -> ListT:
        return self._listed(listing(state))

    def approve(self, hold: str, digest: str, note: str = "") -> BodyT:
        return self._told(voting(hold, "approve", digest, "note", note))

    def deny(self, hold: str, digest: str, reason: str = "") -> BodyT:
        return self._told(voting(hold, "deny", digest, "reason", reason))


class Gateway(_Gateway[Body, list[Body], Run]):
    """The gateway from sync code. `timeout_s` must exceed the longest deadline of a tool."""

    def __init__(self, url: str, key: str, *, timeout_s: float = 120.0) -> None:
        super().__init__(url, key, timeout_s, self._drive, Run)
        self._http = httpx.Client(trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    @contextmanager
    def run(self, **asked: Any) -> Iterator[Run]:
        """Open a run (`run_key`, `policy`, `task_type`, `goal`, `labels`, `budgets`, `parent_run`, `continues`) for the length of a block."""
        run = self.open_run(**asked)
        try:
            yield run
        except BaseException:
            with suppress(GatewayError, httpx.HTTPError):
                run.cancel()
            raise
        run.finish()

    def _drive(self, flow: Flow[T]) -> T:
        got = None
        while True:
            try:
                step = flow.send(got)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            got = self._perform(step)

    def _perform(self, step: Ask | float) -> httpx.Response | httpx.TransportError | None:
        if isinstance(step, float):
            time.sleep(step)
            return None
        try:
            return self._http.request(**self.request(step))
        except httpx.TransportError as lost:
            return lost


class AsyncGateway(_Gateway[Coming[Body], Coming[list[Body]], Coming[AsyncRun]]):
    """The gateway from async code: everything is awaited."""

    def __init__(self, url: str, key: str, *, timeout_s: float = 120.0) -> None:
        super().__init__(url, key, timeout_s, self._drive, AsyncRun)
        self._http = httpx.AsyncClient(trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    @asynccontextmanager
    async def run(self, **asked: Any) -> AsyncIterator[AsyncRun]:
        """As in `Gateway`."""
        run = await self.open_run(**asked)
        try:
            yield run
        except BaseException:
            with suppress(GatewayError, httpx.HTTPError):
                await run.cancel()
            raise
        await run.finish()

    async def _drive(self, flow: Flow[T]) -> T:
        got = None
        while True:
            try:
                step = flow.send(got)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            got = await self._perform(step)

    async def _perform(self, step: Ask | float) -> httpx.Response | httpx.TransportError | None:
        if isinstance(step, float):
            await asyncio.sleep(step)
            return None
        try:
            return await self._http.request(**self.request(step))
        except httpx.TransportError as lost:
            return lost
