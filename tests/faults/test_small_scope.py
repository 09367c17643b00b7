"""Everything of a small scope: each effect × each fault × a crash at each moment × somebody else at each moment, with the real engine.

No outcome is foreseen here: what must hold is what the promises say of any history, judged by the same checker that `gateway verify` uses, by
what the upstream saw, and by what the agent was told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import count

import pytest

from gateway.core.model import Completed, Doubt, Failed, Held, Refused
from gateway.engine import Engine
from gateway.ports import RequestFault
from tests.core.build import ACT
from tests.faults.world import AGENT, FAULTS, OPERATOR, TURNS, Died, Fate, Life, World

pytestmark = pytest.mark.anyio

@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of processes that die have nothing to say; writing it down would take longer than all they do."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


Rival = Callable[[World, str], Awaitable[None]]
EFFECTS = ("read", "put", "pay", "ask")
LEASE_MS = 60_000
"""More than any attempt has here, with its lease."""
CALLS = 3
"""The agent's own, all the same; one more is the last process's start if the agent met a dead one."""


async def same(world: World, effect: str) -> None:
    await world.call(effect, n=1)


async def another(world: World, effect: str) -> None:
    await world.call("put", n=2)


async def cancel(world: World, effect: str) -> None:
    await world.engine.cancel_run(AGENT, world.run)


async def finish(world: World, effect: str) -> None:
    await world.engine.finish_run(AGENT, world.run, None)


async def freeze(world: World, effect: str) -> None:
    await world.engine.freeze_run(OPERATOR, world.run, "look")


async def too_late(world: World, effect: str) -> None:
    world.clock.now += 700_000
    await world.engine.sweep()


async def approve(world: World, effect: str) -> None:
    await world.vote("approve")


async def deny(world: World, effect: str) -> None:
    await world.vote("deny")


async def stop(world: World, effect: str) -> None:
    await world.engine.stop(0)


RACES: Mapping[str, Rival] = {
    "same": same, "another": another, "cancel": cancel, "finish": finish, "freeze": freeze, "too late": too_late, "approve": approve, "deny": deny,
    "stop": stop,
}  # fmt: skip
PEOPLES = ("approve", "deny")
IN_TURN = ("lost,refused", "503,lost", "reset,422", "refused,lost")


# ---- another replica ----------------------------------------------------------------------------------------------------


def replica(world: World) -> tuple[Life, Engine]:
    return world.lives[1]


async def same_there(world: World, effect: str) -> None:
    await world.call(effect, by=replica(world), wait_ms=0, n=1)


async def taken_over(world: World, effect: str) -> None:
    """Whoever works on it has been asleep past its lease; the other finds out, and it goes on where it was."""
    world.clock.now += LEASE_MS
    await replica(world)[1].sweep()


async def cancel_there(world: World, effect: str) -> None:
    await replica(world)[1].cancel_run(AGENT, world.run)


async def freeze_there(world: World, effect: str) -> None:
    await replica(world)[1].freeze_run(OPERATOR, world.run, "look")


async def approve_there(world: World, effect: str) -> None:
    await world.vote("approve", replica(world))


async def deny_there(world: World, effect: str) -> None:
    await world.vote("deny", replica(world))


THERE: Mapping[str, Rival] = {
    "same": same_there, "taken over": taken_over, "cancel": cancel_there, "freeze": freeze_there, "approve": approve_there, "deny": deny_there,
}  # fmt: skip


# ---- a history ----------------------------------------------------------------------------------------------------------


async def played(effect: str, faults: str, crash_at: int, rival: Rival | None = None, race_at: int = 0, *, replicas: int = 1) -> World:
    """A call, a person's yes where one is needed, a crash and a rival at their moments, a restart, and the agent's repeats."""

    async def interfere() -> None:
        assert rival is not None
        try:
            await rival(world, effect)
        except (Died, RequestFault):
            pass  # the rival's own process is dead, or the world has moved on

    world = World(Fate(), tuple(faults.split(",")), alone=replicas == 1)
    for _ in range(replicas):
        await world.start()
    world.front = world.lives[0]
    await world.open()
    world.fate.crash_at, world.fate.race_at, world.fate.race, world.fate.passed = crash_at, race_at, interfere if rival else None, 0
    for _ in range(CALLS):
        if world.front[0].dead or world.engine.stopping:
            await world.go_on()
        elif isinstance(await world.call(effect, n=1, wait_ms=0 if replicas > 1 else None), Held):
            try:
                await world.vote("approve")
            except (Died, RequestFault):
                pass
    await settled(world)
    return world


async def settled(world: World) -> None:
    """Everybody who is left has done what they had to."""
    if world.fate.racing is not None:
        await asyncio.wait({world.fate.racing}, timeout=1)
        assert world.fate.racing.done(), "the rival waits for ever"
    await world.go_on()
    for _ in range(3):  # who takes over may die of it, and what was taken over may have to be settled in its turn
        world.clock.now += LEASE_MS
        try:
            await world.engine.sweep()
        except Died:
            await world.go_on()
        for _ in range(TURNS):
            await asyncio.sleep(0)
    for life, engine in world.lives:
        if not life.dead:
            await engine.stop(0)
            await world.bury(life, engine)


def wrong(world: World) -> Iterator[str]:
    """What the promises say of any history."""
    yield from world.store.broken
    sent = [(dispatch.key, dispatch.call) for _, dispatch in world.upstream.sent]
    for record in world.records():
        done = world.upstream.done[record.key]
        if record.effect is ACT and (done > 1 or [key for key, _ in sent].count(record.key) > 1):
            yield f"P2 the key of {record.id} was sent several times and took effect {done} times"
        if record.effect.writes and world.upstream.done_by[record.id] and (record.not_applied or record.state in ("cancelled", "denied")):
            yield f"P4 {record.id} took effect and is {record.state} ({record.reason})"
        if record.state == "admitted":
            yield f"P10 {record.id} is never over"
    writes = {record.id for record in world.records() if record.effect.writes}
    for key, calls in {key: {call for one, call in sent if one == key} & writes for key, _ in sent}.items():
        if len(calls) > 1:
            yield f"P3 {key[:8]} was sent for {sorted(calls)}"
    yield from told_otherwise(world)


def told_otherwise(world: World) -> Iterator[str]:
    records = {record.id: record for record in world.records()}
    for reply in world.told:
        record = records.get(reply.call or "")
        if isinstance(reply, Completed):
            kept = None if record is None else world.store.payloads.get((world.run, record.result or ""))
            if record is None or record.state != reply.status or kept is None or world.engine.ids.unseal(kept.data) != reply.result:
                yield f"P9 the agent was told of {reply}, which isn't what stands"
        elif isinstance(reply, Failed | Doubt | Held) and record is None:
            yield f"P9 the agent was told of {reply.call}, which is lost"
        elif isinstance(reply, Doubt) and record is not None and record.state != "in_doubt":
            yield f"P13 {reply.call} was in doubt and is {record.state}"
        elif isinstance(reply, Refused) and reply.call is not None and record is None:
            yield f"P9 the agent was refused {reply.call}, which is lost"


async def everywhere(effect: str, faults: str, rival: Rival | None = None, race_at: int = 0, *, replicas: int = 1) -> bool:
    """A crash at each moment of this history, and none. False if there are not so many moments that the rival came."""
    for crash_at in count():
        world = await played(effect, faults, crash_at, rival, race_at, replicas=replicas)
        assert list(wrong(world)) == [], (effect, faults, crash_at, race_at)
        if crash_at == 0 and rival is not None and world.fate.racing is None:
            return False
        if crash_at and not any(life.died for life, _ in world.lives):
            return True
    raise AssertionError("a history without an end")


async def at_each_moment(effect: str, rival: Rival, *, replicas: int = 1) -> None:
    for faults in ("lost", "ok")[: 1 if effect == "read" else 2]:  # each repeat of a read goes the whole way again
        race_at = 1
        while await everywhere(effect, faults, rival, race_at, replicas=replicas):
            race_at += 1
        assert race_at > 6


@pytest.mark.parametrize("faults", [*FAULTS, *IN_TURN])
@pytest.mark.parametrize("effect", EFFECTS)
async def test_a_crash_at_each_moment_breaks_no_promise(effect: str, faults: str) -> None:
    assert await everywhere(effect, faults)


@pytest.mark.parametrize(("effect", "race"), [(effect, race) for effect in EFFECTS for race in RACES if effect == "ask" or race not in PEOPLES])
async def test_a_rival_and_a_crash_at_each_moment_break_no_promise(effect: str, race: str) -> None:
    await at_each_moment(effect, RACES[race])


@pytest.mark.parametrize(("effect", "race"), [(effect, race) for effect in EFFECTS for race in THERE if effect == "ask" or race not in PEOPLES])
async def test_a_replica_and_a_crash_at_each_moment_break_no_promise(effect: str, race: str) -> None:
    await at_each_moment(effect, THERE[race], replicas=2)
