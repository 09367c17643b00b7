"""A gateway without sockets: the real engine, ledger, policies and REST door over tools that are Python functions.

Every answer that a test gets is checked against the OpenAPI document.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import jsonschema

from gateway.core import streams
from gateway.core.model import Principal, Tool
from gateway.doors.auth import Authenticator
from gateway.doors.names import Names
from gateway.doors.rest import RestDoor
from gateway.doors.rest.door import OPERATIONS
from gateway.doors.rest.openapi import document
from gateway.engine import Engine
from gateway.ledger.sqlite import SqliteLedger
from gateway.policy.shapes import compile_shape
from gateway.policy.store import load_policies
from gateway.ports import Answer, Dispatch
from gateway.system import SystemClock, SystemIds

POLICY = """\
version: 1
name: shop
run:
  budgets: {turns: 5, tool_calls: 10, deadline: 10m, tokens: 1000}
tools:
  - tool: crm.get_*
    effect: read_only
  - tool: crm.update_note
    as: note
    effect: idempotent_write
    arguments: {bind: {tenant: principal.claims.tenant}}
  - tool: billing.refund
    effect: non_idempotent
    approval: {when: args.amount > 100, approvers: ["group:finance"], hold_open: 0s, editable: [amount]}
"""
BOT = Principal("agent:bot", claims={"tenant": "acme"}, trust=frozenset({"call_id", "idempotency_key"}))
OTHER = Principal("agent:other", claims={"tenant": "other"})
MIA = Principal("user:mia", groups=frozenset({"finance"}), roles=frozenset({"approver"}), person=True)
OPS = Principal("user:ops", roles=frozenset({"operator"}), person=True)
KEYS = {"bot": BOT, "other": OTHER, "mia": MIA, "ops": OPS}

DOCUMENT = document(OPERATIONS, "0")

Act = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]


def result(**structured: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": "ok"}], "structuredContent": structured, "isError": False}


@dataclass
class Shelf:
    """The port Catalog. `acts`: what each tool does; `sent`: every dispatch."""

    acts: dict[str, Act] = field(default_factory=dict)
    sent: list[Dispatch] = field(default_factory=list)
    tools: Sequence[Tool] = ()

    def add(self, name: str, schema: dict[str, Any], act: Act) -> None:
        upstream, _, local = name.partition(".")
        definition = {"name": local, "description": f"Tool {local}.", "inputSchema": schema}
        self.acts[name] = act
        self.tools = (*self.tools, Tool(name, upstream, local, definition, f"digest of {name}", compile_shape(schema)))

    def tool(self, name: str) -> Tool | None:
        return next((tool for tool in self.tools if tool.name == name), None)

    def away(self, name: str) -> str | None:
        return None

    def pins(self) -> dict[str, Any]:
        return {}

    def all(self) -> Sequence[Tool]:
        return self.tools

    async def send(self, dispatch: Dispatch) -> Answer:
        self.sent.append(dispatch)
        return Answer(await self.acts[dispatch.tool.name](dispatch.arguments))


async def _echo(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return result(**arguments)


def shop() -> Shelf:
    """Tools that echo their arguments."""
    shelf = Shelf()
    text, number = {"type": "string"}, {"type": "number"}
    shelf.add("crm.get_order", {"type": "object", "properties": {"id": text}, "required": ["id"], "additionalProperties": False}, _echo)
    shelf.add("crm.update_note", {"type": "object", "properties": {"id": text, "note": text, "tenant": text}}, _echo)
    shelf.add("billing.refund", {"type": "object", "properties": {"amount": number}, "required": ["amount"]}, _echo)
    shelf.add("crm.drop_all", {"type": "object"}, _echo)
    return shelf


@dataclass
class Stage:
    """`client(key)` is an HTTP client with that key; `shelf` are the tools."""

    door: RestDoor
    engine: Engine
    shelf: Shelf

    def client(self, key: str | None) -> httpx.AsyncClient:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        hooks = {"response": [conforms]}
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.door), base_url="http://localhost", headers=headers, event_hooks=hooks)


async def conforms(response: httpx.Response) -> None:
    """The answer is one that the document promises for this path, method and status."""
    await response.aread()
    kind = response.headers["content-type"]
    if response.request.method == "HEAD":
        return
    path = response.request.url.path
    shown = [item for pattern, item in DOCUMENT["paths"].items() if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", pattern), path)]
    operation = shown[0].get(response.request.method.lower()) if shown else None
    if operation is None or response.status_code >= 400:
        assert kind == "application/problem+json"
        schema = {"$ref": "#/components/schemas/Problem"}
    else:
        assert kind == "application/json"
        schema = operation["responses"][str(response.status_code)]["content"][kind]["schema"]
    jsonschema.Draft202012Validator({**schema, "components": DOCUMENT["components"]}).validate(response.json())


async def _ready() -> None:
    return None


async def opened(client: httpx.AsyncClient, **asked: Any) -> str:
    """A new run's id."""
    response = await client.post("/v1/runs", json=asked)
    assert response.status_code == 201, response.text
    return response.json()["run"]  # type: ignore[no-any-return]


def door(engine: Engine) -> RestDoor:
    """The door of an engine, for the principals of KEYS."""
    keys = [(hashlib.sha256(key.encode()).hexdigest(), principal) for key, principal in KEYS.items()]
    return RestDoor(engine, Authenticator(keys, [b"s" * 32], SystemClock()), Names(engine.catalog), _ready, "0")


@asynccontextmanager
async def stage(folder: Path, policy: str = POLICY, shelf: Shelf | None = None) -> AsyncIterator[Stage]:
    (folder / "policies").mkdir()
    (folder / "policies" / "shop.yaml").write_text(policy)
    clock = SystemClock()
    ledger = SqliteLedger(folder / "gateway.db", empty=streams.empty, evolve=streams.evolve, clock=clock)
    shelf = shelf or shop()
    engine = Engine(ledger, shelf, load_policies(folder / "policies"), clock, SystemIds(clock, b"s" * 32))
    await ledger.open()
    await engine.start()
    try:
        yield Stage(door(engine), engine, shelf)
    finally:
        await engine.stop(1000)
        await ledger.close()
