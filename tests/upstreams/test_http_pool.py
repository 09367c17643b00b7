"""Which connection a request gets, and when each is closed."""

from __future__ import annotations

import asyncio

import pytest

from gateway.ports import UpstreamFault
from gateway.upstreams.http_dial import Origin
from gateway.upstreams.http_pool import Pool
from tests.upstreams.origin import Connection, origin

pytestmark = pytest.mark.anyio

REQUEST = b"GET /pay HTTP/1.1\r\nhost: x\r\n\r\n"


class Watched(Pool):
    """`dropped` is set whenever a connection is gone."""

    def __init__(self, *given, **more) -> None:
        super().__init__(*given, **more)
        self.dropped = asyncio.Event()

    def _drop(self, connection) -> None:
        if connection in self._all:
            self.dropped.set()
        super()._drop(connection)

    async def drops(self) -> None:
        async with asyncio.timeout(5):
            await self.dropped.wait()
        self.dropped.clear()


def pool(url: str, **more) -> Watched:
    return Watched(Origin.of(url), None, 5, **more)


async def get(it: Pool, **more) -> bytes:
    async with asyncio.timeout(5):
        return (await it.request(REQUEST, 5, 1000, **more)).body


async def numbered(connection: Connection) -> None:
    """Each answer says which connection it came over."""
    while True:
        await connection.request()
        await connection.answer(b"%d" % connection.number)


async def test_the_connection_that_was_used_last_is_used_first():
    waiting: dict[int, asyncio.Event] = {1: asyncio.Event(), 2: asyncio.Event()}

    async def script(connection):
        while True:
            await connection.request()
            await waiting[connection.number].wait()
            await connection.answer(b"%d" % connection.number)

    async with origin(script) as there:
        it = pool(there.url)
        calls = [asyncio.ensure_future(get(it)) for _ in range(2)]
        waiting[2].set()
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        waiting[1].set()
        assert sorted(await asyncio.gather(*calls)) == [b"1", b"2"]
        assert [await get(it), await get(it)] == [b"1", b"1"]
        await it.close()
    assert there.connections == 2


async def test_many_calls_at_once_get_each_their_own_answer():
    async def script(connection):
        while True:
            seen = await connection.request()
            await connection.answer(seen.target.encode())

    async with origin(script) as there:
        it = pool(there.url)

        async def caller(number: int) -> None:
            for each in range(30):
                response = await it.request(b"GET /%d.%d HTTP/1.1\r\nhost: x\r\n\r\n" % (number, each), 5, 1000)
                assert response.body == b"/%d.%d" % (number, each)

        async with asyncio.timeout(5):
            await asyncio.gather(*(caller(number) for number in range(16)))
        await it.close()
    assert len(there.seen) == 16 * 30
    assert there.connections <= 16


async def test_a_connection_that_the_upstream_closed_while_idle_is_not_used():
    async def script(connection):
        await connection.request()
        await connection.answer(b"%d" % connection.number)

    async with origin(script) as there:
        it = pool(there.url)
        for number in (b"1", b"2"):
            assert await get(it) == number
            await it.drops()
            assert not it._idle
        await it.close()
    assert len(there.seen) == 2


async def test_a_fresh_connection_is_new_and_closed_after_its_answer():
    closed = asyncio.Event()

    async def script(connection):
        await connection.request()
        await connection.answer(b"%d" % connection.number)
        await connection.closed()
        closed.set()

    async with origin(script) as there:
        it = pool(there.url)
        assert await get(it, fresh=True) == b"1"
        async with asyncio.timeout(5):
            await closed.wait()
        assert not it._idle
        assert not it._all
        await it.close()


async def test_what_is_idle_too_long_is_closed_and_what_was_used_since_is_not():
    async with origin(numbered) as there:
        it = pool(there.url, idle_s=0.2)
        await asyncio.gather(get(it), get(it))
        await asyncio.sleep(0.1)  # half of what is too long
        await get(it)
        await it.drops()
        assert len(it._all) == 1
        await it.drops()
        assert not it._all
        await it.close()


async def test_closing_ends_what_is_under_way_and_what_is_idle():
    asked = asyncio.Event()

    async def script(connection):
        await connection.request()
        if connection.number == 2:
            asked.set()
            await connection.closed()
        await connection.answer()
        await connection.closed()

    async with origin(script) as there:
        it = pool(there.url)
        await get(it)
        call = asyncio.ensure_future(get(it, fresh=True))
        async with asyncio.timeout(5):
            await asked.wait()
            await it.close()
            with pytest.raises(UpstreamFault) as caught:
                await call
        assert caught.value.kind == "closed"
        assert not it._all


async def test_a_connection_that_comes_about_after_the_close_is_not_used():
    async with origin(numbered) as there:
        it = pool(there.url)
        call = asyncio.ensure_future(get(it))
        await asyncio.sleep(0)
        await it.close()
        with pytest.raises(UpstreamFault) as caught:
            await call
        assert caught.value.kind == "unavailable"
    assert there.seen == []


async def test_the_time_to_connect_counts_against_the_whole():
    async def script(connection):
        await connection.request()
        await connection.closed()

    async with origin(script) as there:
        it = pool(there.url)
        before = asyncio.get_running_loop().time()
        with pytest.raises(UpstreamFault) as caught:
            await it.request(REQUEST, 0.1, 1000)
        assert caught.value.kind == "timeout"
        assert asyncio.get_running_loop().time() - before < 2
        await it.close()
