"""Clients that others wrote, of both eras, each in an environment of its own, against one gateway: all meet the same things.

A call that is allowed, one that a condition denies, a write that waits for a person, its replay, and a slow read that its user gives up. Their
drivers stand in `clients/`; what the clients were told and what the ledger holds must agree.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e import npm
from tests.e2e.environments import python_with
from tests.e2e.running import AGENT, MIA, gateway
from tests.e2e.web_upstream import Web, web_upstream
from tests.waiting import START_S, WAIT_S, eventually, until

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CALL = "tool-call-gateway/call"
DRIVERS = Path(__file__).parent / "clients"
Events = list[tuple[str, dict[str, Any]]]
INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
REPLY_S = 4 * START_S
"""For the first word of a client: importing one takes 3 s on an idle core, and took over 30 with twenty busy processes beside it."""


@dataclass(frozen=True)
class Kind:
    """`requires`: exact releases, for pip.

    `cancels`: giving a call up reaches the gateway: in 2026-07-28 the stream is closed, before a notification says so. Without it nothing is said.
    `waits`: progress is asked for with each call, so the gateway lets it wait for people.
    `meta`: a result's `_meta` is handed on to the user. `refusal`: and the structured content of a failed call."""

    requires: tuple[str, ...] = ()
    cancels: bool = True
    waits: bool = False
    meta: bool = True
    refusal: bool = True


KINDS: Mapping[str, Kind] = {
    "mcp_2": Kind(("mcp==2.3.0",)),
    "mcp_1": Kind(("mcp==1.30.0",)),
    "fastmcp": Kind(("fastmcp==4.2.3",), waits=True),
    "langchain": Kind(("langchain-mcp-adapters==0.3.2",), cancels=False, meta=False, refusal=False),
    "openai_agents": Kind(("openai-agents==0.24.0",)),
    "pydantic_ai": Kind(("pydantic-ai-slim[mcp]==2.68.0",), waits=True, meta=False),
    "inspector": Kind(cancels=False),
}
"""Driver -> what it needs and does. All are the newest releases of 2026-11-29; of the SDK 1.x, which knows sessions alone, LangChain's adapters need
the same. Four speak 2026-07-28: SDK 2.x, and FastMCP, OpenAI Agents and Pydantic AI, which build on it."""

SCHEMA = "{type: object, properties: {id: {type: string}, do: {type: string}, size: {type: integer}}}"
UPSTREAM = "web: {{http: {{base_url: '{url}', tools: [{tools}]}}}}\n"
TOOL = "{{name: {name}, description: 'Does {name}.', method: POST, path: '/{name}', body: arguments, input_schema: {schema}}}"
POLICY = """\
version: 1
name: clients
match: {task_types: [interactive]}
run:
  budgets: {turns: unlimited, tool_calls: 20, deadline: 10m, tokens: unlimited}
defaults: {timeout: 60s, approvers: ["group:leads"]}
tools:
  - {tool: web.read, effect: read_only, allow_if: args.size <= 5}
  - {tool: web.pay, effect: non_idempotent, approval: {hold_open: 0s}}
"""
MET = [
    *("CallAdmitted", "CallSettled"), "CallDenied", *("CallHeld", "HoldApproved", "CallAdmitted", "CallSettled"), "CallReplayed",
    *("CallAdmitted", "CallSettled"),
]  # fmt: skip
"""The events of each client's run about calls."""


@dataclass(frozen=True)
class Driven:
    """A client that is connected, spoken to by lines; see `clients/conversation.py`."""

    process: asyncio.subprocess.Process

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        self._write({"tool": tool, "arguments": arguments})
        return await self.said()

    def begin(self, tool: str, **arguments: Any) -> None:
        """A call that will be given up: `give_up`, then `said`."""
        self._write({"tool": tool, "arguments": arguments, "gives_up": True})

    def give_up(self) -> None:
        self._write(None)

    async def said(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), REPLY_S)
        assert line, "the client has ended; what it said stands above"
        return dict(json.loads(line))

    async def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert await asyncio.wait_for(self.process.wait(), REPLY_S) == 0

    def _write(self, line: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(line).encode() + b"\n")


@dataclass(frozen=True)
class Place:
    """The gateway and its upstream; `pythons`: driver -> the interpreter that has its client, or why there is none."""

    url: str
    web: Web
    folder: Path
    pythons: Mapping[str, Path | BaseException]

    @asynccontextmanager
    async def driven(self, name: str) -> AsyncIterator[Driven]:
        python = self.pythons[name]
        if isinstance(python, BaseException):
            raise python
        headers = {"Authorization": f"Bearer {AGENT}", "Gateway-Run": name}
        env = {**os.environ, "PATH": npm.PATH, "MCP_URL": f"{self.url}/mcp", "MCP_HEADERS": json.dumps(headers)}
        if name == "inspector":
            env |= {"INSPECTOR": json.dumps([npm.node(), str(inspector())]), "MCP_STORAGE_DIR": str(self.folder)}
        process = await asyncio.create_subprocess_exec(
            str(python), str(DRIVERS / f"with_{name}.py"), env=env, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        try:
            client = Driven(process)
            assert await client.said() == {"ready": True}
            yield client
            await client.close()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    def asking(self, key: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, headers={"authorization": f"Bearer {key}"}, timeout=WAIT_S, trust_env=False)

    async def approve(self, hold: str) -> None:
        async with self.asking(MIA) as mia:
            digest = (await mia.get(f"/v1/holds/{hold}")).raise_for_status().json()["digest"]
            (await mia.post(f"/v1/holds/{hold}/approve", json={"digest": digest})).raise_for_status()

    async def events(self, run_key: str) -> Events:
        """What the ledger holds of a client's run."""
        async with self.asking(AGENT) as agent:
            run = (await agent.post("/v1/runs", json={"run_key": run_key})).raise_for_status().json()["run"]
            page = (await agent.get(f"/v1/runs/{run}/events?limit=500")).raise_for_status().json()["events"]
        return [(one["kind"], one["event"]) for one in page]

    async def held(self, run_key: str) -> str:
        """Wait until a client's call is held; the hold."""

        async def look() -> list[str]:
            return [event["hold"] for kind, event in await self.events(run_key) if kind == "CallHeld"]

        return (await eventually(look, f"a hold of {run_key}"))[0]

    async def settled(self, run_key: str, calls: int) -> Events:
        """Wait until so many calls have their outcome; no other is in flight then."""

        async def look() -> Events:
            events = await self.events(run_key)
            return events if len([1 for kind, _ in events if kind == "CallSettled"]) == calls else []

        return await eventually(look, f"{calls} outcomes of {run_key}")


def inspector() -> Path:
    return npm.installed(INSPECTOR) / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"


def interpreter(name: str) -> Path:
    if name != "inspector":
        return python_with(*KINDS[name].requires)
    inspector()
    return Path(sys.executable)


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """All environments are made at once, before anything starts that they would slow down."""
    made = await asyncio.gather(*(asyncio.to_thread(interpreter, name) for name in KINDS), return_exceptions=True)
    tools = ", ".join(TOOL.format(name=name, schema=SCHEMA) for name in ("read", "pay"))
    folder = tmp_path_factory.mktemp("clients")
    async with web_upstream() as web, gateway(folder / "gateway", UPSTREAM.format(url=web.url, tools=tools), POLICY, {}) as url:
        yield Place(url, web, folder, dict(zip(KINDS, made, strict=True)))


@pytest.mark.parametrize("name", KINDS)
async def test_a_client_meets_a_result_a_denial_a_hold_a_replay_and_the_end_of_a_call_that_it_gave_up(place: Place, name: str) -> None:
    kind = KINDS[name]
    slow = f"{name} slow"
    async with place.driven(name) as client:
        read = await client.call("web__read", id=f"{name} read", size=1)
        assert (read["error"], read["data"]["did"]) == (False, "read")
        denied = await client.call("web__read", id=f"{name} denied", size=6)
        assert denied["error"]
        assert not kind.refusal or denied["data"]["reason"] == "authorization.denied"
        pay = {"id": f"{name} pay", "do": "count"}
        *held, paid = await _approved(place, client, name, pay)
        replayed = await client.call("web__pay", **pay)
        assert [(one["error"], one["data"]["n"]) for one in (paid, replayed)] == [(False, 1)] * 2
        if kind.meta:
            told = [one["meta"][CALL] for one in (read, denied, *held, paid, replayed)]
            assert [one["status"] for one in told] == ["succeeded", "denied", *["held" for _ in held], "succeeded", "succeeded"]
            assert [one["replayed"] for one in told] == [*[False for _ in told[1:]], True]

        client.begin("web__read", id=slow, size=2, do="gate")
        await until(lambda: place.web.of(slow), slow, REPLY_S)
        client.give_up()
        assert (await client.said())["raised"] == "CancelledError"
        if kind.cancels:
            await place.web.left(slow)
    await _ends_as_its_era_says(place, name, slow)


async def _approved(place: Place, client: Driven, name: str, pay: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What is answered to a write that a person approves: while the client waits, or between its being told of the hold and its asking again."""
    if KINDS[name].waits:
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(client.call("web__pay", **pay))
            hold = await place.held(name)
            assert place.web.of(pay["id"]) == []
            await place.approve(hold)
        return [waiting.result()]
    held = await client.call("web__pay", **pay)
    assert (held["error"], held["data"]["status"], place.web.of(pay["id"])) == (False, "held", [])
    await place.approve(held["data"]["hold"]["hold"])
    return [held, await client.call("web__pay", **pay)]


async def _ends_as_its_era_says(place: Place, name: str, slow: str) -> None:
    """A call that was only left, without a word, goes on to its end; either way the ledger knows what became of it."""
    cancels = KINDS[name].cancels
    assert (slow in place.web.hung_up) == cancels
    place.web.open_gate(slow)
    events = await place.settled(name, 3)
    assert [kind for kind, _ in events if kind.startswith(("Call", "HoldA"))] == MET
    assert [event["state"] for kind, event in events if kind == "CallSettled"] == ["succeeded", "succeeded", "cancelled" if cancels else "succeeded"]
    assert next(event["findings"][0]["reason"] for kind, event in events if kind == "CallDenied") == "authorization.denied"
    assert {event["door"] for _, event in events if "door" in event} == {"mcp"}
    assert len(place.web.of(f"{name} pay")) == 1
