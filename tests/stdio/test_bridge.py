"""From stdio to HTTP and back, over a real socket to an origin that answers as each test says: headers, sessions, cancels, faults."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from gateway.stdio import bridge as under_test
from gateway.stdio.bridge import Bridge, Gateway
from gateway.upstreams.lines import Overlong
from tests.e2e.waiting import until
from tests.upstreams.origin import Connection, Origin, Seen, origin

pytestmark = pytest.mark.anyio

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
SESSION = {"mcp_session_id": "s1"}
Answer = Callable[[Connection, Any], Awaitable[None]]


def modern(id: Any, method: str = "tools/call", **params: Any) -> dict[str, Any]:
    given = {"name": "read", "arguments": {}} if method == "tools/call" else {}
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {**given, **params, "_meta": META}}


def asked(id: Any, method: str = "ping", **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def told(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def result(id: Any, **result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode()


def error(id: Any, code: int) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}}).encode()


INITIALIZE = asked(0, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "c", "version": "1"})


@dataclass
class Way:
    """The port Link, to one endpoint after the other."""

    endpoints: list[str]
    client: httpx.AsyncClient
    renewed: int = 0

    def __post_init__(self) -> None:
        self.found = Gateway(self.client, self.endpoints.pop(0))

    async def renew(self, lost: Gateway) -> None:
        if self.found is lost:
            self.renewed += 1
            if not self.endpoints:
                raise ConnectionError("nobody there")
            self.found = Gateway(self.client, self.endpoints.pop(0))


@dataclass
class It:
    """`said`: what the client got, oldest first."""

    bridge: Bridge
    way: Way
    origin: Origin
    said: list[Any] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def hear(self, message: Any) -> None:
        await self.bridge.hear(message if isinstance(message, bytes | Overlong) else json.dumps(message).encode())

    async def answers(self, count: int) -> list[Any]:
        async with asyncio.timeout(5):
            while len(self.said) < count:
                self.news.clear()
                await self.news.wait()
        return self.said

    async def requests(self, count: int) -> list[Seen]:
        await until(lambda: len(self.origin.seen) >= count, f"{count} requests", 5)
        return self.origin.seen


@asynccontextmanager
async def bridged(answer: Answer, *more: str) -> AsyncIterator[It]:
    """`answer(connection, message)` answers each POST."""

    async def script(connection: Connection) -> None:
        while True:
            seen = await connection.request()
            if seen.method == "DELETE":
                await connection.answer(b"", "202 Accepted")
            else:
                await answer(connection, json.loads(seen.body))

    async with origin(script) as there, httpx.AsyncClient(trust_env=False, timeout=None) as client:
        way = Way([f"{there.url}/mcp", *(one or f"{there.url}/mcp" for one in more)], client)

        async def say(data: bytes) -> None:
            it.said.append(json.loads(data))
            it.news.set()

        it = It(Bridge(way, say), way, there)
        yield it
        await it.bridge.close()


async def echo(connection: Connection, message: Any) -> None:
    if "id" not in message or "method" not in message:
        await connection.answer(b"", "202 Accepted")
    elif message["method"] == "initialize":
        await connection.answer(result(message["id"]), **SESSION)
    else:
        await connection.answer(result(message["id"], method=message["method"]))


async def begin(connection: Connection) -> None:
    await connection.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")


async def event(connection: Connection, data: bytes) -> None:
    text = b"event: message\ndata: " + data + b"\n\n"
    await connection.write(b"%x\r\n" % len(text) + text + b"\r\n")


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


@pytest.mark.parametrize("body", [b"<html>", b"", b"not json", b"[]"])
@pytest.mark.parametrize("kind", ["text/html", "application/json"])
async def test_each_request_is_answered_whatever_comes_of_it(body: bytes, kind: str) -> None:
    async def page(connection: Connection, message: Any) -> None:
        await connection.answer(body, "502 Bad Gateway", content_type=kind)

    async with bridged(page) as it:
        await it.hear(modern(1))
        assert (await it.answers(1))[-1] == [] or it.said[-1]["id"] == 1


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
