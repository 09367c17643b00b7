"""A bridge from a client in memory to an origin on a real socket that answers as each test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from gateway.stdio.bridge import Bridge, Gateway
from gateway.upstreams.lines import Overlong
from tests.upstreams.origin import Connection, Origin, Seen, origin
from tests.waiting import until

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
SESSION = {"mcp_session_id": "s1"}
Answer = Callable[[Connection, Any], Awaitable[None]]


def modern(id: Any, method: str = "tools/call", **params: Any) -> dict[str, Any]:
    given = {"name": "read", "arguments": {}} if method == "tools/call" else {}
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {**given, **params, "_meta": META}}


def asked(id: Any, method: str = "ping", **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def told(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def result(id: Any, **result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode()


def error(id: Any, code: int) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}}).encode()


INITIALIZE = asked(0, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "c", "version": "1"})


@dataclass
class Way:
    """The port Link, to one endpoint after the other."""

    endpoints: list[str]
    client: httpx.AsyncClient
    renewed: int = 0

    def __post_init__(self) -> None:
        self.found = Gateway(self.client, self.endpoints.pop(0))

    async def renew(self, lost: Gateway) -> None:
        if self.found is lost:
            self.renewed += 1
            if not self.endpoints:
                raise ConnectionError("nobody there")
            self.found = Gateway(self.client, self.endpoints.pop(0))


@dataclass
class It:
    """`said`: what the client got, oldest first."""

    bridge: Bridge
    way: Way
    origin: Origin
    said: list[Any] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def hear(self, message: Any) -> None:
        await self.bridge.hear(message if isinstance(message, bytes | Overlong) else json.dumps(message).encode())

    async def answers(self, count: int) -> list[Any]:
        async with asyncio.timeout(5):
            while len(self.said) < count:
                self.news.clear()
                await self.news.wait()
        return self.said

    async def requests(self, count: int) -> list[Seen]:
        await until(lambda: len(self.origin.seen) >= count, f"{count} requests", 5)
        return self.origin.seen


@asynccontextmanager
async def bridged(answer: Answer, *more: str) -> AsyncIterator[It]:
    """`answer(connection, message)` answers each POST."""

    async def script(connection: Connection) -> None:
        while True:
            seen = await connection.request()
            if seen.method == "DELETE":
                await connection.answer(b"", "202 Accepted")
            else:
                await answer(connection, json.loads(seen.body))

    async with origin(script) as there, httpx.AsyncClient(trust_env=False, timeout=None) as client:
        way = Way([f"{there.url}/mcp", *(one or f"{there.url}/mcp" for one in more)], client)

        async def say(data: bytes) -> None:
            it.said.append(json.loads(data))
            it.news.set()

        it = It(Bridge(way, say), way, there)
        yield it
        await it.bridge.close()


async def echo(connection: Connection, message: Any) -> None:
    if "id" not in message or "method" not in message:
        await connection.answer(b"", "202 Accepted")
    elif message["method"] == "initialize":
        await connection.answer(result(message["id"]), **SESSION)
    else:
        await connection.answer(result(message["id"], method=message["method"]))


async def begin(connection: Connection) -> None:
    await connection.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")


async def event(connection: Connection, data: bytes) -> None:
    text = b"event: message\ndata: " + data + b"\n\n"
    await connection.write(b"%x\r\n" % len(text) + text + b"\r\n")
