"""From stdio to HTTP and back, over a real socket to an origin that answers as each test says: headers, streams, sessions, cancels."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.stdio.way import INITIALIZE, META, asked, begin, bridged, echo, error, event, modern, result, told
from tests.upstreams.origin import Connection

pytestmark = pytest.mark.anyio


# ---- 2026-07-28 ---------------------------------------------------------------------------------------------------------


async def test_a_request_gets_the_headers_that_repeat_it_and_its_answer_comes_back() -> None:
    async with bridged(echo) as it:
        body = b' {"jsonrpc":"2.0", "id":"a", "method":"tools/call", "params":{"name":"r\xc3\xa9ad", "_meta":' + json.dumps(META).encode() + b"}}"
        await it.hear(body)
        assert await it.answers(1) == [json.loads(result("a", method="tools/call"))]
        [seen] = it.origin.seen
        assert (seen.headers["mcp-protocol-version"], seen.headers["mcp-method"]) == ("2026-07-28", "tools/call")
        assert (seen.headers["mcp-name"], seen.headers["accept"]) == ("=?base64?csOpYWQ=?=", "application/json, text/event-stream")
        assert (seen.body, "mcp-session-id" in seen.headers) == (body, False)


async def test_what_comes_as_a_stream_is_said_as_it_comes() -> None:
    going = asyncio.Event()

    async def stream(connection: Connection, message: Any) -> None:
        await begin(connection)
        await event(connection, b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}')
        await going.wait()
        await event(connection, result(1))
        await connection.write(b"0\r\n\r\n")

    async with bridged(stream) as it:
        await it.hear(modern(1))
        assert (await it.answers(1))[0]["method"] == "notifications/progress"
        going.set()
        assert (await it.answers(2))[1]["id"] == 1


async def test_a_cancel_closes_the_stream_and_nothing_more_is_said_of_the_request() -> None:
    closed = asyncio.Event()

    async def hang(connection: Connection, message: Any) -> None:
        if message["id"] == 2:
            await echo(connection, message)
            return
        await begin(connection)
        await connection.closed()
        closed.set()

    async with bridged(hang) as it:
        await it.hear(modern(1))
        await it.requests(1)
        await it.hear(told("notifications/cancelled", requestId=1))
        async with asyncio.timeout(5):
            await closed.wait()
        await it.hear(modern(2, "server/discover"))
        assert [one["id"] for one in await it.answers(1)] == [2]
        assert len(it.origin.seen) == 2


async def test_a_marked_argument_is_repeated_once_its_tool_is_known() -> None:
    """A client on stdio repeats none, and the door wants it."""
    marked = {"type": "object", "properties": {"account": {"type": "string", "x-mcp-header": "Account"}}}

    async def strict(connection: Connection, message: Any) -> None:
        headers = it.origin.seen[-1].headers
        if message["method"] == "tools/list":
            first = "cursor" not in message["params"]
            tools = [{"name": "other", "inputSchema": {}}] if first else [{"name": "read", "inputSchema": marked}]
            await connection.answer(result(message["id"], tools=tools, **({"nextCursor": "c"} if first else {})))
        elif headers.get("mcp-param-account") == "a 1":
            await connection.answer(result(message["id"]))
        else:
            await connection.answer(error(message["id"], -32020), "400 Bad Request")

    async with bridged(strict) as it:
        await it.hear(modern(1, arguments={"account": "a 1"}))
        assert (await it.answers(1))[0]["result"] == {}
        await it.hear(modern(2, arguments={"account": "a 1"}))
        await it.answers(2)
        assert [json.loads(seen.body)["method"] for seen in it.origin.seen] == ["tools/call", "tools/list", "tools/list", "tools/call", "tools/call"]
        await it.hear(modern(3, arguments={"account": 2**60}))
        assert (await it.answers(3))[2]["error"]["code"] == -32020


@pytest.mark.parametrize("message", [
    modern(1, "t\u00e9st"), modern(1, name=7), modern(1, name=None), modern(1, arguments=[1]),
    {**modern(1), "params": {"_meta": {**META, "io.modelcontextprotocol/protocolVersion": "2\n\u00e9"}}},
])  # fmt: skip
async def test_whatever_a_request_holds_it_reaches_the_door(message: Any) -> None:
    async with bridged(echo) as it:
        await it.hear(message)
        assert (await it.answers(1))[0]["id"] == 1
        assert all(value.isascii() for value in it.origin.seen[0].headers.values())


# ---- sessions -----------------------------------------------------------------------------------------------------------


async def test_a_session_goes_with_each_message_and_ends_with_the_client() -> None:
    async with bridged(echo) as it:
        for message in (INITIALIZE, told("notifications/initialized"), asked(1), {"jsonrpc": "2.0", "id": 5, "result": {}}):
            await it.hear(message)
        await it.answers(2)
        seen = await it.requests(4)
        assert "mcp-session-id" not in seen[0].headers
        assert {(one.headers.get("mcp-session-id"), one.headers.get("mcp-protocol-version")) for one in seen[1:]} == {("s1", "2025-06-18")}
        await it.bridge.close()
        assert (it.origin.seen[-1].method, it.origin.seen[-1].headers["mcp-session-id"]) == ("DELETE", "s1")


async def test_a_cancel_is_told_and_what_still_comes_of_the_request_is_not() -> None:
    release = asyncio.Event()

    async def slow(connection: Connection, message: Any) -> None:
        if message.get("id") == 1:
            await release.wait()
        if message.get("method") == "notifications/cancelled":
            release.set()
        await echo(connection, message)

    async with bridged(slow) as it:
        await it.hear(INITIALIZE)
        await it.hear(asked(1, "tools/call"))
        await it.requests(2)
        await it.hear(told("notifications/cancelled", requestId=1))
        await it.requests(3)
        await it.hear(asked(2))
        assert [one["id"] for one in await it.answers(2)] == [0, 2]


async def test_what_a_server_asks_is_said_and_the_clients_answer_goes_back() -> None:
    answered = asyncio.Event()

    async def asking(connection: Connection, message: Any) -> None:
        if "result" in message:
            answered.set()
            await connection.answer(b"", "202 Accepted")
        elif message["method"] == "tools/call":
            await begin(connection)
            await event(connection, json.dumps(asked("q", "elicitation/create")).encode())
            await answered.wait()
            await event(connection, result(1))
            await connection.write(b"0\r\n\r\n")
        else:
            await echo(connection, message)

    async with bridged(asking) as it:
        await it.hear(INITIALIZE)
        await it.hear(asked(1, "tools/call"))
        assert (await it.answers(2))[1]["method"] == "elicitation/create"
        await it.hear({"jsonrpc": "2.0", "id": "q", "result": {"action": "accept"}})
        assert (await it.answers(3))[2]["id"] == 1


async def test_a_session_that_the_gateway_does_not_know_is_begun_anew() -> None:
    async def forgetful(connection: Connection, message: Any) -> None:
        session = it.origin.seen[-1].headers.get("mcp-session-id")
        if message.get("method") == "initialize":
            begun = sum(json.loads(seen.body)["method"] == "initialize" for seen in it.origin.seen)
            await connection.answer(result(message["id"]), mcp_session_id=f"s{begun}")
        elif session == "s1" and message.get("method") == "ping":
            await connection.answer(error(None, -32600), "404 Not Found")
        else:
            await echo(connection, message)

    async with bridged(forgetful) as it:
        await it.hear(INITIALIZE)
        await asyncio.gather(*(it.hear(asked(id)) for id in (1, 2)))
        said = await it.answers(3)
        assert ({one["id"] for one in said}, [one for one in said if "error" in one]) == ({0, 1, 2}, [])


async def test_a_batch_is_answered_as_one() -> None:
    async def batch(connection: Connection, message: Any) -> None:
        await connection.answer(b"[" + result(1) + b"," + result(2) + b"]")

    async with bridged(batch) as it:
        await it.hear([asked(1), asked(2)])
        assert [one["id"] for one in (await it.answers(1))[0]] == [1, 2]
