"""A whole gateway behind real sockets, with a real HTTP upstream behind it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from gateway.app import App, create_app, server
from gateway.settings import Settings, load_settings
from tests.upstreams.origin import Connection, Origin, origin
from tests.waiting import WAIT_S

SECRET = "s" * 40
KEYS = {"agent:bot": "bot-key", "user:mia": "mia-key"}
POLICY = """\
version: 1
name: shop
run:
  budgets: {turns: 5, tool_calls: 10, deadline: 10m, tokens: 1000}
tools:
  - {tool: shop.get_order, effect: read_only}
  - tool: shop.refund
    effect: non_idempotent
    idempotency: {send_as: {header: Idempotency-Key}}
    approval: {when: args.amount > 100, approvers: ["group:finance"], hold_open: 0s}
"""
SETTINGS = """\
listen: 127.0.0.1:0
ledger: sqlite:gateway.db
policies: policies/
secret: ["${{env:GATEWAY_SECRET}}"]
upstreams:
  shop:
    http:
      base_url: "{url}"
      tools:
        - name: get_order
          description: One order.
          method: GET
          path: /orders/{{id}}
          input_schema: {{type: object, properties: {{id: {{type: string}}}}, required: [id], additionalProperties: false}}
        - name: refund
          description: Pay back.
          method: POST
          path: /refunds
          body: arguments
          input_schema: {{type: object, properties: {{amount: {{type: number}}}}, required: [amount]}}
principals:
  keys:
    - {{id: "agent:bot", trust: [call_id, idempotency_key], sha256: "{bot}"}}
    - {{id: "user:mia", person: true, groups: [finance], sha256: "{mia}"}}
roles: {{approver: ["group:finance"], operator: ["group:finance"]}}
limits: {{open_runs: 3}}
"""


def settings_in(folder: Path, url: str = "http://127.0.0.1:9", extra_policy: str = "", extra: str = "") -> Settings:
    """Write a deployment into the folder and read it."""
    (folder / "policies").mkdir(exist_ok=True)
    (folder / "policies" / "shop.yaml").write_text(POLICY + extra_policy)
    hashes = {id.partition(":")[2]: hashlib.sha256(key.encode()).hexdigest() for id, key in KEYS.items()}
    (folder / "gateway.yaml").write_text(SETTINGS.format(url=url, **hashes) + extra)
    return load_settings(folder / "gateway.yaml", {"GATEWAY_SECRET": SECRET})


@dataclass
class Served:
    """A running gateway. `origin.seen` is what its upstream saw."""

    url: str
    app: App
    origin: Origin

    def client(self, id: str | None = "agent:bot", **more: Any) -> httpx.AsyncClient:
        headers = {} if id is None else {"authorization": f"Bearer {KEYS[id]}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=WAIT_S, trust_env=False, **more)


async def echo(connection: Connection) -> None:
    """Answer each request with what it asked for."""
    while True:
        seen = await connection.request()
        await connection.answer(json.dumps({"method": seen.method, "target": seen.target, "body": seen.body.decode()}).encode())


async def started(running: uvicorn.Server, task: asyncio.Task[None]) -> int:
    """The port, once the server listens."""
    while not running.started:
        assert not task.done(), "the gateway did not start"
        await asyncio.sleep(0)  # the server tells nobody; one turn of the loop at a time costs no waiting
    port: int = running.servers[0].sockets[0].getsockname()[1]
    return port


@asynccontextmanager
async def served(folder: Path, script: Any = echo, extra_policy: str = "", extra_settings: str = "") -> AsyncIterator[Served]:
    """Start everything, and stop it again in order."""
    async with origin(script) as it:
        settings = settings_in(folder, it.url, extra_policy, extra_settings)
        app = create_app(settings)
        running = server(app, settings)
        task = asyncio.ensure_future(running.serve())
        port = await asyncio.wait_for(started(running, task), WAIT_S)
        try:
            yield Served(f"http://127.0.0.1:{port}", app, it)
        finally:
            running.should_exit = True
            await asyncio.wait_for(task, WAIT_S)
