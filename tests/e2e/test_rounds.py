"""5,000 rounds of clients that come, call and leave, well or badly: nothing of them is left in the gateway afterwards."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import signal
import socket
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_fidelity import PROTOCOL, SERVER, mirror
from tests.waiting import START_S, eventually, until

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ROUNDS, WARM, AT_ONCE = 5_000, 1_000, 12
PATIENCE_S = 15
"""A round has several requests, and a dozen go on at once beside whatever else the machine does."""
MIB = 1024 * 1024
KEY = "key-of-the-rounds"
WATCHED = str(Path(__file__).with_name("watched_gateway.py"))
UPSTREAMS = [f"{era}-{transport}" for era in ("2026", "session") for transport in ("stdio", "http")]
POLICY = """\
version: 1
name: rounds
run:
  budgets: {turns: unlimited, tool_calls: unlimited, deadline: 10m, tokens: unlimited}
defaults: {timeout: 10s}
tools:
  - {tool: "*.mirror", effect: read_only, shadow: [loops]}
  - {tool: "*.hang", effect: read_only, timeout: 1s, shadow: [loops]}
"""


class Gateway:
    def __init__(self, process: asyncio.subprocess.Process, counts: Path) -> None:
        self.process, self._counts = process, counts
        self.port = 0

    async def counts(self) -> dict[str, Any]:
        """What it holds now."""
        self._counts.unlink(missing_ok=True)
        os.kill(self.process.pid, signal.SIGUSR1)
        await until(self._counts.exists, "its counts")
        return dict(json.loads(self._counts.read_text()))

    async def at_rest(self) -> dict[str, Any]:
        """What it holds once nobody is served any more, and nothing else passes either."""
        seen: list[dict[str, Any]] = []

        async def still() -> bool:
            seen.append(await self.counts())
            busy = {"RequestResponseCycle.run_asgi", "Flights._fly"} & set(seen[-1]["tasks"])
            return not busy and len(seen) > 20 and all(one[name] == seen[-1][name] for one in seen[-20:] for name in HELD)

        await eventually(still, "rest", START_S)
        return seen[-1]


HELD = ("tasks", "descriptors", "children")


@asynccontextmanager
async def gateway(folder: Path) -> AsyncIterator[Gateway]:
    async with AsyncExitStack() as stack:
        urls = {f"{era}-http": await stack.enter_async_context(mirror(folder, era)) for era in ("2026", "session")}
        upstreams = {name: {"mcp": {"url": url}} for name, url in urls.items()}
        upstreams |= {f"{era}-stdio": {"mcp": {"command": [sys.executable, SERVER, era, "stdio"]}} for era in ("2026", "session")}
        (folder / "policies").mkdir()
        (folder / "policies" / "rounds.yaml").write_text(POLICY)
        keys = [{"id": "agent:rounds", "sha256": hashlib.sha256(KEY.encode()).hexdigest()}]
        settings = {"listen": "127.0.0.1:0", "ledger": "sqlite:gateway.db", "policies": "policies/", "upstreams": upstreams}
        settings |= {"principals": {"keys": keys}, "limits": [{"open_runs": 1000}], "secret": ["${env:GATEWAY_SECRET}"]}
        (folder / "gateway.yaml").write_text(json.dumps(settings))
        counts = folder / "counts.json"
        process = await asyncio.create_subprocess_exec(
            sys.executable, WATCHED, str(folder / "gateway.yaml"), str(counts), env={**os.environ, "GATEWAY_SECRET": "x" * 40},
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        it = Gateway(process, counts)
        try:
            await until(lambda: counts.exists() or process.returncode is not None, "the gateway", START_S)
            it.port = (await it.counts())["port"]
            yield it
        finally:
            if process.returncode is None:
                process.terminate()
            await asyncio.wait_for(process.wait(), START_S)


# ---- clients ------------------------------------------------------------------------------------------------------------


class Visit:
    """One connection of one client."""

    def __init__(self, port: int, run: str) -> None:
        self.port, self.run = port, run
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def __aenter__(self) -> Visit:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    def reset(self) -> None:
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def write(self, method: str, path: str, body: bytes = b"", key: str = KEY, **headers: str) -> None:
        known = {"host": f"127.0.0.1:{self.port}", "authorization": f"Bearer {key}", "content-length": str(len(body))}
        known |= {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        known |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = "".join(f"{name}: {value}\r\n" for name, value in known.items())
        self.writer.write(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body)

    async def answer(self) -> tuple[int, str, bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head.split("\r\n")[1:])}
        body = b""
        if headers.get("transfer-encoding") == "chunked":
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                body += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readexactly(2)
        else:
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return int(head.split(" ")[1]), headers.get("mcp-session-id", ""), body

    def ask(self, method: str, params: dict[str, Any], **headers: str) -> None:
        """A request of the newer era."""
        meta = {PROTOCOL + "protocolVersion": "2026-07-28", PROTOCOL + "clientCapabilities": {}, **params.pop("_meta", {})}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}).encode()
        named = {"mcp_name": params["name"]} if "name" in params else {}
        self.write("POST", f"/r/{self.run}/mcp", body, mcp_protocol_version="2026-07-28", mcp_method=method, **named, **headers)

    def say(self, message: dict[str, Any], **headers: str) -> None:
        """A message of the session era."""
        self.write("POST", f"/r/{self.run}/mcp", json.dumps({"jsonrpc": "2.0", **message}).encode(), **headers)

    async def begin(self) -> dict[str, str]:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "rounds", "version": "1"}}
        self.say({"id": 1, "method": "initialize", "params": hello})
        status, session, _ = await self.answer()
        assert (status, bool(session)) == (200, True)
        return {"mcp_session_id": session, "mcp_protocol_version": "2025-11-25"}


def call(number: int, tool: str = "mirror", **more: Any) -> dict[str, Any]:
    text = json.dumps({"content": [{"type": "text", "text": f"round {number}"}]})
    return {"name": f"{UPSTREAMS[number % 4]}__{tool}", "arguments": {"text": text} if tool == "mirror" else {}, **more}


async def modern(visit: Visit, number: int) -> None:
    visit.ask("tools/call", call(number))
    status, _, body = await visit.answer()
    assert (status, f"round {number}" in body.decode()) == (200, True), body


async def whole_session(visit: Visit, number: int) -> None:
    session = await visit.begin()
    visit.say({"method": "notifications/initialized"}, **session)
    assert (await visit.answer())[0] == 202
    visit.say({"id": 2, "method": "tools/call", "params": call(number)}, **session)
    status, _, body = await visit.answer()
    assert (status, f"round {number}" in body.decode()) == (200, True), body
    visit.write("DELETE", f"/r/{visit.run}/mcp", **session)
    await visit.answer()


async def left_session(visit: Visit, number: int) -> None:
    visit.say({"id": 2, "method": "tools/list"}, **await visit.begin())
    assert (await visit.answer())[0] == 200


async def over_rest(visit: Visit, number: int) -> None:
    visit.write("POST", "/v1/runs", json.dumps({"run_key": visit.run}).encode())
    run = json.loads((await visit.answer())[2])["run"]
    params = call(number)
    visit.write("POST", f"/v1/runs/{run}/calls", json.dumps({"tool": params["name"].replace("__", "."), "arguments": params["arguments"]}).encode())
    assert (await visit.answer())[0] == 200


async def leaves_in_the_midst(visit: Visit, number: int) -> None:
    visit.ask("tools/call", call(number, "hang", _meta={"progressToken": number}))
    await visit.writer.drain()
    await asyncio.sleep(0.02)
    if number % 2:
        visit.reset()


async def leaves_a_session_in_the_midst(visit: Visit, number: int) -> None:
    visit.say({"id": 2, "method": "tools/call", "params": call(number, "hang")}, **await visit.begin())
    await visit.writer.drain()
    await asyncio.sleep(0.02)


async def cancels(visit: Visit, number: int) -> None:
    session = await visit.begin()
    visit.say({"id": 2, "method": "tools/call", "params": call(number, "hang")}, **session)
    await visit.writer.drain()
    async with Visit(visit.port, visit.run) as other:
        await asyncio.sleep(0.02)
        other.say({"method": "notifications/cancelled", "params": {"requestId": 2}}, **session)
        assert (await other.answer())[0] == 202


async def listens_and_leaves(visit: Visit, number: int) -> None:
    visit.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    await visit.reader.readuntil(b"acknowledged")


async def garbage(visit: Visit, number: int) -> None:
    visit.writer.write(random.Random(number).randbytes(200))
    await visit.writer.drain()


async def half_a_request(visit: Visit, number: int) -> None:
    visit.writer.write(b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 500\r\n\r\n{")
    await visit.writer.drain()
    if number % 2:
        visit.reset()


async def nonsense(visit: Visit, number: int) -> None:
    visit.write("POST", "/mcp", [b"{", b"[1]", b"null", b'{"jsonrpc":"2.0","id":1,"result":{}}'][number % 4])
    assert (await visit.answer())[0] >= 400


async def a_stranger(visit: Visit, number: int) -> None:
    visit.write("POST", "/mcp", b"{}", key="wrong")
    assert (await visit.answer())[0] == 401


async def nothing(visit: Visit, number: int) -> None:
    pass


KINDS: list[Callable[[Visit, int], Awaitable[None]]] = [
    modern, whole_session, modern, left_session, over_rest, leaves_in_the_midst, modern, leaves_a_session_in_the_midst, cancels,
    listens_and_leaves, garbage, half_a_request, nonsense, a_stranger, nothing,
]  # fmt: skip


async def rounds(port: int, numbers: range) -> None:
    waiting = iter(numbers)

    async def worker() -> None:
        for number in waiting:
            async with asyncio.timeout(PATIENCE_S), Visit(port, f"run-{number // 100}") as visit:
                await KINDS[number % len(KINDS)](visit, number)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(worker())


# ---- the test -----------------------------------------------------------------------------------------------------------


async def test_nothing_is_left_of_clients_that_came_and_went(tmp_path: Path) -> None:
    async with gateway(tmp_path) as it:
        await rounds(it.port, range(WARM))
        before = await it.at_rest()
        await rounds(it.port, range(WARM, ROUNDS))
        after = await it.at_rest()
        assert {name: after[name] for name in HELD} == {name: before[name] for name in HELD}
        assert after["rss"] - before["rss"] < 5 * MIB, (before["rss"] / MIB, after["rss"] / MIB)
        assert after["cycles"] == before["cycles"], "only a garbage collection freed some of it"
        assert before["children"] >= 2
