"""A body that is read as it comes: what its reader sees, when the caller is answered, what becomes of the connection."""

from __future__ import annotations

import asyncio

import pytest

from gateway.ports import UpstreamFault
from tests.upstreams.test_http_connection import CHUNKED, OK, PLAIN, exchange, line

pytestmark = pytest.mark.anyio


class Reading:
    """Reads pieces until it has as many bytes as it wants; `raises` instead, with the first."""

    def __init__(self, wants: int = 1000, raises: UpstreamFault | None = None) -> None:
        self.wants, self.raises, self.heads, self.got = wants, raises, [], b""

    def tap(self, status, headers):
        self.heads.append((status, headers.get("X-A")))
        return self._read

    def _read(self, piece: bytes) -> bool:
        if self.raises:
            raise self.raises
        self.got += piece
        return len(self.got) >= self.wants


@pytest.mark.parametrize("bytes_", [PLAIN, OK + b"x-a: 1\r\n\r\nhello", OK + b"x-a: 1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"])
async def test_a_body_can_be_read_as_it_comes(bytes_):
    reading = Reading()
    response, _ = await exchange([bytes_[at : at + 1] for at in range(len(bytes_))], ends=True, tap=reading.tap, max_bytes=0)
    assert (response.status, response.body, reading.got, reading.heads) == (200, b"", b"hello", [(200, "1")])


async def test_a_tap_that_wants_no_pieces_leaves_the_body_whole():
    response, kept = await exchange([PLAIN], tap=lambda status, headers: None)
    assert (response.body, kept) == (b"hello", True)


async def test_a_reader_that_has_enough_is_answered_at_once_and_the_rest_passes():
    async with line() as it:
        reading = Reading(wants=5)
        call = it.ask(tap=reading.tap)
        await asyncio.sleep(0)
        it.connection.data_received(CHUNKED + b"5\r\nhello\r\n")
        assert ((await call).status, it.idle, it.lost) == (200, 0, 0)
        it.connection.data_received(b"3\r\nmor\r\n0\r\n\r\n")
        assert (reading.got, it.idle, it.lost) == (b"hello", 1, 0)
        follows = it.ask()
        await asyncio.sleep(0)
        it.connection.data_received(PLAIN)
        assert ((await follows).body, it.idle) == (b"hello", 2)


async def test_a_body_that_goes_on_after_its_reader_had_enough_ends_with_the_connection(monkeypatch):
    monkeypatch.setattr("gateway.upstreams.http_connection.LINGER_S", 0.01)
    async with line() as it:
        call = it.ask(tap=Reading(wants=5).tap)
        await asyncio.sleep(0)
        it.connection.data_received(CHUNKED + b"5\r\nhello\r\n")
        assert (await call).status == 200
        assert await it.hung_up()
        assert (it.idle, it.lost >= 1) == (0, True)


async def test_a_reader_that_refuses_ends_the_call_with_its_own_fault():
    reading = Reading(raises=UpstreamFault("garbage", "no event stream"))
    assert await exchange([CHUNKED + b"5\r\nhello\r\n5\r\nhello\r\n"], tap=reading.tap) == (("garbage", None), False)


@pytest.mark.parametrize(("then", "kind"), [("end", "cut"), (b"zz\r\n", "garbage")])
async def test_a_body_that_breaks_off_while_it_is_read_is_a_fault(then, kind):
    pieces = [CHUNKED + b"5\r\nhello\r\n", *([then] if then != "end" else [])]
    assert await exchange(pieces, ends=True, tap=Reading().tap) == ((kind, 200), False)
