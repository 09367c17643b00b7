"""What really happened, as upstreams tell it: a file to which each appends one line of JSON a phase, on disk before it goes on.

Phases: `took` (the request was read whole), `did` (its effect took place), `answered` (the answer's last byte is written). Whoever dies loses
nothing that it noted. Only the standard library: upstreams start fast.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOOK, DID, ANSWERED = "took", "did", "answered"


@dataclass(frozen=True)
class Entry:
    """One phase of one request. `at`: ms since the epoch, by the machine's clock, which gateways on it share. `remaining_ms`: as it was told."""

    phase: str
    tool: str
    key: str | None
    arguments: dict[str, Any]
    at: int
    remaining_ms: int | None = None

    @property
    def id(self) -> str:
        return str(self.arguments.get("id"))


class Journal:
    """Any number of writers and readers, in any processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._read = 0
        self._entries: list[Entry] = []

    def note(self, phase: str, tool: str, key: str | None, arguments: Mapping[str, Any], remaining_ms: int | None = None) -> None:
        line = json.dumps([phase, tool, key, arguments, time.time_ns() // 1_000_000, remaining_ms])
        os.write(self._file, f"{line}\n".encode())  # one write: appends of several processes don't mix
        os.fdatasync(self._file)

    def entries(self) -> list[Entry]:
        """All so far."""
        self._entries += self._new()
        return self._entries

    def _new(self) -> Iterator[Entry]:
        with self.path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if line.endswith(b"\n"):
                    self._read += len(line)
                    yield Entry(*json.loads(line))

    def of(self, phase: str, id: str) -> list[Entry]:
        return [entry for entry in self.entries() if (entry.phase, entry.id) == (phase, id)]

    def close(self) -> None:
        os.close(self._file)
