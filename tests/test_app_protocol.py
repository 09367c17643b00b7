"""Heads of requests have a size and a time, over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn

from gateway import app_protocol
from gateway.app_protocol import MAX_HEAD, BoundedHttp
from tests.serving import started
from tests.waiting import WAIT_S

pytestmark = pytest.mark.anyio


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
async def port(anyio_backend: str) -> AsyncIterator[int]:
    running = uvicorn.Server(uvicorn.Config(app, port=0, http=BoundedHttp, ws="none", lifespan="off", log_config=None, access_log=False))
    task = asyncio.ensure_future(running.serve())
    yield await asyncio.wait_for(started(running, task), WAIT_S)
    running.should_exit = True
    await asyncio.wait_for(task, WAIT_S)


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
