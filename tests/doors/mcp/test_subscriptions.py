"""Changes that clients hear of: streams of `subscriptions/listen`, and what sessions subscribed to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.doors.mcp import subscriptions
from gateway.ports import Notice, UpstreamFault
from tests.doors.mcp.stage import DONE, Exchange, FakeEngine, FakeServer, Talk, call, door, message, post, tool

pytestmark = pytest.mark.anyio

TOOLS, PROMPTS, RESOURCES = (f"notifications/{name}/list_changed" for name in ("tools", "prompts", "resources"))
UPDATED = "notifications/resources/updated"
ID = "io.modelcontextprotocol/subscriptionId"
OFFERS = {"resources": {"subscribe": True}}


def engine_of(*names: str, **offers: Any) -> FakeEngine:
    engine = FakeEngine(*(tool(f"{name}.do") for name in names))
    engine.servers = {name: FakeServer(name, offers or OFFERS) for name in names}
    return engine


async def listening(engine: FakeEngine, app: Any = None, **notifications: Any) -> Exchange:
    exchange = Exchange(app or door(engine), message("subscriptions/listen", notifications=notifications))
    await exchange.said(1)
    return exchange


def tell(engine: FakeEngine, method: str, upstream: str = "a", **params: Any) -> None:
    for hear in list(engine.hearers):
        hear(Notice(upstream, method, params))


async def test_a_stream_begins_with_what_it_will_tell_and_tells_nothing_else():
    engine = engine_of("a")
    exchange = await listening(engine, toolsListChanged=True, promptsListChanged=False, resourceSubscriptions=["x:y"], unheardOf=True)
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["x:y"]}
    assert exchange.events == [
        {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {"notifications": wanted, "_meta": {ID: 1}}}
    ]
    for method, params in ((PROMPTS, {}), (RESOURCES, {}), (UPDATED, {"uri": "x:z"}), ("notifications/message", {}), (UPDATED, {"uri": "x:y"})):
        tell(engine, method, **params)
    tell(engine, TOOLS)
    _, updated, changed = await exchange.said(3)
    assert updated["params"] == {"uri": "x:y", "_meta": {ID: 1}}
    assert (changed["method"], changed["params"]) == (TOOLS, {"_meta": {ID: 1}})
    exchange.leave()
    await exchange.answered()
    assert engine.hearers == []


async def test_only_servers_that_the_run_may_use_are_heard():
    engine = engine_of("a")
    exchange = await listening(engine, promptsListChanged=True, toolsListChanged=True)
    tell(engine, PROMPTS, "b")
    tell(engine, TOOLS, "b")
    tell(engine, PROMPTS, "a")
    assert [event["method"] for event in (await exchange.said(3))[1:]] == [TOOLS, PROMPTS]
    exchange.leave()
    await exchange.answered()


async def test_uris_are_told_as_the_client_knows_them_and_watched_where_they_are():
    engine = engine_of("a", "b")
    app = door(engine)
    exchange = await listening(engine, app, resourceSubscriptions=["via:b:x:y", "via:nobody:x:y"])
    other = await listening(engine, app, resourceSubscriptions=["via:b:x:y", "via:b:x:z"])
    assert exchange.events[0]["params"]["notifications"] == {"resourceSubscriptions": ["via:b:x:y"]}
    tell(engine, UPDATED, "a", uri="x:y")
    tell(engine, UPDATED, "b", uri="x:y", title="new")
    assert (await exchange.said(2))[1]["params"] == {"uri": "via:b:x:y", "title": "new", "_meta": {ID: 1}}
    for one in (other, exchange):
        one.leave()
        await one.answered()
    assert engine.servers["b"].watched == [["x:y"], ["x:y", "x:z"], ["x:y"], []]
    assert engine.servers["a"].watched == []


async def test_a_server_that_takes_no_subscriptions_or_fails_is_not_promised(caplog):
    engine = engine_of("a", resources={})
    exchange = await listening(engine, resourceSubscriptions=["x:y"])
    assert (exchange.events[0]["params"]["notifications"], engine.servers["a"].watched) == ({}, [])
    exchange.leave()
    failing = engine_of("a")
    failing.servers["a"].answers["watch"] = UpstreamFault("unavailable", "away")
    exchange = await listening(failing, resourceSubscriptions=["x:y"])
    exchange.leave()
    await exchange.answered()
    assert "away" in caplog.text


async def test_a_gateway_that_stops_ends_each_stream_with_its_result():
    engine = engine_of("a")
    app = door(engine)
    exchanges = [await listening(engine, app, toolsListChanged=True) for _ in range(2)]
    app.stop()
    for exchange in exchanges:
        final = (await exchange.answered()).events[-1]
        assert (final["id"], final["result"]["resultType"], final["result"]["_meta"][ID]) == (1, "complete", 1)


async def test_a_principal_has_so_many_streams_and_no_more(monkeypatch):
    monkeypatch.setattr(subscriptions, "MAX_STREAMS", 1)
    engine = engine_of("a")
    app = door(engine)
    first = await listening(engine, app)
    refused = await post(app, message("subscriptions/listen", notifications={}))
    assert (refused.status, refused.json["error"]["code"], refused.json["id"]) == (429, -32600, 1)
    first.leave()
    await first.answered()
    second = await listening(engine, app)
    second.leave()
    await second.answered()


async def test_a_stream_is_kept_open_by_comments():
    exchange = Exchange(door(engine_of("a"), heartbeat_s=0.001), message("subscriptions/listen", notifications={}))
    async with asyncio.timeout(5):
        while exchange.body.count(b"\n: ") < 3 and exchange.body.count(b"\n:") < 3:  # noqa: ASYNC110  the exchange tells of each part
            await asyncio.sleep(0.001)
    exchange.leave()
    await exchange.answered()


@pytest.mark.parametrize("wrong", [None, 7, *[{"resourceSubscriptions": uris} for uris in ("x:y", [7], ["x"] * 1001)]])
async def test_a_wish_out_of_shape_is_refused(wrong):
    exchange = await post(door(engine_of("a")), message("subscriptions/listen", notifications=wrong))
    assert (exchange.status, exchange.json["error"]["code"]) == (400, -32602)


# ---- sessions -----------------------------------------------------------------------------------------------------------


async def test_what_a_session_subscribed_to_is_told_on_its_open_streams():
    engine = engine_of("a")
    talk = await Talk.begin(door(engine))
    other = await Talk.begin(talk.app)
    assert (await talk.ask("resources/subscribe", uri="x:y"))["result"] == {}
    assert (await talk.ask("resources/subscribe", uri="x:y"))["result"] == {}

    async def telling(progress, gone):
        tell(engine, UPDATED, uri="x:y")
        tell(engine, UPDATED, uri="x:z")
        return DONE

    engine.reply = telling
    events = (await talk.say(call(name="a__do"))).events
    assert [event.get("params") for event in events[:-1]] == [{"uri": "x:y"}]
    assert (await other.say(call(name="a__do"))).headers["content-type"] == "application/json"
    assert (await talk.ask("resources/unsubscribe", uri="x:y"))["result"] == {}
    assert (await talk.say(call(name="a__do"))).headers["content-type"] == "application/json"
    assert engine.servers["a"].watched == [["x:y"], []]


async def test_a_session_that_ends_and_one_too_many_are_forgotten(monkeypatch):
    monkeypatch.setattr(subscriptions, "MAX_SESSIONS", 1)
    monkeypatch.setattr(subscriptions, "MAX_URIS", 1)
    engine = engine_of("a")
    first = await Talk.begin(door(engine))
    second = await Talk.begin(first.app)
    await first.ask("resources/subscribe", uri="x:1")
    assert (await first.ask("resources/subscribe", uri="x:2"))["error"]["code"] == -32602
    await second.ask("resources/subscribe", uri="x:2")
    await second.say(b"", method="DELETE")
    assert engine.servers["a"].watched == [["x:1"], ["x:1", "x:2"], ["x:2"], []]


@pytest.mark.parametrize("uri", [None, 7])
async def test_a_uri_that_is_none_is_refused(uri):
    talk = await Talk.begin(door(engine_of("a")))
    assert (await talk.ask("resources/subscribe", uri=uri))["error"]["code"] == -32602
    other = await Talk.begin(door(engine_of("a", resources={})))
    assert (await other.ask("resources/subscribe", uri="x:y"))["error"]["code"] == -32602
