"""How long a gateway takes to settle what a dead one left: calls in flight over many runs, each run with a past.

    python -m tests.bench.recovery [runs] [calls in flight a run]

Printed: seconds until the gateway would take calls (`start`), and until nothing is in flight any more, with an upstream that answers at once.
Half of the calls are payments (in doubt at once), the rest reads and idempotent writes (dispatched again).
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from gateway.core import events as e
from gateway.core.canonical import call_key, fingerprint
from gateway.core.model import Limits, Payload, Tool
from gateway.core.policy import PolicySet
from gateway.core.run import principal_stream
from gateway.core.streams import empty, evolve
from gateway.engine import Engine
from gateway.ledger.sqlite import SqliteLedger
from gateway.ports import Answer, Decision, Dispatch
from gateway.system import SystemClock, SystemIds
from tests.core.build import ACT, READ, WRITE, never, policy, rule

RUNS, IN_FLIGHT, SETTLED = 1_000, 10, 6
AGENT = "agent:bench"
TOOLS = ("web.pay", "web.put", "web.pay", "web.read")
EFFECTS = {"web.pay": ACT, "web.put": WRITE, "web.read": READ}
POLICY: PolicySet = policy(*(rule(name, effect, never()) for name, effect in EFFECTS.items()))


@dataclass(frozen=True)
class Measured:
    """`start_s`: until calls can be taken. `quiet_s`: until nothing is in flight. `states`: how many calls ended how."""

    events: int
    start_s: float
    quiet_s: float
    states: Mapping[str, int]


def opened_ledger(path: Path) -> SqliteLedger:
    return SqliteLedger(path, empty=empty, evolve=evolve, clock=SystemClock())


class Adapters:
    """The ports Catalog and Policies: one policy, and tools that answer at once."""

    def tool(self, name: str) -> Tool:
        return Tool(name, "web", name.partition(".")[2], {}, "d")

    def away(self, name: str) -> None:
        return None

    async def send(self, dispatch: Dispatch) -> Answer:
        return Answer({"content": []}, 200)

    def by_digest(self, digest: str) -> PolicySet:
        return POLICY

    def texts(self, digest: str) -> Mapping[str, str]:
        return {}


def life(run: str, in_flight: int, arguments: Payload, now: int) -> list[tuple[str, e.Event]]:
    """A run with some calls that are over, and some that their process left."""
    limits = asdict(Limits(tool_calls=1_000, deadline_ms=3_600_000))
    opened = e.RunOpened(run, AGENT, AGENT, "p", POLICY.digest, limits, "interactive", "rest")
    made: list[tuple[str, e.Event]] = [(run, opened), (principal_stream(AGENT), e.RunRegistered(AGENT, run, None))]
    for number in range(SETTLED + in_flight):
        tool, call = TOOLS[number % len(TOOLS)], f"call_{run[4:]}_{number + 1}"
        what = fingerprint(tool, {"n": number})
        admitted = e.CallAdmitted(
            run, call, 0, None, tool, what, "rest", None, arguments.hash, call_key(run, tool, what, None, 0), 0, "web", EFFECTS[tool].value, 1,
            POLICY.digest, now + 30_000, "proc_dead", now + 35_000,
        )  # fmt: skip
        made.append((run, admitted))
        if number < SETTLED:
            made.append((run, e.CallSettled(run, call, 1, "succeeded", None, None, True, False, 200, 0, "proc_dead")))
    return made


async def left_behind(path: Path, runs: int, in_flight: int) -> int:
    """A ledger as a process leaves it that dies with all these calls on the wire; how many events are in it."""
    ledger, clock = opened_ledger(path), SystemClock()
    ids, count = SystemIds(clock, b"s" * 32), 0
    await ledger.open()
    for _ in range(runs):
        run = ids.new("run")
        arguments = ids.seal(run, {"id": "x"})
        made = life(run, in_flight, arguments, clock.now_ms())
        count += len(made)
        await ledger.transact(
            (run, principal_stream(AGENT)),
            lambda states, now, made=tuple(made), kept=(run, arguments): Decision(made, None, (kept,)),  # type: ignore[misc]
        )
    await ledger.close()
    return count


async def recovered(path: Path, events: int) -> Measured:
    """The next process, from an empty memory."""
    ledger, adapters, clock = opened_ledger(path), Adapters(), SystemClock()
    port: Any = adapters
    engine = Engine(ledger, port, port, clock, SystemIds(clock, b"s" * 32))
    began = time.perf_counter()
    await ledger.open()
    await engine.start()
    start_s = time.perf_counter() - began
    await asyncio.gather(*(flight.task for flight in list(engine.flights.values()) if flight.task is not None))
    quiet_s = time.perf_counter() - began
    states = {state: len(await ledger.rows("calls", {"state": state}, limit=1_000_000)) for state in ("admitted", "in_doubt", "succeeded")}
    await engine.stop(0)
    await ledger.close()
    return Measured(events, start_s, quiet_s, states)


async def measured(folder: Path, runs: int, in_flight: int) -> Measured:
    events = await left_behind(folder / "gateway.db", runs, in_flight)
    return await recovered(folder / "gateway.db", events)


def main() -> None:
    runs, in_flight = (int(word) for word in (sys.argv[1:] + [str(RUNS), str(IN_FLIGHT)][len(sys.argv) - 1 :])[:2])
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measured(Path(folder), runs, in_flight))
    print(f"{runs} runs, {runs * in_flight} calls in flight, {found.events} events")
    print(f"takes calls after {found.start_s:.2f} s, nothing in flight after {found.quiet_s:.2f} s: {dict(found.states)}")


if __name__ == "__main__":
    main()
