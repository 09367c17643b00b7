"""A stage for the engine: real policies and ids, tools that do what a test plans, a real ledger that can be away, a clock that a test moves."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from gateway.core import streams
from gateway.core.decide.calls import Admit
from gateway.core.events import Event
from gateway.core.model import CallRequest, Principal, Reply, Tool
from gateway.core.repeats import Join
from gateway.core.run import CallRecord, Run, Tree, stream_of
from gateway.engine import Caller, Engine, RunRequest
from gateway.ledger.sqlite import SqliteLedger
from gateway.policy.store import load_policies
from gateway.ports import Answer, Committed, Dispatch, LedgerFault, Step, UpstreamFault
from gateway.system import SystemIds
from tests.fakes import FakeClock

T = TypeVar("T")

POLICY = """\
version: 1
name: shop
run:
  budgets: {turns: 5, tool_calls: 20, deadline: 10m, tokens: 1000, tokens_per_turn: 100}
defaults: {approvers: ["group:finance"], timeout: 30s}
tools:
  - tool: crm.get_card
    effect: read_only
    result: {redact: [/number], max_bytes: 400B, schema: {type: object, required: [number]}}
  - tool: crm.get_*
    effect: read_only
    retry: {attempts: 3, backoff: 200ms}
  - tool: crm.set_note
    effect: idempotent_write
    retry: {attempts: 3, backoff: 200ms}
    idempotency: {key_from: [id], send_as: {header: Idempotency-Key}}
  - tool: pay.now
    effect: non_idempotent
    approval: never
    retry: {attempts: 3, backoff: 200ms}
  - tool: pay.asked
    effect: non_idempotent
    approval: {hold_open: 0s}
  - tool: pay.soon
    effect: non_idempotent
    approval: {hold_open: 0s, execute: at_once}
"""
READ, WRITE, ACT, ASKED, AT_ONCE = "crm.get_order", "crm.set_note", "pay.now", "pay.asked", "pay.soon"

BOT = Caller(Principal("agent:bot", trust=frozenset({"call_id"})))
OTHER = Caller(Principal("agent:other"))
MIA = Caller(Principal("user:mia", groups=frozenset({"finance"}), roles=frozenset({"approver"}), person=True))
OPS = Caller(Principal("user:ops", roles=frozenset({"operator"}), person=True))
VIEWER = Caller(Principal("user:vic", roles=frozenset({"viewer"}), person=True))
METER = Caller(Principal("service:meter", roles=frozenset({"reporter"})))

Act = Callable[[Dispatch], Awaitable[Answer]]
Plan = Answer | UpstreamFault | Act


class MovedClock(FakeClock):
    """Who sleeps, sleeps until a test has moved the clock far enough. `wall_ms`: how far the wall clock was set off."""

    wall_ms = 0

    def __init__(self) -> None:
        super().__init__()
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._news = asyncio.Event()

    def now_ms(self) -> int:
        return self.now + self.wall_ms

    async def sleep(self, ms: int) -> None:
        if ms <= 0:
            return
        sleeper = (ms, self.now + ms, asyncio.get_running_loop().create_future())
        self._sleepers.append(sleeper)
        self._news.set()
        try:
            await sleeper[2]
        finally:
            self._sleepers.remove(sleeper)

    def move(self, ms: int) -> None:
        self.now += ms
        for _, end, woken in self._sleepers:
            if end <= self.now and not woken.done():
                woken.set_result(None)

    async def asleep(self, ms: int) -> None:
        """Until somebody sleeps that long."""
        async with asyncio.timeout(5):
            while ms not in [wanted for wanted, _, woken in self._sleepers if not woken.done()]:
                self._news.clear()
                await self._news.wait()


class WilfulLedger(SqliteLedger):
    """`down`: nothing can be appended. `between` runs once, when a call's intent is durable and its caller doesn't know it yet.

    `shared`: other processes append too, as they may on a database server.
    """

    down = False
    shared = False
    between: Callable[[], Awaitable[object]] | None = None
    joins: asyncio.Queue[Join]
    watches: asyncio.Queue[str]

    @property
    def alone(self) -> bool:
        return not self.shared

    async def watch(self, stream: str, after: int) -> None:
        self.watches.put_nowait(stream)
        await super().watch(stream, after)

    async def transact(self, streams: Sequence[str], step: Step) -> Committed:
        if self.down:
            raise LedgerFault("the disk is away")
        committed = await super().transact(streams, step)
        if self.between is not None and isinstance(committed.answer, Admit):
            between, self.between = self.between, None
            await between()
        if isinstance(committed.answer, Join):
            self.joins.put_nowait(committed.answer)
        return committed


def ok(**structured: Any) -> Answer:
    return Answer({"content": [{"type": "text", "text": "ok"}], "structuredContent": structured, "isError": False})


class Hang:
    """A plan that answers only when it is `let` go. `reached`: a dispatch waits here; `cancelled`: it is ended from outside, over once `ended`."""

    def __init__(self) -> None:
        self.reached, self.let, self.cancelled, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.ended.set()

    async def __call__(self, dispatch: Dispatch) -> Answer:
        self.reached.set()
        try:
            await self.let.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            await self.ended.wait()
            raise
        return ok(hung=True)


@dataclass
class Tools:
    """The port Catalog. `plans`: what the next dispatches of a tool come to, then echoes; `sent`: every dispatch."""

    plans: dict[str, list[Plan]] = field(default_factory=dict)
    sent: list[Dispatch] = field(default_factory=list)
    shelf: dict[str, Tool] = field(default_factory=dict)
    hanging: list[Hang] = field(default_factory=list)

    def plan(self, tool: str, *plans: Plan) -> None:
        self.plans.setdefault(tool, []).extend(plans)

    def hang(self, tool: str) -> Hang:
        hang = Hang()
        self.plan(tool, hang)
        self.hanging.append(hang)
        return hang

    def tool(self, name: str) -> Tool | None:
        return self.shelf.get(name)

    def all(self) -> Sequence[Tool]:
        return list(self.shelf.values())

    def away(self, name: str) -> str | None:
        return None

    def pins(self) -> dict[str, Any]:
        return {}

    async def send(self, dispatch: Dispatch) -> Answer:
        self.sent.append(dispatch)
        plans = self.plans.get(dispatch.tool.name)
        plan = plans.pop(0) if plans else ok(**dispatch.arguments)
        if isinstance(plan, UpstreamFault):
            raise plan
        return plan if isinstance(plan, Answer) else await plan(dispatch)


def _shelf() -> dict[str, Tool]:
    names = (READ, "crm.get_card", WRITE, ACT, ASKED, AT_ONCE, "crm.drop_all")
    return {name: Tool(name, *name.split("."), {"inputSchema": {"type": "object"}}, f"digest of {name}") for name in names}


@dataclass
class Stage:
    folder: Path
    engine: Engine
    ledger: WilfulLedger
    tools: Tools
    clock: MovedClock
    crashed: bool = False

    async def open(self, who: Caller = BOT, **asked: Any) -> str:
        return (await self.engine.open_run(who, RunRequest("rest", **asked))).run.id

    async def call(self, run: str, tool: str, arguments: Mapping[str, Any] | None = None, *, who: Caller = BOT, **options: Any) -> Reply:
        """`client` and `gone` are the engine's, all else the request's."""
        around = {name: options.pop(name) for name in ("client", "gone") if name in options}
        return await soon(self.engine.call(who, run, CallRequest(tool, dict(arguments or {}), "rest", **options), **around))

    def calling(self, run: str, tool: str, arguments: Mapping[str, Any] | None = None, **options: Any) -> asyncio.Task[Reply]:
        return asyncio.create_task(self.call(run, tool, arguments, **options))

    async def joining(self, run: str, tool: str, arguments: Mapping[str, Any] | None = None, **options: Any) -> asyncio.Task[Reply]:
        """The same, once it waits for a dispatch that is running already."""
        task = self.calling(run, tool, arguments, **options)
        await soon(self.ledger.joins.get())
        return task

    async def tree(self, run: str) -> Tree:
        tree: Tree = await self.ledger.state(stream_of(run))
        return tree

    async def run(self, run: str) -> Run:
        return (await self.tree(run)).runs[run]

    async def record(self, call: str) -> CallRecord:
        return (await self.tree(call)).calls[call]

    async def events(self, run: str) -> list[Event]:
        return [one.event for one in await self.ledger.events(stream_of(run))]

    async def kinds(self, run: str) -> list[str]:
        return [type(event).__name__ for event in await self.events(run)]

    async def settled(self, call: str) -> CallRecord:
        """The record once it is no longer on the wire."""

        async def watch() -> CallRecord:
            while (tree := await self.tree(call)).calls[call].state == "admitted":
                await self.ledger.watch(stream_of(call), tree.seq)
            return tree.calls[call]

        return await soon(watch())

    @asynccontextmanager
    async def beside(self) -> AsyncIterator[Stage]:
        """Another process on the same ledger, with tools of its own."""
        self.ledger.shared = True
        tools = Tools(shelf=_shelf())
        engine = Engine(self.ledger, tools, load_policies(self.folder / "policies"), self.clock, SystemIds(self.clock, b"s" * 32))
        await engine.start()
        there = Stage(self.folder, engine, self.ledger, tools, self.clock)
        try:
            yield there
        finally:
            await engine.stop(0)

    async def vanish(self, *callers: asyncio.Task[Any]) -> None:
        """The process is gone: nothing more is sent or recorded. The ledger stays."""
        self.crashed = True
        tasks = [flight.task for flight in self.engine.flights.values() if flight.task] + [t for t in (self.engine._sweeper,) if t]
        for task in (*tasks, *callers):
            task.cancel()
        await asyncio.wait([*tasks, *callers], timeout=5)

    async def crash(self, *callers: asyncio.Task[Any]) -> None:
        """The same, with its ledger."""
        await self.vanish(*callers)
        await self.ledger.close()


async def soon(what: Awaitable[T]) -> T:
    async with asyncio.timeout(5):
        return await what


def erase(folder: Path, hash: str | None) -> None:
    """A payload is gone, as retention does it; the ledger is closed meanwhile."""
    with closing(sqlite3.connect(folder / "gateway.db")) as raw, raw:
        assert raw.execute("DELETE FROM payloads WHERE hash = ?", (hash,)).rowcount


@asynccontextmanager
async def stage(folder: Path, policy: str = POLICY, clock: MovedClock | None = None, *, start: bool = True) -> AsyncIterator[Stage]:
    """Again in the same folder: the next process."""
    (folder / "policies").mkdir(exist_ok=True)
    (folder / "policies" / "shop.yaml").write_text(policy)
    clock = clock or MovedClock()
    ledger = WilfulLedger(folder / "gateway.db", empty=streams.empty, evolve=streams.evolve, clock=clock)
    ledger.joins, ledger.watches = asyncio.Queue(), asyncio.Queue()
    tools = Tools(shelf=_shelf())
    engine = Engine(ledger, tools, load_policies(folder / "policies"), clock, SystemIds(clock, b"s" * 32))
    await ledger.open()
    here = Stage(folder, engine, ledger, tools, clock)
    try:
        if start:
            await engine.start()
        yield here
    finally:
        if not here.crashed:
            ledger.down = False
            for hang in tools.hanging:
                hang.ended.set()
            await engine.stop(0)
        await ledger.close()
