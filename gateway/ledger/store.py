"""What the writer and the readers need from a database: the seam where a second store joins.

Every method raises LedgerFault when the database can't do it, with the cause in words. Times are ms, hashes hex.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from gateway.core.run import CallRecord

PAGE: Final = 200
"""Events of a stream that are read and folded at a stretch, before the loop may do something else: ~10 ms."""


class UnfitRows(Exception):
    """The rows are at fault, not the database: a value that no column takes, a place that is taken. `write` raises it, or `commit`."""


class EventRow(NamedTuple):
    """One row of `events`, columns in order."""

    stream: str
    seq: int
    event_id: str
    at: int
    kind: str
    version: int
    body: str
    hash: str


class CheckpointRow(NamedTuple):
    """A state as text, right after the event `seq` of its stream."""

    stream: str
    seq: int
    fold_version: int
    state: str


class PayloadRow(NamedTuple):
    """Bytes beside a stream's events; `hash` = sha256(salt + data)."""

    stream: str
    hash: str
    salt: bytes
    data: bytes


Calls = dict[str, tuple[CallRecord, str, int | None]]


@dataclass(slots=True)
class Rows:
    """All that one commit writes. `views`: name of the view -> id -> row; `policies`: digest -> text. `shows`: with these rows the views
    show every event. `calls`: call -> what its row is made of once it is written (`views.call_row`)."""

    events: list[EventRow] = field(default_factory=list)
    payloads: list[PayloadRow] = field(default_factory=list)
    policies: dict[str, str] = field(default_factory=dict)
    checkpoints: list[CheckpointRow] = field(default_factory=list)
    views: dict[str, dict[str, tuple[Any, ...]]] = field(default_factory=dict)
    calls: Calls = field(default_factory=dict)
    shows: bool = False

    def __bool__(self) -> bool:
        return bool(self.events or self.payloads or self.policies or self.checkpoints or self.views)


class Reader(Protocol):
    """Reads that may take their time; they never delay the writer."""

    async def events(self, stream: str, after: int, limit: int) -> list[EventRow]: ...
    async def checkpoint(self, stream: str) -> CheckpointRow | None: ...
    async def payload(self, stream: str, hash: str) -> bytes | None: ...
    async def payloads(self, stream: str) -> list[PayloadRow]: ...
    async def policy_text(self, digest: str) -> str | None: ...
    async def due(self, now: int, limit: int) -> list[str]: ...
    async def in_flight(self) -> list[str]: ...
    async def due_calls(self, now: int, limit: int) -> list[str]: ...

    async def erasable(self, by: int, after: tuple[int, str], limit: int) -> list[tuple[int, str]]:
        """(closed_at, stream) of trees that have payloads and whose root closed by then, oldest first, after one of these."""

    async def rows(self, view: str, where: Mapping[str, Any], limit: int, before: str | None) -> list[tuple[Any, ...]]:
        """Newest first. `where` names every column of the view; None filters nothing."""

    async def view(self, view: str, stream: str) -> list[tuple[Any, ...]]:
        """All rows that a stream has in a view, in no order."""

    async def streams(self) -> list[str]:
        """Every stream that has an event or a row in a view."""

    async def unshown(self) -> list[str]:
        """Streams with events that the views don't show yet."""

    async def shown(self) -> tuple[int, int]:
        """Up to which of all events the views show everything, and which is the last, both as numbers that grow."""


class Store(Protocol):
    """One database. From `begin` to `clear` all is the writer's alone: one batch at a time, from `begin` to `commit` or `rollback`.

    `alone`: is whoever has it open for writing the only one? Then rows of calls may be written later than their events.
    """

    alone: bool

    @property
    def reader(self) -> Reader: ...

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def begin(self, known: Mapping[str, int | None]) -> Sequence[EventRow]:
        """Start a transaction that nobody else can interleave with on these streams. `known`: stream -> the seq at hand, None without one.

        Gives what other processes appended after the seqs at hand: by stream, in order, at most `PAGE` of each."""

    async def write(self, rows: Rows) -> None: ...

    async def commit(self) -> None:
        """Durable when it returns. A fault leaves open whether it is: `recorded` tells, after `rollback`."""

    async def rollback(self) -> None:
        """End the transaction, if one is open, without a trace."""

    async def erase(self, stream: str, most: int) -> int:
        """Delete up to so many payloads of a stream, inside the transaction, and leave nothing of their bytes; how many."""

    async def clear(self, view: str) -> None:
        """Delete all rows of a view, inside the transaction."""

    async def recorded(self, stream: str, seq: int) -> str | None:
        """The id of the event that stands there durably."""

    async def probe(self) -> None:
        """Write something of the size of a batch durably, and take it away again: may appends be tried?"""

    async def tail(self, stream: str, first: int, limit: int) -> Sequence[EventRow]:
        """Durable events from seq `first` on. Quick: a caller waits for it."""

    async def saved(self, stream: str) -> CheckpointRow | None:
        """The latest checkpoint, quickly."""

    def snapshot(self) -> AbstractAsyncContextManager[Reader]:
        """A reader that sees one moment, however long it takes."""
