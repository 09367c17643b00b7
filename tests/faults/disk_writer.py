"""Appends to a ledger while all that its database does to files is recorded: `python -m tests.faults.disk_writer LEDGER RECORD [PRAGMA…]`."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from pathlib import Path
from random import Random
from typing import Any

from gateway.ledger.sqlite import SqliteLedger
from tests.faults.disk import Recorder
from tests.ledger import tally

STREAMS, ROUNDS = ("run_1", "run_2", "run_3"), 60


async def write(path: Path, recorder: Recorder, pragmas: list[str]) -> None:
    """Steps of one, two or three streams, some beside each other, with small and large payloads; checkpoints in between."""
    random, clock = Random(1), tally.SettableClock()
    ledger = SqliteLedger(path, empty=tally.empty, evolve=tally.evolve, clock=clock, states_of="tests.ledger")
    await ledger.open()
    raw: Any = ledger.store._raw  # type: ignore[attr-defined]
    raw.execute("PRAGMA wal_autocheckpoint = 40")
    for pragma in pragmas:
        raw.execute(f"PRAGMA {pragma}")

    async def append() -> None:
        streams = random.sample(STREAMS, random.randint(1, 3))
        payload = tally.sealed(random.randbytes(random.choice((10, 10, 3_000, 20_000))))
        committed = await ledger.transact(streams, tally.append(*streams, payloads=(payload,)))
        for stream in streams:
            recorder.ack(stream, committed.states[stream].seq)

    for _ in range(ROUNDS):
        await asyncio.gather(*(append() for _ in range(random.randint(1, 4))))


def main() -> None:
    recorder = Recorder()
    asyncio.run(write(Path(sys.argv[1]), recorder, sys.argv[3:]))
    Path(sys.argv[2]).write_bytes(pickle.dumps(recorder.ops))
    os._exit(0)  # nothing is closed in order: the power is about to go


if __name__ == "__main__":
    main()
