"""`gateway stdio` as its clients meet it: real processes on pipes, the official SDK, being the gateway and speaking to one."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp.types import ElicitResult

from tests.e2e import deployment
from tests.e2e.before import KEY, everything, write
from tests.e2e.serving import Desk
from tests.e2e.stdio_process import Stdio, call, lives, request, transport
from tests.e2e.test_questions import FORM
from tests.e2e.web_upstream import Web, web_upstream
from tests.waiting import eventually, until

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CALL = "tool-call-gateway/call"
MODES = pytest.mark.parametrize(("mode", "revision"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])


class Place:
    """A deployment that nobody serves yet. `settings`: its file."""

    def __init__(self, folder: Path, web: Web) -> None:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        self.web, self.desk, self.url = web, Desk(folder / "heard"), f"http://127.0.0.1:{port}"
        self.settings = deployment.write(folder, web.url, folder / "heard", port=port)
        for policy in (folder / "policies").iterdir():
            if policy.stem != "plain":  # each start compiles them all
                policy.unlink()

    def person(self) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {deployment.key_of('user:mia')}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, trust_env=False)

    @asynccontextmanager
    async def process(self, *argv: str, by: str = "agent:plain") -> AsyncIterator[Stdio]:
        it = await Stdio.started(self.settings, *argv, by=by)
        try:
            yield it
        finally:
            if it.process.returncode is None:
                it.process.kill()
                await it.ended()


@pytest.fixture
async def place(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Place]:
    async with web_upstream() as web:
        yield Place(tmp_path, web)


async def approve(place: Place) -> None:
    """What a person does meanwhile: the gateway that a client on stdio started is reachable over HTTP too."""
    async with place.person() as mia:

        async def held() -> Any:
            return (await mia.get("/v1/holds?state=held")).json()["holds"]

        [hold] = await eventually(held, "a hold")
        answer = await mia.post(f"/v1/holds/{hold['hold']}/approve", json={"digest": hold["digest"]})
        assert answer.status_code == 200


async def story(client: Client, place: Place, id: str) -> None:
    """An allowed call, a denial, a replay, and a hold that is approved while the client waits with progress."""
    names = {tool.name for tool in (await client.list_tools()).tools}
    assert {"web__read", "web-brief"} <= names
    assert "web__ghost" not in names
    done = await client.call_tool("web__put", {"id": id})
    assert (done.is_error, done.structured_content) == (False, {"did": "put", "id": id})
    again = await client.call_tool("web__put", {"id": id})
    assert (again.structured_content, (again.meta or {})[CALL]["replayed"]) == (done.structured_content, True)
    refused = await client.call_tool("web__ghost", {})
    assert (refused.is_error, (refused.meta or {})[CALL]["reason"]) == (True, "tool.not_allowed")
    waiting = asyncio.ensure_future(client.call_tool("web__waiting", {"id": id}, progress_callback=_heard))
    await approve(place)
    assert (await waiting).structured_content == {"did": "waiting", "id": id}
    assert [one.tool for one in place.web.of(id)] == ["put", "waiting"]


async def _heard(progress: float, total: float | None, message: str | None) -> None:
    pass


@MODES
async def test_the_first_client_starts_the_gateway_and_the_next_ones_speak_to_it(place: Place, mode: str, revision: str) -> None:
    def client(run: str) -> Client:
        return Client(transport(place.settings, "--run", run), mode=mode)

    async with client("one") as first:
        assert first.session.protocol_version == revision
        await story(first, place, "a")
        async with client("two") as second, client("one") as same:
            await story(second, place, "b")
            again = await same.call_tool("web__waiting", {"id": "a"})
            assert (again.meta or {})[CALL]["replayed"]


@MODES
async def test_what_a_tool_asks_reaches_the_client_and_its_answer_the_tool(tmp_path: Path, mode: str, revision: str) -> None:
    async def answer(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"name": "Ana"})

    async with everything(tmp_path, "session") as upstream:
        settings = write(tmp_path, upstream)
        async with Client(transport(settings, key=KEY), mode=mode, elicitation_callback=answer) as client:
            result = await client.call_tool(FORM, {})
            assert (result.is_error, (result.meta or {})[CALL]["status"]) == (False, "succeeded")


@MODES
async def test_a_session_and_its_calls_go_on_when_the_gateway_is_started_anew(place: Place, mode: str, revision: str) -> None:
    """A gateway that was killed; the signed session, or one that is begun anew, is all the same to the client."""
    async with place.process("--run", "k") as serving:
        await serving.result(request(0, "server/discover"))
        async with Client(transport(place.settings, "--run", "k"), mode=mode) as client:
            assert (await client.call_tool("web__pay", {"id": "s"})).is_error is False
            serving.process.kill()
            await serving.process.wait()
            again = await client.call_tool("web__pay", {"id": "s"})
            assert (again.meta or {})[CALL]["replayed"]
            assert (await client.call_tool("web__pay", {"id": "t"})).is_error is False
    assert [one.arguments["id"] for one in place.web.took] == ["s", "t"]


async def test_a_client_that_outlives_its_gateway_becomes_it(place: Place) -> None:
    async with place.process("--run", "k") as first:
        await first.result(call(1, "web__put", id="x"))
        async with place.process("--run", "k") as second:
            assert (await second.result(call(1, "web__put", id="x")))["_meta"][CALL]["replayed"]
            first.close()
            assert (await first.ended()).process.returncode == 0
            for id in ("x", "y"):
                told = await second.result(call(id, "web__put", id=id))
                assert (told["_meta"][CALL]["replayed"], told["isError"]) == (id == "x", False)
            second.close()
            await second.ended()
    assert [one.arguments["id"] for one in place.web.took] == ["x", "y"]


async def test_what_was_asked_before_the_client_closed_its_end_is_answered_and_nothing_but_the_protocol_is_said(place: Place) -> None:
    async with place.process() as it:
        await it.say(request("d", "server/discover"), call(1, "web__read", id="a"), b"{", call(2, "web__read", id="x" * (1 << 20)))
        it.close()
        await it.ended()
    assert (it.process.returncode, {one["id"] for one in it.said}) == (0, {"d", 1, 2, None})
    assert all(one["jsonrpc"] == "2.0" for one in it.said)


@pytest.mark.parametrize("end", [signal.SIGTERM, None], ids=str)
async def test_it_ends_at_once_and_leaves_nothing_behind(place: Place, end: signal.Signals | None) -> None:
    async with place.process() as it:
        await it.result(request(0, "server/discover"))
        await it.say(call(1, "desk__read", id="h", do="hang"), call(2, "web__read", id="w", do="hang"))
        await place.desk.reached("h")
        await place.web.reached("w")
        children = it.children()
        assert children
        began = asyncio.get_running_loop().time()
        if end is None:
            it.close()
        else:
            it.signal(end)
        await it.ended()
        assert asyncio.get_running_loop().time() - began < 10
        assert (it.process.returncode, [pid for pid in children if lives(pid)]) == (0, [])
        await place.web.left("w")
    async with place.process() as again:
        assert (await again.result(call(1, "web__read", id="a")))["isError"] is False


async def test_a_cancelled_request_reaches_the_tool_and_is_not_answered(place: Place) -> None:
    async with place.process() as it:
        await it.result(request(0, "server/discover"))
        await it.say(call(1, "web__read", progress=True, id="c", do="hang"))
        await place.web.reached("c")
        await it.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        await place.web.left("c")
        await it.result(request(2, "server/discover"))
        it.close()
        await it.ended()
        assert 1 not in [one.get("id") for one in it.said]


async def test_a_key_that_nobody_has_is_told_under_each_requests_id(place: Place) -> None:
    async with place.process(by="agent:stranger") as it:
        await it.say(request(1, "tools/list"))
        told = await it.answer(1)
        assert told["error"]["data"]["reason"] == "auth.required"
        await until(lambda: it.process.returncode is None, "it goes on")
