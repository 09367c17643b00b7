"""What the MCP door costs beside the engine and the server: parse, ladder, render of one small call, by a scripted ASGI loop.

python -m tests.bench.mcp_door_micro [calls]
"""

from __future__ import annotations

import asyncio
import cProfile
import sys
import time
from typing import Any

from gateway.core.model import BudgetLeft, Completed, Principal, Tool
from gateway.doors.mcp import McpDoor
from gateway.doors.names import Names
from gateway.engine import Caller

ROUNDS = 7
BODY = (
    b'{"method":"tools/call","params":{"name":"crm__echo","arguments":{"text":"hello, thirty-two bytes of text!"},"_meta":{'
    b'"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"agent","version":"1.0"},'
    b'"io.modelcontextprotocol/clientCapabilities":{},"claudecode/toolUseId":"toolu_01FAKE0000000000000000001","progressToken":1}},'
    b'"jsonrpc":"2.0","id":1}'
)
HEADERS = [
    (b"host", b"127.0.0.1:8700"), (b"accept", b"application/json, text/event-stream"), (b"content-type", b"application/json"),
    (b"user-agent", b"bench"), (b"authorization", b"Bearer gw_key"), (b"gateway-run", b"ticket-881"), (b"mcp-protocol-version", b"2026-07-28"),
    (b"mcp-method", b"tools/call"), (b"mcp-name", b"crm__echo"), (b"content-length", str(len(BODY)).encode()),
]  # fmt: skip
SCOPE = {"type": "http", "method": "POST", "path": "/mcp", "headers": HEADERS}
LEFT = BudgetLeft(11, False, 39, 190_000, 1.95, 1_795_960_800_000, 89.5, None)
RESULT = {"content": [{"type": "text", "text": "hello, thirty-two bytes of text!"}], "structuredContent": {"text": "hello"}, "isError": False}
REPLY = Completed("call_01J0000000000000000000000_1", "succeeded", RESULT, LEFT)
CALLER = Caller(Principal("agent:bench"))


class FixedCatalog:
    def __init__(self) -> None:
        self._tool = Tool("crm.echo", "crm", "echo", {"name": "echo", "inputSchema": {"type": "object"}}, "d" * 64)

        self._all = (self._tool,)

    def all(self) -> tuple[Tool, ...]:
        return self._all

    def tool(self, name: str) -> Tool | None:
        return self._tool if name == "crm.echo" else None


class FixedEngine:
    catalog = FixedCatalog()

    async def run_by_key(self, who: Caller, run_key: str, door: str) -> str:
        return "run_1"

    async def call(self, who: Caller, run: str, request: Any, **how: Any) -> Completed:
        return REPLY


async def request() -> dict[str, Any]:
    return {"type": "http.request", "body": BODY, "more_body": False}


async def send(message: dict[str, Any]) -> None:
    if message["type"] == "http.response.start":
        assert message["status"] == 200


async def measure(count: int) -> float:
    """CPU microseconds a call."""
    door = McpDoor(FixedEngine(), lambda headers: CALLER, Names(FixedEngine.catalog), server_info={"name": "gateway", "version": "0"})  # type: ignore[arg-type]
    start = time.process_time()
    for _ in range(count):
        await door(SCOPE, request, send)
    return (time.process_time() - start) / count * 1e6


def main(count: int) -> None:
    figures = sorted(asyncio.run(measure(count)) for _ in range(ROUNDS))
    print(f"{figures[ROUNDS // 2]:.1f} µs a call (median of {ROUNDS}; best {figures[0]:.1f})")
    with cProfile.Profile() as profile:
        asyncio.run(measure(count))
    profile.print_stats("tottime")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
