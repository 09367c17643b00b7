"""The engine's life: recovery at start, the sweep for what time alone does, an orderly stop.

Every process sweeps. What is due stands in the ledger's views, so an idle sweep costs two small reads; each act is decided on the state as it is
then, so that several processes may see the same need.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from gateway.core.decide import runs
from gateway.core.run import CallRecord, stream_of
from gateway.engine.doubts import Doubts
from gateway.engine.reach import Reach
from gateway.engine.tools import Definitions
from gateway.ports import LedgerFault

T = TypeVar("T")
log = logging.getLogger("gateway.engine")

SWEEP_MS = 1_000
ERASE_EVERY_MS = 3_600_000
RECORDING_S = 5
"""What is cancelled at the end of the grace has so long to be recorded."""
AT_ONCE = 64
"""Calls looked after at the same time: they share commits."""


class Engine(Definitions, Doubts):
    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._sweeper: asyncio.Task[None] | None = None
        self._reaching: asyncio.Task[None] | None = None
        self._eraser: asyncio.Task[None] | None = None
        self._erase_at = 0

    async def start(self) -> None:
        """Settle what a dead process left, then sweep. The ledger and the catalog are open already."""
        if self.ledger.alone:
            await _each(await self.ledger.in_flight(), self._recover_all)
        else:
            self._reaching = asyncio.ensure_future(Reach(self).run())
        self._sweeper = asyncio.ensure_future(self._sweep_for_ever())

    def admit_no_more(self) -> None:
        """From now on nothing starts. Who waits for people, or for a dispatch elsewhere, is answered; no call is tried again."""
        self.stopping = True
        for task in (self._sweeper, self._eraser, *self.watches):
            if task is not None:
                task.cancel()
        for flight in self.flights.values():
            flight.give_up()

    async def stop(self, grace_ms: int = 10_000) -> None:
        """Admit nothing more, let what is on the wire finish within the grace, cancel and record the rest. May be called again."""
        self.admit_no_more()
        if tasks := self._at_work():
            await asyncio.wait(tasks, timeout=grace_ms / 1000)
        self.over = True
        loop = asyncio.get_running_loop()
        end = loop.time() + RECORDING_S
        while (left := self._at_work()) and loop.time() < end:  # an errand may launch a flight meanwhile
            for flight in list(self.flights.values()):
                flight.cancel()
            await asyncio.wait(left, timeout=end - loop.time(), return_when=asyncio.FIRST_COMPLETED)
        if self._reaching is not None:
            self._reaching.cancel()

    def _at_work(self) -> list[asyncio.Task[Any]]:
        return [flight.task for flight in self.flights.values() if flight.task is not None] + list(self.errands)

    async def _recover_all(self, stream: str) -> None:
        """Every intent without an outcome of another owner is a dead process's: the ledger's lock says that there is no other."""
        tree = await self.ledger.state(stream)
        live = [tree.calls[call] for run in tree.runs.values() for call, state in run.live.items() if state == "admitted"]
        await self.recover(stream, [record for record in live if record.owner != self.owner])

    async def _sweep_for_ever(self) -> None:
        while True:
            try:
                await self.sweep()
            except LedgerFault as fault:
                log.warning("the sweep waits for the ledger: %s", fault)
            except Exception:  # whatever is wrong with one sweep, the next may go well; without any, calls would wait for ever (P10)
                log.exception("a sweep failed")
            await self.clock.sleep(SWEEP_MS)

    async def sweep(self) -> int:
        """Do what is due: late outcomes, expiries, deadlines, idle runs, endings, and calls that nobody looks after. How many streams and calls."""
        await self.record_late()
        now = self.clock.now_ms()
        streams, calls = await self.ledger.due(now), await self.ledger.due_calls(now)
        await _each(streams, self._time_alone)
        await _each(_by_tree(calls), self._look_after)
        self._erase_if_due(now)
        return len(streams) + len(calls)

    def _erase_if_due(self, now: int) -> None:
        """What retention lets go: the payloads of runs that closed long enough ago."""
        if self.retain_payloads_ms is not None and now >= self._erase_at:
            self._erase_at = now + ERASE_EVERY_MS
            self._eraser = self._run(self._erase(now - self.retain_payloads_ms))

    async def _erase(self, closed_by: int) -> None:
        if count := await self.ledger.erase(closed_by):
            log.info("%d payloads of runs that have long been over were erased", count)

    async def _time_alone(self, stream: str) -> None:
        await self.decide([stream], lambda states, now: runs.sweep(states, stream, now))

    async def _look_after(self, due: tuple[str, list[str]]) -> None:
        """Calls of one tree whose lease has ended, that should have been executed by now, or that are to be probed."""
        stream, calls = due
        tree, now = await self.ledger.state(stream), self.clock.now_ms()
        left: list[CallRecord] = []
        for record in (tree.calls[call] for call in calls):
            due_at = tree.call_due_at(record)
            if due_at is None or due_at > now:
                continue
            match record.state:
                case "admitted" if record.id not in self.flights:  # else it is ours, and its outcome is being offered to the ledger
                    left.append(record)
                case "ready":
                    await self.run_ready(record)
                case "in_doubt":
                    self.start_probe(record)
        if left:
            await self.recover(stream, left)


def _by_tree(calls: Iterable[str]) -> list[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for call in calls:
        found.setdefault(stream_of(call), []).append(call)
    return list(found.items())


async def _each(things: Iterable[T], act: Callable[[T], Awaitable[None]]) -> None:
    """Act on all, some at a time. One that can't be done must not keep the others waiting for ever (P10). Raises LedgerFault."""
    left = list(things)
    for first in range(0, len(left), AT_ONCE):
        some = left[first : first + AT_ONCE]
        for thing, fault in zip(some, await asyncio.gather(*map(act, some), return_exceptions=True), strict=True):
            if isinstance(fault, LedgerFault):
                raise fault
            if fault is not None:
                log.error("%s could not be seen to", thing, exc_info=fault)
