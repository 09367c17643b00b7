"""What the ledger itself costs: two transacts a call (intent, outcome), one event, one payload and the view rows each.

    python -m tests.bench.ledger_micro [callers ...]

Printed per number of callers: transacts a second, CPU a transact, that of the fold and the step (measured apart), and what is left
for the ledger. A caller goes through runs of ten calls, as an agent would.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

from gateway.core.events import CallAdmitted, CallSettled, Event, RunOpened
from gateway.core.model import Payload
from gateway.core.streams import empty, evolve
from gateway.ledger.sqlite import SqliteLedger
from gateway.ledger.verify import verify
from gateway.ports import Decision

CALLS = 10
SALT = bytes(16)
LIMITS = {"turns": 12, "tool_calls": 4000, "deadline_ms": 90_000_000, "close_on": ["turns"]}
ids = count()


class WallClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def boot_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    async def sleep(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)


def opened(run: str) -> Event:
    return RunOpened(run, "agent:bench", "agent:bench", "bench", "d" * 64, LIMITS, "interactive", "rest")


def admitted(run: str, number: int, payload: Payload) -> Event:
    call = f"call_{run[4:]}_{number}"
    return CallAdmitted(
        run, call, 0, f"toolu_{number}", "crm.update_note", "f" * 60 + f"{number:04}", "rest", None, payload.hash, "k" * 60 + f"{number:04}", 0,
        "crm", "idempotent_write", 1, "d" * 64, 1_900_000_000_000, "gateway-1", 1_900_000_000_000,
    )  # fmt: skip


def settled(run: str, number: int, payload: Payload) -> Event:
    return CallSettled(run, f"call_{run[4:]}_{number}", 1, "succeeded", None, payload.hash, True, False, 200)


def sealed(text: str) -> Payload:
    data = text.encode()
    return Payload(sha256(SALT + data).hexdigest(), SALT, data)


def script(run: str) -> list[tuple[Event, tuple[tuple[str, Payload], ...]]]:
    steps: list[tuple[Event, tuple[tuple[str, Payload], ...]]] = [(opened(run), ())]
    for number in range(1, CALLS + 1):
        arguments = sealed(f'{{"order_id":"o-{run}-{number}","note":"called back, will send a new one on Monday"}}')
        result = sealed(f'{{"content":[{{"type":"text","text":"noted {run} {number}"}}],"structuredContent":{{"ok":true}}}}')
        steps.append((admitted(run, number, arguments), ((run, arguments),)))
        steps.append((settled(run, number, result), ((run, result),)))
    return steps


async def caller(ledger: SqliteLedger, stop_at: float, waits: list[float]) -> None:
    while time.perf_counter() < stop_at:
        run = f"run_{next(ids):08}"
        for event, payloads in script(run):
            decision = Decision(((run, event),), None, payloads)
            before = time.perf_counter()
            await ledger.transact((run,), lambda states, now, decision=decision: decision)  # type: ignore[misc]
            waits.append(time.perf_counter() - before)


def apart(rounds: int) -> tuple[float, float]:
    """CPU s a transact of making the bench's own events and payloads, and of folding them."""
    scripts = []
    began = time.process_time()
    for number in range(rounds):
        scripts.append(script(f"run_x{number}"))
    making = time.process_time() - began
    began = time.process_time()
    for steps in scripts:
        state: Any = empty("run_x")
        for seq, (event, _) in enumerate(steps, 1):
            state = evolve(state, seq, 1_800_000_000_000, event)
    return making / rounds / (1 + 2 * CALLS), (time.process_time() - began) / rounds / (1 + 2 * CALLS)


async def measure(callers: int, seconds: float, folder: str) -> None:
    ledger = SqliteLedger(Path(folder) / f"bench{callers}.db", empty=empty, evolve=evolve, clock=WallClock())
    await ledger.open()
    waits: list[float] = []
    await asyncio.gather(*(caller(ledger, time.perf_counter() + 0.3, waits) for _ in range(callers)))
    waits.clear()
    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(caller(ledger, began + seconds, waits) for _ in range(callers)))
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    making, folding = apart(200)
    each = cpu / len(waits)
    waits.sort()
    print(
        f"{callers:4} callers {len(waits) / took:8.0f}/s  CPU {each * 1e6:6.1f} µs (bench {making * 1e6:.1f}, fold {folding * 1e6:.1f}, "
        f"ledger {(each - making - folding) * 1e6:6.1f})  wait p50 {waits[len(waits) // 2] * 1e3:.2f} ms, "
        f"p99 {waits[len(waits) * 99 // 100] * 1e3:.2f} ms, worst {waits[-1] * 1e3:.1f} ms",
        flush=True,
    )
    report = await verify(ledger)
    assert not report.problems, report.problems[:3]
    await ledger.close()


async def main() -> None:
    for callers in [int(each) for each in sys.argv[1:]] or [1, 16, 64]:
        with tempfile.TemporaryDirectory() as folder:
            await measure(callers, 3.0, folder)


if __name__ == "__main__":
    asyncio.run(main())
