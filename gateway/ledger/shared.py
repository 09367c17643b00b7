"""A ledger that other processes append to as well: states are asked for anew, and watchers learn of the others' events.

What the cache holds may be behind; a transaction brings it up to date under its locks, `state` by a look. Hints make watchers quick; a look
at all that is watched, twice a second, makes them sure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from gateway.ledger.ledger import StoreLedger, recorded
from gateway.ledger.states import Fold
from gateway.ledger.store import EventRow, Store
from gateway.ports import Clock, LedgerFault, Recorded

_LOG: Final = logging.getLogger("gateway.ledger")
_LOOK_S: Final = 0.5


class SharedStore(Store, Protocol):
    """A database that several processes write.

    `heard`: called with a stream that another process may have appended to. `lost`: called when what was read may not be there any more."""

    heard: Callable[[str], None]
    lost: Callable[[], None]

    async def past(self, known: Mapping[str, int]) -> Sequence[EventRow]:
        """What stands after these seqs: by stream, in order, at most `PAGE` of each."""

    async def durable(self) -> None:
        """Returns when all that was read so far is. What is read otherwise may not be yet, though what builds on it can't be without it."""


class SharedLedger(StoreLedger):
    store: SharedStore

    def __init__(self, store: SharedStore, fold: Fold, clock: Clock, *, capacity: int, readonly: bool) -> None:
        super().__init__(store, fold, clock, capacity=capacity, readonly=readonly)
        self._news = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._seen: dict[str, int | None] = {}
        store.heard, store.lost = self._hear, self._states.forget_all

    async def open(self) -> None:
        await super().open()
        if not self._readonly:
            self._following = asyncio.get_running_loop().create_task(self._follow(), name="ledger follower")

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait((self._following,))
        await super().close()

    async def payload(self, stream: str, hash: str) -> bytes | None:
        """Never from memory: another process may have erased it."""
        return await self.store.reader.payload(stream, hash)

    async def state(self, stream: str) -> Any:
        if self._readonly:
            return await super().state(stream)
        await self._catch_up({stream: (await self._states.load(stream)).state.seq})
        state = await super().state(stream)
        await self.store.durable()
        return state

    async def events(self, stream: str, after: int = 0, limit: int = 1000) -> list[Recorded]:
        if self._readonly:
            return await super().events(stream, after, limit)
        rows = await self.store.tail(stream, after + 1, limit)
        await self.store.durable()
        return [recorded(row) for row in rows]

    async def _catch_up(self, known: Mapping[str, int]) -> None:
        self._states.follow(known, await self.store.past(known))

    def _hear(self, stream: str) -> None:
        if stream in self._writer.watched:
            self._news.set()

    async def _follow(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), _LOOK_S)
            self._news.clear()
            try:
                await self._look()
            except LedgerFault as fault:
                _LOG.warning("other processes' events are not seen: %s", fault)
                await asyncio.sleep(_LOOK_S)

    async def _look(self) -> None:
        """Wake who watches a stream that is elsewhere than at the last look, whoever moved it, or that isn't at hand: watchers see for themselves."""
        at_hand = {stream: seq for stream, seq in self._states.known(self._writer.watched).items() if seq is not None}
        if at_hand:
            await self._catch_up(at_hand)
            await self.store.durable()
        before, self._seen = self._seen, self._states.known(self._writer.watched)
        for stream, seq in self._seen.items():
            if seq is None or seq != before.get(stream):
                self._writer.wake(stream)
