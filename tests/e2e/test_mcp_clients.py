"""The official MCP client through the gateway to real servers over stdio: what it gets is what the servers say.

Revision 2026-07-28 between client and gateway; the filesystem server speaks 2025-11-25, the git server 2026-07-28. Each list of calls is
made twice from the same start: directly, and through the gateway. Results must be equal as canonical JSON but for what the gateway adds.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
import rfc8785
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, Implementation

from tests.e2e import npm
from tests.e2e.running import AGENT, MIA, gateway
from tests.waiting import WAIT_S

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

FILESYSTEM = "@modelcontextprotocol/server-filesystem@2026.8.31"
DATED = {"GIT_AUTHOR_DATE": "2026-01-02T03:04:05 +0000", "GIT_COMMITTER_DATE": "2026-01-02T03:04:05 +0000", "GIT_CONFIG_GLOBAL": os.devnull}
OURS = "tool-call-gateway/"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"

POLICY = """\
version: 1
name: everything
match: {task_types: [interactive]}
run:
  budgets: {turns: unlimited, tool_calls: 500, deadline: 10m, tokens: unlimited}
defaults: {timeout: 20s, approvers: ["group:leads"]}
tools:
  - {tool: git.git_add, effect: idempotent_write}
  - {tool: git.git_commit, effect: non_idempotent, approval: never}
  - {tool: git.git_create_branch, effect: non_idempotent, approval: never}
  - {tool: git.git_checkout, effect: non_idempotent, approval: never}
  - {tool: git.git_reset, effect: non_idempotent, approval: never}
  - {tool: "git.*", effect: read_only}
  - tool: files.write_file
    effect: idempotent_write
    approval: {when: 'args.path.endsWith("held.txt")', hold_open: 1ms}
  - {tool: files.edit_file, effect: non_idempotent, approval: never}
  - {tool: files.create_directory, effect: idempotent_write}
  - {tool: files.move_file, effect: non_idempotent, approval: never}
  - {tool: "files.read_*", effect: read_only}
  - {tool: "files.list_*", effect: read_only}
  - {tool: files.directory_tree, effect: read_only}
  - {tool: files.search_files, effect: read_only}
"""
NOT_ALLOWED = "get_file_info"

GIT_CALLS: list[tuple[str, dict[str, Any]]] = [
    ("git_status", {}),
    ("git_log", {"max_count": 5}),
    ("git_show", {"revision": "HEAD"}),
    ("git_branch", {"branch_type": "local"}),
    ("git_diff_unstaged", {}),
    ("git_diff_unstaged", {"context_lines": 0}),
    ("git_diff", {"target": "HEAD"}),
    ("git_add", {"files": ["readme.md", "new ü.txt"]}),
    ("git_diff_staged", {}),
    ("git_commit", {"message": "Second: ümlauts\n\nand a body"}),
    ("git_log", {"max_count": 5}),
    ("git_status", {}),
    ("git_create_branch", {"branch_name": "side"}),
    ("git_checkout", {"branch_name": "side"}),
    ("git_branch", {"branch_type": "all"}),
    ("git_reset", {}),
    ("git_show", {"revision": "no-such-revision"}),
    ("git_checkout", {"branch_name": "no-such-branch"}),
    ("git_add", {"files": ["no-such-file"]}),
    ("git_status", {"repo_path": "/"}),
]
FILE_CALLS: list[tuple[str, dict[str, Any]]] = [
    ("list_allowed_directories", {}),
    ("list_directory", {"path": "."}),
    ("list_directory_with_sizes", {"path": ".", "sortBy": "size"}),
    ("directory_tree", {"path": "."}),
    ("read_text_file", {"path": "a.txt"}),
    ("read_text_file", {"path": "a.txt", "head": 1}),
    ("read_media_file", {"path": "dot.png"}),
    ("read_multiple_files", {"paths": ["a.txt", "sub/b.json", "missing.txt"]}),
    ("search_files", {"path": ".", "pattern": "**/*.json"}),
    ("write_file", {"path": "new.txt", "content": "écrit \u0000 \U0001f600\n"}),
    ("read_text_file", {"path": "new.txt"}),
    ("edit_file", {"path": "a.txt", "edits": [{"oldText": "two", "newText": "zwei"}], "dryRun": True}),
    ("edit_file", {"path": "a.txt", "edits": [{"oldText": "two", "newText": "zwei"}]}),
    ("read_text_file", {"path": "a.txt", "tail": 2}),
    ("create_directory", {"path": "deep/er"}),
    ("move_file", {"source": "new.txt", "destination": "deep/er/moved.txt"}),
    ("directory_tree", {"path": "."}),
    ("read_text_file", {"path": "missing.txt"}),
    ("read_text_file", {"path": "../outside.txt"}),
    ("list_directory", {"path": "a.txt"}),
    ("edit_file", {"path": "a.txt", "edits": [{"oldText": "never there", "newText": "x"}]}),
    ("move_file", {"source": "missing.txt", "destination": "b.txt"}),
]
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000a49444154789c63000100000500010d0a2db40000000049454e44ae426082"
)


# ---- the servers and where they work ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files_server() -> list[str]:
    """What starts it, but for the folder that it serves."""
    return [npm.node(), str(npm.installed(FILESYSTEM) / "@modelcontextprotocol/server-filesystem/dist/index.js")]


@pytest.fixture(scope="module")
def git_server() -> list[str]:
    return [sys.executable, "-m", "mcp_server_git"]


def fresh_repository(folder: Path) -> Path:
    repository = folder / "repository"
    shutil.rmtree(repository, ignore_errors=True)
    repository.mkdir(parents=True)
    (repository / "readme.md").write_text("one\ntwo\nthree\n")
    for command in ("init -q -b main", "config user.name Ana", "config user.email ana@example.com", "add .", "commit -q -m First"):
        subprocess.run(["git", *command.split()], cwd=repository, check=True, env={**os.environ, **DATED})
    (repository / "readme.md").write_text("one\nzwei\nthree\n")
    (repository / "new ü.txt").write_text("neu\n")
    return repository


def fresh_files(folder: Path) -> Path:
    files = folder / "files"
    shutil.rmtree(files, ignore_errors=True)
    (files / "sub").mkdir(parents=True)
    (files / "a.txt").write_text("one\ntwo\nthree — drei\n")
    (files / "sub" / "b.json").write_text('{"id": 9007199254740993}\n')
    (files / "dot.png").write_bytes(PNG)
    return files


def placed(arguments: dict[str, Any], files: Path | None, repository: Path | None) -> dict[str, Any]:
    """The arguments with paths below the folder of this test, and the repository where none is named."""
    if files is None:
        return {"repo_path": str(repository), **arguments}
    below = {name: str(files / value) for name, value in arguments.items() if name in ("path", "source", "destination")}
    many = {"paths": [str(files / path) for path in arguments["paths"]]} if "paths" in arguments else {}
    return {**arguments, **below, **many}


# ---- clients ------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def through(url: str, run_key: str) -> AsyncIterator[Client]:
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {AGENT}", "Gateway-Run": run_key}, timeout=WAIT_S) as http:
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        async with Client(transport, client_info=Implementation(name="e2e", version="1")) as client:
            yield client


def directly(command: list[str]) -> Client:
    return Client(StdioServerParameters(command=command[0], args=command[1:], env=DATED))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mcp")


@pytest.fixture(scope="module")
async def running(folder: Path, files_server: list[str], git_server: list[str]) -> AsyncIterator[str]:
    """One gateway for all tests here; each has a run of its own."""
    fresh_files(folder)
    env = ", ".join(f'{name}: "${{env:{name}}}"' for name in DATED)
    files = f"files: {{mcp: {{command: {[*files_server, str(folder / 'files')]}}}}}"
    git = f"git: {{mcp: {{command: {git_server}, env: {{{env}}}}}}}"
    async with gateway(folder / "gateway", f"{files}\n{git}\n", POLICY, DATED) as url:
        yield url


def comparable(result: CallToolResult) -> bytes:
    """What came over the wire, without what the gateway adds to it."""
    said = result.model_dump(mode="json", by_alias=True, exclude_unset=True)
    said.pop("resultType", None)
    meta = {name: value for name, value in (said.pop("_meta", None) or {}).items() if not name.startswith(OURS) and name != SERVER_INFO}
    return rfc8785.dumps({**said, "_meta": meta})


async def results(client: Client, calls: list[tuple[str, dict[str, Any]]], prefix: str = "") -> list[tuple[str, bytes]]:
    return [(tool, comparable(await client.call_tool(prefix + tool, arguments))) for tool, arguments in calls]


# ---- tests --------------------------------------------------------------------------------------------------------------


async def test_the_git_server_answers_through_the_gateway_as_it_does_directly(running: str, folder: Path, git_server: list[str]) -> None:
    repository = fresh_repository(folder)
    calls = [(tool, placed(arguments, None, repository)) for tool, arguments in GIT_CALLS]
    async with directly(git_server) as client:
        expected = await results(client, calls)
    fresh_repository(folder)
    async with through(running, "git") as client:
        assert client.session.protocol_version == "2026-07-28"
        assert await results(client, calls, "git__") == expected
    assert sum(b'"isError":true' in said for _, said in expected) == 4


async def test_the_files_server_answers_through_the_gateway_as_it_does_directly(running: str, folder: Path, files_server: list[str]) -> None:
    files = fresh_files(folder)
    calls = [(tool, placed(arguments, files, None)) for tool, arguments in FILE_CALLS]
    async with directly([*files_server, str(folder / "files")]) as client:
        assert client.session.protocol_version == "2025-11-25"
        expected = await results(client, calls)
    fresh_files(folder)
    async with through(running, "files") as client:
        assert await results(client, calls, "files__") == expected
    assert sum(b'"isError":true' in said for _, said in expected) == 5


async def test_tools_are_listed_as_their_servers_define_them_but_for_what_no_rule_allows(
    running: str, folder: Path, files_server: list[str], git_server: list[str]
) -> None:
    expected = {}
    for upstream, command in (("files", [*files_server, str(folder / "files")]), ("git", git_server)):
        async with directly(command) as client:
            expected |= {f"{upstream}__{one.name}": one for one in (await client.list_tools()).tools}
    del expected[f"files__{NOT_ALLOWED}"]
    async with through(running, "listing") as client:
        listed = {one.name: one for one in (await client.list_tools()).tools}
    assert sorted(listed) == sorted(expected)
    for name, one in listed.items():
        said, direct = (each.model_dump(mode="json", by_alias=True, exclude_unset=True) for each in (one, expected[name]))
        if "outputSchema" in direct:
            assert said.pop("outputSchema")["anyOf"][0]["required"] == direct.pop("outputSchema")["required"]
        ours, theirs = said.pop("annotations"), direct.pop("annotations", {})
        assert ours == theirs | {hint: ours[hint] for hint in ("readOnlyHint", "idempotentHint") if hint in ours}, "the policy's word on effects"
        assert said == {**direct, "name": name}


async def test_a_refusal_is_a_result_that_the_client_can_read(running: str) -> None:
    async with through(running, "refused") as client:
        for tool, arguments, reason in (
            (f"files__{NOT_ALLOWED}", {"path": "x"}, "tool.not_allowed"),
            ("git__nothing", {}, "tool.unknown"),
            ("nothing", {}, "tool.not_allowed"),
            ("files__write_file", {"path": 7}, "arguments.invalid"),
        ):
            result = await client.call_tool(tool, arguments)
            assert (result.is_error, result.structured_content["reason"]) == (True, reason)
            assert result.meta[OURS + "call"]["reason"] == reason


async def test_a_held_call_executes_once_when_it_is_made_again_after_approval(running: str, folder: Path) -> None:
    path = folder / "files" / "held.txt"
    arguments = {"path": str(path), "content": "approved\n"}
    async with through(running, "held") as client:
        held = await client.call_tool("files__write_file", arguments)
        assert (held.is_error, held.structured_content["status"], path.exists()) == (False, "held", False)
        approve(running, held.structured_content["hold"]["hold"])
        done = await client.call_tool("files__write_file", arguments)
        assert (done.is_error, done.meta[OURS + "call"]["replayed"], path.read_text()) == (False, False, "approved\n")
        path.unlink()
        again = await client.call_tool("files__write_file", arguments)
        assert (again.meta[OURS + "call"]["replayed"], path.exists()) == (True, False)
        assert comparable(again) == comparable(done)


async def test_a_client_that_waits_with_progress_gets_the_result_as_soon_as_a_person_has_approved(running: str, folder: Path) -> None:
    path = folder / "files" / "waiting held.txt"

    async def waited(progress: float, total: float | None, message: str | None) -> None:
        raise AssertionError("it was approved long before the first heartbeat")

    async with through(running, "waiting") as client, asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
        arguments = {"path": str(path), "content": "approved\n"}
        call = tasks.create_task(client.call_tool("files__write_file", arguments, progress_callback=waited))
        hold = await asyncio.to_thread(first_hold, running)
        assert not path.exists()
        await asyncio.to_thread(approve, running, hold)
        assert ((await call).is_error, path.read_text()) == (False, "approved\n")


def first_hold(url: str) -> str:
    """As a person finds it: looking again and again."""
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {MIA}"}) as mia:
        for _ in range(250):
            if holds := mia.get("/v1/holds?state=held").raise_for_status().json()["holds"]:
                return str(holds[0]["hold"])
            time.sleep(0.02)
    raise AssertionError("nothing was held within 5 s")


def approve(url: str, hold: str) -> None:
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {MIA}"}) as mia:
        digest = mia.get(f"/v1/holds/{hold}").raise_for_status().json()["digest"]
        mia.post(f"/v1/holds/{hold}/approve", json={"digest": digest, "note": "fine"}).raise_for_status()
