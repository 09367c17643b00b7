"""The official MCP conformance suite, both revisions, through the gateway: every scenario that a server must pass.

Behind the gateway is a server on the Python SDK, speaking 2026-07-28 or, as old ones do, only 2025-11-25. What the suite calls must stand in
the ledger, intent and outcome.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import npm
from tests.e2e.before import everything, governed
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
SUITE_S = 120
"""All scenarios of one revision, one after the other: 6 to 8 s on two idle cores."""
EVIDENCE = {
    "2025-11-25": {"test_simple_text", "test_sampling", "test_elicitation", "test_tool_with_progress", "test_tool_with_logging"},
    "2026-07-28": {"test_simple_text", "test_input_required_result_multi_round", "test_streaming_elicitation", "test_missing_capability"},
}
"""Some of the tools that each suite calls."""


async def suite(url: str, results: Path, *options: str) -> tuple[int | None, str]:
    """Exit code and output of a run of the suite."""
    command = [npm.node(), str(npm.installed(SUITE) / "@modelcontextprotocol/conformance/dist/index.js")]
    process = await asyncio.create_subprocess_exec(
        *command, "server", "--url", url, "--output-dir", str(results), *options,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env={**os.environ, "PATH": npm.PATH},
    )  # fmt: skip
    output, _ = await asyncio.wait_for(process.communicate(), SUITE_S)
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
