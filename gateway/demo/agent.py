"""The demo's two people: an agent that speaks MCP (2026-07-28) and an approver who votes over REST. Plain httpx, nothing of the gateway's."""

from __future__ import annotations

from itertools import count
from typing import Any, Self

import httpx

VERSION = "2026-07-28"
_META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "demo-agent", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class _Caller:
    """Whoever has a key; a context manager that closes its connections."""

    def __init__(self, url: str, key: str):
        self._http = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=30, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()


class Agent(_Caller):
    """A model loop's hands: lists tools and calls them in one run, named by its URL."""

    def __init__(self, url: str, key: str, run_key: str):
        super().__init__(url, key)
        self._path = f"/r/{run_key}/mcp"
        self._ids = count(1)

    def tools(self) -> list[str]:
        listed: list[dict[str, Any]] = self._ask("tools/list", {})["tools"]
        return [tool["name"] for tool in listed]

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The CallToolResult as the model would see it."""
        return self._ask("tools/call", {"name": tool, "arguments": arguments}, {"Mcp-Name": tool})

    def _ask(self, method: str, params: dict[str, Any], headers: dict[str, str] | None = None) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": {**params, "_meta": _META}}
        fixed = {"MCP-Protocol-Version": VERSION, "Mcp-Method": method, "Accept": "application/json, text/event-stream"}
        answer = self._http.post(self._path, json=body, headers={**fixed, **(headers or {})}).json()
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result


class Approver(_Caller):
    """A person with a key: sees what waits, and decides."""

    def hold(self, hold: str) -> dict[str, Any]:
        found: dict[str, Any] = self._http.get(f"/v1/holds/{hold}").raise_for_status().json()
        return found

    def approve(self, hold: dict[str, Any], note: str) -> dict[str, Any]:
        body = {"digest": hold["digest"], "note": note}
        after: dict[str, Any] = self._http.post(f"/v1/holds/{hold['hold']}/approve", json=body).raise_for_status().json()
        return after
