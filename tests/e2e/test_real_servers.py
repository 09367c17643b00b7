"""Servers that others wrote, through the gateway as directly: everything (stdio and HTTP), memory, sequential-thinking, time.

The filesystem and git servers stand in `test_mcp_clients`. Each list of calls is made twice from the same start, and answered the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import PromptReference

from gateway.demo.stage import any_port
from tests.e2e import npm
from tests.e2e.running import gateway
from tests.e2e.test_mcp_clients import comparable, results, through
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

EVERYTHING, MEMORY, THINKING = (f"@modelcontextprotocol/server-{name}@2026.8.31" for name in ("everything", "memory", "sequential-thinking"))
POLICY = """\
version: 1
name: others
match: {task_types: [interactive]}
run:
  budgets: {turns: unlimited, tool_calls: 500, deadline: 10m, tokens: unlimited}
defaults: {timeout: 20s, approvers: ["group:leads"]}
tools:
  - {tool: "memory.read_graph", effect: read_only}
  - {tool: "memory.search_nodes", effect: read_only}
  - {tool: "memory.open_nodes", effect: read_only}
  - {tool: "memory.*", effect: non_idempotent, approval: never}
  - {tool: "*", effect: read_only, shadow: [loops]}
"""
Call = tuple[str, dict[str, Any]]

EVERYTHING_CALLS: list[Call] = [
    ("echo", {"message": "héllo \u2028 \U0001f600"}),
    ("get-sum", {"a": 0.1, "b": 0.2}),
    *[("get-annotated-message", {"messageType": kind, "includeImage": True}) for kind in ("error", "success", "debug")],
    ("get-resource-links", {"count": 3}),
    ("get-structured-content", {"location": "Chicago"}),
    ("get-structured-content", {"location": "New York"}),
    ("get-tiny-image", {}),
    ("gzip-file-as-resource", {"name": "a.gz", "data": "data:text/plain,hello", "outputType": "resource"}),
    ("gzip-file-as-resource", {"name": "b.gz", "data": "ftp://nowhere/x", "outputType": "resource"}),
    ("get-resource-reference", {"resourceType": "Blob", "resourceId": -1}),
    ("trigger-long-running-operation", {"duration": 0.2, "steps": 2}),
]
PEOPLE = [{"name": name, "entityType": "person", "observations": [f"{name} is here"]} for name in ("Ana", "Bo", "Čapek")]
MEMORY_CALLS: list[Call] = [
    ("read_graph", {}),
    ("create_entities", {"entities": PEOPLE}),
    ("create_entities", {"entities": PEOPLE[:1]}),
    ("create_relations", {"relations": [{"from": "Ana", "to": "Bo", "relationType": "knows"}]}),
    ("add_observations", {"observations": [{"entityName": "Bo", "contents": ["likes tea", "\U0001f375"]}]}),
    ("add_observations", {"observations": [{"entityName": "nobody", "contents": ["x"]}]}),
    ("search_nodes", {"query": "tea"}),
    ("open_nodes", {"names": ["Ana", "Čapek", "nobody"]}),
    ("delete_observations", {"deletions": [{"entityName": "Bo", "observations": ["likes tea"]}]}),
    ("delete_relations", {"relations": [{"from": "Ana", "to": "Bo", "relationType": "knows"}]}),
    ("delete_entities", {"entityNames": ["Čapek"]}),
    ("read_graph", {}),
]
THOUGHT = {"thought": "1", "nextThoughtNeeded": True, "thoughtNumber": 1, "totalThoughts": 3}
THINKING_CALLS: list[Call] = [
    ("sequentialthinking", THOUGHT),
    ("sequentialthinking", {**THOUGHT, "thought": "2", "thoughtNumber": 2, "isRevision": True, "revisesThought": 1}),
    ("sequentialthinking", {**THOUGHT, "thought": "2b", "thoughtNumber": 2, "branchFromThought": 1, "branchId": "b"}),
    ("sequentialthinking", {**THOUGHT, "thought": "5", "thoughtNumber": 5, "nextThoughtNeeded": False, "needsMoreThoughts": True}),
]
TIME_CALLS: list[Call] = [
    ("convert_time", {"source_timezone": "Europe/Berlin", "time": "16:30", "target_timezone": "Asia/Kathmandu"}),
    ("convert_time", {"source_timezone": "Nowhere/At_All", "time": "16:30", "target_timezone": "Asia/Kathmandu"}),
    ("convert_time", {"source_timezone": "UTC", "time": "25:61", "target_timezone": "UTC"}),
    ("get_current_time", {"timezone": "America/St_Johns"}),
    ("get_current_time", {"timezone": "Nowhere"}),
]


# ---- the servers --------------------------------------------------------------------------------------------------------


def script(package: str) -> list[str]:
    name = package.rpartition("@")[0]
    return [npm.node(), str(npm.installed(package) / name / "dist/index.js")]


@asynccontextmanager
async def everything_over_http() -> AsyncIterator[str]:
    port = any_port()
    process = await asyncio.create_subprocess_exec(
        *script(EVERYTHING), "streamableHttp", env={**os.environ, "PATH": npm.PATH, "PORT": str(port)},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip

    async def listens() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    try:
        await eventually(listens, "the server")
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        await process.wait()


def commands(folder: Path) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Server -> what starts it, and with which variables."""
    return {
        "everything": (script(EVERYTHING), {}),
        "memory": (script(MEMORY), {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}),
        "thinking": (script(THINKING), {"DISABLE_THOUGHT_LOGGING": "true"}),
        "time": ([sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"], {}),
    }


@pytest.fixture(scope="module")
async def urls(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[str, str]]:
    """The gateway's, and the everything server's over HTTP."""
    folder = tmp_path_factory.mktemp("others")
    async with everything_over_http() as direct:
        lines = [f"web: {{mcp: {{url: '{direct}'}}}}\n"]
        variables = {}
        for name, (command, env) in commands(folder).items():
            references = {key: f"${{env:{key}}}" for key in env}
            lines.append(f"{name}: {{mcp: {{command: {json.dumps(command)}, env: {json.dumps(references)}}}}}\n")
            variables |= env
        async with gateway(folder / "gateway", "".join(lines), POLICY, variables) as url:
            yield url, direct


@asynccontextmanager
async def directly(server: str, folder: Path, direct: str) -> AsyncIterator[Client]:
    if server == "web":
        async with Client(streamable_http_client(direct)) as client:
            yield client
        return
    command, env = commands(folder)[server]
    async with Client(StdioServerParameters(command=command[0], args=command[1:], env=env)) as client:
        yield client


# ---- tests --------------------------------------------------------------------------------------------------------------


def timeless(said: list[tuple[str, bytes]]) -> list[tuple[str, str]]:
    """Without what passes while a test runs."""
    return [(tool, re.sub(r"\d", "0", text.decode()) if tool == "get_current_time" else text.decode()) for tool, text in said]


@pytest.mark.parametrize(
    ("server", "calls", "errors"),
    [
        ("everything", EVERYTHING_CALLS, 2),
        ("web", EVERYTHING_CALLS, 2),
        ("memory", MEMORY_CALLS, 1),
        ("thinking", THINKING_CALLS, 0),
        ("time", TIME_CALLS, 3),
    ],
)
async def test_a_server_answers_through_the_gateway_as_it_does_directly(
    urls: tuple[str, str], tmp_path: Path, server: str, calls: list[Call], errors: int
) -> None:
    url, direct = urls
    async with directly(server, tmp_path, direct) as client:
        expected = timeless(await results(client, calls))
    async with through(url, server) as client:
        assert timeless(await results(client, calls, f"{server}__")) == expected
    assert sum('"isError":true' in said for _, said in expected) == errors


@pytest.mark.parametrize("server", ["everything", "web"])
async def test_its_resources_prompts_and_completions_are_the_same_too(urls: tuple[str, str], tmp_path: Path, server: str) -> None:
    url, direct = urls
    async with directly(server, tmp_path, direct) as one, through(url, f"beside {server}") as other:
        uri = (await one.list_resources()).resources[0].uri
        partly = {"name": "department", "value": "E"}
        for name, arguments in (("args-prompt", {"city": "Zürich", "state": "ZH"}), ("simple-prompt", {})):
            assert cacheless(await other.get_prompt(f"{server}.{name}", arguments)) == cacheless(await one.get_prompt(name, arguments))
        assert cacheless(await other.read_resource(f"via:{server}:{uri}")) == cacheless(await one.read_resource(uri))
        through_it, direct_one = (PromptReference(type="ref/prompt", name=f"{before}completable-prompt") for before in (f"{server}.", ""))
        assert cacheless(await other.complete(through_it, partly)) == cacheless(await one.complete(direct_one, partly))


def cacheless(result: Any) -> dict[str, Any]:
    """Without what the newer revision says of keeping it."""
    said = json.loads(comparable(result))
    return {name: value for name, value in said.items() if name not in ("ttlMs", "cacheScope")}
