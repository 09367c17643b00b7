"""Each way to end something × each state that a call can be in: what becomes of the call, and what its upstream gets to see.

`STATES` bring a call somewhere, `CAUSES` happen to it then. The table says the call's state after it, and how often it was dispatched in all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gateway.core.model import Reply
from gateway.ports import Answer, Dispatch, UpstreamFault
from tests.engine.stage import ACT, ASKED, BOT, MIA, READ, WRITE, Stage, ok, soon, stage

pytestmark = pytest.mark.anyio

DEADLINE_MS = 600_000


@dataclass
class Case:
    """A call on its way. `gone`: its caller has closed the stream (or sent `notifications/cancelled`, where the era has it)."""

    desk: Stage
    run: str
    tool: str
    gone: asyncio.Future[None]
    caller: asyncio.Task[Reply] | None = None
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    let: asyncio.Event = field(default_factory=asyncio.Event)
    late: asyncio.Event = field(default_factory=asyncio.Event)

    async def on_the_wire(self, dispatch: Dispatch) -> Answer:
        """A tool that answers when it is let, and keeps its deadline as an upstream's client does."""
        self.reached.set()
        waits = [asyncio.ensure_future(event.wait()) for event in (self.let, self.late)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self.late.is_set():
            raise UpstreamFault("timeout", "no time is left")
        return ok(done=True)

    def call(self, **options: Any) -> asyncio.Task[Reply]:
        self.caller = self.desk.calling(self.run, self.tool, {"id": "1"}, turn=1, gone=self.gone, **options)
        return self.caller

    @property
    async def id(self) -> str:
        [call] = (await self.desk.tree(self.run)).calls
        return call


# ---- states -------------------------------------------------------------------------------------------------------------


async def held(case: Case) -> None:
    """Its caller is patient."""
    case.call(wait_ms=60_000)
    await soon(case.desk.ledger.watches.get())


async def ready(case: Case) -> None:
    await soon(case.call())
    hold = await case.desk.engine.hold(MIA, "hold" + (await case.id).removeprefix("call"))
    await case.desk.engine.vote(MIA, hold.hold.id, "approve", hold.hold.digest, "")


async def flying(case: Case) -> None:
    case.desk.tools.plan(case.tool, case.on_the_wire)
    case.call()
    await soon(case.reached.wait())


async def between_tries(case: Case) -> None:
    case.desk.tools.plan(case.tool, UpstreamFault("timeout", "late"), case.on_the_wire)
    case.call()
    await case.desk.clock.asleep(200)


async def in_doubt(case: Case) -> None:
    case.desk.tools.plan(case.tool, UpstreamFault("reset", "gone"))
    await soon(case.call())


async def done(case: Case) -> None:
    await soon(case.call())


Bring = Callable[[Case], Awaitable[None]]
STATES: dict[str, tuple[str, Bring | None]] = {
    "held": (ASKED, held), "ready": (ASKED, ready),
    "read, not sent yet": (READ, None), "put, not sent yet": (WRITE, None), "payment, not sent yet": (ACT, None),
    "read, on the wire": (READ, flying), "put, on the wire": (WRITE, flying), "payment, on the wire": (ACT, flying),
    "read, between tries": (READ, between_tries), "put, between tries": (WRITE, between_tries),
    "in doubt": (ACT, in_doubt), "done": (ACT, done),
}  # fmt: skip
"""What is not sent yet is met when its intent is durable, and its caller doesn't know it."""

# ---- causes -------------------------------------------------------------------------------------------------------------


async def run_cancel(case: Case) -> None:
    await case.desk.engine.cancel_run(BOT, case.run)


async def turn_cancel(case: Case) -> None:
    await case.desk.engine.cancel_turn(BOT, case.run, 1)


async def closed_stream(case: Case) -> None:
    case.gone.set_result(None)


async def deadline(case: Case) -> None:
    case.desk.clock.move(DEADLINE_MS)
    case.late.set()
    await case.desk.engine.sweep()


async def freeze(case: Case) -> None:
    await case.desk.engine.freeze_run(BOT, case.run, "look")


async def stop(case: Case) -> None:
    await soon(case.desk.engine.stop(0))


CAUSES = (run_cancel, turn_cancel, closed_stream, deadline, freeze, stop)
"""A closed stream is also what `notifications/cancelled` is to the engine."""

# ---- the table ----------------------------------------------------------------------------------------------------------

ENDED, DOUBT, RUNS = ("cancelled", 1), ("in_doubt", 1), ("succeeded", 1)
UNSENT, FAULT = ("cancelled", 0), ("failed", 1)
"""A read is ended, a write in doubt, a call goes on; or it is never sent, or what it came to last stands."""

# fmt: off
TABLE: dict[str, tuple[tuple[str, int], ...]] = {
    # state                    run_cancel        turn_cancel       closed_stream     deadline          freeze            stop
    "held":                   (UNSENT,           UNSENT,           ("held", 0),      UNSENT,           ("held", 0),      ("held", 0)),
    "ready":                  (UNSENT,           UNSENT,           ("ready", 0),     ("denied", 0),    ("ready", 0),     ("ready", 0)),
    "read, not sent yet":     (UNSENT,           UNSENT,           ENDED,            UNSENT,           UNSENT,           UNSENT),
    "put, not sent yet":      (UNSENT,           UNSENT,           RUNS,             UNSENT,           UNSENT,           UNSENT),
    "payment, not sent yet":  (UNSENT,           UNSENT,           RUNS,             UNSENT,           UNSENT,           UNSENT),
    "read, on the wire":      (ENDED,            ENDED,            ENDED,            FAULT,            RUNS,             ENDED),
    "put, on the wire":       (DOUBT,            DOUBT,            RUNS,             DOUBT,            RUNS,             DOUBT),
    "payment, on the wire":   (DOUBT,            DOUBT,            RUNS,             DOUBT,            RUNS,             DOUBT),
    "read, between tries":    (FAULT,            FAULT,            FAULT,            FAULT,            FAULT,            FAULT),
    "put, between tries":     (DOUBT,            DOUBT,            ("succeeded", 2), DOUBT,            DOUBT,            DOUBT),
    "in doubt":               (DOUBT,            DOUBT,            DOUBT,            DOUBT,            DOUBT,            DOUBT),
    "done":                   (RUNS,             RUNS,             RUNS,             RUNS,             RUNS,             RUNS),
}
# fmt: on


async def met(state: str, case: Case, cause: Callable[[Case], Awaitable[None]]) -> None:
    """Let the cause happen to a call in this state."""
    bring = STATES[state][1]
    if bring is not None:
        await bring(case)
        await cause(case)
        return
    happened = asyncio.Event()

    async def between() -> None:
        await cause(case)
        happened.set()

    case.desk.ledger.between = between
    case.desk.tools.plan(case.tool, case.on_the_wire)
    case.call()
    await soon(happened.wait())


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.__name__)
@pytest.mark.parametrize("state", STATES)
async def test_what_ends_a_call_and_what_does_not(tmp_path: Path, state: str, cause: Callable[[Case], Awaitable[None]]) -> None:
    async with stage(tmp_path) as desk:
        run = await desk.open()
        await desk.engine.open_turn(BOT, run)
        case = Case(desk, run, STATES[state][0], asyncio.get_running_loop().create_future())
        await met(state, case, cause)
        case.let.set()
        desk.clock.move(200)
        if case.caller is not None and state != "held":
            await soon(asyncio.wait({case.caller}))
        desk.clock.move(10_000)
        call = await case.id
        if (await desk.record(call)).state == "admitted":
            await desk.settled(call)
        assert ((await desk.record(call)).state, len(desk.tools.sent)) == TABLE[state][CAUSES.index(cause)]
        desk.clock.move(60_000)
        await desk.engine.sweep()
        assert ((await desk.record(call)).state, len(desk.tools.sent)) == TABLE[state][CAUSES.index(cause)], "and so it stays"
        if case.caller is not None:
            await soon(asyncio.wait({case.caller}))
