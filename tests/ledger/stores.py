"""An SQLite store whose commits can be held back, or made to fail on either side of the disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gateway.ledger.sqlite import SqliteStore
from gateway.ports import LedgerFault


class FaultyStore(SqliteStore):
    """`gate`: commits wait for it. `fail`: "before" or "after" the commit, each time; `dead`: nothing works at all."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.gate = asyncio.Event()
        self.gate.set()
        self.fail = ""
        self.dead = False
        self.commits = 0

    async def commit(self) -> None:
        self.commits += 1
        await self.gate.wait()
        self._raise("before")
        await super().commit()
        self._raise("after")

    async def recorded(self, stream: str, seq: int) -> str | None:
        self._raise("dead")
        return await super().recorded(stream, seq)

    async def probe(self) -> None:
        self._raise("dead")
        await super().probe()

    def _raise(self, place: str) -> None:
        if self.dead or self.fail == place:
            raise LedgerFault(f"made to fail {place}")
