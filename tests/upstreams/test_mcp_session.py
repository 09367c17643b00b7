"""One conversation with an MCP server, line by line, without a process."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from gateway.ports import Client, UpstreamFault
from gateway.upstreams.lines import Foreign, Overlong
from gateway.upstreams.mcp_session import Session
from tests.upstreams.origin import dispatch

pytestmark = pytest.mark.anyio


class Peer:
    """The other end: what was written to it, and its answers."""

    def __init__(self) -> None:
        self.session = Session(Foreign(logging.getLogger("test.session"), lambda: 0.0))
        self.session.write = self._write
        self.sent: asyncio.Queue[dict] = asyncio.Queue()

    def _write(self, line: bytes) -> None:
        assert line.endswith(b"\n")
        self.sent.put_nowait(json.loads(line))

    async def next(self, method: str) -> dict:
        async with asyncio.timeout(5):
            message = await self.sent.get()
        assert message["method"] == method
        return message

    def says(self, **message) -> None:
        self.session.hear(json.dumps({"jsonrpc": "2.0", **message}).encode())


async def greeting(peer: Peer, **options):
    options = {"probe": True, "patience_s": 5} | options
    return asyncio.ensure_future(peer.session.greet(**options))


MODERN = {"supportedVersions": ["2026-07-28"], "capabilities": {}}
LEGACY = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {}}


async def version_after(peer: Peer) -> str | None:
    """The envelope of the next request says which era was found."""
    listing = asyncio.ensure_future(peer.session.tools())
    asked = await peer.next("tools/list")
    peer.says(id=asked["id"], result={"tools": []})
    assert await listing == []
    return asked.get("params", {}).get("_meta", {}).get("io.modelcontextprotocol/protocolVersion")


async def test_an_answer_to_discover_means_the_new_era():
    peer = Peer()
    greet = await greeting(peer)
    peer.says(id=(await peer.next("server/discover"))["id"], result=MODERN)
    await greet
    assert await version_after(peer) == "2026-07-28"


@pytest.mark.parametrize("code", [-32601, -32602, -32600])
async def test_any_refusal_of_discover_means_the_old_era(code):
    peer = Peer()
    greet = await greeting(peer)
    peer.says(id=(await peer.next("server/discover"))["id"], error={"code": code, "message": "?"})
    peer.says(id=(await peer.next("initialize"))["id"], result=LEGACY)
    await greet
    await peer.next("notifications/initialized")
    assert await version_after(peer) is None


async def test_a_slow_new_server_is_recognised_after_initialize_went_out():
    peer = Peer()
    greet = await greeting(peer, patience_s=0)
    discover, _ = await peer.next("server/discover"), await peer.next("initialize")
    peer.says(id=discover["id"], result=MODERN)
    await greet
    assert await version_after(peer) == "2026-07-28"


async def test_without_a_probe_initialize_comes_first():
    peer = Peer()
    greet = await greeting(peer, probe=False)
    peer.says(id=(await peer.next("initialize"))["id"], result=LEGACY)
    await greet
    await peer.next("notifications/initialized")


@pytest.mark.parametrize("answer", [{"error": {"code": -1, "message": "no"}}, {"result": {"protocolVersion": "1999-01-01"}}, {"result": None}])
async def test_a_server_of_no_era_is_garbage(answer):
    peer = Peer()
    greet = await greeting(peer, probe=False)
    peer.says(id=(await peer.next("initialize"))["id"], **answer)
    with pytest.raises(UpstreamFault) as caught:
        await greet
    assert caught.value.kind == "garbage"


async def test_a_change_while_the_tools_are_being_read_is_not_lost():
    peer = Peer()
    listing = asyncio.ensure_future(peer.session.tools())
    asked = await peer.next("tools/list")
    peer.says(method="notifications/tools/list_changed")
    peer.says(id=asked["id"], result={"tools": []})
    assert await listing == []
    again = asyncio.ensure_future(peer.session.tools())
    peer.says(id=(await peer.next("tools/list"))["id"], result={"tools": [{"name": "new", "inputSchema": {}}]})
    assert [one["name"] for one in await again] == ["new"]


async def test_a_list_that_goes_in_circles_is_garbage():
    peer = Peer()
    listing = asyncio.ensure_future(peer.session.tools())
    for _ in range(2):
        peer.says(id=(await peer.next("tools/list"))["id"], result={"tools": [], "nextCursor": "same"})
    with pytest.raises(UpstreamFault) as caught:
        await listing
    assert caught.value.kind == "garbage"


@pytest.mark.parametrize("answer", [{"error": {"code": -32603, "message": "x"}}, {"result": {"tools": [{"name": 1}]}}])
async def test_a_list_that_cannot_be_read_is_garbage(answer):
    peer = Peer()
    listing = asyncio.ensure_future(peer.session.tools())
    peer.says(id=(await peer.next("tools/list"))["id"], **answer)
    with pytest.raises(UpstreamFault) as caught:
        await listing
    assert caught.value.kind == "garbage"


async def test_a_server_without_tools_has_none():
    peer = Peer()
    listing = asyncio.ensure_future(peer.session.tools())
    peer.says(id=(await peer.next("tools/list"))["id"], error={"code": -32601, "message": "Method not found"})
    assert await listing == []


async def test_answers_and_progress_that_belong_to_nobody_are_ignored():
    peer, steps = Peer(), []
    call = asyncio.ensure_future(peer.session.call(dispatch(client=Client(steps.append))))
    asked = await peer.next("tools/call")
    for token in (asked["id"] + 1, True, "1", None, [], {}):
        peer.says(method="notifications/progress", params={"progressToken": token, "progress": 1})
    peer.says(id=asked["id"] + 1, result={})
    peer.says(id=str(asked["id"]), result={})
    peer.says(id=None, error={"code": -32700, "message": "?"})
    for _ in range(2):
        peer.says(id=asked["id"], result={"content": []})
    assert (await call).result == {"content": []}
    assert steps == []
    peer.says(id=asked["id"], result={"content": ["late"]})


async def test_the_end_leaves_what_is_in_flight_unknown_and_refuses_the_rest():
    peer = Peer()
    call = asyncio.ensure_future(peer.session.call(dispatch()))
    await peer.next("tools/call")
    peer.session.end("it died")
    with pytest.raises(UpstreamFault) as caught:
        await call
    assert caught.value.kind == "closed"
    with pytest.raises(UpstreamFault) as caught:
        await peer.session.call(dispatch())
    assert caught.value.kind == "unavailable"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}', "garbage"),
        (b'{"result":{"a":NaN},"jsonrpc":"2.0","id":1}', "garbage"),
        (b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 200 + b"]" * 200 + b"}", "garbage"),
        (Overlong(b'{"jsonrpc": "2.0", "id": 1, "result": {"content": [{"id": 9}', b'xxx"}'), "too_large"),
        (Overlong(b'{"result": {"id":9}', b'"}, "jsonrpc": "2.0", "id": 1 } '), "too_large"),
    ],
)
async def test_an_unreadable_answer_fails_its_own_call_at_once(line, kind):
    peer = Peer()
    call = asyncio.ensure_future(peer.session.call(dispatch()))
    assert (await peer.next("tools/call"))["id"] == 1
    peer.session.hear(line)
    with pytest.raises(UpstreamFault) as caught:
        async with asyncio.timeout(5):
            await call
    assert caught.value.kind == kind
