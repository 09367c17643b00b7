"""Every scenario once more, with a balancer that sends each request to the other of two replicas: as through one gateway with its file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import cycle

import httpx
import pytest

from gateway.ledger.verify import verify
from tests.e2e.agents import RestAgent
from tests.e2e.serving import Stage, running
from tests.e2e.test_scenarios import played
from tests.e2e.web_upstream import web_upstream
from tests.scenarios import SCENARIOS, Scenario

pytestmark = pytest.mark.anyio
APART = {
    "a_repeat_joins_the_running_dispatch_or_is_told_that_it_runs": "looks into the process for who waits",
    "cancelling_a_run_reaches_its_calls_in_flight": "compares which of two calls was ended first",
    "a_process_that_dies_leaves_a_write_in_doubt_and_comes_back": "each replica has a stdio server of its own",
}
"""Why not; what they show is shown for replicas in test_replicas."""
CASES = [pytest.param(one, id=name) for name, one in SCENARIOS.items() if name not in APART]


class Balancer(httpx.AsyncHTTPTransport):
    """Sends each request to the next of several addresses."""

    def __init__(self, urls: list[str]) -> None:
        super().__init__()
        self._next = cycle(map(httpx.URL, urls))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        at = next(self._next)
        request.url = request.url.copy_with(host=at.host, port=at.port)
        return await super().handle_async_request(request)


@dataclass
class Balanced(Stage):
    """As a stage, with a second one behind the same address."""

    other: Stage | None = None

    def holder(self, bearer: str | None, **headers: str) -> httpx.AsyncClient:
        assert self.other is not None
        client = super().holder(bearer, **headers)
        client._transport = Balancer([self.url, self.other.url])
        return client


@pytest.fixture(scope="module")
async def balanced(tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[], str], anyio_backend: str) -> AsyncIterator[Balanced]:
    folder, ledger = tmp_path_factory.mktemp("replicas"), new_database()
    async with web_upstream() as web, AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(running(folder, web, ledger=ledger)) for _ in range(2)]
        balanced = Balanced(one.url, one.app, web, one.desk, other=two)
        yield balanced
        for client in balanced.clients:
            await client.aclose()


@pytest.mark.parametrize("one", CASES)
async def test_a_scenario_goes_the_same_way_through_replicas(stage: Stage, balanced: Balanced, one: Scenario) -> None:
    alone, together = [await played(on, RestAgent, one, one.on[0]) for on in (stage, balanced)]
    for what in ("told", "sent", "recorded", "left"):
        assert alone[what] == together[what], what


async def test_the_ledger_of_all_that_was_played_is_sound(balanced: Balanced) -> None:
    report = await verify(balanced.app.engine.ledger)  # type: ignore[arg-type]
    assert (report.problems, report.events > len(SCENARIOS)) == ([], True)
