"""What a server tells beside its answers, in both eras over both transports: lists that changed, resources that were updated."""

from __future__ import annotations

import asyncio

import pytest

from gateway.ports import Notice, UpstreamFault, UpstreamRefusal
from gateway.upstreams.mcp_notices import Notices
from gateway.wire.jsonrpc import Notification
from tests.upstreams.conversation import Conversation
from tests.upstreams.mcp_origin import END, EVERYTHING, SSE, Server, event, serving
from tests.waiting import until

pytestmark = pytest.mark.anyio

CHANGED = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


class Told:
    """What was passed on, in order."""

    def __init__(self) -> None:
        self.notices: asyncio.Queue[Notice] = asyncio.Queue()

    async def next(self) -> Notice:
        async with asyncio.timeout(5):
            return await self.notices.get()


def listening(talk: Conversation, offers=EVERYTHING) -> tuple[Notices, Told]:
    """The notices of a conversation that has been greeted."""
    notices, told = Notices("shop"), Told()
    notices.hear = told.notices.put_nowait
    talk.peer._hear = notices.noticed
    talk.peer.offers = offers
    return notices, told


# ---- 2026-07-28 ---------------------------------------------------------------------------------------------------------


async def test_a_2026_server_is_asked_once_for_all_that_it_can_tell():
    talk = await Conversation().greeted("modern")
    notices, told = listening(talk)
    notices.attach(talk.peer, None)
    asked = await talk.next("subscriptions/listen")
    assert asked["params"]["notifications"] == {"toolsListChanged": True, "resourcesListChanged": True}
    assert not talk.peer.told
    talk.says(method="notifications/subscriptions/acknowledged", params={"notifications": {"toolsListChanged": True}})
    assert talk.peer.told
    talk.says(method=CHANGED, params={"_meta": {SUBSCRIPTION: asked["id"], "theirs": 1}})
    assert await told.next() == Notice("shop", CHANGED, {"_meta": {"theirs": 1}})
    await notices.detach()
    assert (await talk.next("notifications/cancelled"))["params"]["requestId"] == asked["id"]


async def test_a_2026_server_that_tells_nothing_is_not_asked():
    talk = await Conversation().greeted("modern")
    notices, _ = listening(talk, {"tools": {}, "resources": {"listChanged": False}})
    notices.attach(talk.peer, None)
    await asyncio.sleep(0)
    assert (talk.sent.empty(), talk.peer.told) == (True, False)
    await notices.detach()


async def test_resources_to_watch_are_asked_for_anew_with_all_that_is_wanted():
    talk = await Conversation().greeted("modern")
    notices, told = listening(talk, {"resources": {"subscribe": True}})
    notices.attach(talk.peer, None)
    for uris in ({"a:1"}, {"a:1", "a:2"}):
        watching = asyncio.ensure_future(notices.watch(uris))
        if len(uris) > 1:
            await talk.next("notifications/cancelled")
        asked = await talk.next("subscriptions/listen")
        assert asked["params"]["notifications"] == {"resourceSubscriptions": sorted(uris)}
        talk.says(method="notifications/subscriptions/acknowledged", params={"notifications": {}})
        await watching
    talk.says(method=UPDATED, params={"uri": "a:2"})
    assert await told.next() == Notice("shop", UPDATED, {"uri": "a:2"})
    ending = asyncio.ensure_future(notices.watch([]))
    await talk.next("notifications/cancelled")
    await ending
    await notices.detach()


async def test_a_refused_subscription_is_told_to_who_wanted_it():
    talk = await Conversation().greeted("modern")
    notices, _ = listening(talk, {})
    notices.attach(talk.peer, None)
    watching = asyncio.ensure_future(notices.watch({"a:1"}))
    talk.says(id=(await talk.next("subscriptions/listen"))["id"], error={"code": -32601, "message": "no"})
    with pytest.raises(UpstreamRefusal):
        await watching
    await notices.detach()


async def test_a_stream_that_ends_is_opened_again(monkeypatch):
    monkeypatch.setattr("gateway.upstreams.mcp_notices.BACKOFF_S", (0.01, 0.02))
    talk = await Conversation().greeted("modern")
    notices, _ = listening(talk)
    notices.attach(talk.peer, None)
    for _ in range(3):
        asked = await talk.next("subscriptions/listen")
        talk.says(method="notifications/subscriptions/acknowledged", params={"notifications": {"toolsListChanged": True}})
        talk.says(id=asked["id"], result={})
    await talk.next("subscriptions/listen")
    assert not talk.peer.told
    await notices.detach()


async def test_over_http_the_standing_request_is_a_stream_of_its_own():
    async def other(connection, message):
        assert message["method"] == "subscriptions/listen"
        granted = {"notifications": {"toolsListChanged": True}}
        await connection.write(SSE + event({"method": "notifications/subscriptions/acknowledged", "params": granted}))
        await connection.write(event({"method": CHANGED, "params": {"_meta": {SUBSCRIPTION: message["id"]}}}))
        await connection.closed()

    told = Told()
    async with serving(Server("modern", other=other, offers=EVERYTHING)) as upstream:
        upstream.listen(told.notices.put_nowait)
        assert await told.next() == Notice("shop", CHANGED, {})
        assert upstream._link.peer.told


# ---- the session era ----------------------------------------------------------------------------------------------------


async def test_over_a_pipe_a_session_tells_by_itself_and_subscribes_each_resource():
    talk = await Conversation().greeted("legacy")
    notices, told = listening(talk)
    with pytest.raises(UpstreamFault):
        await notices.watch({"a:1", "a:2"})
    notices.attach(talk.peer, None)
    assert talk.peer.told
    for uri in ("a:1", "a:2"):
        asked = await talk.next("resources/subscribe")
        assert asked["params"]["uri"] == uri
        talk.says(id=asked["id"], result={})
    watching = asyncio.ensure_future(notices.watch({"a:2", "a:3"}))
    for method, uri in (("resources/subscribe", "a:3"), ("resources/unsubscribe", "a:1")):
        asked = await talk.next(method)
        assert asked["params"]["uri"] == uri
        talk.says(id=asked["id"], result={})
    await watching
    talk.says(method=UPDATED, params={"uri": "a:3"})
    talk.says(method="notifications/message", params={"level": "info"})
    talk.says(method="notifications/else", params={})
    assert [(await told.next()).method for _ in range(2)] == [UPDATED, "notifications/message"]
    assert told.notices.empty()
    await notices.detach()


async def test_over_http_a_session_tells_by_a_standing_stream_that_is_opened_again(monkeypatch):
    monkeypatch.setattr("gateway.upstreams.mcp_notices.BACKOFF_S", (0.01, 0.02))
    streams: list = []

    async def get(connection, seen):
        streams.append(seen)
        await connection.write(SSE + event({"method": CHANGED}))
        if len(streams) == 3:
            await connection.closed()
        await connection.write(END)

    told = Told()
    server = Server("legacy", get=get, offers=EVERYTHING)
    async with serving(server) as upstream:
        upstream.listen(told.notices.put_nowait)
        await until(lambda: len(streams) == 3, "three streams")
        await until(lambda: upstream._link.peer.told, "an open stream")
        assert (await told.next()).method == CHANGED
    assert {(seen.headers["accept"], seen.headers["mcp-session-id"]) for seen in streams} == {("text/event-stream", "session-1")}


async def test_a_server_without_a_standing_stream_is_left_in_peace():
    server = Server("legacy", offers=EVERYTHING)
    async with serving(server) as upstream:
        await until(lambda: [seen for seen in server.origin.seen if seen.method == "GET"], "a look for the stream")
        await until(upstream._notices._keeper.done, "its end")
        assert not upstream._link.peer.told


def test_what_nobody_listens_to_is_dropped():
    Notices("shop").noticed(Notification(CHANGED, {}))
