"""A gateway of the acceptance tests inside this process: real sockets, real upstreams, and a look at what its upstreams saw."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from gateway.app import App, create_app, server
from tests.e2e import deployment
from tests.e2e.web_upstream import Web, web_upstream
from tests.waiting import START_S, WAIT_S, eventually, until

PROBE = "is it there?"


@dataclass
class Desk:
    """What the stdio server heard, oldest first, from the file that it writes."""

    file: Path
    start: int = 0

    def heard(self, method: str) -> list[dict[str, Any]]:
        """Since the last `start_over`."""
        lines = self.file.read_text().splitlines()[self.start :] if self.file.exists() else []
        messages = [json.loads(line) for line in lines if line.endswith("}")]
        return [message for message in messages if message.get("method") == method]

    def calls(self, id: str | None = None) -> list[dict[str, Any]]:
        """The `tools/call` of a case; of all without one."""
        calls = self.heard("tools/call")
        return [call for call in calls if id is None or call["params"]["arguments"].get("id") == id]

    def sent(self) -> list[Any]:
        """What all calls asked for, with the key that each carried."""
        asked = [call["params"] for call in self.calls() if call["params"]["arguments"].get("id") != PROBE]
        return [[call["name"], call["arguments"], call["_meta"].get("key")] for call in asked]

    async def reached(self, id: str, times: int = 1) -> None:
        await until(lambda: len(self.calls(id)) >= times, f"call {times} of {id!r} at the desk")

    def start_over(self) -> None:
        self.start = len(self.file.read_text().splitlines()) if self.file.exists() else 0


@dataclass
class Stage:
    """A running gateway with its upstreams."""

    url: str
    app: App
    web: Web
    desk: Desk
    clients: list[httpx.AsyncClient] = field(default_factory=list)

    def start_over(self) -> None:
        """Forget what the upstreams saw."""
        self.web.start_over()
        self.desk.start_over()

    def client(self, id: str | None, **headers: str) -> httpx.AsyncClient:
        """Whoever asks, over a connection of its own; closed with the stage."""
        return self.holder(None if id is None else deployment.key_of(id), **headers)

    def holder(self, bearer: str | None, **headers: str) -> httpx.AsyncClient:
        """Whoever holds this key or run token."""
        known = {} if bearer is None else {"authorization": f"Bearer {bearer}"}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        client = httpx.AsyncClient(base_url=self.url, headers=known | headers, timeout=WAIT_S, trust_env=False, verify=False, limits=limits)
        self.clients.append(client)
        return client

    async def desk_is_back(self) -> None:
        """Wait until the stdio server, which died, serves again: ask it, each time in a run apart, for what fails uses a budget up."""
        client = self.client("agent:plain")
        ask = {"tool": "desk.poll", "arguments": {"id": PROBE}}

        async def answers() -> bool:
            run = (await client.post("/v1/runs", json={})).json()["run"]
            answer = await client.post(f"/v1/runs/{run}/calls", json=ask)
            (await client.post(f"/v1/runs/{run}/cancel", json={})).raise_for_status()
            return answer.is_success

        await eventually(answers, "the desk", START_S)

    async def waiting(self, riders: int) -> None:
        """Wait until so many callers in all wait for dispatches."""
        flights = self.app.engine.flights
        await until(lambda: sum(flight.riders for flight in flights.values()) == riders, f"{riders} callers that wait")


@asynccontextmanager
async def running(folder: Path, web: Web, **described: str) -> AsyncIterator[Stage]:
    """Serve the deployment of a folder, and stop in order."""
    heard = folder / "heard"
    settings = deployment.load(deployment.write(folder, web.url, heard, **described))
    app = create_app(settings)
    serving = server(app, settings)
    task = asyncio.ensure_future(serving.serve())
    await until(lambda: serving.started or task.done(), "the gateway", START_S)
    stage = Stage(f"http://127.0.0.1:{_port(serving)}", app, web, Desk(heard))
    try:
        yield stage
    finally:
        for client in stage.clients:
            await client.aclose()
        serving.should_exit = True
        await asyncio.wait_for(task, WAIT_S)


@asynccontextmanager
async def staged(folder: Path) -> AsyncIterator[Stage]:
    """A gateway and its HTTP upstream."""
    async with web_upstream() as web, running(folder, web) as stage:
        yield stage


def _port(serving: uvicorn.Server) -> int:
    return int(serving.servers[0].sockets[0].getsockname()[1])
