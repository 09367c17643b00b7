"""MCP over HTTP against a real server that misbehaves in every way it can, in both eras: what each fault means, and what is kept."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from gateway.core.outcomes import FAULTS
from gateway.ports import Client, UpstreamFault
from gateway.upstreams.credentials import Credentials
from gateway.upstreams.mcp_http import McpHttp
from tests.upstreams.mcp_origin import END, ERAS, SSE, Server, chunk, done, event, serving
from tests.upstreams.origin import Connection, dispatch, origin, tool

pytestmark = pytest.mark.anyio
both = pytest.mark.parametrize("era", ERAS)

JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


async def send(upstream: McpHttp, **more):
    async with asyncio.timeout(5):
        return await upstream.send(dispatch(**more))


async def fault(upstream: McpHttp, **more) -> UpstreamFault:
    with pytest.raises(UpstreamFault) as caught:
        await send(upstream, **more)
    assert caught.value.kind in FAULTS
    return caught.value


# ---- answers ------------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_call_is_answered_with_its_result(era, streamed):
    async def call(connection, message):
        if streamed:
            await connection.write(SSE + event(None, "1") + event(done(message)) + END)
        else:
            await connection.answer(json.dumps(done(message)).encode())

    server = Server(era, call)
    async with serving(server) as upstream:
        answer = await send(upstream, arguments={"amount": 5})
        assert (answer.result, answer.status) == ({"content": [{"type": "text", "text": "done"}]}, 200)
    assert [one["params"]["arguments"] for one in server.calls] == [{"amount": 5}]


async def test_a_2026_server_sees_its_request_in_the_headers():
    server = Server("modern")
    async with serving(server) as upstream:
        await send(upstream, arguments={"to": "Zoë"}, tool=tool("shop.pay", inputSchema=server.tools[0]["inputSchema"]))
    headers = dict(server.posts)["tools/call"].headers
    assert (headers["mcp-protocol-version"], headers["mcp-method"], headers["mcp-name"]) == ("2026-07-28", "tools/call", "pay")
    assert headers["mcp-param-to"] == "=?base64?Wm/Dqw==?="
    assert "mcp-session-id" not in headers


async def test_a_session_is_named_in_every_request_and_ended_on_closing():
    server = Server("legacy")
    async with serving(server, credentials=Credentials({"Authorization": "Bearer s3cret"})) as upstream:
        await send(upstream)
    assert [method for method, _ in server.posts][:3] == ["server/discover", "initialize", "notifications/initialized"]
    for method, seen in server.posts:
        assert seen.headers["authorization"] == "Bearer s3cret"
        assert seen.headers.get("mcp-session-id") == (None if method in ("server/discover", "initialize") else "session-1")
        assert seen.headers.get("mcp-protocol-version") == {"server/discover": "2026-07-28", "initialize": None}.get(method, "2025-11-25")
    ended = server.origin.seen[-1]
    assert (ended.method, ended.headers["mcp-session-id"]) == ("DELETE", "session-1")


async def warmed(server: Server, upstream: McpHttp) -> int:
    """How many connections there are once nothing else goes on."""
    while server.era == "legacy" and not any(seen.method == "GET" for seen in server.origin.seen):
        await send(upstream)
    await send(upstream)
    return server.origin.connections


@both
async def test_calls_share_a_warm_connection_but_for_those_that_need_their_own(era):
    server = Server(era)
    async with serving(server) as upstream:
        before = await warmed(server, upstream)
        for _ in range(3):
            await send(upstream)
        assert server.origin.connections == before
        await send(upstream, fresh_connection=True)
        assert server.origin.connections == before + 1


@both
async def test_a_stream_that_was_answered_leaves_its_connection_warm(era):
    async def call(connection, message):
        await connection.write(SSE + event(done(message)) + END)

    server = Server(era, call)
    async with serving(server) as upstream:
        before = await warmed(server, upstream)
        for _ in range(3):
            await send(upstream)
        assert server.origin.connections == before


@both
async def test_progress_and_logs_reach_who_listens(era):
    async def call(connection, message):
        token = message["params"]["_meta"]["progressToken"]
        await connection.write(SSE + event({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}))
        await connection.write(event({"method": "notifications/message", "params": {"level": "info", "data": "x"}}))
        await connection.write(event(done(message)) + END)

    progress, logs = [], []
    async with serving(Server(era, call)) as upstream:
        await send(upstream, client=Client(progress.append, logs.append))
    assert ([one["progress"] for one in progress], [one["data"] for one in logs]) == ([1], ["x"])


@both
@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        ("400 Bad Request", {"error": {"code": -32602, "message": "Unknown tool"}}, (400, -32602)),
        ("500 Oops", {"error": {"code": -32603, "message": "x"}}, (500, -32603)),
        ("200 OK", {"error": {"code": -32603, "message": "x", "data": {"y": 1}}}, (200, -32603)),
        ("403 Forbidden", "who are you?", (403, 403)),
        ("502 Bad Gateway", "<html>", (502, 502)),
        ("307 Temporary", "", (307, 307)),
        ("429 Slow Down", "later", (429, 429)),
    ],
)
async def test_an_error_is_a_definite_answer_with_its_status(era, status, body, expected):
    async def call(connection, message):
        text = body if isinstance(body, str) else json.dumps({"jsonrpc": "2.0", "id": message["id"], **body})
        await connection.answer(text.encode(), status, retry_after="2", location="http://elsewhere/")

    async with serving(Server(era, call)) as upstream:
        answer = await send(upstream)
    assert (answer.status, answer.result["structuredContent"]["error"]["code"]) == expected
    assert answer.result["isError"] is True
    assert answer.retry_after_ms == (2000 if expected[0] >= 400 else None)


# ---- faults -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["http://127.0.0.1:{free}/mcp", "http://no-such-host.invalid/mcp", "https://127.0.0.1:{plain}/mcp"])
async def test_a_server_that_cannot_be_greeted_got_nothing(url):
    async with origin(Connection.hello) as it:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            upstream = McpHttp("shop", url.format(free=free.getsockname()[1], plain=it.url.rpartition(":")[2]))
            with pytest.raises(UpstreamFault) as caught:
                await upstream.open()
            assert (await fault(upstream)).kind == caught.value.kind == "unavailable"
            await upstream.close()


@both
async def test_a_server_that_is_gone_is_refused(era):
    server = Server(era)
    async with serving(server) as upstream:
        async with origin(server.script) as elsewhere:
            pass
        upstream._pool._origin = type(upstream._pool._origin).of(elsewhere.url)
        assert not FAULTS[(await fault(upstream, fresh_connection=True)).kind].sent


@both
async def test_without_time_left_nothing_is_sent(era):
    server = Server(era)
    async with serving(server) as upstream:
        assert not FAULTS[(await fault(upstream, remaining_ms=0)).kind].sent
    assert server.calls == []


async def test_a_closed_upstream_sends_nothing():
    assert (await fault(McpHttp("shop", "http://127.0.0.1:1/mcp"))).kind == "unavailable"


def broken(*pieces: bytes, then: str = "close"):
    """A call that is answered by these bytes; `{id}` in them is the request's."""

    async def call(connection: Connection, message) -> None:
        for piece in pieces:
            await connection.write(piece.replace(b"{id}", str(message["id"]).encode()))
        if then == "reset":
            connection.reset()
        elif then == "wait":
            await connection.closed()
        connection.close()

    return call


RESULT = b'{"jsonrpc":"2.0","id":{id},"result":{"content":[]}}'
WRONG = b'{"jsonrpc":"2.0","id":99,"result":{}}'


def whole(body: bytes) -> bytes:
    return JSON + b"content-length: %d\r\n\r\n%s" % (len(body), body)


@both
@pytest.mark.parametrize(
    ("call", "kinds"),
    [
        (broken(), {"closed"}),
        (broken(then="reset"), {"reset", "closed"}),
        (broken(JSON), {"cut"}),
        (broken(JSON + b"content-length: 100\r\n\r\n{"), {"cut"}),
        (broken(SSE + b"ff\r\ndata: {"), {"cut"}),
        (broken(SSE, then="reset"), {"reset", "cut"}),
        (broken(SSE + chunk(b": ping\n\n") + END), {"cut"}),
        (broken(SSE + chunk(b"data: {") + END), {"cut"}),
        (broken(b"SSH-2.0\r\n\r\n"), {"garbage"}),
        (broken(whole(b"")), {"garbage"}),
        (broken(whole(b"no json")), {"garbage"}),
        (broken(whole(WRONG)), {"garbage"}),
        (broken(whole(b"[" * 1500)), {"garbage"}),
        (broken(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"), {"garbage"}),
        (broken(SSE + chunk(b"data: no json\n\n")), {"garbage"}),
        (broken(SSE.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n") + chunk(b"x")), {"garbage"}),
        (broken(SSE + chunk(b"x" * 3000)), {"too_large"}),
        (broken(SSE + chunk(b"data: 123456789\n") * 300), {"too_large"}),
        (broken(JSON + b"content-length: 3000\r\n\r\n" + b"x" * 3000), {"too_large"}),
    ],
)
async def test_what_comes_instead_of_an_answer_may_have_happened(era, call, kinds):
    async with serving(Server(era, call)) as upstream:
        found = await fault(upstream, max_bytes=2000)
        assert found.kind in kinds
        assert FAULTS[found.kind].sent


@both
@pytest.mark.parametrize("start", [b"", JSON, SSE, SSE + event({"method": "notifications/progress", "params": {}})])
async def test_an_answer_that_does_not_come_ends_with_the_deadline(era, start):
    async with serving(Server(era, broken(start, then="wait"))) as upstream:
        assert (await fault(upstream, remaining_ms=100)).kind == "timeout"


@both
async def test_a_slow_drip_ends_with_the_deadline_too(era):
    async def call(connection, message):
        await connection.write(SSE)
        while True:
            await connection.write(event({"method": "notifications/progress", "params": {"progress": 1}}))
            await asyncio.sleep(0.01)

    async with serving(Server(era, call)) as upstream:
        assert (await fault(upstream, remaining_ms=200)).kind == "timeout"


@both
async def test_a_server_cannot_chatter_without_end(era, monkeypatch):
    monkeypatch.setattr("gateway.upstreams.mcp_stream.CHATTER", 10_000)

    async def call(connection, message):
        await connection.write(SSE)
        while True:
            await connection.write(event({"method": "notifications/progress", "params": {"x": "y" * 500}}))

    async with serving(Server(era, call)) as upstream:
        assert (await fault(upstream, max_bytes=2000)).kind == "too_large"


# ---- giving up ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["cancel", "deadline"])
@pytest.mark.parametrize("start", [b"", SSE])
@both
async def test_giving_up_closes_the_stream_and_tells_a_session_server_which_call(era, start, how):
    begun, over = asyncio.Event(), asyncio.Event()

    async def call(connection, message):
        await connection.write(start)
        begun.set()
        await connection.closed()
        over.set()

    server = Server(era, call)
    async with serving(server) as upstream, asyncio.timeout(5):
        sending = asyncio.ensure_future(upstream.send(dispatch(remaining_ms=200 if how == "deadline" else 5000)))
        await begun.wait()
        if how == "cancel":
            sending.cancel()
        with pytest.raises((UpstreamFault, asyncio.CancelledError)):
            await sending
        await over.wait()
    told = [message["params"]["requestId"] for message in server.heard if message.get("method") == "notifications/cancelled"]
    assert told == ([] if era == "modern" else [server.calls[0]["id"]])


# ---- tools that a header must repeat ------------------------------------------------------------------------------------


async def test_an_argument_that_its_header_cannot_repeat_stops_the_call():
    number = {"name": "pay", "inputSchema": {"type": "object", "properties": {"to": {"type": "integer", "x-mcp-header": "To"}}}}
    server = Server("modern", tools=[number])
    async with serving(server) as upstream:
        assert (await fault(upstream, arguments={"to": 2**60}, tool=tool("shop.pay", inputSchema=number["inputSchema"]))).kind == "unsendable"
    assert server.calls == []


@both
async def test_a_tool_with_a_forbidden_mark_is_left_out_of_the_new_era(era):
    bad = {"name": "bad", "inputSchema": {"type": "object", "properties": {"a": {"type": "object", "x-mcp-header": "A"}}}}
    good = {"name": "good", "inputSchema": {"type": "object"}}
    async with serving(Server(era, tools=[bad, good])) as upstream:
        assert [one["name"] for one in await upstream.tools()] == (["good"] if era == "modern" else ["bad", "good"])
