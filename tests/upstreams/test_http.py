"""Plain HTTP tools against a real origin that misbehaves in every way it can."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from gateway.core.outcomes import FAULTS
from gateway.ports import UpstreamFault
from gateway.upstreams.http import HttpUpstream
from gateway.upstreams.http_request import HttpTool
from tests.upstreams.origin import Connection, dispatch, never_accepting, origin

pytestmark = pytest.mark.anyio

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"


def upstream(url: str, method: str = "POST", timeout_ms: int | None = None, **more) -> HttpUpstream:
    pay = HttpTool("pay", "Pays.", method, "/pay", {"type": "object"}, sends_body=method == "POST", timeout_ms=timeout_ms)
    return HttpUpstream("shop", url, [pay], **more)


async def send(to: HttpUpstream, **more):
    await to.open()
    try:
        async with asyncio.timeout(5):
            return await to.send(dispatch(**more))
    finally:
        await to.close()


async def fault(to: HttpUpstream, **more) -> UpstreamFault:
    with pytest.raises(UpstreamFault) as caught:
        await send(to, **more)
    assert caught.value.kind in FAULTS
    return caught.value


async def forever(connection: Connection) -> None:
    while True:
        await connection.request()
        await connection.answer()


async def test_an_answer_is_passed_on_with_its_status():
    async with origin(forever) as it:
        answer = await send(upstream(it.url), arguments={"amount": 5})
    assert (answer.status, answer.result["isError"], answer.result["structuredContent"]) == (200, False, {})
    assert (it.seen[0].method, it.seen[0].target, it.seen[0].body) == ("POST", "/pay", b'{"amount":5}')


@pytest.mark.parametrize(("status", "ms"), [("429 Too Many", 2000), ("503 Later", 2000), ("500 Oops", 2000), ("404 Not Found", 2000)])
async def test_an_error_status_is_an_answer_with_the_wait_it_asks_for(status, ms):
    async def script(connection):
        await connection.request()
        await connection.answer(b'{"error":"x"}', status, retry_after="2")

    async with origin(script) as it:
        answer = await send(upstream(it.url))
    assert (answer.status, answer.result["isError"], answer.retry_after_ms) == (int(status[:3]), True, ms)


@pytest.mark.parametrize("location", ["http://127.0.0.1:1/elsewhere", "/here"])
@pytest.mark.parametrize("status", ["301 Moved", "307 Temporary", "308 Permanent"])
async def test_a_redirect_is_an_error_and_is_not_followed(status, location):
    async def script(connection):
        while True:
            await connection.request()
            await connection.answer(b"", status, location=location)

    async with origin(script) as it:
        answer = await send(upstream(it.url, "GET"))
    assert (answer.status, answer.result["isError"], len(it.seen)) == (int(status[:3]), True, 1)


async def test_a_head_has_an_answer_without_a_body():
    async with origin(forever) as it:
        assert (await send(upstream(it.url, "HEAD"))).result["content"] == []


# ---- faults -------------------------------------------------------------------------------------------------------------


async def test_a_refused_connection():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert (await fault(upstream(f"http://127.0.0.1:{free.getsockname()[1]}"))).kind == "refused"


async def test_a_name_that_does_not_resolve():
    assert (await fault(upstream("http://no-such-host.invalid"))).kind == "dns"


@pytest.mark.parametrize("does", ["closes", "resets", "hangs", "speaks plainly"])
async def test_a_tls_handshake_that_fails_sent_nothing(does):
    async def script(connection):
        await connection.hello()
        if does == "resets":
            connection.reset()
        elif does == "hangs":
            await connection.closed()
        elif does == "speaks plainly":
            await connection.write(HEAD + b"\r\n")

    async with origin(script) as it:
        found = await fault(upstream(it.url.replace("http:", "https:")), remaining_ms=500)
    assert not FAULTS[found.kind].sent
    assert it.seen == []


async def test_a_connection_that_is_never_accepted_was_not_applied():
    with never_accepting("127.0.0.1") as port:
        to = upstream(f"http://127.0.0.1:{port}")
        assert (await fault(to, remaining_ms=300)).kind == "connect_timeout"


async def test_without_time_left_nothing_is_sent():
    async with origin(forever) as it:
        found = await fault(upstream(it.url), remaining_ms=0)
    assert not FAULTS[found.kind].sent
    assert it.connections == 0


async def test_a_closed_upstream_sends_nothing():
    to = upstream("http://127.0.0.1:1")
    with pytest.raises(UpstreamFault) as caught:
        await to.send(dispatch())
    assert caught.value.kind == "unavailable"


async def test_accepted_and_closed_before_the_request_was_read():
    async def script(connection):
        connection.close()

    async with origin(script) as it:
        assert (await fault(upstream(it.url))).kind in ("closed", "reset")


async def test_closed_after_the_request_was_read():
    async def script(connection):
        await connection.request()

    async with origin(script) as it:
        assert (await fault(upstream(it.url))).kind == "closed"


async def test_reset_after_the_request_was_read():
    async def script(connection):
        await connection.request()
        connection.reset()

    async with origin(script) as it:
        assert (await fault(upstream(it.url))).kind == "reset"


@pytest.mark.parametrize("framing", [b"content-length: 100\r\n\r\nhalf", b"transfer-encoding: chunked\r\n\r\n64\r\nhalf"])
async def test_cut_in_the_body_keeps_the_status(framing):
    async def script(connection):
        await connection.request()
        await connection.write(HEAD + framing)

    async with origin(script) as it:
        found = await fault(upstream(it.url))
    assert (found.kind, found.status) == ("cut", 200)


async def test_reset_in_the_body_keeps_the_status():
    async def script(connection):
        await connection.request()
        await connection.write(HEAD + b"content-length: 100\r\n\r\nhalf")
        await asyncio.sleep(0.05)  # else the reset overtakes the bytes
        connection.reset()

    async with origin(script) as it:
        found = await fault(upstream(it.url))
    assert (found.kind, found.status) in (("reset", 200), ("cut", 200))


@pytest.mark.parametrize(
    "bytes_", [b"\x00\x01\x02 what\r\n\r\n", b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 200 OK\r\n: :\r\n\r\n", b"HTTP/1.1 200 OK\r\nx: " + b"y" * 99_999]
)
async def test_an_answer_that_is_no_http(bytes_):
    async def script(connection):
        await connection.request()
        await connection.write(bytes_)
        await connection.closed()

    async with origin(script) as it:
        assert (await fault(upstream(it.url))).kind == "garbage"


async def test_broken_chunks_are_garbage_or_cut():
    async def script(connection):
        await connection.request()
        await connection.write(HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\nno chunk")
        await connection.closed()

    async with origin(script) as it:
        found = await fault(upstream(it.url))
    assert found.kind in ("garbage", "cut")


async def test_a_hanging_tool_times_out_at_the_deadline():
    async def script(connection):
        await connection.request()
        await connection.closed()

    async with origin(script) as it:
        before = time.monotonic()
        found = await fault(upstream(it.url), remaining_ms=200)
    assert (found.kind, found.status) == ("timeout", None)
    assert 0.15 < time.monotonic() - before < 2


async def test_the_tools_own_timeout_bounds_the_remaining_time():
    async def script(connection):
        await connection.request()
        await connection.closed()

    async with origin(script) as it:
        assert (await fault(upstream(it.url, timeout_ms=150))).kind == "timeout"
    assert it.seen[0].headers["gateway-remaining-ms"] == "150"


async def test_a_slow_drip_ends_at_the_overall_deadline():
    async def script(connection):
        await connection.request()
        await connection.write(HEAD + b"content-length: 1000\r\n\r\n")
        while True:
            await connection.write(b"x")
            await asyncio.sleep(0.02)

    async with origin(script) as it:
        found = await fault(upstream(it.url), remaining_ms=300)
    assert (found.kind, found.status) == ("timeout", 200)


@pytest.mark.parametrize("framing", ["content-length: 9000000\r\n\r\n", "\r\n"])
async def test_a_body_over_the_cap_is_dropped_early_and_its_connection_closed(framing):
    done = asyncio.Event()

    async def script(connection):
        await connection.request()
        try:
            await connection.write(HEAD + framing.encode())
            while True:
                await connection.write(b"x" * 65536)
        except ConnectionError:
            done.set()

    async with origin(script) as it:
        to = upstream(it.url)
        await to.open()
        with pytest.raises(UpstreamFault) as caught:
            await to.send(dispatch(max_bytes=100_000))
        assert (caught.value.kind, caught.value.status) == ("too_large", 200)
        async with asyncio.timeout(5):
            await done.wait()
        await to.close()


async def test_cancelling_a_call_closes_its_connection():
    asked, gone = asyncio.Event(), asyncio.Event()

    async def script(connection):
        await connection.request()
        asked.set()
        await connection.closed()
        gone.set()

    async with origin(script) as it:
        to = upstream(it.url)
        await to.open()
        async with asyncio.timeout(5):
            call = asyncio.ensure_future(to.send(dispatch()))
            await asked.wait()
            call.cancel()
            await gone.wait()
        with pytest.raises(asyncio.CancelledError):
            await call
        await to.close()


# ---- connections --------------------------------------------------------------------------------------------------------


async def one_answer_then(connection, ends):
    """Answer the first request on the connection as if it were to be kept, then end it as soon as the second one is there."""
    await connection.request()
    await connection.answer()
    await connection.request()
    ends(connection)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("ends", [Connection.close, Connection.reset])
async def test_a_request_on_a_dead_connection_is_never_sent_again_by_the_client(method, ends):
    async with origin(lambda connection: one_answer_then(connection, ends)) as it:
        to = upstream(it.url, method)
        await to.open()
        await to.send(dispatch())
        with pytest.raises(UpstreamFault) as caught:
            await to.send(dispatch())
        await to.close()
    assert caught.value.kind in ("closed", "reset")
    assert (len(it.seen), it.connections) == (2, 1)


async def test_warm_connections_are_used_again():
    async with origin(forever) as it:
        to = upstream(it.url)
        await to.open()
        for _ in range(5):
            await to.send(dispatch())
        await to.close()
    assert it.connections == 1


async def test_a_fresh_connection_is_neither_taken_from_the_pool_nor_left_in_it():
    async with origin(forever) as it:
        to = upstream(it.url)
        await to.open()
        for fresh in (False, True, True, False):
            await to.send(dispatch(fresh_connection=fresh))
        await to.close()
    assert it.connections == 3


async def test_a_stale_connection_does_not_reach_a_call_that_asks_for_a_fresh_one():
    def ends(connection):
        raise AssertionError("the warm connection was used")

    async with origin(lambda connection: one_answer_then(connection, ends)) as it:
        to = upstream(it.url)
        await to.open()
        await to.send(dispatch())
        answer = await to.send(dispatch(fresh_connection=True))
        await to.close()
    assert (answer.status, it.connections) == (200, 2)


async def test_a_connection_whose_answer_was_cut_is_not_used_again():
    async def script(connection):
        await connection.request()
        if connection.number == 1:
            await connection.write(HEAD + b"content-length: 10\r\n\r\nx")
            await connection.closed()
        await connection.answer()

    async with origin(script) as it:
        to = upstream(it.url)
        await to.open()
        with pytest.raises(UpstreamFault):
            await to.send(dispatch(remaining_ms=100))
        assert (await to.send(dispatch())).status == 200
        await to.close()


async def test_no_cookie_is_kept_and_no_proxy_taken_from_the_environment(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)

    async def script(connection):
        while True:
            await connection.request()
            await connection.answer(set_cookie="a=b; Path=/")

    async with origin(script) as it:
        to = upstream(it.url.replace("127.0.0.1", "localhost"))  # cookies of bare addresses are never kept
        await to.open()
        await to.send(dispatch())
        await to.send(dispatch())
        await to.close()
    assert not any("cookie" in seen.headers for seen in it.seen)


async def test_the_definitions_are_in_mcp_shape():
    tools = await upstream("http://127.0.0.1:1").tools()
    assert tools == [{"name": "pay", "description": "Pays.", "inputSchema": {"type": "object"}}]


async def test_opening_twice_keeps_the_warm_connections():
    async with origin(forever) as it:
        to = upstream(it.url)
        await to.open()
        await to.send(dispatch())
        await to.open()
        await to.send(dispatch())
        await to.close()
    assert it.connections == 1
