"""A small world for the real engine: a ledger in memory, an upstream of a few lines, clocks that stand still, processes that die in between.

Every port call is a *moment*, before and after it has its effect. A `World` may be told the number of a moment at which the process dies, and
one at which somebody else interferes; so all interleavings of a small scope can be gone through. Nothing here waits for real time.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.core import events as e
from gateway.core.history import TreeHistory
from gateway.core.model import CallRequest, Payload, Principal, Reply, Tool
from gateway.core.policy import PolicySet, Retry
from gateway.core.run import CallRecord, Tree
from gateway.core.streams import State, empty, evolve
from gateway.engine import Caller, Engine, RunRequest
from gateway.ports import Answer, Committed, Dispatch, Pin, Recorded, Step, UpstreamFault
from gateway.system import SystemIds
from tests.core.build import ACT, BOT, MIA, READ, WRITE, asks, never, policy, rule
from tests.fakes import FakeClock

_LONG_MS = 100
TURNS = 30
"""How often the loop goes round to let somebody else get as far as they can: more than any path here is long."""
POLICY: PolicySet = policy(
    rule("web.read", READ, retry=Retry(2, 1)), rule("web.put", WRITE, retry=Retry(2, 1)), rule("web.pay", ACT, never(), retry=Retry(2, 1)),
    rule("web.ask", ACT, asks(hold_open_ms=0), usd_micros=5),
    tool_calls=20, usd_micros=100, deadline_ms=600_000,
)  # fmt: skip
AGENT, PERSON = Caller(BOT), Caller(MIA)
OPERATOR = Caller(Principal("user:op", roles=frozenset({"operator"}), person=True))


class Died(BaseException):
    """The process is gone. No `except Exception` may survive it."""


class StillClock(FakeClock):
    """Time goes by when somebody waits for a short while; who waits long waits for ever."""

    async def sleep(self, ms: int) -> None:
        if ms >= _LONG_MS:
            await asyncio.get_running_loop().create_future()
        self.now += ms
        await asyncio.sleep(0)


@dataclass
class Store:
    """What outlives processes: events, states, payloads. `log`: all events in the order of their commits."""

    states: dict[str, State] = field(default_factory=dict)
    streams: defaultdict[str, list[Recorded]] = field(default_factory=lambda: defaultdict(list))
    payloads: dict[tuple[str, str], Payload] = field(default_factory=dict)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    log: list[Recorded] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    histories: defaultdict[str, TreeHistory] = field(default_factory=lambda: defaultdict(TreeHistory))

    def state(self, stream: str) -> Any:
        return self.states.get(stream) or empty(stream)

    def trees(self) -> list[Tree]:
        return [state for state in self.states.values() if isinstance(state, Tree)]

    def append(self, stream: str, at: int, event: e.Event) -> None:
        before = self.state(stream)
        after = self.states[stream] = evolve(before, before.seq + 1, at, event)
        recorded = Recorded(stream, after.seq, "", at, event, "")
        self.streams[stream].append(recorded)
        self.log.append(recorded)
        if isinstance(before, Tree) and isinstance(after, Tree):
            self.broken += [f"{promise} {message}" for promise, message in self.histories[stream].saw(before, at, event, after)]
        self.news.set()
        self.news = asyncio.Event()


class Fate:
    """Counts the moments of a world. `crash_at`, `race_at`: their numbers, from 1; 0 is never. `race` is started at its moment."""

    def __init__(self, crash_at: int = 0, race_at: int = 0, race: Callable[[], Awaitable[object]] | None = None) -> None:
        self.crash_at, self.race_at, self.race = crash_at, race_at, race
        self.passed = 0
        self.racing: asyncio.Task[Any] | None = None
        self.crashed: Callable[[], None] = lambda: None

    async def moment(self, life: Life) -> None:
        """Raises Died in a process that is dead, or dies here."""
        if life.dead:
            raise Died
        self.passed += 1
        if self.passed == self.race_at and self.race is not None:
            self.racing = asyncio.ensure_future(self.race())
            for _ in range(TURNS):
                await asyncio.sleep(0)
        if self.passed == self.crash_at:
            life.dead = life.died = True
        if life.dead:
            raise Died


@dataclass
class Life:
    """One process: whatever it does goes through here. The ports Ledger, Catalog and Policies. `died`: by its fate, not at the end."""

    world: World
    alone: bool
    dead: bool = False
    died: bool = False

    # ---- Ledger ---------------------------------------------------------------------------------------------------------

    async def transact(self, streams: Sequence[str], step: Step) -> Committed:
        await self._moment()
        store = self.world.store
        at = max(self.world.clock.now, *(store.state(stream).at for stream in streams))
        decision = step({stream: store.state(stream) for stream in streams}, at)
        for stream, event in decision.events:
            store.append(stream, at, event)
        store.payloads.update({(stream, kept.hash): kept for stream, kept in decision.payloads})
        await self._moment()
        return Committed(decision.answer, at, {stream: store.state(stream) for stream in streams})

    async def _moment(self) -> None:
        await asyncio.sleep(0)
        await self.world.fate.moment(self)

    def at_hand(self, stream: str) -> Any:
        return self.world.store.state(stream)

    async def state(self, stream: str) -> Any:
        return self.world.store.state(stream)

    async def watch(self, stream: str, after: int) -> None:
        while self.world.store.state(stream).seq <= after:
            await self.world.store.news.wait()

    async def payload(self, stream: str, hash: str) -> bytes | None:
        kept = self.world.store.payloads.get((stream, hash))
        return None if kept is None else kept.data

    async def events(self, stream: str, after: int = 0, limit: int = 1000) -> list[Recorded]:
        return self.world.store.streams[stream][after : after + limit]

    async def due(self, now: int, limit: int = 500) -> list[str]:
        return [tree.root for tree in self.world.store.trees() if (due := tree.due_at()) is not None and due <= now]

    async def due_calls(self, now: int, limit: int = 10_000) -> list[str]:
        records = [(tree.call_due_at(record), record.id) for tree in self.world.store.trees() for record in tree.calls.values()]
        return [call for due, call in records if due is not None and due <= now]

    async def in_flight(self) -> list[str]:
        return [tree.root for tree in self.world.store.trees() if any("admitted" in run.live.values() for run in tree.runs.values())]

    # ---- Catalog --------------------------------------------------------------------------------------------------------

    def tool(self, name: str) -> Tool | None:
        return Tool(name, *name.split("."), {}, "d")

    def all(self) -> Sequence[Tool]:
        return ()

    def pins(self) -> Mapping[str, Pin]:
        return {}

    def server(self, upstream: str) -> None:
        return None

    def away(self, name: str) -> str | None:
        return None

    async def send(self, dispatch: Dispatch) -> Answer:
        self.world.judge(dispatch)
        await self._moment()
        answer = self.world.upstream.meet(dispatch)
        await self._moment()
        if isinstance(answer, UpstreamFault):
            raise answer
        return answer

    # ---- Policies -------------------------------------------------------------------------------------------------------

    def choose(self, principal: Principal, task_type: str, name: str | None) -> PolicySet | None:
        return POLICY

    def by_digest(self, digest: str) -> PolicySet | None:
        return POLICY

    def texts(self, digest: str) -> Mapping[str, str]:
        return {}


@dataclass
class Upstream:
    """`faults`: what the first dispatches under each key come to; the rest go well. `sent`: every dispatch. `done`, `done_by`: how often
    each key, and each call, took effect."""

    clock: StillClock
    faults: tuple[str, ...] = ()
    sent: list[tuple[int, Dispatch]] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    done_by: Counter[str] = field(default_factory=Counter)
    _met: Counter[str] = field(default_factory=Counter)

    def meet(self, dispatch: Dispatch) -> Answer | UpstreamFault:
        fault = self.faults[self._met[dispatch.key]] if self._met[dispatch.key] < len(self.faults) else "ok"
        self._met[dispatch.key] += 1
        if fault == "refused":
            return UpstreamFault("refused", "nobody listens")
        self.sent.append((self.clock.now, dispatch))
        kind, effect, status = FAULTS[fault]
        self.done[dispatch.key] += effect
        self.done_by[dispatch.call] += effect
        if status is None:
            return UpstreamFault(kind, "no answer")
        return Answer({"content": [{"type": "text", "text": f"{kind} {self.done[dispatch.key]}"}], "isError": status >= 400}, status)


FAULTS: Mapping[str, tuple[str, int, int | None]] = {
    "ok": ("done", 1, 200),
    "refused": ("refused", 0, None),
    "reset": ("reset", 0, None),
    "lost": ("closed", 1, None),
    "timeout": ("timeout", 1, None),
    "422": ("wrong", 0, 422),
    "503": ("busy", 0, 503),
    "500": ("failed", 1, 500),
}
"""Name -> kind of fault or text of the answer, effects that took place, status of an answer."""


class World:
    """One small history. `front`: the process that the agent asks; `told`: every reply that it got. `alone`: one process at a time."""

    def __init__(self, fate: Fate, faults: tuple[str, ...] = (), *, alone: bool = True) -> None:
        self.clock, self.store, self.fate, self.alone = StillClock(), Store(), fate, alone
        self.upstream = Upstream(self.clock, faults)
        self.lives: list[tuple[Life, Engine]] = []
        self.told: list[Reply] = []
        self.run = ""
        self.front: tuple[Life, Engine]

    @property
    def engine(self) -> Engine:
        return self.front[1]

    async def start(self) -> None:
        """A process comes up, recovers what others left if it is alone, and is asked from now on."""
        life = Life(self, self.alone)
        port: Any = life
        engine = Engine(port, port, port, self.clock, SystemIds(self.clock, b"s" * 32))
        self.front = (life, engine)
        self.lives.append(self.front)
        try:
            await engine.start()
        except Died:
            await self.bury(life, engine)

    async def go_on(self) -> None:
        """Whom the agent asks is up: another process that is, or else a new one."""
        life, engine = self.front
        if life.dead or engine.stopping:
            await self.bury(life, engine)
            left = [one for one in self.lives if not one[0].dead]
            if left:
                self.front = left[0]
            else:
                await self.start()

    async def bury(self, life: Life, engine: Engine) -> None:
        """Nothing of a dead process goes on."""
        life.dead = True
        flights = [flight.task for flight in engine.flights.values()]
        tasks = [task for task in (engine._sweeper, engine._reaching, *flights, *engine.errands) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def open(self) -> None:
        self.run = (await self.engine.open_run(AGENT, RunRequest("rest", run_key="one"))).run.id

    async def call(self, tool: str, *, by: tuple[Life, Engine] | None = None, wait_ms: int | None = None, **arguments: Any) -> Reply | None:
        """What the agent is told; None if that died with the process. `by`: another process than the front."""
        life, engine = by or self.front
        try:
            reply = await engine.call(AGENT, self.run, CallRequest(f"web.{tool}", arguments, "rest", wait_ms=wait_ms))
        except Died:
            await self.bury(life, engine)
            return None
        self.told.append(reply)
        return reply

    def judge(self, dispatch: Dispatch) -> None:
        """P1, P7: whoever sends has an intent for this very attempt, in a run that was neither stopped nor is out of time."""
        run = self.store.state(self.run).runs[self.run]
        intents = [one.event for one in self.store.log if isinstance(one.event, e.CallAdmitted)]
        if (dispatch.call, dispatch.attempt, dispatch.key) not in [(event.call, event.attempt, event.key) for event in intents]:
            self.store.broken.append(f"P1 attempt {dispatch.attempt} of {dispatch.call} is sent without an intent")
        if run.state == "frozen" or run.status == "cancelled" or self.clock.now >= dispatch.deadline_at:
            self.store.broken.append(f"P7 {dispatch.call} is sent in a run that is {run.state} ({run.status}), or too late")

    async def vote(self, vote: str, by: tuple[Life, Engine] | None = None) -> None:
        """A person decides on the run's first hold, if there is one."""
        holds = self.store.state(self.run).holds
        if holds:
            hold = min(holds.values(), key=lambda one: one.id)
            await (by or self.front)[1].vote(PERSON, hold.id, vote, hold.digest, "")

    def records(self) -> list[CallRecord]:
        return [record for tree in self.store.trees() for record in tree.calls.values()]

