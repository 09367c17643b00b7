"""The whole gateway over real sockets: one call straight down, start and stop in order, what is refused before any of it."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.app import App, create_app
from gateway.app_protocol import MAX_HEAD
from gateway.core import deployment
from gateway.core.events import PoliciesLoaded
from gateway.ports import PolicyError
from tests.serving import KEYS, Served, served, settings_in
from tests.upstreams.origin import Connection
from tests.waiting import START_S, WAIT_S

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
async def it(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Served]:
    async with served(tmp_path) as it:
        yield it


async def opened(client: httpx.AsyncClient, **asked: Any) -> str:
    response = await client.post("/v1/runs", json=asked)
    assert response.status_code == 201, response.text
    return response.json()["run"]  # type: ignore[no-any-return]


async def test_a_call_goes_straight_down_to_the_tool_and_back(it: Served) -> None:
    async with it.client() as bot:
        run = await opened(bot)
        response = await bot.post(f"/v1/runs/{run}/calls", json={"tool": "shop.get_order", "arguments": {"id": "a/b"}})
        assert (response.status_code, response.json()["result"]["structuredContent"]["target"]) == (200, "/orders/a%2Fb")
        assert [seen.target for seen in it.origin.seen] == ["/orders/a%2Fb"]
        assert "server" not in response.headers


async def test_a_write_carries_its_key_and_its_repeat_sends_nothing(it: Served) -> None:
    async with it.client() as bot:
        run = await opened(bot)
        for _ in range(2):
            response = await bot.post(f"/v1/runs/{run}/calls", json={"tool": "shop.refund", "arguments": {"amount": 5}})
        assert response.json()["replayed"] is True
        assert len(it.origin.seen) == 1
        assert len(it.origin.seen[0].headers["idempotency-key"]) == 64


async def test_a_refused_call_sends_no_byte(it: Served) -> None:
    async with it.client() as bot:
        run = await opened(bot)
        assert (await bot.post(f"/v1/runs/{run}/calls", json={"tool": "shop.get_order", "arguments": {"id": 7}})).status_code == 422
        assert (await bot.post(f"/v1/runs/{run}/calls", json={"tool": "shop.refund", "arguments": {"amount": 500}})).status_code == 202
        assert it.origin.connections == 0


async def test_many_callers_at_once_are_all_answered(it: Served) -> None:
    async with it.client() as bot:
        run = await opened(bot)
        bodies = [{"tool": "shop.get_order", "arguments": {"id": str(n)}} for n in range(30)]
        answers = await asyncio.gather(*(bot.post(f"/v1/runs/{run}/calls", json=body) for body in bodies))
        assert sorted(answer.status_code for answer in answers) == [200] * 10 + [429] * 20
        assert len(it.origin.seen) == 10


async def test_the_mcp_door_stands_at_its_two_paths(it: Served) -> None:
    async with it.client() as bot:
        for path in ("/mcp", "/r/ticket-1/mcp"):
            response = await bot.post(path, json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
            assert "jsonrpc" in response.json()
        for path in ("/r/mcp", "/r/a/b/mcp", "/mcp/"):
            assert (await bot.post(path, json={})).json()["reason"] == "route.unknown"


async def test_open_runs_are_capped_as_the_settings_say(it: Served) -> None:
    async with it.client() as bot:
        for _ in range(3):
            await opened(bot)
        response = await bot.post("/v1/runs", json={})
        assert (response.status_code, response.json()["reason"]) == (429, "budget.open_runs")


async def test_another_host_and_a_foreign_page_are_refused_before_anything_else(it: Served) -> None:
    async with it.client(None) as nobody:
        for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
            for path in ("/v1/runs", "/mcp", "/healthz"):
                response = await nobody.post(path, headers=headers)
                assert (response.status_code, response.json()["reason"]) == (403, "origin.forbidden")


@pytest.mark.parametrize("behind_proxy", [(), ("10.0.0.7",)])
async def test_the_settings_may_name_the_hosts_that_it_is_asked_by(tmp_path: Path, behind_proxy: tuple[str, ...]) -> None:
    app = create_app(replace(settings_in(tmp_path), hosts=("gateway.example",), behind_proxy=behind_proxy))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as nobody:
        statuses = [
            (await nobody.get("/healthz", headers={"host": host})).status_code
            for host in ("gateway.example", "GATEWAY.example:443", "localhost", "evil.example", "gateway.example:80@evil.example")
        ]
    assert statuses == [200, 200, 200, 403, 403]


async def test_a_head_without_end_is_cut_off(it: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(it.url.rpartition(":")[2]))
    writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\na: " + b"x" * MAX_HEAD + b"\r\n\r\n")
    assert b"alive" not in await asyncio.wait_for(reader.read(), 5)
    writer.close()


async def test_a_websocket_is_not_spoken(it: Served) -> None:
    async with it.client() as bot:
        upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-key": "x", "sec-websocket-version": "13"}
        assert (await bot.get("/v1/runs", headers=upgrade)).status_code == 200


async def test_a_body_over_the_limit_is_refused_without_being_taken(it: Served) -> None:
    async with it.client() as bot:
        response = await bot.post("/v1/runs", content=b"x" * (2 << 20))
        assert (response.status_code, response.json()["reason"]) == (413, "request.too_large")


# ---- life ---------------------------------------------------------------------------------------------------------------


async def test_what_was_recorded_is_there_after_a_restart(tmp_path: Path) -> None:
    call = {"tool": "shop.refund", "arguments": {"amount": 5}, "call_id": "c1"}
    async with served(tmp_path) as it, it.client() as bot:
        opening = (await bot.post("/v1/runs", json={"run_key": "a"})).json()
        first = (await bot.post(f"/v1/runs/{opening['run']}/calls", json=call)).json()
        assert first["status"] == "succeeded"
    async with served(tmp_path) as it, it.client() as bot:
        token = {"authorization": f"Bearer {opening['token']}"}
        again = (await bot.post(f"/v1/runs/{opening['run']}/calls", json=call, headers=token)).json()
        assert (again["replayed"], again["result"]) == (True, first["result"])
        fresh = await bot.post(f"/v1/runs/{opening['run']}/calls", json={"tool": "shop.get_order", "arguments": {"id": "1"}})
        assert fresh.status_code == 200
        assert [seen.method for seen in it.origin.seen] == ["GET"]
        assert (await bot.post("/v1/runs", json={"run_key": "a"})).json()["run"] == opening["run"]


async def test_starting_freezes_what_stays_and_stopping_answers_not_ready(tmp_path: Path) -> None:
    before = gc.get_freeze_count()
    async with served(tmp_path) as it, it.client() as bot:
        assert gc.get_freeze_count() > before
        it.app.engine.stopping = True
        response = await bot.get("/readyz")
        assert (response.status_code, response.json()["reason"]) == (503, "gateway.stopping")
    gc.unfreeze()


async def test_a_stop_lets_what_is_on_the_wire_finish(tmp_path: Path) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(connection: Connection) -> None:
        await connection.request()
        asked.set()
        await go_on.wait()
        await connection.answer(b'{"done": true}')

    async with AsyncExitStack() as later, served(tmp_path, slow) as it:
        bot = await later.enter_async_context(it.client())
        run = await opened(bot)
        calling = asyncio.ensure_future(bot.post(f"/v1/runs/{run}/calls", json={"tool": "shop.refund", "arguments": {"amount": 5}}))
        await asyncio.wait_for(asked.wait(), 5)
        asyncio.get_running_loop().call_later(0.2, go_on.set)
    response = await calling
    assert (response.status_code, response.json()["result"]["structuredContent"]) == (200, {"done": True})


async def test_a_stop_records_the_outcome_of_a_write_whose_caller_has_left(tmp_path: Path) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()
    refund = {"tool": "shop.refund", "arguments": {"amount": 5}}

    async def slow(connection: Connection) -> None:
        await connection.request()
        asked.set()
        await go_on.wait()
        await connection.answer(b'{"done": true}')

    async with served(tmp_path, slow) as it:
        async with it.client() as bot:
            run = await opened(bot)
            calling = asyncio.ensure_future(bot.post(f"/v1/runs/{run}/calls", json=refund))
            await asyncio.wait_for(asked.wait(), 5)
            calling.cancel()
        asyncio.get_running_loop().call_later(1, go_on.set)
    async with served(tmp_path) as it, it.client() as bot:
        response = await bot.post(f"/v1/runs/{run}/calls", json=refund)
        assert (response.json()["replayed"], response.json()["result"]["structuredContent"]) == (True, {"done": True})
        assert not it.origin.seen


async def lifespan(app: App) -> list[dict[str, Any]]:
    """What the app says when it is started and stopped."""
    said: list[dict[str, Any]] = []
    asked = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> dict[str, Any]:
        return {"type": next(asked)}

    async def send(message: Any) -> None:
        said.append(message)

    await app({"type": "lifespan"}, receive, send)
    return said


async def test_a_ledger_that_another_gateway_has_open_is_a_failed_start(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    async with served(tmp_path):
        said = await lifespan(create_app(settings))
        assert [message["type"] for message in said] == ["lifespan.startup.failed"]
        assert "gateway.db" in said[0]["message"]
    assert [message["type"] for message in await lifespan(create_app(settings))] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_the_loaded_policies_are_recorded_once_with_their_texts(tmp_path: Path) -> None:
    for text, number in (("", 1), ("", 1), ("# changed\n", 2)):
        async with served(tmp_path, extra_policy=text) as it:
            ledger = it.app.engine.ledger
            state, events = await ledger.state(deployment.STREAM), await ledger.events(deployment.STREAM)
            loaded = [one.event for one in events if isinstance(one.event, PoliciesLoaded)]
            assert (state.number, state.policies) == (number, it.app.policies.digest)
            assert [event.files for event in loaded] == [("shop.yaml",)] * number
            for policy, source in it.app.policies.documents():
                assert await ledger.policy_text(policy.digest) == source


# ---- refused before anything is open ------------------------------------------------------------------------------------


async def test_a_broken_policy_is_a_policy_error(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    (tmp_path / "policies" / "shop.yaml").write_text("version: 1\nname: shop\n")
    with pytest.raises(PolicyError):
        create_app(settings)
    assert not (tmp_path / "gateway.db").exists()


async def test_without_a_secret_one_is_made_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = replace(settings_in(tmp_path), secret=())
    create_app(settings)
    assert "secret" in caplog.text


async def serving(folder: Path) -> asyncio.subprocess.Process:
    """`serve` in a process of its own."""
    settings = f"load_settings({str(folder / 'gateway.yaml')!r}, os.environ)"
    code = f"import os; from gateway.app import serve; from gateway.settings import load_settings; serve({settings})"
    environment = {**os.environ, "GATEWAY_SECRET": "s" * 40, "PYTHONPATH": str(ROOT)}
    return await asyncio.create_subprocess_exec(sys.executable, "-c", code, env=environment, stderr=asyncio.subprocess.PIPE)


async def said(process: asyncio.subprocess.Process, word: bytes) -> bytes:
    """Its log up to a line with `word`."""
    assert process.stderr is not None
    log = b""
    while word not in log:
        line = await asyncio.wait_for(process.stderr.readline(), START_S)
        assert line, log.decode()
        log += line
    return log


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
async def test_a_served_gateway_stops_in_order_on_a_signal(tmp_path: Path, end: signal.Signals) -> None:
    settings_in(tmp_path)
    process = await serving(tmp_path)
    address = (await said(process, b"running on")).partition(b"running on ")[2].split()[0].decode()
    async with httpx.AsyncClient(base_url=address, headers={"authorization": f"Bearer {KEYS['agent:bot']}"}, trust_env=False) as bot:
        assert (await bot.post("/v1/runs", json={})).status_code == 201
    process.send_signal(end)
    await asyncio.wait_for(process.communicate(), WAIT_S)
    assert process.returncode in (0, -end)


async def test_a_gateway_that_cannot_start_ends_with_1_and_says_why(tmp_path: Path) -> None:
    async with served(tmp_path):
        process = await serving(tmp_path)
        _, log = await asyncio.wait_for(process.communicate(), START_S)
        assert process.returncode == 1
        assert b"gateway.db" in log.splitlines()[-1]
        assert b"ERROR" not in log
