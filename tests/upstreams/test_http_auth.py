"""An HTTP tool behind an upstream that wants tokens: who gets a second one inside an attempt, and who doesn't."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from gateway.ports import UpstreamFault
from gateway.upstreams.credentials import Credentials
from gateway.upstreams.http import HttpUpstream
from gateway.upstreams.http_request import HttpTool
from gateway.upstreams.oauth import PAUSE_S, Tokens
from tests.upstreams.origin import Connection, dispatch, origin
from tests.upstreams.test_oauth import Clock, Endpoint

pytestmark = pytest.mark.anyio

TOOL = HttpTool("pay", "Pays.", "POST", "/pay", {"type": "object"}, sends_body=True)


class Shop:
    """Takes the tokens of `accepted`; answers others with 401."""

    def __init__(self, *accepted: str) -> None:
        self.accepted = accepted

    async def __call__(self, connection: Connection) -> None:
        while True:
            seen = await connection.request()
            known = seen.headers["authorization"].removeprefix("Bearer ") in self.accepted
            await connection.answer(b"{}", "200 OK" if known else "401 Unauthorized")


@asynccontextmanager
async def stage(shop, endpoint):
    """An upstream with tokens, its clock, the shop's origin and the endpoint's."""
    async with AsyncExitStack() as stack:
        it, id = await stack.enter_async_context(origin(shop)), await stack.enter_async_context(origin(endpoint))
        clock = Clock()
        to = HttpUpstream("shop", it.url, [TOOL], Credentials(tokens=Tokens(id.url, "me", "s3cret", now=clock)))
        await to.open()
        stack.push_async_callback(to.close)
        async with asyncio.timeout(5):
            yield to, clock, it, id


def used(it) -> list[str]:
    return [seen.headers["authorization"] for seen in it.seen]


async def test_every_call_carries_the_token_and_no_setting_or_key_replaces_it():
    async with stage(Shop("t1"), Endpoint()) as (to, _, it, id):
        for _ in range(3):
            assert (await to.send(dispatch())).status == 200
        with pytest.raises(UpstreamFault):
            await to.send(dispatch(send_as=("header", "Authorization")))
    assert (used(it), len(id.seen)) == (["Bearer t1"] * 3, 1)


async def test_a_read_or_idempotent_write_with_a_refused_token_goes_out_once_more_under_the_same_key():
    async with stage(Shop("t2"), Endpoint()) as (to, clock, it, _):
        assert (await to.send(dispatch())).status == 401, "a brand-new token is not refused for its age"
        clock.now += PAUSE_S
        assert (await to.send(dispatch(send_as=("header", "Idempotency-Key")))).status == 200
    assert used(it) == ["Bearer t1", "Bearer t1", "Bearer t2"]
    assert [seen.headers.get("idempotency-key") for seen in it.seen[1:]] == ["k" * 64] * 2


async def test_what_may_go_out_only_once_keeps_its_401_and_the_next_call_has_a_fresh_token():
    async with stage(Shop("t2"), Endpoint()) as (to, clock, it, _):
        await to.send(dispatch())
        clock.now += PAUSE_S
        assert (await to.send(dispatch(fresh_connection=True))).status == 401
        assert (await to.send(dispatch(fresh_connection=True))).status == 200
    assert used(it) == ["Bearer t1", "Bearer t1", "Bearer t2"]


async def test_a_second_refusal_is_the_answer():
    async with stage(Shop(), Endpoint()) as (to, clock, it, _):
        await to.send(dispatch())
        clock.now += PAUSE_S
        assert (await to.send(dispatch())).status == 401
    assert used(it) == ["Bearer t1", "Bearer t1", "Bearer t2"]


async def test_without_a_token_nothing_is_sent_and_after_a_refusal_the_refusal_stands():
    async with stage(Shop(), Endpoint("500 Oops")) as (to, _, it, _):
        with pytest.raises(UpstreamFault) as caught:
            await to.send(dispatch())
        assert (caught.value.kind, it.connections) == ("unavailable", 0)
    endpoint = Endpoint()
    async with stage(Shop(), endpoint) as (to, clock, it, _):
        await to.send(dispatch())
        endpoint.status, clock.now = "500 Oops", clock.now + PAUSE_S
        assert (await to.send(dispatch())).status == 401
    assert len(it.seen) == 2


async def test_the_time_that_a_token_takes_counts():
    endpoint = Endpoint()
    endpoint.open.clear()
    async with stage(Shop("t1"), endpoint) as (to, _, it, _):
        with pytest.raises(UpstreamFault) as caught:
            await to.send(dispatch(remaining_ms=50))
        assert (caught.value.kind, it.connections) == ("unavailable", 0)


async def test_neither_secret_nor_token_stands_in_an_answer():
    async with stage(Shop(), Endpoint(access_token="t0ken")) as (to, _, _, _):
        answer = await to.send(dispatch())
    assert not {"t0ken", "s3cret"} & set(json.dumps(answer.result).split('"'))
