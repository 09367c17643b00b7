"""A gateway in front of the server of `everything`, for tests of what MCP has beside plain calls."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.app import create_app, server
from gateway.settings import load_settings
from tests.waiting import START_S, WAIT_S, until

SERVER = Path(__file__).parent / "everything_server.py"
KEY = "key-of-the-suite"
POLICY = """\
version: 1
name: everything
match: {task_types: [interactive]}
run:
  budgets: {turns: unlimited, tool_calls: 500, deadline: 10m, tokens: unlimited}
defaults: {timeout: 5s, approvers: ["group:leads"]}
tools:
  - {tool: "everything.*", effect: read_only, poll: true, as: "*"}
"""


@dataclass
class Before:
    """`url`: of the MCP endpoint."""

    url: str
    app: Any


@asynccontextmanager
async def everything(folder: Path, *options: str) -> AsyncIterator[str]:
    """The server's URL."""
    port = folder / "port"
    port.unlink(missing_ok=True)
    process = await asyncio.create_subprocess_exec(sys.executable, str(SERVER), str(port), *options)
    try:
        await until(lambda: port.exists() or process.returncode is not None, "the server", START_S)
        yield f"http://127.0.0.1:{port.read_text()}/mcp"
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), WAIT_S)


def write(folder: Path, upstream: str) -> Path:
    """The deployment of a gateway in front of it; the path of gateway.yaml."""
    (folder / "policies").mkdir(exist_ok=True)
    (folder / "policies" / "everything.yaml").write_text(POLICY)
    principal = f'{{id: "agent:suite", sha256: "{hashlib.sha256(KEY.encode()).hexdigest()}"}}'
    file = folder / "gateway.yaml"
    file.write_text(
        f"listen: 127.0.0.1:0\nledger: sqlite:gateway.db\npolicies: policies/\nupstreams: {{everything: {{mcp: {{url: {upstream}}}}}}}\n"
        f"secret: [\"${{env:GATEWAY_SECRET}}\"]\nprincipals: {{keys: [{principal}]}}\n"
    )
    return file


@asynccontextmanager
async def governed(folder: Path, upstream: str) -> AsyncIterator[Before]:
    """A gateway in front of it. Its clients can't send a key, so it is added to each request on its way in."""
    settings = load_settings(write(folder, upstream), {"GATEWAY_SECRET": "x" * 40})
    app = create_app(settings)
    serving = server(app, settings)

    async def with_key(scope: Any, receive: Any, send: Any) -> None:
        known = [*scope.get("headers", ()), (b"authorization", b"Bearer " + KEY.encode())]
        await app({**scope, "headers": known} if scope["type"] == "http" else scope, receive, send)

    serving.config.app = with_key
    task = asyncio.ensure_future(serving.serve())
    await until(lambda: serving.started or task.done(), "the gateway", START_S)
    try:
        yield Before(f"http://127.0.0.1:{serving.servers[0].sockets[0].getsockname()[1]}/mcp", app)
    finally:
        serving.should_exit = True
        await asyncio.wait_for(task, START_S)
