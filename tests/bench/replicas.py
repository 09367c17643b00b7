"""Processes on one PostgreSQL: all callers in one run against as many runs as callers.

    python -m tests.bench.replicas [processes] [callers] [seconds]

Each caller admits and settles calls, one after the other: two transacts a call with an event, a payload and rows of the views. Printed: calls a
second each way, their ratio, how often a step ran for an append (1.00: none was ever tried again), what the server rolled back, and waits.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg
import uvloop

from gateway.core.streams import empty, evolve
from gateway.ledger.postgres import PostgresLedger
from gateway.ledger.verify import verify
from gateway.ports import Decision
from tests.bench.ledger_micro import WallClock, admitted, opened, sealed, settled
from tests.postgres_server import database, running

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Counted:
    """What one process did. `steps`: how often the ledger asked for a decision."""

    appends: int = 0
    steps: int = 0
    waits: list[float] = field(default_factory=list)


def ledger_at(dsn: str) -> PostgresLedger:
    return PostgresLedger(dsn, empty=empty, evolve=evolve, clock=WallClock())


async def caller(ledger: PostgresLedger, run: str, numbers: range, stop_at: float, counted: Counted) -> None:
    for number in numbers:
        if time.perf_counter() >= stop_at:
            return
        arguments, result = sealed(f'{{"order_id":"o-{run}-{number}"}}'), sealed(f'{{"content":[],"number":{number}}}')
        for event, payload in ((admitted(run, number, arguments), arguments), (settled(run, number, result), result)):

            def step(states: Mapping[str, Any], now: int, event: Any = event, payload: Any = payload) -> Decision:
                counted.steps += 1
                return Decision(((run, event),), None, ((run, payload),))

            before = time.perf_counter()
            await ledger.transact((run,), step)
            counted.waits.append(time.perf_counter() - before)
            counted.appends += 1


async def process(dsn: str, number: int, callers: int, seconds: float, hot: bool) -> Counted:
    """One replica's part."""
    counted, ledger = Counted(), ledger_at(dsn)
    await ledger.open()
    try:
        runs = ["run_hot" if hot else f"run_{number}x{each}" for each in range(callers)]
        for run in set(runs) - {"run_hot"}:
            await ledger.transact((run,), lambda states, now, run=run: Decision(((run, opened(run)),), None))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        stop_at = time.perf_counter() + seconds
        ranges = (range(first, first + 1_000_000) for first in range(1_000_000 * number * callers + 1, 10**12, 1_000_000))
        await asyncio.gather(*(caller(ledger, run, numbers, stop_at, counted) for run, numbers in zip(runs, ranges, strict=False)))
    finally:
        await ledger.close()
    return counted


async def together(dsn: str, folder: str, processes: int, callers: int, seconds: float, *, hot: bool) -> Counted:
    """All replicas at once, each a process; what they did in sum."""
    if hot:
        ledger = ledger_at(dsn)
        await ledger.open()
        await ledger.transact(("run_hot",), lambda states, now: Decision((("run_hot", opened("run_hot")),), None))
        await ledger.close()
    pipe, paths = asyncio.subprocess.PIPE, [Path(folder, str(number)) for number in range(processes)]
    started = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", __spec__.name, "process", dsn, str(number), str(callers), str(seconds), str(int(hot)), str(path),
            cwd=ROOT, stdin=pipe, stdout=pipe,
        )
        for number, path in enumerate(paths)
    ]  # fmt: skip
    for one in started:
        assert one.stdout is not None
        assert await one.stdout.readline() == b"ready\n"
    await asyncio.gather(*(one.communicate(b"\n") for one in started))
    parts = [Counted(**json.loads(path.read_text())) for path in paths]
    return Counted(sum(one.appends for one in parts), sum(one.steps for one in parts), [wait for one in parts for wait in one.waits])


async def rolled_back(dsn: str) -> int:
    """Transactions that the server undid in this database, deadlocks among them."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("SELECT pg_stat_force_next_flush()")
        found: int = await connection.fetchval("SELECT xact_rollback + deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return found
    finally:
        await connection.close()


async def measured(dsn: str, processes: int, callers: int, seconds: float, *, hot: bool) -> tuple[Counted, int, int]:
    """Counted, what the server rolled back, and what verify found amiss; these calls are made up, so no promise is looked at."""
    with TemporaryDirectory() as folder:
        counted = await together(dsn, folder, processes, callers, seconds, hot=hot)
    ledger = ledger_at(dsn)
    await ledger.open()
    try:
        return counted, await rolled_back(dsn), sum(not problem.what.startswith("P") for problem in (await verify(ledger)).problems)
    finally:
        await ledger.close()


async def main(dsns: tuple[str, str], processes: int, callers: int, seconds: float) -> None:
    rates = []
    for dsn, hot in zip(dsns, (False, True), strict=True):
        counted, undone, problems = await measured(dsn, processes, callers, seconds, hot=hot)
        rates.append(counted.appends / 2 / seconds)
        waits = sorted(counted.waits)
        p50, p99, worst = (waits[min(len(waits) - 1, int(len(waits) * part))] * 1000 for part in (0.5, 0.99, 1))
        print(
            f"{'one run' if hot else f'{processes * callers} runs':>8}: {rates[-1]:8,.0f} calls/s, {counted.steps / counted.appends:.2f} steps an "
            f"append, {undone} rolled back, {problems} problems, waits {p50:.1f}/{p99:.1f}/{worst:.1f} ms (p50/p99/worst)"
        )
    print(f"   ratio: {rates[1] / rates[0]:.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["process"]:
        _, _, address, *figures = sys.argv
        done = uvloop.run(process(address, int(figures[0]), int(figures[1]), float(figures[2]), figures[3] == "1"))
        Path(figures[4]).write_text(json.dumps(vars(done)))  # a pipe's end was lost now and then
    else:
        given = [float(each) for each in sys.argv[1:]] + [4, 4, 5][len(sys.argv) - 1 :]
        with running() as server:
            both = (database(server.dsn("postgres")), database(server.dsn("postgres")))
            asyncio.run(main(both, int(given[0]), int(given[1]), given[2]))
