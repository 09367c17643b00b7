"""MCP messages over HTTP: how a server of either era is met and met again, sessions, and streams that are taken up where they broke."""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.core.outcomes import FAULTS
from gateway.ports import Client, UpstreamFault
from gateway.upstreams.credentials import Credentials
from gateway.upstreams.mcp_http import McpHttp
from gateway.upstreams.mcp_post import Endpoint
from gateway.upstreams.oauth import PAUSE_S, Tokens
from tests.upstreams.mcp_origin import END, EVERYTHING, SSE, Server, done, event, serving
from tests.upstreams.origin import Connection, dispatch, origin
from tests.upstreams.test_oauth import Clock
from tests.upstreams.test_oauth import Endpoint as TokenEndpoint
from tests.waiting import until

pytestmark = pytest.mark.anyio

PROGRESS = {"method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}


async def send(upstream: McpHttp, **more):
    async with asyncio.timeout(5):
        return await upstream.send(dispatch(**more))


async def fault(upstream: McpHttp, **more) -> UpstreamFault:
    with pytest.raises(UpstreamFault) as caught:
        await send(upstream, **more)
    return caught.value


def words(answer) -> str:
    return answer.result["content"][0]["text"]


# ---- the endpoint -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("url", "target"), [("http://h/mcp?a=b", "/mcp?a=b"), ("http://h", "/"), ("http://h:8080/a/", "/a/")])
def test_a_request_goes_to_the_urls_path_with_what_every_request_carries(url, target):
    request = Endpoint(url, Credentials({"X-Key": "k"})).request("POST", {"a": "b"}, b"{}")
    head, _, body = request.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert (lines[0], body) == (f"POST {target} HTTP/1.1", b"{}")
    assert {"x-key: k", "a: b", "content-type: application/json", "content-length: 2"} <= set(lines)
    assert f"host: {url.split('/')[2]}" in lines


def test_a_url_without_a_host_is_refused():
    with pytest.raises(ValueError, match="host"):
        Endpoint("mcp.example")


@pytest.mark.parametrize(("url", "target"), [("http://h/mcp", "/mcp?key=k%26"), ("http://h/mcp?a=b", "/mcp?a=b&key=k%26")])
def test_a_key_of_the_query_goes_with_every_request(url, target):
    assert Endpoint(url, Credentials(query={"key": "k&"})).request("GET", {}).startswith(f"GET {target} HTTP/1.1\r\n".encode())


async def test_every_message_carries_the_token_of_now_and_one_that_is_refused_is_given_up():
    server, clock = Server("modern"), Clock()
    async with origin(TokenEndpoint()) as id, serving(server, credentials=Credentials(tokens=Tokens(id.url, "me", "s3cret", now=clock))) as upstream:
        await send(upstream)
        assert {seen.headers["authorization"] for _, seen in server.posts} == {"Bearer t1"}

        async def refuse(connection, message):
            await connection.answer(b"{}", "401 Unauthorized")

        clock.now += PAUSE_S + 1
        server.call, call = refuse, server.call
        assert (await send(upstream)).result["isError"]
        server.call = call
        assert words(await send(upstream)) == "done"
        assert server.posts[-1][1].headers["authorization"] == "Bearer t2"


async def test_without_a_token_nothing_is_sent():
    async with origin(TokenEndpoint("503 Later")) as id, origin(Server("modern").script) as it:
        upstream = McpHttp("shop", it.url, Credentials(tokens=Tokens(id.url, "me", "s3cret")))
        with pytest.raises(UpstreamFault) as caught:
            await upstream.open()
        await upstream.close()
        assert (caught.value.kind, it.seen) == ("unavailable", [])


# ---- meeting ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["close", "garbage", "silence", "500", "html"])
async def test_a_server_that_breaks_on_the_new_eras_question_is_met_in_the_old_way(how):
    async def other(connection: Connection, message) -> None:
        if how == "garbage":
            await connection.write(b"what?\r\n\r\n")
        elif how == "silence":
            await connection.closed()
        elif how in ("500", "html"):
            await connection.answer(b"<html>", "500 Oops" if how == "500" else "404 Not Found")
            return
        raise ConnectionError

    server = Server("legacy", other=other)
    async with serving(server) as upstream:
        assert words(await send(upstream)) == "done"


async def test_a_server_that_refuses_both_is_unavailable():
    async with origin(Server("neither").script) as it:
        upstream = McpHttp("shop", it.url)
        with pytest.raises(UpstreamFault) as caught:
            await upstream.open()
        await upstream.close()
    assert caught.value.kind == "unavailable"


async def test_the_greeting_of_a_call_takes_no_longer_than_the_call_may():
    async with origin(Connection.closed) as it:
        upstream = McpHttp("shop", it.url)
        upstream._pool = None
        opening = asyncio.ensure_future(upstream.open())
        await asyncio.sleep(0)
        assert (await fault(upstream, remaining_ms=100)).kind == "unavailable"
        opening.cancel()
        await asyncio.wait([opening])
        await upstream.close()


async def test_the_first_call_waits_until_the_session_is_ready():
    too_early: list = []

    async def note(connection, message):
        try:
            await until(lambda: server.heard[3:], "a message after it", 0.1)
        except AssertionError:
            too_early.append(False)

    server = Server("legacy", note=note)
    async with serving(server):
        pass
    assert [message.get("method") for message in server.heard[1:4]] == ["initialize", "notifications/initialized", "tools/list"]
    assert too_early == [False]


async def test_a_session_id_that_is_none_is_refused():
    async def other(connection, message):
        raise AssertionError

    server = Server("legacy", other=other)
    result = {"protocolVersion": "2025-11-25", "capabilities": {}}

    async def script(connection):
        while True:
            message = json.loads((await connection.request()).body)
            await connection.answer(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode(), mcp_session_id="a b\x80")

    async with origin(script) as server.origin:
        upstream = McpHttp("shop", server.origin.url)
        with pytest.raises(UpstreamFault):
            await upstream.open()
        await upstream.close()


# ---- sessions -----------------------------------------------------------------------------------------------------------


async def test_a_call_whose_session_has_ended_was_not_applied_and_the_next_one_has_a_new_session():
    async def call(connection, message):
        if server.origin.seen[-1].headers["mcp-session-id"] == "session-1":
            error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "Session not found"}}
            await connection.answer(json.dumps(error).encode(), "404 Not Found")
        else:
            await connection.answer(json.dumps(done(message)).encode())

    server = Server("legacy", call)
    async with serving(server) as upstream:
        found = await fault(upstream)
        assert (found.kind, FAULTS[found.kind].sent, FAULTS[found.kind].retry) == ("unavailable", False, True)
        assert (words(await send(upstream)), server.sessions, len(server.calls)) == ("done", 2, 2)


async def test_many_calls_that_find_the_session_gone_open_one_new_one():
    async def call(connection, message):
        if server.origin.seen[-1].headers["mcp-session-id"] == "session-1":
            await connection.answer(b"", "404 Not Found")
        else:
            await connection.answer(json.dumps(done(message)).encode())

    server = Server("legacy", call)
    async with serving(server) as upstream:
        await fault(upstream)
        assert [words(one) for one in await asyncio.gather(*(send(upstream) for _ in range(5)))] == ["done"] * 5
        assert server.sessions == 2


async def test_a_404_without_a_session_is_the_servers_answer():
    async def call(connection, message):
        await connection.answer(b"", "404 Not Found")

    async with serving(Server("modern", call)) as upstream:
        assert (await send(upstream)).status == 404


async def test_a_server_whose_tools_cannot_be_read_is_met_anew():
    server = Server("legacy")
    async with serving(server) as upstream:
        server.tools = [{"name": 7}]
        with pytest.raises(UpstreamFault):
            await upstream.tools()
        server.tools = []
        assert (await upstream.tools(), server.sessions) == ([], 2)


# ---- questions ----------------------------------------------------------------------------------------------------------


async def test_a_question_in_the_stream_is_answered_by_a_message_of_its_own():
    async def call(connection, message):
        question = {"id": "q", "method": "elicitation/create", "params": {"message": "Sure?"}}
        await connection.write(SSE + event(question))
        await until(lambda: any("result" in one for one in server.heard), "the answer")
        await connection.write(event(done(message)) + END)

    async def ask(questions):
        return {id: {"action": "accept", "content": {}} for id in questions}

    server = Server("legacy", call)
    async with serving(server) as upstream:
        assert words(await send(upstream, client=Client(ask=ask))) == "done"
    assert [one for one in server.heard if "result" in one] == [{"jsonrpc": "2.0", "id": "q", "result": {"action": "accept", "content": {}}}]


# ---- streams that break -------------------------------------------------------------------------------------------------


def breaking(*pieces: bytes, reset: bool = False):
    async def call(connection: Connection, message) -> None:
        await connection.write(SSE + b"".join(pieces))
        if reset:
            connection.reset()
        connection.close()

    return call


@pytest.mark.parametrize("pieces", [(event(None, "e1", 1), END), (event(PROGRESS, "e1", 1),)])
async def test_a_stream_that_ends_early_is_taken_up_after_its_last_event_and_nothing_is_sent_again(pieces):
    async def get(connection, seen):
        if "last-event-id" in seen.headers:
            await connection.write(SSE + event(done(server.calls[0], seen.headers["last-event-id"]), "e2") + END)
        else:
            await connection.answer(b"", "405 Method Not Allowed")

    server = Server("legacy", breaking(*pieces), get)
    async with serving(server) as upstream:
        assert words(await send(upstream)) == "e1"
    assert len(server.calls) == 1


async def test_a_stream_may_end_again_and_again():
    async def get(connection, seen):
        number = int(seen.headers.get("last-event-id", "e0")[1:])
        if not number:
            await connection.answer(b"", "405 Method Not Allowed")
        elif number < 6:
            await connection.write(SSE + event(None, f"e{number + 1}", 1) + END)
        else:
            await connection.write(SSE + event(done(server.calls[0])) + END)

    server = Server("legacy", breaking(event(None, "e1", 1), END), get)
    async with serving(server) as upstream:
        assert words(await send(upstream)) == "done"


@pytest.mark.parametrize("status", ["405 Method Not Allowed", "404 Not Found", "500 Oops"])
async def test_a_stream_that_cannot_be_taken_up_may_have_happened(status):
    async def get(connection, seen):
        await connection.answer(b"", status)

    async with serving(Server("legacy", breaking(event(None, "e1", 1), END), get)) as upstream:
        assert (await fault(upstream)).kind == "cut"


async def test_a_server_that_is_gone_when_its_stream_should_go_on_is_no_connect_fault():
    async def get(connection, seen):
        connection.reset()

    async with serving(Server("legacy", breaking(event(None, "e1", 1), END), get)) as upstream:
        assert (await fault(upstream)).kind == "cut"


async def test_a_stream_whose_next_try_would_come_too_late_ends_with_the_deadline():
    async with serving(Server("legacy", breaking(event(None, "e1", 60_000), END))) as upstream:
        assert (await fault(upstream, remaining_ms=100)).kind == "timeout"


@pytest.mark.parametrize("server", [Server("modern", breaking(event(None, "e1", 1), END)), Server("legacy", breaking(event(None, "é", 1), END))])
async def test_a_stream_of_the_new_era_or_with_an_id_that_no_header_can_carry_is_not_taken_up(server):
    async with serving(server) as upstream:
        assert (await fault(upstream)).kind == "cut"
    assert not [seen for seen in server.origin.seen if "last-event-id" in seen.headers]


# ---- the standing stream ------------------------------------------------------------------------------------------------


async def test_a_standing_stream_that_finds_the_session_gone_says_so():
    async def get(connection, seen):
        await connection.answer(b"", "404 Not Found")

    server = Server("legacy", get=get, offers=EVERYTHING)
    async with serving(server) as upstream:
        while server.sessions < 2:
            await upstream.open()
            await send(upstream)
