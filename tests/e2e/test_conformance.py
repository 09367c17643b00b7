"""The official MCP conformance suite, both revisions, through the gateway: every scenario that a server must pass.

Behind the gateway is a server on the Python SDK, speaking 2026-07-28 or, as old ones do, only 2025-11-25. What the suite calls must stand in
the ledger, intent and outcome.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.app import create_app, server
from gateway.settings import load_settings
from tests.e2e import npm
from tests.e2e.waiting import eventually, until

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
SERVER = Path(__file__).parent / "everything_server.py"
KEY = "the-suite-has-no-key-of-its-own"
POLICY = """\
version: 1
name: conformance
match: {task_types: [interactive]}
run:
  budgets: {turns: unlimited, tool_calls: 500, deadline: 10m, tokens: unlimited}
defaults: {timeout: 5s, approvers: ["group:leads"]}
tools:
  - {tool: "everything.*", effect: read_only, poll: true, as: "*"}
"""
EVIDENCE = {
    "2025-11-25": {"test_simple_text", "test_sampling", "test_elicitation", "test_tool_with_progress", "test_tool_with_logging"},
    "2026-07-28": {"test_simple_text", "test_input_required_result_multi_round", "test_streaming_elicitation", "test_missing_capability"},
}
"""Some of the tools that each suite calls."""


@dataclass
class Behind:
    url: str
    app: Any


@asynccontextmanager
async def everything(folder: Path, *options: str) -> AsyncIterator[str]:
    """The server's URL."""
    port = folder / "port"
    process = await asyncio.create_subprocess_exec(sys.executable, str(SERVER), str(port), *options)
    try:
        await until(lambda: port.exists() or process.returncode is not None, "the server", 30)
        yield f"http://127.0.0.1:{port.read_text()}/mcp"
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 10)


@asynccontextmanager
async def governed(folder: Path, upstream: str) -> AsyncIterator[Behind]:
    """A gateway in front of it. The suite can't send a key, so it is added to each request on its way in."""
    (folder / "policies").mkdir()
    (folder / "policies" / "conformance.yaml").write_text(POLICY)
    principal = f'{{id: "agent:suite", sha256: "{hashlib.sha256(KEY.encode()).hexdigest()}"}}'
    (folder / "gateway.yaml").write_text(
        f"listen: 127.0.0.1:0\nledger: sqlite:gateway.db\npolicies: policies/\nupstreams: {{everything: {{mcp: {{url: {upstream}}}}}}}\n"
        f"principals: {{keys: [{principal}]}}\n"
    )
    settings = load_settings(folder / "gateway.yaml", {})
    app = create_app(settings)
    serving = server(app, settings)

    async def with_key(scope: Any, receive: Any, send: Any) -> None:
        known = [*scope.get("headers", ()), (b"authorization", b"Bearer " + KEY.encode())]
        await app({**scope, "headers": known} if scope["type"] == "http" else scope, receive, send)

    serving.config.app = with_key
    task = asyncio.ensure_future(serving.serve())
    await until(lambda: serving.started or task.done(), "the gateway", 60)
    try:
        yield Behind(f"http://127.0.0.1:{serving.servers[0].sockets[0].getsockname()[1]}/mcp", app)
    finally:
        serving.should_exit = True
        await asyncio.wait_for(task, 20)


async def suite(url: str, results: Path, *options: str) -> tuple[int | None, str]:
    """Exit code and output of a run of the suite."""
    command = [npm.node(), str(npm.installed(SUITE) / "@modelcontextprotocol/conformance/dist/index.js")]
    process = await asyncio.create_subprocess_exec(
        *command, "server", "--url", url, "--output-dir", str(results), *options,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env={**os.environ, "PATH": npm.PATH},
    )  # fmt: skip
    output, _ = await asyncio.wait_for(process.communicate(), 120)
    return process.returncode, output.decode()


def failures(results: Path) -> list[str]:
    found = []
    for file in sorted(results.rglob("checks.json")):
        for check in json.loads(file.read_text()):
            if check["status"] not in ("SUCCESS", "SKIPPED", "INFO"):
                found.append(f"{check['status']} {file.parent.name} {check['id']}: {check.get('errorMessage')}")
    return found


async def settled(app: Any) -> Counter[tuple[str, str]]:
    """(tool, state) of all calls of its tools in the ledger, once each has its outcome: the suite leaves some of its questions unanswered."""

    async def look() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = await app.engine.ledger.rows("calls", {}, limit=1000)
        return [] if any(row["state"] == "admitted" for row in rows) else rows

    rows = await eventually(look, "outcomes")
    known = [(row["tool"].partition(".")[2], row["state"]) for row in rows]
    return Counter((tool, state) for tool, state in known if tool)


@pytest.mark.parametrize(("revision", "options"), [("2026-07-28", ()), ("2025-11-25", ()), ("2025-11-25", ("session",))])
async def test_every_required_scenario_passes_and_every_call_stands_in_the_ledger(revision: str, options: tuple[str, ...], tmp_path: Path) -> None:
    async with everything(tmp_path, *options) as upstream, governed(tmp_path, upstream) as behind:
        code, output = await suite(behind.url, tmp_path / "results", "--requirements", revision)
        assert code == 0, "\n".join([*failures(tmp_path / "results"), output[-3000:]])
        calls = await settled(behind.app)
    assert {tool for tool, _ in calls} >= EVIDENCE[revision]
    assert {state for _, state in calls} <= {"succeeded", "failed"}
