"""An agent on stdio: its lines go through the bridge of `gateway stdio` to the scenarios' gateway. The process around it: `test_stdio.py`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from gateway.stdio.bridge import Bridge, Gateway
from tests.e2e.agents import PROTOCOL, VERSION, McpAgent


class StdioAgent(McpAgent):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.found = Gateway(self.session, f"{self.stage.url}/mcp")
        self.bridge = Bridge(self, self._heard)
        self.waiting: dict[int, asyncio.Future[Any]] = {}

    async def __aexit__(self, *exc: object) -> None:
        await self.bridge.close()
        await super().__aexit__(*exc)

    async def renew(self, lost: Gateway) -> None:
        raise ConnectionError("this gateway stays")

    async def result(self, method: str, params: Mapping[str, Any] | None = None, **headers: str) -> dict[str, Any]:
        """There are no headers on stdio: a hurried client shows by its name."""
        id, given = len(self.waiting), params or {}
        envelope = {PROTOCOL + "protocolVersion": VERSION, PROTOCOL + "clientCapabilities": {}}
        envelope |= {PROTOCOL + "clientInfo": {"name": headers["user-agent"], "version": "1"}} if headers else {}
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": {**given, "_meta": {**given.get("_meta", {}), **envelope}}}
        self.waiting[id] = asyncio.get_running_loop().create_future()
        await self.bridge.hear(json.dumps(message).encode())
        return self.bare((await self.waiting[id])["result"])

    async def _heard(self, data: bytes) -> None:
        message = json.loads(data)
        self.waiting[message["id"]].set_result(message)
