"""The port `Ledger` over any store: appends through the one writer, states from memory, everything else from the reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from gateway.core.run import stream_of
from gateway.ledger.codec import Unreadable, decode
from gateway.ledger.recent import Recent
from gateway.ledger.states import Fold, States
from gateway.ledger.store import PAGE, EventRow, Rows, Store
from gateway.ledger.views import COLUMNS, FILTERS, everything
from gateway.ledger.writer import Writer
from gateway.ports import Clock, Committed, LedgerFault, Recorded, Step

_PAYLOAD_BYTES = 32 * 1024 * 1024
_POLICY_CHARS = 8 * 1024 * 1024
_LOOK_S = 0.02
_LOOKS = 15


class StoreLedger:
    """See `ports.Ledger`. `store` and `fold` are for `verify`."""

    def __init__(self, store: Store, fold: Fold, clock: Clock, *, capacity: int, readonly: bool) -> None:
        self.store = store
        self.fold = fold
        self._readonly = readonly
        self._states = States(store, fold, capacity)
        self._payloads: Recent[tuple[str, str], bytes] = Recent(_PAYLOAD_BYTES)
        self._policies: Recent[str, str] = Recent(_POLICY_CHARS)
        self._writer = Writer(store, self._states, fold, clock, self._payloads)

    @property
    def alone(self) -> bool:
        return self.store.alone

    async def open(self) -> None:
        try:
            await self.store.open()
            if not self._readonly:
                self._writer.start()
                await self._writer.find_unshown()
                await self._writer.show()
        except BaseException:
            await self.close()
            raise

    async def show(self) -> None:
        """Have the views show all that was recorded so far; beside a gateway, wait for it to do so, if it lives."""
        if not self._readonly:
            return await self._writer.show()
        _, last = await self.store.reader.shown()
        for _ in range(_LOOKS):
            if (await self.store.reader.shown())[0] >= last:
                break
            await asyncio.sleep(_LOOK_S)
        return None

    async def close(self) -> None:
        """What is queued is still written; then the store closes."""
        try:
            await self._writer.close()
        finally:
            await self.store.close()

    def transact(self, streams: Sequence[str], step: Step) -> Awaitable[Committed]:
        return self._writer.transact(streams, step)

    async def watch(self, stream: str, after: int) -> None:
        await self._writer.watch(stream, after)

    async def state(self, stream: str) -> Any:
        if self._readonly:
            self._states.forget((stream,))  # nobody here sees what the gateway appends
        head = self._states.get(stream) or await self._states.load(stream)
        return head.state

    def at_hand(self, stream: str) -> Any | None:
        head = self._states.get(stream)
        return None if head is None else head.state

    async def payload(self, stream: str, hash: str) -> bytes | None:
        data = self._payloads.get((stream, hash))
        if data is None and (data := await self.store.reader.payload(stream, hash)) is not None:
            self._payloads.put((stream, hash), data)
        return data

    async def policy_text(self, digest: str) -> str | None:
        text = self._policies.get(digest)
        if text is None and (text := await self.store.reader.policy_text(digest)) is not None:
            self._policies.put(digest, text)
        return text

    async def events(self, stream: str, after: int = 0, limit: int = 1000) -> list[Recorded]:
        return [recorded(row) for row in await self.store.reader.events(stream, after, limit)]

    async def due(self, now: int, limit: int = 500) -> list[str]:
        await self.show()
        return await self.store.reader.due(now, limit)

    async def in_flight(self) -> list[str]:
        await self.show()
        return await self.store.reader.in_flight()

    async def due_calls(self, now: int, limit: int = 10_000) -> list[str]:
        await self.show()
        return await self.store.reader.due_calls(now, limit)

    async def rows(self, view: str, where: Mapping[str, Any], *, limit: int = 100, before: str | None = None) -> list[dict[str, Any]]:
        """Raises ValueError for a view or a column that can't be asked for."""
        if view not in FILTERS or not where.keys() <= FILTERS[view]:
            raise ValueError(f"{view} by {', '.join(where) or 'nothing'}: views are {', '.join(FILTERS)}; by {', '.join(FILTERS.get(view, ()))}")
        asked: dict[str, Any] = dict.fromkeys(FILTERS[view]) | dict(where)
        asked["stream"] = asked["stream"] or next((stream_of(asked[id]) for id in ("run", "call", "hold") if asked.get(id)), None)
        await self.show()
        found = await self.store.reader.rows(view, asked, limit, before)
        return [dict(zip(COLUMNS[view], row, strict=True)) for row in found]

    async def erase(self, closed_by: int) -> int:
        erased, after = 0, (0, "")
        await self.show()
        while found := await self._erasable(closed_by, after):
            for _, stream in found:
                erased += await self._erase(stream)
            after = found[-1]
        return erased

    async def _erasable(self, closed_by: int, after: tuple[int, str]) -> list[tuple[int, str]]:
        async with self.store.snapshot() as reader:  # it may look through many runs: a reader of its own keeps nobody waiting
            return await reader.erasable(closed_by, after, PAGE)

    async def _erase(self, stream: str) -> int:
        """A stream's payloads, some at a time: appends wait no longer than for a batch."""
        erased = 0
        while True:
            async with self._writing():
                count = await self.store.erase(stream, PAGE)
            erased += count
            if count < PAGE:
                self._payloads.forget(lambda key: key[0] == stream)
                return erased

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[None]:
        """A transaction between the writer's batches."""
        if self._readonly:
            raise LedgerFault("the ledger is not open for writing")
        async with self._writer.lock:
            await self.store.begin({})
            try:
                yield
                await self.store.commit()
            except BaseException:
                await self.store.rollback()
                raise

    async def rebuild(self, view: str) -> None:
        """Make a view anew from the events alone, in one transaction; appends wait."""
        async with self._writing():
            await self.store.clear(view)
            for stream in await self.store.reader.streams():
                state = (await self._states.replay(stream)).state
                rows = {row.id: row.values for row in everything(state, stream) if row.view == view}
                await self.store.write(Rows(views={view: rows}))


def recorded(row: EventRow) -> Recorded:
    try:
        event = decode(row.kind, row.version, row.body)
    except Unreadable as error:
        raise LedgerFault(f"{row.stream}: event {row.seq} can't be read: {error}") from error
    return Recorded(row.stream, row.seq, row.event_id, row.at, event, row.hash)
