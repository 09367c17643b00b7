"""What the REST door does for every operation: authentication, routing, errors, the parts open to all."""

import asyncio
import logging

import httpx
import pytest

from gateway.doors.auth import Authenticator
from gateway.doors.names import Names
from gateway.doors.rest import RestDoor, calls
from gateway.doors.rest.door import OPERATIONS
from gateway.ports import LedgerFault
from gateway.system import SystemClock
from tests.doors.rest.stage import Stage, opened

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.perform.__name__)
async def test_every_operation_needs_a_bearer(it: Stage, operation: calls.Operation) -> None:
    path = operation.path.format(run="run_x", turn=1, call="call_x_1", hold="hold_x_1", result="abc")
    for key in (None, "nobody's"):
        async with it.client(key) as client:
            response = await client.request(operation.method, path, json={})
            assert (response.status_code, response.json()["reason"]) == (401, "auth.required")
            assert response.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/", "/v1/run", "/v1/runs/", "/v1/runs/a/b", "/v1/runs/a/calls/", "/v2/runs", "/v1/runs//calls/x/y"])
async def test_a_path_that_does_not_exist_is_a_problem(it: Stage, path: str) -> None:
    async with it.client("bot") as bot:
        response = await bot.get(path)
        assert (response.status_code, response.json()["reason"]) == (404, "route.unknown")


@pytest.mark.parametrize(("path", "allowed"), [("/v1/runs", "GET, POST"), ("/v1/runs/a", "GET"), ("/v1/runs/a/calls", "POST"), ("/healthz", "GET")])
async def test_another_method_is_a_problem_with_those_there_are(it: Stage, path: str, allowed: str) -> None:
    async with it.client("bot") as bot:
        for method in ("DELETE", "PUT", "PATCH", "OPTIONS"):
            response = await bot.request(method, path)
            assert (response.status_code, response.json()["reason"], response.headers["allow"]) == (405, "route.method", allowed)


async def test_head_answers_as_get_without_a_body(it: Stage) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot)
        for path in (f"/v1/runs/{run}", "/healthz"):
            response = await bot.head(path)
            assert (response.status_code, response.content) == (200, b"")


async def test_a_body_is_not_read_where_none_is_taken(it: Stage) -> None:
    async with it.client("bot") as bot:
        run = await opened(bot)
        assert (await bot.request("GET", f"/v1/runs/{run}", content=b"{broken")).status_code == 200


async def test_an_unknown_query_parameter_is_named(it: Stage) -> None:
    async with it.client("bot") as bot:
        response = await bot.get("/v1/runs?stat=open")
        assert response.status_code == 400
        assert "stat" in response.json()["detail"]


async def test_a_run_id_that_is_something_else_is_only_unknown(it: Stage) -> None:
    async with it.client("bot") as bot:
        for run in ("gateway", "principal:agent:bot", "run_", "run_../x", "run_%00", "..%2f..", "%ff"):
            assert (await bot.get(f"/v1/runs/{run}")).status_code == 404


async def test_the_ledgers_absence_is_503_without_its_cause(it: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def broken(*args: object) -> None:
        raise LedgerFault("disk /secret/place is full")

    async with it.client("bot") as bot:
        run = await opened(bot)
        monkeypatch.setattr(it.engine, "open_turn", broken)
        response = await bot.post(f"/v1/runs/{run}/turns")
        assert (response.status_code, response.json()["reason"], response.headers["retry-after"]) == (503, "ledger.unavailable", "2")
        assert "/secret" not in response.text
        assert "/secret" in caplog.text


async def test_a_mistake_of_our_own_is_500_and_its_traceback_is_in_the_log(
    it: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*args: object) -> None:
        raise RuntimeError("s3cret")

    async with it.client("bot") as bot:
        run = await opened(bot)
        monkeypatch.setattr(it.engine, "open_turn", broken)
        response = await bot.post(f"/v1/runs/{run}/turns")
        assert (response.status_code, response.json()["reason"]) == (500, "gateway.failed")
        assert "s3cret" not in response.text
        assert any(record.exc_info and record.levelno == logging.ERROR for record in caplog.records)


async def test_a_caller_that_leaves_within_its_request_is_not_answered(it: Stage) -> None:
    sent: list[object] = []

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def send(message: object) -> None:
        sent.append(message)

    headers = [(b"authorization", b"Bearer bot")]
    await it.door({"type": "http", "method": "POST", "path": "/v1/runs", "headers": headers, "query_string": b""}, receive, send)
    assert sent == []


async def test_a_caller_that_leaves_ends_a_read_that_nobody_else_waits_for(it: Stage) -> None:
    going, ended, left = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(arguments: object) -> dict[str, object]:
        going.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return {}

    it.shelf.acts["crm.get_order"] = slow
    async with it.client("bot") as bot:
        run = await opened(bot)
    parts = [{"type": "http.request", "body": b'{"tool":"crm.get_order","arguments":{"id":"1"}}'}]

    async def receive() -> dict[str, object]:
        if parts:
            return parts.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: object) -> None:
        pass

    scope = {
        "type": "http", "method": "POST", "path": f"/v1/runs/{run}/calls", "headers": [(b"authorization", b"Bearer bot")], "query_string": b"",
    }  # fmt: skip
    answering = asyncio.ensure_future(it.door(scope, receive, send))
    await asyncio.wait_for(going.wait(), 5)
    left.set()
    await asyncio.wait_for(asyncio.gather(answering, ended.wait()), 5)


async def test_a_server_that_cannot_wait_any_longer_says_so(it: Stage) -> None:
    going, sent = asyncio.Event(), []

    async def slow(arguments: object) -> dict[str, object]:
        going.set()
        await asyncio.sleep(60)
        return {}

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b'{"tool":"crm.get_order","arguments":{"id":"1"}}'}

    async def send(message: object) -> None:
        sent.append(message)

    it.shelf.acts["crm.get_order"] = slow
    async with it.client("bot") as bot:
        run = await opened(bot)
    scope = {
        "type": "http", "method": "POST", "path": f"/v1/runs/{run}/calls", "headers": [(b"authorization", b"Bearer bot")], "query_string": b"",
    }  # fmt: skip
    answering = asyncio.ensure_future(it.door(scope, receive, send))
    await asyncio.wait_for(going.wait(), 5)
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering
    assert sent[0]["status"] == 503
    assert b"gateway.stopping" in sent[1]["body"]


# ---- open to all --------------------------------------------------------------------------------------------------------


async def test_health_and_the_document_need_no_bearer(it: Stage) -> None:
    async with it.client(None) as nobody:
        assert (await nobody.get("/healthz")).json() == {"status": "alive"}
        assert (await nobody.get("/readyz")).json() == {"status": "ready"}
        assert (await nobody.get("/openapi.json")).json()["openapi"] == "3.1.0"


async def test_a_gateway_that_is_not_ready_says_503(it: Stage) -> None:
    async def not_yet() -> None:
        raise LedgerFault("still opening")

    door = RestDoor(it.engine, Authenticator([], [b"s" * 32], SystemClock()), Names(it.shelf), not_yet, "0")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(door), base_url="http://localhost") as nobody:
        assert (await nobody.get("/readyz")).status_code == 503
        assert (await nobody.get("/healthz")).status_code == 200


async def test_the_hot_route_is_met_before_any_routing(it: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def routed(*args: object) -> None:
        raise AssertionError("routed")

    async with it.client("bot") as bot:
        run = await opened(bot)
        monkeypatch.setattr(it.door, "_router", routed)
        response = await bot.post(f"/v1/runs/{run}/calls", json={"tool": "crm.get_order", "arguments": {"id": "1"}})
        assert response.status_code == 200
