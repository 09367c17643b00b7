"""What goes wrong between a client on stdio and its gateway: lines that can't be read, gateways that are lost. Each request is answered once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.stdio import bridge as under_test
from gateway.stdio.bridge import Gateway
from gateway.upstreams.lines import Overlong
from tests.stdio.way import begin, bridged, echo, error, event, modern, told
from tests.upstreams.origin import Connection

pytestmark = pytest.mark.anyio


# ---- what can't be read -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "id"),
    [
        (b"{", None), (b'{"jsonrpc":"2.0","id":3,"method":"ping","x":NaN}', 3), (b'{"id":"a","id":"b"}', "a"),
        (b'{"method":"x","params":{"id":7},"params":1,"jsonrpc":"2.0","id":4}', 4), (b'{"method":"x","params":1,"params":{"id":7}}', None),
        (Overlong(b'{"jsonrpc": "2.0", "id": "a", "method"', b"..."), "a"), (Overlong(b'{"method":"tools/call","params":{', b'},"id": 9}'), 9),
        (Overlong(b"xxxx", b'{"id": 9}}'), None),
    ],
)  # fmt: skip
async def test_what_can_not_be_read_is_refused_under_its_id_where_that_shows(line: Any, id: Any) -> None:
    async with bridged(echo) as it:
        await it.hear(line)
        [said] = await it.answers(1)
        assert (said["id"], said["error"]["code"] in (-32700, -32600), it.origin.seen) == (id, True, [])


async def test_an_empty_line_is_nothing() -> None:
    async with bridged(echo) as it:
        for line in (b"", b"  \t"):
            await it.hear(line)
        await it.hear(modern(1, "server/discover"))
        assert len(await it.answers(1)) == 1


# ---- faults -------------------------------------------------------------------------------------------------------------


async def test_an_error_without_an_id_gets_the_requests() -> None:
    async def refused(connection: Connection, message: Any) -> None:
        await connection.answer(error(None, -32000), "401 Unauthorized")

    async with bridged(refused) as it:
        await it.hear(modern("x"))
        assert (await it.answers(1))[0]["id"] == "x"


@pytest.mark.parametrize("body", [b"<html>", b"", b"not json", b"null", b'{"error": 5}', b'{"jsonrpc": "2.0", "id": 1, "error": {"code": "x"}}'])
@pytest.mark.parametrize(("status", "kind"), [("502 No", "text/html"), ("200 OK", "application/json"), ("400 No", "application/json")])
async def test_each_request_is_answered_under_its_id_whatever_comes_of_it(body: bytes, status: str, kind: str) -> None:
    async def page(connection: Connection, message: Any) -> None:
        await connection.answer(body, status, content_type=kind)

    async with bridged(page) as it:
        await it.hear(modern(1))
        assert [one["id"] for one in await it.answers(1)] == [1]


async def test_a_gateway_that_was_lost_is_found_again_and_told_once_more() -> None:
    async def once(connection: Connection, message: Any) -> None:
        if len(it.origin.seen) == 1:
            connection.reset()
            raise ConnectionError
        await echo(connection, message)

    async with bridged(once, "") as it:
        await it.hear(modern(1))
        assert "result" in (await it.answers(1))[0]
        assert it.way.renewed == 1


async def test_where_there_is_no_gateway_any_more_each_request_is_told_so() -> None:
    async with bridged(echo) as it:
        it.way.found = Gateway(it.way.client, "http://127.0.0.1:9/mcp")
        for id in (1, 2):
            await it.hear(modern(id))
        said = await it.answers(2)
        assert {one["id"]: one["error"]["code"] for one in said} == {1: -32000, 2: -32000}
        await it.hear(told("notifications/initialized"))


async def test_a_stream_that_is_cut_is_answered_and_not_told_again() -> None:
    async def cut(connection: Connection, message: Any) -> None:
        await begin(connection)
        await event(connection, b'{"jsonrpc":"2.0","method":"notifications/progress","params":{}}')
        raise ConnectionError

    async with bridged(cut, "") as it:
        await it.hear(modern(1))
        assert (await it.answers(2))[1]["error"]["code"] == -32000
        assert len(it.origin.seen) == 1


async def test_there_are_only_so_many_requests_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "MAX_IN_FLIGHT", 1)
    release = asyncio.Event()

    async def slow(connection: Connection, message: Any) -> None:
        await release.wait()
        await echo(connection, message)

    async with bridged(slow) as it:
        await it.hear(modern(1))
        await it.hear(modern(2))
        assert [(one["id"], "error" in one) for one in await it.answers(1)] == [(2, True)]
        release.set()
        await it.answers(2)
        await it.hear(modern(3))
        assert (await it.answers(3))[2]["id"] == 3


async def test_the_last_answers_are_waited_for_a_moment_and_the_rest_is_closed() -> None:
    closed = asyncio.Event()

    async def some(connection: Connection, message: Any) -> None:
        if message["id"] == 1:
            await echo(connection, message)
            return
        await connection.closed()
        closed.set()

    async with bridged(some) as it:
        await it.hear(modern(1))
        await it.hear(modern(2))
        await it.requests(2)
        await it.bridge.finish(0.3)
        await it.bridge.close()
        async with asyncio.timeout(5):
            await closed.wait()
        assert [one["id"] for one in it.said] == [1]
