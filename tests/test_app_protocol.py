"""Heads of requests have a size and a time, over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import uvicorn

from gateway import app_protocol
from gateway.app_protocol import MAX_HEAD, BoundedHttp, Together
from gateway.doors.http import WHOLE
from tests.serving import started
from tests.waiting import WAIT_S, until

pytestmark = pytest.mark.anyio


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def listening(app: Any, **more: Any) -> AsyncIterator[int]:
    config = uvicorn.Config(app, port=0, http=BoundedHttp, ws="none", lifespan="off", log_config=None, access_log=False, **more)
    running = uvicorn.Server(config)
    task = asyncio.ensure_future(running.serve())
    yield await asyncio.wait_for(started(running, task), WAIT_S)
    running.should_exit = True
    await asyncio.wait_for(task, WAIT_S)


@pytest.fixture
async def port(anyio_backend: str) -> AsyncIterator[int]:
    async with listening(app, forwarded_allow_ips=[]) as port:
        yield port


async def talk(port: int, *parts: bytes) -> bytes:
    """What comes back until the server closes, or until an answer is whole."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        answer = b""
        while not answer.endswith(b"ok") and (more := await asyncio.wait_for(reader.read(65536), 5)):
            answer += more
        return answer
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def test_an_ordinary_request_is_answered(port: int) -> None:
    assert b"200 OK" in await talk(port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")


async def test_a_head_in_parts_is_answered(port: int) -> None:
    assert b"200 OK" in await talk(port, b"GET / HTTP/1.1\r\n", b"host: x\r\n", b"\r\n")


async def test_a_scope_says_whether_its_body_has_come() -> None:
    whole: list[bool] = []

    async def asked(scope: Any, receive: Any, send: Any) -> None:
        whole.append(WHOLE in scope)
        await app(scope, receive, send)

    head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\n"
    async with listening(asked, forwarded_allow_ips=[]) as port:
        await talk(port, head + b"abc")
        await talk(port, head + b"ab")
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + b"abc" + head + b"ab")
        await until(lambda: len(whole) == 4, "the requests")
        writer.close()
    assert whole == [True, False, True, False]


async def test_a_head_of_nearly_the_limit_is_answered_and_one_beyond_it_refused(port: int) -> None:
    head = b"GET / HTTP/1.1\r\nhost: x\r\n"
    assert b"200 OK" in await talk(port, head + b"a: " + b"x" * (MAX_HEAD - 100) + b"\r\n\r\n")
    assert b"200 OK" not in await talk(port, head + b"a: " + b"x" * MAX_HEAD + b"\r\n\r\n")
    assert b"200 OK" not in await talk(port, b"GET /" + b"x" * MAX_HEAD + b" HTTP/1.1\r\nhost: x\r\n\r\n")
    many = b"".join(b"h%d: 1\r\n" % n for n in range(MAX_HEAD // 5))
    assert b"200 OK" not in await talk(port, head + many + b"\r\n")


async def test_the_next_head_of_a_connection_starts_from_nothing(port: int) -> None:
    big = b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"x" * (MAX_HEAD // 2 + 1000) + b"\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(3):
        writer.write(big)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        assert b"200 OK" in head
        await reader.readexactly(2)
    writer.close()


@pytest.mark.parametrize("sent", [b"", b"GE", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nhost: x\r\n\r\nGET / HTTP/1.1\r\n"])
async def test_a_head_that_never_comes_or_never_ends_is_given_up(port: int, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(app_protocol, "HEAD_TIMEOUT_S", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    while await asyncio.wait_for(reader.read(65536), 5):
        pass
    writer.close()


async def test_a_connection_that_ends_early_leaves_no_timer(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: asyncio.Future[BoundedHttp] = asyncio.get_running_loop().create_future()
    lost = BoundedHttp.connection_lost

    def connection_lost(self: BoundedHttp, exc: Exception | None) -> None:
        lost(self, exc)
        ended.set_result(self)

    monkeypatch.setattr(BoundedHttp, "connection_lost", connection_lost)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    assert (await asyncio.wait_for(ended, 5))._timer is None


async def test_a_connection_between_two_requests_is_kept(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_protocol, "HEAD_TIMEOUT_S", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(2):
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"ok"), 5)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.15)
    writer.close()


# ---- bodies, stalls, numbers --------------------------------------------------------------------------------------------


async def ended(reader: asyncio.StreamReader) -> bytes:
    """All that still comes, up to the end of the connection, whichever way it ends."""
    came = b""
    try:
        while more := await asyncio.wait_for(reader.read(65536), WAIT_S):
            came += more
    except ConnectionResetError:
        pass
    return came


async def test_a_body_that_drips_is_given_up_even_where_nobody_reads_it(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_protocol, "BODY_TIMEOUT_S", 0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n")
    dripping = asyncio.ensure_future(drip(writer))
    assert b"200 OK" in await ended(reader)
    dripping.cancel()
    writer.close()


async def drip(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"x")
        await asyncio.sleep(0.02)


async def test_a_body_that_comes_in_time_is_taken_and_the_next_request_too(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_protocol, "BODY_TIMEOUT_S", 0.2)
    post = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(2):
        for part in (post, b"a", b"b"):
            writer.write(part)
            await writer.drain()
        assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"ok"), 5)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), 0.4)
    writer.close()


@pytest.mark.parametrize("reads", [True, False])
async def test_a_client_that_never_reads_its_answer_is_let_go(monkeypatch: pytest.MonkeyPatch, reads: bool) -> None:
    monkeypatch.setattr(app_protocol, "STALL_TIMEOUT_S", 0.3)
    size, told = 32 << 20, asyncio.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(size).encode())]})
        for _ in range(size >> 16):
            await send({"type": "http.response.body", "body": b"x" * (1 << 16), "more_body": True})
        told.set()

    async with listening(endless, forwarded_allow_ips=[]) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        if reads:
            assert len(await asyncio.wait_for(reader.readexactly(size), 5)) == size
        else:
            await asyncio.wait_for(told.wait(), 5)  # what is sent after the end goes nowhere
            assert len(await ended(reader)) < size
        writer.close()


async def refused(reader: asyncio.StreamReader) -> bool:
    return b"429" in await ended(reader)


async def test_one_address_has_only_so_many_connections_and_may_open_others_for_those_it_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_protocol, "PER_CLIENT", 3)
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(listening(app, forwarded_allow_ips=[]))
        several = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        assert await refused(several[3][0])
        several[0][1].close()
        assert await ended(several[0][0]) == b""
        assert b"200 OK" in await one_of_these(port)
        elsewhere = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        elsewhere[1].write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"200 OK" in await asyncio.wait_for(elsewhere[0].readuntil(b"ok"), 5)
        for _, writer in (*several, elsewhere):
            writer.close()


async def one_of_these(port: int) -> bytes:
    """An answer, as soon as the server has seen that a connection has ended."""
    for _ in range(100):
        if b"200 OK" in (answer := await talk(port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")):
            return answer
    return b""


async def test_a_trusted_proxy_may_have_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_protocol, "PER_CLIENT", 1)
    async with listening(app, forwarded_allow_ips=["10.0.0.7", "127.0.0.0/8"]) as port:
        several = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for reader, writer in several:
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"ok"), 5)
            writer.close()


# -- heads with their bodies ----------------------------------------------------------------------------------------------


class Written:
    """A transport that only remembers."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.writes.append(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


def together() -> tuple[Written, Together]:
    written: Any = Written()
    return written, Together(written, asyncio.get_running_loop())


async def test_a_head_goes_with_the_first_of_its_body_in_one_write(anyio_backend: str) -> None:
    written, answer = together()
    for part in (HEAD, b"one", b"two", HEAD, b""):
        answer.write(part)
    assert written.writes == [HEAD + b"one", b"two", HEAD]
    await asyncio.sleep(0)
    assert written.writes == [HEAD + b"one", b"two", HEAD]


async def test_a_head_whose_body_does_not_come_at_once_goes_alone(anyio_backend: str) -> None:
    written, answer = together()
    answer.write(HEAD)
    assert not written.writes
    await asyncio.sleep(0)
    assert written.writes == [HEAD]
    answer.write(b"one")
    assert written.writes == [HEAD, b"one"]


async def test_nothing_is_held_back_when_a_connection_is_closed(anyio_backend: str) -> None:
    written, answer = together()
    answer.write(HEAD)
    answer.close()
    assert (written.writes, answer.is_closing()) == ([HEAD], True)
    await asyncio.sleep(0)


async def test_a_head_for_a_client_that_has_gone_meanwhile_is_dropped(anyio_backend: str) -> None:
    written, answer = together()
    answer.write(HEAD)
    written.closed = True
    await asyncio.sleep(0)
    assert written.writes == []


async def test_an_answer_without_a_body_is_sent(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(2):
        writer.write(b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)).startswith(b"HTTP/1.1 200 OK")
    writer.close()


async def test_a_stream_is_seen_to_begin_before_it_says_anything() -> None:
    seen = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await seen.wait()
        await send({"type": "http.response.body", "body": b"ok"})

    async with listening(slow, forwarded_allow_ips=[]) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)
        seen.set()
        assert b"ok" in await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), WAIT_S)
        writer.close()
