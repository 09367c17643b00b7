"""The engine's life: recovery at start, the sweep for what time alone does, an orderly stop."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from gateway.core.decide import runs
from gateway.engine.reach import Reach
from gateway.engine.tools import Definitions
from gateway.ports import LedgerFault

log = logging.getLogger("gateway.engine")

SWEEP_MS = 1_000


class Engine(Definitions):
    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._sweeper: asyncio.Task[None] | None = None
        self._reaching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Settle what a dead process left, then sweep. The ledger and the catalog are open already."""
        if self.ledger.alone:
            await self._recover()
        else:
            self._reaching = asyncio.ensure_future(Reach(self).run())
        self._sweeper = asyncio.ensure_future(self._sweep_for_ever())

    async def stop(self, grace_ms: int = 10_000) -> None:
        """Admit nothing more, let what is on the wire finish within the grace, cancel and record the rest."""
        self.stopping = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for flight in self.flights.values():
            if flight.inquiry is not None:
                flight.inquiry.end()
        if tasks := self._at_work():
            await asyncio.wait(tasks, timeout=grace_ms / 1000)
        while left := self._at_work():
            for flight in list(self.flights.values()):
                flight.cancel()
            done, _ = await asyncio.wait(left, timeout=5, return_when=asyncio.FIRST_COMPLETED)  # an errand that ends may have launched a flight
            if not done:
                break
        if self._reaching is not None:
            self._reaching.cancel()

    def _at_work(self) -> list[asyncio.Task[Any]]:
        return [flight.task for flight in self.flights.values() if flight.task is not None] + list(self.errands)

    async def _recover(self) -> None:
        """Every intent without an outcome of another owner is a dead process's: the ledger's lock says that there is no other."""
        for stream in await self.ledger.in_flight():
            tree = await self.ledger.state(stream)
            for run in tree.runs.values():
                for call, state in run.live.items():
                    if state == "admitted" and tree.calls[call].owner != self.owner:
                        await self.recover(tree.calls[call])

    async def _sweep_for_ever(self) -> None:
        while True:
            try:
                await self.sweep()
            except LedgerFault as fault:
                log.warning("the sweep waits for the ledger: %s", fault)
            await self.clock.sleep(SWEEP_MS)

    async def sweep(self) -> int:
        """Do what is due: expiries, lapses, deadlines, idle runs, endings. How many events that took."""
        await self.record_late()
        done = 0
        for stream in await self.ledger.due(self.clock.now_ms()):
            try:
                count, _ = await self.decide([stream], lambda states, now, s=stream: runs.sweep(states, s, now))  # type: ignore[misc]
            except LedgerFault:
                raise
            except Exception:  # one tree that can't be swept must not keep the others waiting for ever (P10)
                log.exception("%s could not be swept", stream)
            else:
                done += count
        return done
