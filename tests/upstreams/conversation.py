"""Our end of a conversation with an MCP server over lines, and the server's end in the test's hands: what was written to it, what it says."""

from __future__ import annotations

import asyncio
import json
import logging

from gateway.upstreams.lines import Foreign
from gateway.upstreams.mcp_lines import LineTransport
from gateway.upstreams.mcp_peer import Peer
from gateway.wire.jsonrpc import Notification

MODERN = {"supportedVersions": ["2026-07-28"], "capabilities": {"logging": {}}}
LEGACY = {"protocolVersion": "2025-06-18", "capabilities": {"logging": {}}, "serverInfo": {}}


class Conversation:
    """`noticed`: the notifications that belonged to no request."""

    def __init__(self) -> None:
        self.lines = LineTransport(Foreign(logging.getLogger("test.lines"), lambda: 0.0))
        self.lines.write = self._write
        self.noticed: list[Notification] = []
        self.peer = Peer(self.lines, self.noticed.append)
        self.sent: asyncio.Queue[dict] = asyncio.Queue()

    def _write(self, line: bytes) -> None:
        assert line.endswith(b"\n")
        self.sent.put_nowait(json.loads(line))

    async def next(self, method: str | None = None) -> dict:
        """The next message that was written; `method` None: an answer."""
        async with asyncio.timeout(5):
            message = await self.sent.get()
        assert message.get("method") == method, message
        return message

    def says(self, **message) -> None:
        self.lines.hear(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def greeting(self, **options) -> asyncio.Task[None]:
        return asyncio.ensure_future(self.peer.greet(**({"probe": True, "patience_s": 5, "within_s": 5} | options)))

    async def greeted(self, era: str) -> Conversation:
        greet = self.greeting(probe=era == "modern")
        if era == "modern":
            self.says(id=(await self.next("server/discover"))["id"], result=MODERN)
            await greet
        else:
            self.says(id=(await self.next("initialize"))["id"], result=LEGACY)
            await greet
            await self.next("notifications/initialized")
        return self
