"""Reads from PostgreSQL, over whatever fetches: a pool of connections for reading, or one that sees one moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from gateway.core.run import stream_of
from gateway.ledger.postgres_connection import SQL
from gateway.ledger.store import CheckpointRow, EventRow, PayloadRow

Fetch = Callable[..., Awaitable[list[Any]]]


class PostgresReader:
    """See `store.Reader`."""

    def __init__(self, fetch: Fetch, faults: Callable[[], AbstractContextManager[None]]) -> None:
        self._run = fetch
        self._faults = faults

    async def events(self, stream: str, after: int, limit: int) -> list[EventRow]:
        return [EventRow(*row) for row in await self._fetch("events_from", stream, after + 1, limit)]

    async def checkpoint(self, stream: str) -> CheckpointRow | None:
        rows = await self._fetch("checkpoint", stream)
        return CheckpointRow(*rows[0]) if rows else None

    async def payload(self, stream: str, hash: str) -> bytes | None:
        rows = await self._fetch("payload", stream, hash)
        return rows[0][0] if rows else None

    async def payloads(self, stream: str) -> list[PayloadRow]:
        return [PayloadRow(*row) for row in await self._fetch("payloads", stream)]

    async def policy_text(self, digest: str) -> str | None:
        rows = await self._fetch("policy_text", digest)
        return rows[0][0] if rows else None

    async def due(self, now: int, limit: int) -> list[str]:
        return [row[0] for row in await self._fetch("due", now, limit)]

    async def in_flight(self) -> list[str]:
        return [row[0] for row in await self._fetch("in_flight")]

    async def due_calls(self, now: int, limit: int) -> list[str]:
        return [row[0] for row in await self._fetch("due_calls", now, limit)]

    async def erasable(self, by: int, after: tuple[int, str], limit: int) -> list[tuple[int, str]]:
        return [(row[0], row[1]) for row in await self._fetch("erasable", by, *after, limit)]

    async def streams(self) -> list[str]:
        return [row[0] for row in await self._fetch("streams")]

    async def unshown(self) -> list[str]:
        return []  # each commit writes its views' rows

    async def shown(self) -> tuple[int, int]:
        return 0, 0

    async def view(self, view: str, stream: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self._fetch(f"view_{view}", stream)]

    async def rows(self, view: str, where: Mapping[str, Any], limit: int, before: str | None) -> list[tuple[Any, ...]]:
        narrow = view == "calls" and where["stream"] is not None
        name = "newest_calls_of_stream" if narrow else f"newest_{view}"
        values = {**where, "limit": limit, "before": before, "before_stream": before and stream_of(before)}
        return [tuple(row) for row in await self._fetch(name, *(values[each] for each in SQL[name].names))]

    async def _fetch(self, name: str, *values: Any) -> list[Any]:
        with self._faults():
            return await self._run(SQL[name].text, *values)
