"""Tokens from a real endpoint on a socket: fetched once, renewed in time, and every way in which an endpoint can fail."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from urllib.parse import parse_qs

import pytest

from gateway.ports import UpstreamFault
from gateway.upstreams.oauth import EARLY_S, LIFETIME_S, MAX_BYTES, PAUSE_S, Tokens
from tests.upstreams.origin import Connection, origin

pytestmark = pytest.mark.anyio


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Endpoint:
    """Gives `t1`, `t2`, … with `answer` beside them; `asked`: somebody has; `open`: whether it answers at all."""

    def __init__(self, status: str = "200 OK", **answer) -> None:
        self.status, self.answer, self.given = status, answer, 0
        self.asked, self.open = asyncio.Event(), asyncio.Event()
        self.open.set()

    async def __call__(self, connection: Connection) -> None:
        await connection.request()
        self.asked.set()
        await self.open.wait()
        self.given += 1
        body = {"access_token": f"t{self.given}", "token_type": "Bearer", "expires_in": 3600} | self.answer
        await connection.answer(json.dumps({name: value for name, value in body.items() if value is not None}).encode(), self.status)


def tokens(url: str, **more) -> Tokens:
    return Tokens(f"{url}/token", "my id", "s3cret&", **more)


async def fault(it: Tokens, within_s: float = 5) -> UpstreamFault:
    with pytest.raises(UpstreamFault) as caught:
        async with asyncio.timeout(5):
            await it.bearer(within_s)
    assert caught.value.kind == "unavailable"
    assert "s3cret" not in caught.value.message
    return caught.value


async def test_a_token_is_asked_for_as_the_standard_says():
    async with origin(Endpoint()) as it:
        assert await tokens(it.url, scope="read write", audience="api").bearer(5) == "t1"
    (seen,) = it.seen
    assert (seen.method, seen.target) == ("POST", "/token")
    assert parse_qs(seen.body.decode()) == {"grant_type": ["client_credentials"], "scope": ["read write"], "audience": ["api"]}
    assert base64.b64decode(seen.headers["authorization"].removeprefix("Basic ")) == b"my+id:s3cret%26"


async def test_the_client_may_show_its_secret_in_the_form():
    async with origin(Endpoint()) as it:
        await tokens(it.url, in_body=True).bearer(5)
    assert "authorization" not in it.seen[0].headers
    wanted = {"grant_type": ["client_credentials"], "client_id": ["my id"], "client_secret": ["s3cret&"]}
    assert parse_qs(it.seen[0].body.decode()) == wanted


@pytest.mark.parametrize(
    ("expires_in", "renewed_after"),
    [(3600, 3600 - EARLY_S), ("3600", 3600 - EARLY_S), (100, 75), (None, LIFETIME_S - EARLY_S), ("soon", LIFETIME_S - EARLY_S)],
)
async def test_a_token_is_kept_and_renewed_before_it_expires(expires_in, renewed_after):
    clock = Clock()
    async with origin(Endpoint(expires_in=expires_in)) as it:
        mine = tokens(it.url, now=clock)
        for _ in range(2):
            assert await mine.bearer(5) == "t1"
        clock.now += renewed_after - 1
        assert await mine.bearer(5) == "t1"
        clock.now += 1
        assert await mine.bearer(5) == "t2"


async def test_many_callers_share_one_fetch_and_one_that_leaves_does_not_end_it():
    endpoint = Endpoint()
    endpoint.open.clear()
    async with origin(endpoint) as it:
        mine = tokens(it.url)
        waiting = [asyncio.ensure_future(mine.bearer(5)) for _ in range(20)]
        await asyncio.wait_for(endpoint.asked.wait(), 5)
        waiting[0].cancel()
        endpoint.open.set()
        async with asyncio.timeout(5):
            assert await asyncio.gather(*waiting[1:]) == ["t1"] * 19
    assert len(it.seen) == 1


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        ("400 Bad Request", {"error": "invalid_client"}),
        ("401 No", {"error": "s3cret: see http://x"}),
        ("302 Found", {}),
        ("500 Oops", {}),
        ("200 OK", {"access_token": None}),
        ("200 OK", {"access_token": 5}),
        ("200 OK", {"access_token": "a b"}),
        ("200 OK", {"access_token": "a\r\nx: y"}),
        ("200 OK", {"token_type": "mac"}),
        ("200 OK", {"token_type": None}),
        ("200 OK", {"expires_in": 0}),
        ("200 OK", {"padding": "x" * MAX_BYTES}),
    ],
)
async def test_an_answer_without_a_usable_token_is_a_fault_that_sent_nothing(status, answer):
    async with origin(Endpoint(status, **answer)) as it:
        await fault(tokens(it.url))


@pytest.mark.parametrize("body", [b"", b"no json", b"[]", b"{"])
async def test_an_answer_that_is_no_object_is_a_fault(body):
    async def script(connection):
        await connection.request()
        await connection.answer(body)

    async with origin(script) as it:
        await fault(tokens(it.url))


async def test_an_endpoint_that_cannot_be_reached_or_closes_is_a_fault():
    await fault(tokens("http://127.0.0.1:1"))

    async def script(connection):
        await connection.request()

    async with origin(script) as it:
        await fault(tokens(it.url))


async def test_a_fetch_has_a_bound_of_its_own_and_the_callers_time_is_another():
    endpoint = Endpoint()
    endpoint.open.clear()
    async with origin(endpoint) as it:
        await fault(tokens(it.url, patience_s=0.05))
        mine = tokens(it.url)
        await fault(mine, 0.05)
        endpoint.open.set()
        assert await mine.bearer(5) == "t2", "the same fetch went on"
        await mine.close()


async def test_after_a_failure_the_endpoint_is_left_alone_for_a_moment():
    clock, endpoint = Clock(), Endpoint("503 Later")
    async with origin(endpoint) as it:
        mine = tokens(it.url, now=clock)
        for _ in range(3):
            await fault(mine)
        assert len(it.seen) == 1
        clock.now += PAUSE_S
        endpoint.status = "200 OK"
        assert await mine.bearer(5) == "t2"


async def test_a_token_that_still_lives_is_used_while_the_endpoint_is_away():
    clock, endpoint = Clock(), Endpoint()
    async with origin(endpoint) as it:
        mine = tokens(it.url, now=clock)
        await mine.bearer(5)
        endpoint.status, clock.now = "503 Later", clock.now + 3600 - EARLY_S
        assert await mine.bearer(5) == "t1"
        clock.now += EARLY_S
        await fault(mine)


async def test_a_refused_token_is_given_up_unless_it_is_new_or_no_longer_in_use():
    clock = Clock()
    async with origin(Endpoint()) as it:
        mine = tokens(it.url, now=clock)
        assert await mine.bearer(5) == "t1"
        assert not mine.refused("t1")
        clock.now += PAUSE_S
        assert mine.refused("t1")
        assert await mine.bearer(5) == "t2"
        assert mine.refused("t1"), "another has fetched since"
        assert await mine.bearer(5) == "t2"


async def test_closing_ends_a_fetch():
    endpoint = Endpoint()
    endpoint.open.clear()
    async with origin(endpoint) as it:
        mine = tokens(it.url)
        waiting = asyncio.ensure_future(mine.bearer(5))
        await asyncio.wait_for(endpoint.asked.wait(), 5)
        await mine.close()
        with pytest.raises(UpstreamFault):
            await waiting


async def test_neither_secret_nor_token_is_logged(caplog):
    caplog.set_level(logging.DEBUG)
    async with origin(Endpoint(access_token="t0ken")) as it:
        await tokens(it.url).bearer(5)
    assert "s3cret" not in "".join(record.getMessage() for record in caplog.records if record.levelno >= logging.INFO)
