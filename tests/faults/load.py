"""Agents that work, and go on working while their gateway is killed: whatever broke off is asked again, and everything told is written down.

All choices come from a seed; what happens between them doesn't, which is the point.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import httpx

from tests.e2e.agents import RestAgent
from tests.faults.evidence import Told
from tests.faults.journal import ANSWERED, TOOK
from tests.faults.running import Gateway
from tests.waiting import until

TOOLS: Mapping[str, int] = {"read": 2, "put": 3, "pay": 5, "again_put": 2, "again_pay": 2, "ask": 2, "soon": 1, "desk.pay": 1, "desk.put": 1}
FAULTS: Mapping[str, int] = {"ok": 8, "slow": 12, "reset": 1, "close": 1, "cut": 1, "500": 1, "422": 1, "reset,ok": 2, "503,slow": 1}
DESK_FAULTS: Mapping[str, int] = {"ok": 4, "error": 1, "die": 1}
FINAL: Mapping[str, str] = {"call.in_doubt": "in_doubt", "call.cancelled": "cancelled"}
"""Refusals that say how the call stands for good."""


@dataclass
class Worker:
    """One agent with one run at a time. `broken`: calls that were never answered, with the run they are for."""

    running: Gateway
    name: str
    random: Random
    up: asyncio.Event
    told: list[Told] = field(default_factory=list)
    broken: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    made: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    runs: int = 0

    def __post_init__(self) -> None:
        self.agent = RestAgent(self.running, "bot")  # type: ignore[arg-type]  # what it needs of a stage

    async def work(self, over: asyncio.Event) -> None:
        """Until it is over."""
        while not over.is_set():
            await self.up.wait()
            try:
                await self._something()
            except httpx.TransportError:
                await asyncio.sleep(0.001)  # the gateway is dead, and who killed it may not have said so yet

    async def finish(self) -> None:
        """Ask again for all that broke off."""
        for run, tool, given in self.broken:
            self.agent.run = run
            await self._told(tool, given)

    async def _something(self) -> None:
        if not self.agent.run or self.random.random() < 0.05:
            await self._next_run()
        tool, given = self._next_call()
        run = self.agent.run
        try:
            await self._told(tool, given)
        except httpx.TransportError:
            self.broken.append((run, tool, given))
            raise

    async def _next_run(self) -> None:
        if self.agent.run:
            await self.agent.http.post(f"/v1/runs/{self.agent.run}/{self.random.choice(('finish', 'cancel'))}", json={})
        self.runs += 1
        self.made.clear()
        answer = await self.agent.http.post("/v1/runs", json={"run_key": f"{self.name}-{self.runs}"})
        assert answer.is_success, answer.text
        self.agent.run = answer.json()["run"]

    def _next_call(self) -> tuple[str, dict[str, Any]]:
        """A new call, or one that was made before in this run."""
        if self.made and self.random.random() < 0.15:
            return self.random.choice(self.made)
        tool = self._of(TOOLS)
        does = self._of(DESK_FAULTS if tool.startswith("desk") else FAULTS)
        self.made.append((tool, {"id": f"{self.name}-{self.runs}-{len(self.made)}", "do": does}))
        return self.made[-1]

    def _of(self, weights: Mapping[str, int]) -> str:
        return self.random.choices(list(weights), list(weights.values()))[0]

    async def _told(self, tool: str, given: dict[str, Any]) -> None:
        says = await self.agent.call(tool, **given)
        self._note(says)
        if says == "held" and self.random.random() < 0.8:
            await self._vote()
            self._note(await self.agent.call(tool, **given))

    async def _vote(self) -> None:
        """A person's say; somebody else may have been quicker, or the hold is over."""
        hold = (await self.agent.mia.get(f"/v1/holds/{self.agent.last.body['hold']['hold']}")).json()
        say = self.random.choice(("approve", "approve", "deny"))
        await self.agent.mia.post(f"/v1/holds/{hold['hold']}/{say}", json={"digest": hold["digest"]})

    def _note(self, says: str) -> None:
        body = self.agent.last.body
        if says.startswith(("done", "replayed")):
            self.told.append(Told(body["call"], body["status"], body["result"]))
        elif body.get("call"):
            self.told.append(Told(body["call"], FINAL.get(self.agent.last.reason or "")))


async def killed_again_and_again(running: Gateway, seed: int, kills: int, workers: int) -> tuple[list[Told], int]:
    """What agents were told over so many lives of their gateway, and after the last; and how many of the kills met an open dispatch."""
    random, up, over = Random(seed), asyncio.Event(), asyncio.Event()
    crew = [Worker(running, f"w{number}", Random(f"{seed}/{number}"), up) for number in range(workers)]
    at_work = [asyncio.ensure_future(worker.work(over)) for worker in crew]
    met = 0
    for _ in range(kills):
        met += await _life(running, random, up)
        await running.kill()
        for task in at_work:
            assert not task.done(), task.exception()
    await running.start()
    over.set()
    up.set()
    await asyncio.gather(*at_work)
    for worker in crew:
        await worker.finish()
    return [told for worker in crew for told in worker.told], met


async def _life(running: Gateway, random: Random, up: asyncio.Event) -> bool:
    """Until the moment of its death: while it starts, soon after something reached the upstream, or any. Is the upstream at work for it then?"""
    how, before = random.random(), len(running.journal.entries())
    await running.start(wait=how > 0.15)
    if how > 0.15:
        up.set()
    if how > 0.5:
        await until(lambda: len(running.journal.entries()) > before, "a request")
    await asyncio.sleep(random.uniform(0.0, 0.03 if how > 0.5 else 0.15))
    up.clear()
    phases = Counter(entry.phase for entry in running.journal.entries()[before:])
    return phases[TOOK] > phases[ANSWERED]
