"""The one task that writes: it drains its queue, decides each step in order, writes the whole batch, commits once, then answers all.

Where nobody else writes, the rows that calls have in the views follow their events within a tenth of a second, or before anybody here reads:
a call that starts and ends in between is written once. What a crash keeps from being written is made from the states at the next start
(`Reader.unshown`).

It never keeps an idle loop waiting: batches form while a commit is under way, and while what is ready runs. A step that raises fails only
its own caller. A failed commit fails the whole batch, the states of its streams are forgotten, and nothing more is admitted until a probe
shows that the store works again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Final

from msgspec.structs import replace

from gateway.core.run import Tree
from gateway.ledger.batch import Batch, Job
from gateway.ledger.recent import Recent
from gateway.ledger.states import Fold, Head, States
from gateway.ledger.store import Calls, CheckpointRow, Rows, Store, UnfitRows
from gateway.ledger.views import call_row
from gateway.ports import Clock, Committed, Decision, LedgerFault, Step

_LOG: Final = logging.getLogger("gateway.ledger")
_MOST: Final = 128  # steps in a batch: bounds how long deciding keeps the loop
_QUIET_ROUNDS: Final = 5  # with 3 a part of the callers falls behind, and then comes one commit later for good
_MOST_ROUNDS: Final = 50  # a trickle of steps must not keep the first one waiting
_PROBE_MS: Final = 250
_SHOW_S: Final = 0.1
_SHOW_AGAIN_S: Final = 5.0
_CHECKPOINT_EVERY: Final = 500
_EVENTS_A_CALL: Final = 4
_CHECKPOINT_AT_CLOSE: Final = 100  # a shorter tail folds faster than its checkpoint is read


def _crossed(before: int, after: int) -> bool:
    """Is it time for a checkpoint? At seq 500, 1000, 2000, 4000 …: a flat cost an event, and of many processes only one meets each."""
    return (after // _CHECKPOINT_EVERY).bit_length() > (before // _CHECKPOINT_EVERY).bit_length()


def _spares(state: Any) -> bool:
    """Would a checkpoint spare a load anything? Not where most events are those of calls, which a run's state holds: to read so large a one
    takes as long as folding the events does, and writing it took a tenth of the ledger's time."""
    return _EVENTS_A_CALL * len(getattr(state, "calls", ())) < int(state.seq)


class Writer:
    """Appends to one store. `lock` is held during each batch: who takes it has the store's transactions for itself."""

    def __init__(self, store: Store, states: States, fold: Fold, clock: Clock, payloads: Recent[tuple[str, str], bytes]) -> None:
        self._store = store
        self._states = states
        self._fold = fold
        self._clock = clock
        self._payloads = payloads
        self._queue: list[Job] = []
        self._wake = asyncio.Event()
        self._closing = False
        self._fault: LedgerFault | None = None
        self._task: asyncio.Task[None] | None = None
        self._watchers: dict[str, set[asyncio.Future[None]]] = {}
        self._checkpoints: list[CheckpointRow] = []
        self._saving: set[asyncio.Task[None]] = set()
        self._unshown: Calls = {}
        self._showing = False
        self.lock = asyncio.Lock()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="ledger writer")

    async def close(self) -> None:
        """Everything queued is still decided and written; whoever watches is told."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await self._task
        for watchers in self._watchers.values():
            for watcher in watchers:
                if not watcher.done():
                    watcher.set_exception(LedgerFault("the ledger is closed"))

    async def transact(self, streams: Sequence[str], step: Step) -> Committed:
        """As in the port. A caller that leaves doesn't take its step out of the queue."""
        for stream in streams:
            if stream not in self._states:
                await self._states.load(stream)
        if self._closing or self._task is None or self._task.done():
            raise LedgerFault("the ledger is not open for writing")
        if self._fault is not None:
            raise LedgerFault(f"the ledger can't be written: {self._fault}")
        return await self._queued(streams, step)

    def _queued(self, streams: Sequence[str], step: Step) -> asyncio.Future[Committed]:
        """Not among the locals of who awaits it: a fault holds their frames, and would be held by them."""
        waiter: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()
        self._queue.append(Job(streams, step, waiter))
        self._wake.set()
        return waiter

    async def show(self) -> None:
        """Have the views show all that was recorded; when nothing can be written they show what they can."""
        if self._unshown:
            self._showing = True
            with suppress(LedgerFault):
                await self.transact((), lambda states, now: Decision((), None))

    def _show(self) -> None:
        self._showing = bool(self._unshown)
        self._wake.set()

    async def watch(self, stream: str, after: int) -> None:
        while (await self._states.load(stream)).state.seq <= after:
            if self._closing or self._task is None:
                raise LedgerFault("nobody appends here: the ledger is closed or read-only")
            watcher = asyncio.get_running_loop().create_future()
            watchers = self._watchers.setdefault(stream, set())
            watchers.add(watcher)
            try:
                await watcher
            finally:
                watchers.discard(watcher)
                if not watchers and self._watchers.get(stream) is watchers:
                    del self._watchers[stream]
                del watcher

    async def _run(self) -> None:
        try:
            while not self._closing:
                await self._wake.wait()
                self._wake.clear()
                while (jobs := await self._gathered()) or (self._showing and self._fault is None):
                    async with self.lock:
                        await self._batch(jobs)
                    if self._fault is not None:
                        await self._recover()
            if self._fault is None:
                self._show()
                async with self.lock:
                    await self._batch([])
            await self._save_all()
        finally:
            self._refuse("the ledger is closed")

    async def _gathered(self) -> list[Job]:
        """The steps of the next batch. What is ready to run runs first, as long as it brings more of them: a commit costs as much as many steps,
        and callers that were answered together come back together. What a socket brought takes some rounds of the loop to become a step."""
        waiting = quiet = rounds = 0
        while 0 < len(self._queue) < _MOST and quiet < _QUIET_ROUNDS and rounds < _MOST_ROUNDS:
            rounds += 1
            quiet = quiet + 1 if len(self._queue) == waiting else 0
            waiting = len(self._queue)
            await asyncio.sleep(0)
        return self._drained(_MOST)

    def _drained(self, most: int) -> list[Job]:
        jobs, self._queue = self._queue[:most], self._queue[most:]
        return jobs

    def _refuse(self, message: str) -> None:
        for job in self._drained(len(self._queue)):
            job.fail(message)

    async def _batch(self, jobs: list[Job]) -> None:
        streams = {stream for job in jobs for stream in job.streams}
        heads: dict[str, Head] = {}
        try:
            known = self._states.known(streams)
            self._states.follow(known, await self._store.begin(known))
            for stream in streams:
                with suppress(LedgerFault):  # fails the jobs that need it, and no other
                    heads[stream] = await self._states.load(stream)
            batch = Batch(self._fold.evolve, self._clock.now_ms(), heads)
            for job in jobs:
                batch.decide(job)
            await self._write(batch.rows)
        except UnfitRows as error:
            await self._undo((), streams, error)
            await self._one_by_one(jobs, error)
        except Exception as error:  # noqa: BLE001 the writer outlives whatever a store raises
            _LOG.error("a batch of %d steps was not recorded: %s", len(jobs), error)
            self._fault = error if isinstance(error, LedgerFault) else LedgerFault(repr(error))
            await self._undo(jobs, streams, error)
        else:
            self._install(batch)
            for job in jobs:
                job.answer()

    async def _write(self, rows: Rows) -> None:
        unshown = self._held_back(rows)
        if not rows:
            await self._store.rollback()
            return
        rows.checkpoints, self._checkpoints = self._checkpoints, []
        try:
            await self._store.write(rows)
        except LedgerFault as fault:
            if not self._showing:
                raise
            raise UnfitRows(str(fault)) from fault  # perhaps only the views can't be written
        try:
            await self._store.commit()
        except LedgerFault:
            if not await self._recorded(rows):
                raise
        if unshown and not self._unshown:
            self._show_later()
        self._unshown, self._showing = unshown, self._showing and not rows.shows

    def _held_back(self, rows: Rows) -> Calls:
        """The calls whose rows wait on after this commit; none when it is time to show them."""
        calls = self._unshown | rows.calls
        if calls and self._store.alone and not self._showing:
            return calls
        rows.shows = True
        if calls:
            rows.views["calls"] = {call: call_row(*made_of) for call, made_of in calls.items()}
        return {}

    def _show_later(self, wait_s: float = _SHOW_S) -> None:
        asyncio.get_running_loop().call_later(wait_s, self._show)

    async def _recorded(self, rows: Rows) -> bool:
        """Was a commit that seemed to fail durable? If not even that can be found out, it counts as failed."""
        with suppress(LedgerFault):
            await self._store.rollback()
            if rows.events:
                first = rows.events[0]
                return await self._store.recorded(first.stream, first.seq) == first.event_id
            shown, last = await self._store.reader.shown()
            return self._showing and shown == last  # else all was shown before too, which says nothing
        return False

    def _install(self, batch: Batch) -> None:
        for row in batch.rows.payloads:
            self._payloads.put((row.stream, row.hash), row.data)
        for stream in batch.changed:
            head, before = batch.heads[stream], self._states.get(stream)
            if _crossed(0 if before is None else before.state.seq, head.state.seq) and _spares(head.state):
                head = replace(head, saved=head.state.seq)
                task = asyncio.get_running_loop().create_task(self._save(stream, head))
                self._saving.add(task)
                task.add_done_callback(self._saving.discard)
            self._states.put(stream, head)
            self.wake(stream)

    @property
    def watched(self) -> Collection[str]:
        """The streams that somebody watches."""
        return self._watchers.keys()

    def wake(self, stream: str) -> None:
        """Tell who watches a stream that it may have moved."""
        for watcher in self._watchers.pop(stream, ()):
            if not watcher.done():
                watcher.set_result(None)

    async def _one_by_one(self, jobs: list[Job], error: UnfitRows) -> None:
        """Decide a batch again, each job alone, so that the one whose rows don't fit fails alone; and rows of views apart from all jobs."""
        if self._showing:
            await self._show_singly()
        elif len(jobs) == 1:
            _LOG.error("a step was not recorded: %s", error)
            jobs[0].fail(f"not recorded: {error}")
            return
        for job in jobs:
            await self._batch([job])

    async def _show_singly(self) -> None:
        """A row that no view takes is left out: the event that made it stands. Where no row can be written, that keeps no step from being."""
        self._showing = False
        for call, made_of in list(self._unshown.items()):
            try:
                await self._store.begin({})
                await self._store.write(Rows(views={"calls": {call: call_row(*made_of)}}))
                await self._store.commit()
            except (UnfitRows, LedgerFault) as error:
                _LOG.error("the view of calls doesn't show %s: %s", call, error)
                await self._undo((), (), error)
                if isinstance(error, LedgerFault):
                    return self._show_later(_SHOW_AGAIN_S)
            self._unshown.pop(call)
        return None

    async def find_unshown(self) -> None:
        """What a crash, or a commit that nobody knows the fate of, kept from being shown: the calls of streams with later events."""
        for stream in await self._store.reader.unshown():
            try:
                state = (await self._states.load(stream)).state
                if isinstance(state, Tree):
                    self._unshown |= {call.id: (call, stream, state.call_due_at(call)) for call in state.calls.values()}
            except LedgerFault as fault:
                _LOG.warning("the view of calls may lack some of %s: %s", stream, fault)
        self._show_later()

    async def _undo(self, jobs: Sequence[Job], streams: Collection[str], error: Exception) -> None:
        self._states.forget(streams)
        with suppress(LedgerFault):
            await self._store.rollback()
        for job in jobs:
            job.fail(f"not recorded: {error}")

    async def _recover(self) -> None:
        """Refuse everything until a probe is durable. Closing ends the attempts."""
        while self._fault is not None:
            self._refuse(f"the ledger can't be written: {self._fault}")
            try:
                async with self.lock:
                    await self._store.probe()
                    await self.find_unshown()
            except LedgerFault as fault:
                self._fault = fault
                if self._closing:
                    return
                await self._clock.sleep(_PROBE_MS)
            else:
                self._fault = None
                _LOG.warning("the ledger can be written again")

    async def _save(self, stream: str, head: Head) -> None:
        """Make a checkpoint for the next batch to take along."""
        try:
            text = await asyncio.to_thread(self._fold.checkpoints.dump, head.state)
        except TypeError as error:
            _LOG.error("%s gets no checkpoint: %s", stream, error)
        else:
            self._checkpoints.append(CheckpointRow(stream, head.state.seq, self._fold.version, text))

    async def _save_all(self) -> None:
        """The checkpoints that a quick next start wants, in one last commit."""
        for stream, head in self._states.heads():
            if head.state.seq - head.saved >= _CHECKPOINT_AT_CLOSE and _spares(head.state):
                await self._save(stream, head)
        await asyncio.gather(*self._saving)
        if not self._checkpoints or self._fault is not None:
            return
        async with self.lock:
            try:
                await self._store.begin({})
                await self._store.write(Rows(checkpoints=self._checkpoints))
                await self._store.commit()
            except LedgerFault as fault:
                _LOG.warning("the last checkpoints were not written: %s", fault)
                with suppress(LedgerFault):
                    await self._store.rollback()
