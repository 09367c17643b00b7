"""The folded states of streams: the recently used in memory, others from their checkpoint and the events after it.

Only durable states stand here. A load that the writer overtakes is thrown away, so a state never goes back.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from msgspec import Struct

from gateway.core.events import Event
from gateway.ledger.checkpoint import Checkpoints
from gateway.ledger.codec import Unreadable, decode, genesis
from gateway.ledger.store import PAGE, CheckpointRow, EventRow, Store
from gateway.ledger.views import only_a_call
from gateway.ports import LedgerFault

Empty = Callable[[str], Any]
Evolve = Callable[[Any, int, int, Event], Any]

_BIG: Final = 256 * 1024  # checkpoints above are read and written on another thread


class Head(Struct, frozen=True):
    """The end of a stream: its state, the last event's hash, the seq of its latest checkpoint, and its root's row in `runs` if known."""

    state: Any
    hash: str
    saved: int = 0
    row: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class Fold:
    """How states come about and which checkpoints still fit. States have `seq` and `at`."""

    empty: Empty
    evolve: Evolve
    version: int
    checkpoints: Checkpoints

    def start(self, stream: str) -> Head:
        return Head(self.empty(stream), genesis(stream))

    def append(self, head: Head, row: EventRow) -> Head:
        """The head after one recorded event. Raises LedgerFault for what can't be read or doesn't follow."""
        if row.seq != head.state.seq + 1:
            raise LedgerFault(f"{row.stream}: event {head.state.seq + 1} is missing, {row.seq} follows (gateway verify tells more)")
        try:
            event = decode(row.kind, row.version, row.body)
            state = self.evolve(head.state, row.seq, row.at, event)
        except Exception as error:  # whatever a fold raises over what is recorded, the stream can't be used
            raise LedgerFault(f"{row.stream}: event {row.seq} ({row.kind}) can't be folded: {error!r}") from error
        kept = head.row is not None and only_a_call(head.state, state, event)
        return Head(state, row.hash, head.saved, head.row if kept else None)

    def restore(self, row: CheckpointRow | None) -> Any | None:
        """The state of a checkpoint; None if there is none that today's fold would give."""
        if row is None or row.fold_version != self.version:
            return None
        try:
            return self.checkpoints.load(row.state)
        except Unreadable:
            return None  # checkpoints are disposable: the events say the same


class States:
    """A cache of heads by stream, at most `capacity` of them."""

    def __init__(self, store: Store, fold: Fold, capacity: int) -> None:
        self._store = store
        self._fold = fold
        self._capacity = capacity
        self._heads: OrderedDict[str, Head] = OrderedDict()
        self._loading: dict[str, asyncio.Task[Head | None]] = {}

    def __contains__(self, stream: str) -> bool:
        return stream in self._heads

    def get(self, stream: str) -> Head | None:
        """The head, if it is at hand."""
        return self._heads.get(stream)

    def known(self, streams: Iterable[str]) -> dict[str, int | None]:
        """Stream -> the seq at hand, None for one that isn't."""
        return {stream: head.state.seq if (head := self._heads.get(stream)) is not None else None for stream in streams}

    def heads(self) -> list[tuple[str, Head]]:
        return list(self._heads.items())

    async def load(self, stream: str) -> Head:
        """The durable head of a stream. Raises LedgerFault."""
        while (head := self._heads.get(stream)) is None:
            task = self._loading.get(stream)
            if task is None:
                task = self._loading[stream] = asyncio.get_running_loop().create_task(self._fill(stream))
                task.add_done_callback(_looked_at)
            loaded = await asyncio.shield(task)  # shared: one caller's leaving mustn't end it
            if loaded is not None:
                return self._heads.get(stream, loaded)  # it may have had to make room already
        self._heads.move_to_end(stream)
        return head

    def put(self, stream: str, head: Head) -> None:
        """What a commit made of a stream; a load under way is late."""
        self._loading.pop(stream, None)
        self._heads[stream] = head
        self._heads.move_to_end(stream)
        while len(self._heads) > self._capacity:
            self._heads.popitem(last=False)

    def forget(self, streams: Iterable[str]) -> None:
        for stream in streams:
            self._heads.pop(stream, None)
            self._loading.pop(stream, None)

    def forget_all(self) -> None:
        self._heads.clear()
        self._loading.clear()

    def follow(self, known: Mapping[str, int | None], rows: Sequence[EventRow]) -> None:
        """Move heads on by what other processes appended after the seqs at hand. A head that this can't do is forgotten: a load can, or
        says why not. Where nothing was at hand, a load under way may have read too early; it is late."""
        self.forget(stream for stream, seq in known.items() if seq is None)
        for stream, group in groupby(rows, attrgetter("stream")):
            head, tail = self._heads.get(stream), list(group)
            try:
                for row in tail:
                    if head is not None and row.seq > head.state.seq:
                        head = self._fold.append(head, row)
            except LedgerFault:
                head = None
            if head is None or len(tail) == PAGE:
                self.forget((stream,))
            else:
                self.put(stream, head)

    async def _fill(self, stream: str) -> Head | None:
        """Load into the cache, unless a commit was quicker. All in the task: whoever finds it done finds its effect."""
        me = asyncio.current_task()
        try:
            head = await self._read(stream)
            if self._loading.get(stream) is me:
                self.put(stream, head)
                return head
            return None
        finally:
            if self._loading.get(stream) is me:
                del self._loading[stream]

    async def _read(self, stream: str) -> Head:
        fold, store = self._fold, self._store
        row = await store.saved(stream)
        big = row is not None and len(row.state) > _BIG
        state = await asyncio.to_thread(fold.restore, row) if big else fold.restore(row)
        if state is not None:
            # The checkpoint's own event is read for its hash, and so that a checkpoint past the end can't count.
            last = await store.tail(stream, state.seq, 1)
            if last and last[0].seq == state.seq:
                return await self._extended(Head(state, last[0].hash, state.seq), stream)
        return await self.replay(stream)

    async def replay(self, stream: str) -> Head:
        """The head from the events alone."""
        return await self._extended(self._fold.start(stream), stream)

    async def _extended(self, head: Head, stream: str) -> Head:
        while rows := await self._store.tail(stream, head.state.seq + 1, PAGE):
            for each in rows:
                head = self._fold.append(head, each)
            if len(rows) < PAGE:
                break
            await asyncio.sleep(0)
        return head


def _looked_at(task: asyncio.Task[Head | None]) -> None:
    """Nobody may be left to take a load's fault; then it is no news."""
    if not task.cancelled():
        task.exception()
