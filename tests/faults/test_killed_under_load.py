"""Real kill -9, again and again, while agents work: no payment twice, nothing without an intent, nothing lost that was acknowledged."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults import deployment
from tests.faults.evidence import collected, contradictions
from tests.faults.load import killed_again_and_again
from tests.faults.running import Gateway, gateway
from tests.faults.zygote import Zygote
from tests.waiting import START_S, eventually

pytestmark = pytest.mark.anyio
GATEWAYS, KILLS, WORKERS = 2, 75, 6
"""Gateways beside each other, each with its own ledger and upstreams; kills and agents of each."""
TIMEOUT = "2s"
"""Of a tool: where processes share a ledger, what a dead one left is settled when its lease ends, 5 s later."""


async def quiet(running: Gateway) -> bool:
    accounts, _ = await collected(running)
    return all(record.state != "admitted" for record in accounts.records.values())


@pytest.fixture(params=["sqlite", "postgresql"])
def new_ledger(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Makes a ledger's line of gateway.yaml."""
    new: Callable[[], str] = request.getfixturevalue("new_database") if request.param == "postgresql" else lambda: deployment.SQLITE
    return new


async def lives(folder: Path, zygote: Zygote, ledger: str, seed: int) -> Counter[str]:
    """One gateway's lives, and their evidence."""
    async with gateway(folder, zygote, ledger, TIMEOUT) as running:
        told, met = await killed_again_and_again(running, seed, KILLS, WORKERS)
        await eventually(lambda: quiet(running), "the end of all calls", START_S)
        accounts, problems = await collected(running, told)
        assert problems + contradictions(accounts) == []
        doubts = {record.id for record in accounts.records.values() if record.state == "in_doubt"}
        assert await running.listed("in_doubt") == doubts
        await running.stop()
        return Counter(kills=KILLS, met=met, doubts=len(doubts), calls=len(accounts.records), told=len(told))


@pytest.mark.slow
async def test_killed_a_hundred_and_fifty_times_under_load_nothing_happens_twice_and_nothing_is_lost(
    tmp_path: Path, zygote: Zygote, new_ledger: Callable[[], str]
) -> None:
    ledgers = [new_ledger() for _ in range(GATEWAYS)]
    found = await asyncio.gather(*(lives(tmp_path / str(seed), zygote, ledger, seed) for seed, ledger in enumerate(ledgers)))
    counted = sum(found, Counter[str]())
    print(dict(counted))
    assert counted["kills"] >= 150
    assert counted["met"] >= 30
    assert counted["doubts"] >= 20
