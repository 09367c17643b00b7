"""The power goes at any moment: what was acknowledged is there afterwards, and what is there is sound."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gateway.ledger.sqlite import SqliteLedger
from gateway.ledger.verify import verify
from tests.faults import disk
from tests.faults.disk import Op
from tests.ledger import tally
from tests.waiting import START_S

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).resolve().parents[2]
CUTS = 150


def recorded(folder: Path, *pragmas: str) -> list[Op]:
    """Everything that a ledger's database did to its files while it was written, with these settings on top of its own."""
    command = [sys.executable, "-m", "tests.faults.disk_writer", str(folder / "ledger.db"), str(folder / "record"), *pragmas]
    subprocess.run(command, cwd=ROOT, check=True, timeout=START_S)
    ops: Any = pickle.loads((folder / "record").read_bytes())
    return list(ops)


async def lost(ops: list[Op], folder: Path, number: int) -> list[str]:
    """Streams that lack acknowledged appends after a power cut, and whatever else isn't sound."""
    random = Random(number)
    acknowledged = disk.cut(ops, random.randrange(_first_ack(ops), len(ops)), folder, random)
    ledger = SqliteLedger(folder / "ledger.db", empty=tally.empty, evolve=tally.evolve, clock=tally.SettableClock(), states_of="tests.ledger")
    await ledger.open()
    try:
        missing = [stream for stream, seq in acknowledged.items() if (await ledger.state(stream)).seq < seq]
        return missing + [problem.what for problem in (await verify(ledger)).problems]
    finally:
        await ledger.close()


def _first_ack(ops: list[Op]) -> int:
    return next(number for number, op in enumerate(ops) if op[0] == disk.ACK)


async def test_no_acknowledged_append_is_lost_to_a_power_cut(tmp_path: Path) -> None:
    ops = recorded(tmp_path)
    kinds = Counter((what, name) for what, name, _, _ in ops)
    assert kinds[disk.SYNC, "ledger.db-wal"] > 50
    assert kinds[disk.WRITE, "ledger.db"] > 50  # it was checkpointed meanwhile
    for number in range(CUTS):
        assert await lost(ops, tmp_path / str(number), number) == [], number


async def test_without_a_sync_of_each_commit_most_cuts_lose_something(tmp_path: Path) -> None:
    """So that the cuts above are known to cut."""
    ops = recorded(tmp_path, "synchronous = NORMAL")
    losses = [await lost(ops, tmp_path / str(number), number) for number in range(30)]
    assert sum(map(bool, losses)) > 15
