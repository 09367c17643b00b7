"""Both clients against a whole gateway over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from gateway.client import AsyncGateway, Gateway, GatewayError, Run, StillHeld
from tests.serving import KEYS, Served, served

pytestmark = pytest.mark.anyio


@pytest.fixture
async def it(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Served]:
    async with served(tmp_path) as it:
        yield it


async def in_thread(act: Callable[[], Any]) -> Any:
    """Sync code beside the gateway, which runs on this loop."""
    return await to_thread.run_sync(act)


def test_a_call_says_only_what_is_known_of_it() -> None:
    run: Any = Run(next, {"run": "run_1", "token": "t", "tools": ["x.y"]})
    assert run.call("x.y").body == {"tool": "x.y", "arguments": {}}
    asked = run.call("x.y", {"a": 1}, call_id="c", operation_id="o", turn=2)
    assert (asked.body, asked.bearer) == ({"tool": "x.y", "arguments": {"a": 1}, "call_id": "c", "operation_id": "o", "turn": 2}, "t")
    assert run.model_call({"type": "tool_use"}, turn=2).headers == {"gateway-turn": "2"}


async def test_an_async_loop_declares_turns_calls_and_finishes(it: Served) -> None:
    async with AsyncGateway(it.url, KEYS["agent:bot"]) as gateway:
        async with gateway.run(run_key="a", goal="help") as run:
            turn = await run.turn()
            assert (turn.number, turn.budget.turns_left) == (1, 4)
            asked = {"type": "tool_use", "id": "toolu_1", "name": "shop__get_order", "input": {"id": "7"}}
            assert (await run.answer(turn.number, [asked])).calls[0]["tool"] == "shop.get_order"
            result = await run.model_call(asked, turn=turn.number)
            assert (result.structured["target"], result.budget.tool_calls_left) == ("/orders/7", 9)
            assert (await run.call("shop.get_order", {"id": "8"}, call_id="b", turn=1)).status == "succeeded"
            assert (await run.usage(1, input=10, output=5)).budget.tokens_left == 985
            assert (await run.state())["calls"] == {"succeeded": 2}
        assert (await run.state())["status"] == "completed"


async def test_a_sync_loop_does_the_same(it: Served) -> None:
    def loop() -> None:
        with Gateway(it.url, KEYS["agent:bot"]) as gateway:
            with gateway.run(run_key="a") as run:
                turn = run.turn()
                asked = {"type": "function", "id": "c1", "function": {"name": "shop__get_order", "arguments": '{"id": "7"}'}}
                assert run.answer(turn.number, [asked]).calls[0]["call_id"] == "c1"
                assert run.model_call(asked, turn=1).structured["target"] == "/orders/7"
                assert run.call("shop.get_order", {"id": "8"}).text
                assert run.usage(1, input=10).budget.tokens_left == 990
            assert run.state()["status"] == "completed"

    await in_thread(loop)


async def test_an_exception_cancels_the_run_and_goes_on(it: Served) -> None:
    async with AsyncGateway(it.url, KEYS["agent:bot"]) as gateway:
        with pytest.raises(ZeroDivisionError):
            async with gateway.run() as run:
                raise ZeroDivisionError
        assert (await run.state())["reason"] == "caller_cancelled"

    def loop() -> None:
        with Gateway(it.url, KEYS["agent:bot"]) as gateway:
            with pytest.raises(ZeroDivisionError), gateway.run() as run:
                raise ZeroDivisionError
            assert run.state()["status"] == "cancelled"

    await in_thread(loop)


async def test_a_run_that_was_ended_meanwhile_is_simply_over(it: Served) -> None:
    async with AsyncGateway(it.url, KEYS["agent:bot"]) as gateway, gateway.run() as run:
        assert (await run.cancel())["status"] == "cancelled"

    def loop() -> None:
        with Gateway(it.url, KEYS["agent:bot"]) as gateway, gateway.run() as run:
            assert run.cancel()["status"] == "cancelled"

    await in_thread(loop)


async def test_a_refusal_is_an_error_with_its_reason_and_hint(it: Served) -> None:
    async with AsyncGateway(it.url, KEYS["agent:bot"]) as gateway, gateway.run() as run:
        with pytest.raises(GatewayError) as caught:
            await run.call("shop.get_order", {"id": 7})
        assert caught.value.reason == "arguments.invalid"
        assert caught.value.hint
        assert caught.value.budget is not None


async def test_a_held_call_is_waited_for_and_executed_once_approved(it: Served) -> None:
    async with AsyncGateway(it.url, KEYS["agent:bot"]) as gateway, AsyncGateway(it.url, KEYS["user:mia"]) as mia, gateway.run() as run:
        calling = asyncio.ensure_future(run.call("shop.refund", {"amount": 500}))
        await asyncio.wait_for(it.app.engine.ledger.watch(run.id, 1), 5)
        [hold] = await mia.holds()
        assert (await mia.hold(hold["hold"]))["arguments"] == {"amount": 500}
        assert (await mia.approve(hold["hold"], hold["digest"], "fine"))["status"] == "approved"
        result = await asyncio.wait_for(calling, 5)
        assert (result.status, result.replayed) == ("succeeded", False)
        assert len(it.origin.seen) == 1


async def test_a_denial_reaches_the_waiting_loop(it: Served) -> None:
    def approver() -> None:
        with Gateway(it.url, KEYS["user:mia"]) as mia:
            [hold] = mia.holds()
            assert mia.hold(hold["hold"])["status"] == "held"
            assert mia.deny(hold["hold"], hold["digest"], "too much")["status"] == "denied"
            with pytest.raises(GatewayError) as caught:
                mia.approve(hold["hold"], hold["digest"])
            assert caught.value.reason == "hold.conflict"

    async with AsyncGateway(it.url, KEYS["agent:bot"]) as gateway, gateway.run() as run:
        calling = asyncio.ensure_future(run.call("shop.refund", {"amount": 500}))
        await asyncio.wait_for(it.app.engine.ledger.watch(run.id, 1), 5)
        await in_thread(approver)
        with pytest.raises(GatewayError) as caught:
            await asyncio.wait_for(calling, 5)
        assert caught.value.reason == "approval.denied"


async def test_patience_that_ends_first_is_still_held(it: Served) -> None:
    async with AsyncGateway(it.url, KEYS["agent:bot"]) as gateway, gateway.run() as run:
        with pytest.raises(StillHeld) as caught:
            await run.call("shop.refund", {"amount": 500}, patience_s=0)
        assert caught.value.hold.startswith("hold_")
    assert not it.origin.seen


async def test_a_gateway_that_is_not_there_is_a_connection_error(it: Served) -> None:
    import httpx

    async with AsyncGateway("http://127.0.0.1:9", "key") as gateway:
        with pytest.raises(httpx.ConnectError):
            await gateway.open_run()

    def loop() -> None:
        with Gateway("http://127.0.0.1:9", "key") as gateway, pytest.raises(httpx.ConnectError):
            gateway.open_run()

    await in_thread(loop)
