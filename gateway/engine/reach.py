"""Runs and turns that were cancelled in another process reach the calls in flight in this one.

Here they do so at once; of what others do only the ledger tells. Calls that are soon over cost nothing: it is looked at those that last.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from gateway.core.run import CallRecord, Tree, stream_of
from gateway.engine.flights import Flight, Flights
from gateway.ports import LedgerFault

LOOK_MS = 200
"""How long a call may be in flight before its run is watched for it."""


class Reach:
    """`run` is a task for as long as there may be flights."""

    def __init__(self, desk: Flights):
        self._desk = desk
        self._watching: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        try:
            while True:
                for stream in {stream_of(flight.record.run) for flight in self._desk.flights.values()} - self._watching.keys():
                    self._watching[stream] = asyncio.ensure_future(self._watch(stream))
                await self._desk.clock.sleep(LOOK_MS)
        finally:
            for task in self._watching.values():
                task.cancel()

    async def _watch(self, stream: str) -> None:
        """Until the last flight of these runs has landed, which is an event too."""
        try:
            with suppress(LedgerFault):  # it says so itself; the next look begins anew
                while flights := self._of(stream):
                    tree = await self._desk.ledger.state(stream)
                    for flight in flights:
                        if _recalled(tree, flight.record):
                            flight.cancel()
                    await self._desk.ledger.watch(stream, tree.seq)
        finally:
            del self._watching[stream]

    def _of(self, stream: str) -> list[Flight]:
        return [flight for flight in self._desk.flights.values() if stream_of(flight.record.run) == stream]


def _recalled(tree: Tree, record: CallRecord) -> bool:
    """Was its turn, its run or a run above it cancelled?"""
    turn = tree.runs[record.run].turns.get(record.turn)
    return (turn is not None and turn.status == "cancelled") or any(one.status == "cancelled" for one in tree.lineage(record.run))
