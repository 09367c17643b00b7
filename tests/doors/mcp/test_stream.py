"""Progress and waiting: a stream begins only when there is something to say, rises, and ends with the answer."""

from __future__ import annotations

import asyncio

import pytest

from tests.doors.mcp.stage import DONE, Exchange, FakeEngine, door, message, post

pytestmark = pytest.mark.anyio

WITH_TOKEN = message(meta={"progressToken": "p-1"})


async def streamed(script, body=WITH_TOKEN, **limits):
    engine = FakeEngine()
    engine.reply = script
    return await post(door(engine, **limits), body)


def told(*updates):
    async def script(progress, gone):
        for update in updates:
            progress(update)
        return DONE

    return script


def figures(exchange):
    return [event["params"]["progress"] for event in exchange.events[:-1]]


async def test_a_call_with_nothing_to_say_before_its_end_is_answered_as_json():
    exchange = await streamed(told())
    assert (exchange.headers["content-type"], exchange.result["content"]) == ("application/json", DONE.result["content"])


async def test_upstream_progress_is_forwarded_under_the_client_s_token_and_the_answer_ends_the_stream():
    exchange = await streamed(told({"progressToken": 99, "progress": 1, "total": 3, "message": "step 1"}, {"progress": 2.5}))
    assert (exchange.status, exchange.headers["content-type"], exchange.headers["cache-control"]) == (
        200, "text/event-stream", "no-cache, no-transform",
    )  # fmt: skip
    first, second, final = exchange.events
    assert first == {
        "jsonrpc": "2.0", "method": "notifications/progress",
        "params": {"progressToken": "p-1", "progress": 1, "total": 3, "message": "step 1"},
    }  # fmt: skip
    assert second["params"] == {"progressToken": "p-1", "progress": 2.5}
    assert (final["id"], final["result"]["content"], exchange.ended) == (1, DONE.result["content"], True)


async def test_progress_is_said_when_it_happens_and_not_at_the_end():
    go = asyncio.Event()

    async def script(progress, gone):
        progress({"progress": 1})
        await go.wait()
        return DONE

    engine = FakeEngine()
    engine.reply = script
    exchange = Exchange(door(engine), WITH_TOKEN)
    assert (await exchange.said(1))[0]["params"]["progress"] == 1
    assert not exchange.ended
    go.set()
    assert (await exchange.answered()).ended


async def test_progress_always_rises():
    updates = [
        {"progress": 5},
        {"progress": 5},
        {"progress": 1},
        {"progress": 6},
        {},
        {"progress": None},
        {"progress": 10**40},
        {"progress": "7"},
        {},
    ]
    shown = figures(await streamed(told(*updates)))
    assert shown == sorted(set(shown))
    assert (len(shown), shown[0], shown[3]) == (9, 5, 6)


@pytest.mark.parametrize("update", [{"progress": 1, "total": "3", "message": 7}, {"progress": True, "total": True}, {"message": {}}])
async def test_what_is_no_figure_and_no_text_is_not_forwarded(update):
    params = (await streamed(told(update))).events[0]["params"]
    assert set(params) == {"progressToken", "progress"}
    assert type(params["progress"]) in (int, float)


async def test_a_client_that_waits_hears_a_heartbeat_and_an_upstream_s_first_step_still_rises():
    engine, exchange = FakeEngine(), None

    async def script(progress, gone):
        await exchange.said(3)
        progress({"progress": 1})
        return DONE

    engine.reply = script
    exchange = Exchange(door(engine, heartbeat_s=0.001), WITH_TOKEN)
    await exchange.answered()
    shown = figures(exchange)
    assert shown == sorted(set(shown))
    assert (shown[-1], len(shown) >= 4) == (1, True)


async def test_nothing_is_said_after_the_answer():
    ended = await streamed(told({"progress": 1}), heartbeat_s=0.001)
    count, other = len(ended.sent), None

    async def while_others_hear_heartbeats(progress, gone):
        await other.said(5)
        return DONE

    engine = FakeEngine()
    engine.reply = while_others_hear_heartbeats
    other = Exchange(door(engine, heartbeat_s=0.001), WITH_TOKEN)
    await other.answered()
    assert len(ended.sent) == count


async def test_a_flood_of_progress_keeps_only_the_newest_of_it():
    exchange = await streamed(told(*[{"progress": n} for n in range(1, 1001)]))
    shown = figures(exchange)
    assert (len(shown) <= 64, shown[-1]) == (True, 1000)


@pytest.mark.parametrize("body", [message(), message(meta={"progressToken": None}), message(meta={"progressToken": 1.5})])
async def test_without_a_token_the_engine_is_asked_for_no_progress(body):
    asked = []

    async def script(progress, gone):
        asked.append(progress)
        return DONE

    exchange = await streamed(script, body, heartbeat_s=0.001)
    assert (asked, exchange.headers["content-type"]) == ([None], "application/json")
