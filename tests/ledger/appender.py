"""A process that appends as fast as it can from eight callers and says each append that was acknowledged: `stream seq` a line.

    python -m tests.ledger.appender DATABASE
"""

from __future__ import annotations

import asyncio
import os
import sys
from itertools import count

from gateway.ledger.sqlite import SqliteLedger
from tests.ledger.tally import SettableClock, append, empty, evolve, sealed


async def caller(ledger: SqliteLedger, stream: str, who: int) -> None:
    for number in count():
        payload = sealed(f"{os.getpid()} {who} {number}".encode())
        done = await ledger.transact((stream,), append(stream, payloads=(payload,)))
        os.write(1, f"{stream} {done.states[stream].seq}\n".encode())


async def main() -> None:
    ledger = SqliteLedger(sys.argv[1], empty=empty, evolve=evolve, clock=SettableClock(), states_of="tests.ledger")
    await ledger.open()
    try:
        await asyncio.gather(*(caller(ledger, f"run_{number % 3}", number) for number in range(8)))
    finally:
        await ledger.close()


if __name__ == "__main__":
    asyncio.run(main())
