"""`gateway verify`: recompute the chain, the fold, the checkpoints, the payloads' hashes and the views, and name what doesn't fit; and
hold each event against the promises, as `core.history` can tell them from the record.

It reads one moment through a read-only connection: beside a running gateway as well as after a dead one. An erased payload is listed,
it is no problem. Views aren't looked at where they don't show the latest events yet, as after a crash: the next start makes them whole.
What a chain can't show is a stream whose last events were all cut off; views and checkpoints then disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from gateway.core.events import CallReplayed, Event
from gateway.core.history import Principals, TreeHistory
from gateway.core.run import Tree, principal_stream
from gateway.ledger.codec import Unreadable, decode, genesis, link
from gateway.ledger.ledger import StoreLedger
from gateway.ledger.states import Fold
from gateway.ledger.store import CheckpointRow, EventRow, Reader
from gateway.ledger.views import COLUMNS, everything

_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class Problem:
    """`seq` is None where the problem belongs to no event. `what`: chain, seq, at, event, fold, checkpoint, payload, the view's name, or the
    promise that is broken (P2)."""

    stream: str
    seq: int | None
    what: str
    message: str


@dataclass(frozen=True, slots=True)
class Erased:
    """A payload that an event points to and that is no longer there."""

    stream: str
    seq: int
    hash: str


@dataclass(slots=True)
class Report:
    """What was looked at and what was found."""

    streams: int = 0
    events: int = 0
    payloads: int = 0
    rows: int = 0
    erased: list[Erased] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


async def verify(ledger: StoreLedger, progress: Callable[[str, int], None] | None = None) -> Report:
    """Check everything in an open ledger (also one opened `readonly`). Raises LedgerFault if it can't be read.

    `progress` is told each stream before it is checked, and how many were."""
    report = Report()
    principals = Principals()
    await ledger.show()
    async with ledger.store.snapshot() as reader:
        behind = set(await reader.unshown())
        for name in await reader.streams():
            if progress is not None:
                progress(name, report.streams)
            stream = _Stream(name, reader, ledger.fold, report)
            await stream.check(shown=name not in behind)
            principals.saw(name, stream.state)
    if all(problem.what != "fold" for problem in report.problems):
        report.problems += [Problem(principal_stream(who), None, broken.promise, broken.message) for who, broken in principals.broken()]
    return report


class _Stream:
    """The checks of one stream, as its events go by."""

    def __init__(self, stream: str, reader: Reader, fold: Fold, report: Report) -> None:
        self._stream = stream
        self._reader = reader
        self._fold = fold
        self._report = report
        self._seq = 0
        self._at = 0
        self._hash = genesis(stream)
        self.state: Any = fold.empty(stream)
        self._history = TreeHistory()
        self._folds = True
        self._pointers: dict[str, int] = {}

    async def check(self, *, shown: bool) -> None:
        self._report.streams += 1
        saved = await self._reader.checkpoint(self._stream)
        after = 0
        while rows := await self._reader.events(self._stream, after, _PAGE):
            for row in rows:
                self._event(row)
                if saved is not None and saved.seq == row.seq:
                    self._checkpoint(saved)
            after = rows[-1].seq
        if saved is not None and not 0 < saved.seq <= self._seq:
            self._problem(None, "checkpoint", f"it stands after event {saved.seq}, the stream ends with {self._seq}")
        await self._payloads()
        if self._folds and shown:
            await self._views()

    def _event(self, row: EventRow) -> None:
        self._report.events += 1
        if row.seq != self._seq + 1:
            self._problem(row.seq, "seq", f"{self._seq + 1} was to follow")
        if row.at < self._at:
            self._problem(row.seq, "at", f"{row.at} is before the event before it, {self._at}")
        if row.hash != link(self._hash, *row[:-1]):
            self._problem(row.seq, "chain", "the hash doesn't fit the row and the hash before it")
        self._seq, self._at, self._hash = row.seq, row.at, row.hash
        try:
            event = decode(row.kind, row.version, row.body)
        except Unreadable as error:
            self._folds = False
            self._problem(row.seq, "event", str(error))
            return
        if not isinstance(event, CallReplayed):  # what it points to is its original's
            self._pointers.update((hash, row.seq) for hash in _pointers(event))
        if self._folds:
            self._evolve(row, event)

    def _evolve(self, row: EventRow, event: Event) -> None:
        before = self.state
        try:
            self.state = self._fold.evolve(before, row.seq, row.at, event)
        except Exception as error:  # noqa: BLE001 whatever a fold raises over a recorded event is the finding
            self._folds = False
            self._problem(row.seq, "fold", repr(error))
            return
        if isinstance(before, Tree):
            for promise, message in self._history.saw(before, row.at, event, self.state):
                self._problem(row.seq, promise, message)

    def _checkpoint(self, saved: CheckpointRow) -> None:
        if saved.fold_version == self._fold.version and self._folds and self._fold.restore(saved) != self.state:
            self._problem(saved.seq, "checkpoint", "the fold of the events is another state")

    async def _payloads(self) -> None:
        found = await self._reader.payloads(self._stream)
        self._report.payloads += len(found)
        for row in found:
            if sha256(row.salt + row.data).hexdigest() != row.hash:
                self._problem(self._pointers.get(row.hash), "payload", f"{row.hash} isn't the hash of its salt and bytes")
        there = {row.hash for row in found}
        self._report.erased += [Erased(self._stream, seq, hash) for hash, seq in self._pointers.items() if hash not in there]

    async def _views(self) -> None:
        wanted: dict[str, dict[str, tuple[Any, ...]]] = {view: {} for view in COLUMNS}
        for row in everything(self.state, self._stream):
            wanted[row.view][row.id] = row.values
        for view, rows in wanted.items():
            found = {row[0]: row for row in await self._reader.view(view, self._stream)}
            self._report.rows += len(found)
            for id in sorted(rows.keys() | found.keys()):
                if rows.get(id) != found.get(id):
                    self._problem(None, view, _difference(view, id, rows.get(id), found.get(id)))

    def _problem(self, seq: int | None, what: str, message: str) -> None:
        self._report.problems.append(Problem(self._stream, seq, what, message))


def _difference(view: str, id: str, wanted: tuple[Any, ...] | None, found: tuple[Any, ...] | None) -> str:
    if wanted is None or found is None:
        return f"{id}: {'missing' if found is None else 'no event made it'}"
    columns = zip(COLUMNS[view], wanted, found, strict=True)
    return f"{id}: " + ", ".join(f"{column} is {is_!r}, the events say {says!r}" for column, says, is_ in columns if says != is_)


def _pointers(event: Event) -> Iterator[str]:
    """The payload hashes in an event: its own `arguments` and `result`, and those of the calls it lists."""
    for holder in (event, *getattr(event, "calls", ())):
        for name in ("arguments", "result"):
            hash = holder.get(name) if isinstance(holder, dict) else getattr(holder, name, None)
            if hash is not None:
                yield hash
