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
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from gateway.client_flows import (
    PATIENCE_S,
    Ask,
    Budget,
    CallResult,
    Connection,
    Flow,
    GatewayError,
    RunFlows,
    StillHeld,
    Turn,
    asking,
    calling,
    turning,
    voting,
)

__all__ = ["AsyncGateway", "AsyncRun", "Budget", "CallResult", "Gateway", "GatewayError", "Run", "StillHeld", "Turn"]

T = TypeVar("T")


class Run(RunFlows):
    """A run in a sync loop."""

    def __init__(self, gateway: Gateway, opened: Mapping[str, Any]) -> None:
        super().__init__(opened)
        self._drive = gateway.drive

    def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        call_id: str | None = None,
        operation_id: str | None = None,
        turn: int | None = None,
        patience_s: float = PATIENCE_S,
    ) -> CallResult:
        """Make a tool call. Raises GatewayError for a refusal, StillHeld when people take longer than `patience_s`."""
        return self._drive(calling(self.call_ask(tool, arguments, call_id, operation_id, turn), patience_s))

    def model_call(self, call: Mapping[str, Any], *, turn: int | None = None, patience_s: float = PATIENCE_S) -> CallResult:
        """Make the tool call that an OpenAI or Anthropic model asked for, given as the provider's own object."""
        return self._drive(calling(self.model_call_ask(call, turn), patience_s))

    def turn(self) -> Turn:
        """Declare the next model call."""
        return self._drive(turning(self.ask("POST", "/turns", {})))

    def answer(self, turn: int, calls: Sequence[Mapping[str, Any]], digest: str | None = None) -> Turn:
        """Record what the model asked for, before any of it runs."""
        return self._drive(turning(self.turn_ask(turn, "answer", {"calls": calls, "digest": digest})))

    def usage(self, turn: int, **figures: Any) -> Turn:
        """Report what a model call used: model, input, output, cache_creation, cache_read, cost_usd."""
        return self._drive(turning(self.turn_ask(turn, "usage", figures)))

    def state(self) -> dict[str, Any]:
        return self._drive(asking(self.ask("GET")))

    def finish(self, handoff: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self._drive(self.ending(handoff))

    def cancel(self) -> dict[str, Any]:
        return self._drive(asking(self.ask("POST", "/cancel", {})))


class AsyncRun(RunFlows):
    """A run in an async loop; everything as in `Run`."""

    def __init__(self, gateway: AsyncGateway, opened: Mapping[str, Any]) -> None:
        super().__init__(opened)
        self._drive = gateway.drive

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        call_id: str | None = None,
        operation_id: str | None = None,
        turn: int | None = None,
        patience_s: float = PATIENCE_S,
    ) -> CallResult:
        return await self._drive(calling(self.call_ask(tool, arguments, call_id, operation_id, turn), patience_s))

    async def model_call(self, call: Mapping[str, Any], *, turn: int | None = None, patience_s: float = PATIENCE_S) -> CallResult:
        return await self._drive(calling(self.model_call_ask(call, turn), patience_s))

    async def turn(self) -> Turn:
        return await self._drive(turning(self.ask("POST", "/turns", {})))

    async def answer(self, turn: int, calls: Sequence[Mapping[str, Any]], digest: str | None = None) -> Turn:
        return await self._drive(turning(self.turn_ask(turn, "answer", {"calls": calls, "digest": digest})))

    async def usage(self, turn: int, **figures: Any) -> Turn:
        return await self._drive(turning(self.turn_ask(turn, "usage", figures)))

    async def state(self) -> dict[str, Any]:
        return await self._drive(asking(self.ask("GET")))

    async def finish(self, handoff: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return await self._drive(self.ending(handoff))

    async def cancel(self) -> dict[str, Any]:
        return await self._drive(asking(self.ask("POST", "/cancel", {})))


# ---- the gateway --------------------------------------------------------------------------------------------------------


class Gateway(Connection):
    """The gateway from sync code. `timeout_s` must exceed the longest deadline of a tool."""

    def __init__(self, url: str, key: str, *, timeout_s: float = 120.0) -> None:
        super().__init__(url, key, timeout_s)
        self._http = httpx.Client(trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._http.close()

    def drive(self, flow: Flow[T]) -> T:
        """Perform a flow to its end."""
        try:
            step = next(flow)
            while True:
                if isinstance(step, float):
                    time.sleep(step)
                    step = flow.send(None)
                    continue
                try:
                    response = self._http.request(**self.request(step))
                except httpx.TransportError as lost:
                    step = flow.throw(lost)
                else:
                    step = flow.send(response)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

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

    def open_run(self, **asked: Any) -> Run:
        """Open a run that outlives any block."""
        return Run(self, self.drive(asking(Ask("POST", "/v1/runs", asked))))

    def hold(self, hold: str) -> dict[str, Any]:
        return self.drive(asking(Ask("GET", f"/v1/holds/{hold}")))

    def holds(self, state: str = "held") -> list[dict[str, Any]]:
        holds: list[dict[str, Any]] = self.drive(asking(Ask("GET", "/v1/holds", query={"state": state})))["holds"]
        return holds

    def approve(self, hold: str, digest: str, note: str = "") -> dict[str, Any]:
        return self.drive(voting(hold, "approve", digest, "note", note))

    def deny(self, hold: str, digest: str, reason: str = "") -> dict[str, Any]:
        return self.drive(voting(hold, "deny", digest, "reason", reason))


class AsyncGateway(Connection):
    """The gateway from async code; everything as in `Gateway`."""

    def __init__(self, url: str, key: str, *, timeout_s: float = 120.0) -> None:
        super().__init__(url, key, timeout_s)
        self._http = httpx.AsyncClient(trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._http.aclose()

    async def drive(self, flow: Flow[T]) -> T:
        try:
            step = next(flow)
            while True:
                if isinstance(step, float):
                    await asyncio.sleep(step)
                    step = flow.send(None)
                    continue
                try:
                    response = await self._http.request(**self.request(step))
                except httpx.TransportError as lost:
                    step = flow.throw(lost)
                else:
                    step = flow.send(response)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    @asynccontextmanager
    async def run(self, **asked: Any) -> AsyncIterator[AsyncRun]:
        run = await self.open_run(**asked)
        try:
            yield run
        except BaseException:
            with suppress(GatewayError, httpx.HTTPError):
                await run.cancel()
            raise
        await run.finish()

    async def open_run(self, **asked: Any) -> AsyncRun:
        return AsyncRun(self, await self.drive(asking(Ask("POST", "/v1/runs", asked))))

    async def hold(self, hold: str) -> dict[str, Any]:
        return await self.drive(asking(Ask("GET", f"/v1/holds/{hold}")))

    async def holds(self, state: str = "held") -> list[dict[str, Any]]:
        holds: list[dict[str, Any]] = (await self.drive(asking(Ask("GET", "/v1/holds", query={"state": state}))))["holds"]
        return holds

    async def approve(self, hold: str, digest: str, note: str = "") -> dict[str, Any]:
        return await self.drive(voting(hold, "approve", digest, "note", note))

    async def deny(self, hold: str, digest: str, reason: str = "") -> dict[str, Any]:
        return await self.drive(voting(hold, "deny", digest, "reason", reason))
