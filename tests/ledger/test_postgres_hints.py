"""Hints from process to process: told after the commit, gathered, and going on after a lost connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.ledger.postgres_connection import Server
from gateway.ledger.postgres_hints import Hints

pytestmark = pytest.mark.anyio


class Listener(Hints):
    """Keeps what it heard."""

    def __init__(self, dsn: str) -> None:
        super().__init__(Server(dsn))
        self.all: list[str] = []
        self.news = asyncio.Event()
        self.heard = self._keep

    def _keep(self, stream: str) -> None:
        self.all.append(stream)
        self.news.set()

    async def has(self, *streams: str) -> None:
        async with asyncio.timeout(5):
            while not set(streams) <= set(self.all):
                await self.news.wait()
                self.news.clear()


@pytest.fixture
async def both(dsn: str, anyio_backend: str) -> AsyncIterator[tuple[Listener, Listener]]:
    listeners = Listener(dsn), Listener(dsn)
    for each in listeners:
        each.start()
        await asyncio.wait_for(each.listening.wait(), 5)
    yield listeners
    for each in listeners:
        await each.stop()


async def test_others_hear_what_was_told_and_the_teller_does_not(both: tuple[Listener, Listener]) -> None:
    one, two = both
    one.tell(["run_1", "principal:agent:ü"])
    await two.has("run_1", "principal:agent:ü")
    two.tell(["run_2"])
    await one.has("run_2")
    assert one.all == ["run_2"]


async def test_what_comes_close_together_is_told_once(both: tuple[Listener, Listener]) -> None:
    one, two = both
    for _ in range(200):
        one.tell(["run_1"])
    one.tell(["run_2"])
    await two.has("run_2")
    assert two.all.count("run_1") <= 2


async def test_a_name_too_long_to_be_told_keeps_no_other_back(both: tuple[Listener, Listener]) -> None:
    one, two = both
    one.tell(["x" * 9_000, "run_1"])
    await two.has("run_1")
    assert two.all == ["run_1"]


async def test_a_lost_connection_is_made_anew(both: tuple[Listener, Listener], monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = both
    monkeypatch.setattr("gateway.ledger.postgres_hints._AGAIN_S", 0.01)
    connection = await Server(two._server._dsn).connect()
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%LISTEN%' AND pid <> pg_backend_pid()"
    assert len(await connection.fetch(ended)) == 2
    connection.terminate()
    async with asyncio.timeout(5):
        while not two.all:
            one.tell(["run_1"])
            await asyncio.sleep(0.005)


async def test_while_nobody_listens_nothing_is_kept(dsn: str) -> None:
    hints = Hints(Server(dsn))
    hints.tell(["run_1"])
    assert hints._news == set()
    await hints.stop()
