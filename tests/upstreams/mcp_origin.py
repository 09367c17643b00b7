"""A real MCP server over HTTP, of either era, whose answers to calls and streams are scripted byte for byte by each test."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from gateway.upstreams.mcp_http import McpHttp
from tests.upstreams.origin import Connection, Origin, Seen, origin

ERAS = ["modern", "legacy"]
SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
TOOLS = [{"name": "pay", "inputSchema": {"type": "object", "properties": {"to": {"type": "string", "x-mcp-header": "To"}}}}]
EVERYTHING = {"tools": {"listChanged": True}, "resources": {"listChanged": True, "subscribe": True}, "logging": {}}

Call = Callable[[Connection, dict[str, Any]], Awaitable[None]]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(message: dict[str, Any] | None, id: str | None = None, retry: int | None = None) -> bytes:
    """One event in a chunk of its own; None: one without data, which only says where the stream is."""
    lines = [f"id: {id}"] if id is not None else []
    lines += [f"retry: {retry}"] if retry is not None else []
    lines += ["data: " + ("" if message is None else json.dumps({"jsonrpc": "2.0", **message}))]
    return chunk(("\n".join(lines) + "\n\n").encode())


def done(message: dict[str, Any], text: str = "done") -> dict[str, Any]:
    """The answer to a call."""
    return {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": text}]}}


async def answers(connection: Connection, message: dict[str, Any]) -> None:
    await connection.answer(json.dumps(done(message)).encode())


async def none(connection: Connection, seen: Seen) -> None:
    await connection.answer(b"", "405 Method Not Allowed")


@dataclass
class Server:
    """`call` answers `tools/call`; `get` the GET streams; `other` all other requests, `note` is run before a
    notification is accepted. `sessions`: how many were opened."""

    era: str
    call: Call = answers
    get: Callable[[Connection, Seen], Awaitable[None]] = none
    other: Call | None = None
    note: Call | None = None
    tools: list[dict[str, Any]] = field(default_factory=lambda: TOOLS)
    offers: dict[str, Any] = field(default_factory=dict)
    sessions: int = 0
    heard: list[dict[str, Any]] = field(default_factory=list)
    origin: Origin = field(default_factory=Origin)

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [message for message in self.heard if message.get("method") == "tools/call"]

    @property
    def posts(self) -> list[tuple[str | None, Seen]]:
        """Each message that came in by its method, with the request that it came in."""
        posts = [seen for seen in self.origin.seen if seen.method == "POST"]
        return [(message.get("method"), seen) for message, seen in zip(self.heard, posts, strict=True)]

    async def script(self, connection: Connection) -> None:
        while True:
            seen = await connection.request()
            if seen.method == "POST":
                message = json.loads(seen.body)
                self.heard.append(message)
                await self._post(connection, message)
            elif seen.method == "GET":
                await self.get(connection, seen)
            else:
                await connection.answer(b"")

    async def _post(self, connection: Connection, message: dict[str, Any]) -> None:
        method = message.get("method")
        if method == "tools/call":
            await self.call(connection, message)
        elif "id" not in message or method is None:
            if self.note is not None:
                await self.note(connection, message)
            await connection.answer(b"", "202 Accepted")
        elif method == "tools/list":
            await self._result(connection, message, {"tools": self.tools})
        elif method == "server/discover" and self.era == "modern":
            await self._result(connection, message, {"supportedVersions": ["2026-07-28"], "capabilities": self.offers})
        elif method == "initialize" and self.era == "legacy":
            self.sessions += 1
            result = {"protocolVersion": "2025-11-25", "capabilities": self.offers, "serverInfo": {"name": "t", "version": "1"}}
            await self._result(connection, message, result, mcp_session_id=f"session-{self.sessions}")
        elif self.other is not None:
            await self.other(connection, message)
        else:
            error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no"}}
            await connection.answer(json.dumps(error).encode(), "400 Bad Request")

    async def _result(self, connection: Connection, message: dict[str, Any], result: dict[str, Any], **headers: str) -> None:
        await connection.answer(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode(), **headers)


@asynccontextmanager
async def serving(server: Server, **more: Any) -> AsyncIterator[McpHttp]:
    """The upstream, greeted and with its tools read."""
    async with origin(server.script) as server.origin:
        upstream = McpHttp("shop", server.origin.url + "/mcp", **({"discover_s": 0.3} | more))
        try:
            await upstream.open()
            await upstream.tools()
            yield upstream
        finally:
            await upstream.close()

