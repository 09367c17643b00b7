"""Resources, prompts and completion of the servers that a run may use: whose they are, how they are named, what a fault is told as."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.ports import UpstreamFault, UpstreamRefusal
from tests.doors.mcp.stage import FakeEngine, FakeServer, Talk, door, message, post, tool

pytestmark = pytest.mark.anyio

ALL = {"prompts": {"listChanged": True}, "resources": {"subscribe": True}, "completions": {}}


def engine_of(*servers: FakeServer) -> FakeEngine:
    engine = FakeEngine(*(tool(f"{one.name}.do") for one in servers))
    engine.servers = {one.name: one for one in servers}
    return engine


async def asked(engine: FakeEngine, method: str, **params: Any) -> Any:
    named = {"mcp_name": str(params.get("name") or params.get("uri"))} if {"name", "uri"} & params.keys() and "ref" not in params else {}
    return (await post(door(engine), message(method, **params), **named)).json


async def test_with_one_server_names_and_uris_stand_as_they_are():
    server = FakeServer("docs", ALL, prompts=["a.b"], resources=["file:///x"], templates=["file:///{name}"])
    engine = engine_of(server)
    assert (await asked(engine, "prompts/list"))["result"]["prompts"] == [{"name": "a.b"}]
    assert (await asked(engine, "resources/list"))["result"]["resources"] == [{"uri": "file:///x"}]
    assert (await asked(engine, "resources/templates/list"))["result"]["resourceTemplates"] == [{"uriTemplate": "file:///{name}"}]
    await asked(engine, "prompts/get", name="a.b", arguments={"n": 1})
    await asked(engine, "resources/read", uri="via:x:y")
    await asked(engine, "completion/complete", ref={"type": "ref/prompt", "name": "a.b"}, argument={"name": "n", "value": "v"})
    assert server.asked[-3:] == [
        ("prompts/get", {"name": "a.b", "arguments": {"n": 1}}),
        ("resources/read", {"uri": "via:x:y"}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "a.b"}, "argument": {"name": "n", "value": "v"}}),
    ]


async def test_with_several_none_can_be_taken_for_another_s():
    first, second = [FakeServer(name, ALL, prompts=["p", "b.p"], resources=["file:///x"], templates=["x:{n}"]) for name in ("a", "a_b")]
    engine = engine_of(first, second)
    assert [one["name"] for one in (await asked(engine, "prompts/list"))["result"]["prompts"]] == ["a.p", "a.b.p", "a_b.p", "a_b.b.p"]
    assert [one["uri"] for one in (await asked(engine, "resources/list"))["result"]["resources"]] == ["via:a:file:///x", "via:a_b:file:///x"]
    shown = (await asked(engine, "resources/templates/list"))["result"]["resourceTemplates"]
    assert [one["uriTemplate"] for one in shown] == ["via:a:x:{n}", "via:a_b:x:{n}"]
    for name, whom, local in (("a.b.p", first, "b.p"), ("a_b.p", second, "p")):
        await asked(engine, "prompts/get", name=name)
        assert whom.asked[-1] == ("prompts/get", {"name": local})
    await asked(engine, "resources/read", uri="via:a_b:file:///x")
    await asked(engine, "completion/complete", ref={"type": "ref/resource", "uri": "via:a:x:{n}"}, argument={"name": "n", "value": "v"})
    assert second.asked[-1] == ("resources/read", {"uri": "file:///x"})
    assert first.asked[-1][1]["ref"] == {"type": "ref/resource", "uri": "x:{n}"}


@pytest.mark.parametrize("uri", ["via:nobody:file:///x", "via:"])
async def test_what_no_server_is_meant_by_is_an_invalid_parameter(uri):
    engine = engine_of(FakeServer("a", ALL), FakeServer("b", ALL))
    assert (await asked(engine, "resources/read", uri=uri))["error"]["code"] == -32602
    for name in ("p", "c.p", ".p"):
        assert (await asked(engine, "prompts/get", name=name))["error"]["code"] == -32602
    assert (await asked(engine, "completion/complete", ref=7))["error"]["code"] == -32602


async def test_a_bare_uri_is_asked_of_each_until_one_answers():
    first, second = FakeServer("a", ALL), FakeServer("b", ALL)
    first.answers["resources/read"] = UpstreamRefusal(-32002, "not here", {"uri": "x:y"})
    engine = engine_of(first, second)
    assert "result" in await asked(engine, "resources/read", uri="x:y")
    second.answers["resources/read"] = UpstreamRefusal(-32002, "nor here", {"uri": "x:y"})
    assert (await asked(engine, "resources/read", uri="x:y"))["error"] == {"code": -32602, "message": "nor here", "data": {"uri": "x:y"}}


async def test_the_session_era_keeps_its_own_code_for_what_is_not_there():
    server = FakeServer("a", ALL)
    server.answers["resources/read"] = UpstreamRefusal(-32002, "not here")
    talk = await Talk.begin(door(engine_of(server)))
    assert (await talk.ask("resources/read", uri="x:y"))["error"]["code"] == -32002


async def test_a_server_of_which_the_run_may_use_no_tool_is_not_asked():
    server, other = FakeServer("a", ALL, prompts=["p"]), FakeServer("b", ALL, prompts=["q"])
    engine = engine_of(server, other)
    seen = engine.tools

    async def only_a(who, run):
        return [one for one in await seen(who, run) if one.tool.upstream == "a"]

    engine.tools = only_a
    assert (await asked(engine, "prompts/list"))["result"]["prompts"] == [{"name": "p"}]
    await asked(engine, "prompts/get", name="b.q")
    assert (other.asked, server.asked[-1]) == ([], ("prompts/get", {"name": "b.q"}))


async def test_lists_go_on_over_pages_and_over_servers_that_do_not_answer():
    first, away, last = FakeServer("a", ALL), FakeServer("b", ALL), FakeServer("c", ALL, prompts=["z"])
    first.answers["prompts/list"] = [{"prompts": [{"name": "p"}], "nextCursor": "2:x"}, {"prompts": [{"name": "q"}, 7, {"odd": 1}]}]
    away.answers["prompts/list"] = UpstreamFault("unavailable", "it is away")
    engine = engine_of(first, away, last)
    page = (await asked(engine, "prompts/list"))["result"]
    rest = (await asked(engine, "prompts/list", cursor=page["nextCursor"]))["result"]
    assert [one.get("name") for one in page["prompts"] + rest["prompts"]] == ["a.p", "a.q", None, "c.z"]
    assert (first.asked[-1], "nextCursor" in rest) == (("prompts/list", {"cursor": "2:x"}), False)
    for cursor in ("x", "d:1", 7, ""):
        assert (await asked(engine, "prompts/list", cursor=cursor))["error"]["code"] == -32602


@pytest.mark.parametrize(("fault", "reason"), [("unavailable", "upstream.unavailable"), ("timeout", "tool.timeout")])
async def test_a_server_that_gives_no_answer_is_said_to_be_so(fault, reason):
    server = FakeServer("a", ALL)
    server.answers["prompts/get"] = UpstreamFault(fault, "nothing came")
    assert (await asked(engine_of(server), "prompts/get", name="p"))["error"]["data"]["reason"] == reason


async def test_a_request_that_broke_off_is_made_once_more():
    server = FakeServer("a", ALL)
    broken = UpstreamFault("closed", "broke off")
    server.answers |= {"prompts/list": [broken, {"prompts": [{"name": "p"}]}], "prompts/get": [broken, {"messages": []}]}
    engine = engine_of(server)
    assert (await asked(engine, "prompts/list"))["result"]["prompts"] == [{"name": "p"}]
    assert (await asked(engine, "prompts/get", name="p"))["result"]["messages"] == []
    server.answers["prompts/get"] = [broken, broken]
    assert (await asked(engine, "prompts/get", name="p"))["error"]["data"]["reason"] == "upstream.unavailable"


async def test_what_nobody_offers_is_no_method_and_no_capability():
    engine = engine_of(FakeServer("a", {"prompts": {}}), FakeServer("b", {}))
    for method in ("resources/list", "resources/read", "completion/complete"):
        assert (await asked(engine, method, **({"uri": "x:y"} if method == "resources/read" else {})))["error"]["code"] == -32601
    assert (await asked(engine, "server/discover"))["result"]["capabilities"] == {"tools": {"listChanged": True}, "prompts": {}}
    assert "resources" not in (await Talk.begin(door(engine))).app._in_session._servers.capabilities()


async def test_changes_are_promised_where_a_server_promises_them():
    engine = engine_of(FakeServer("a", ALL), FakeServer("b", {"prompts": {"listChanged": False}, "resources": {"listChanged": True}}))
    capabilities = (await asked(engine, "server/discover"))["result"]["capabilities"]
    assert capabilities == {
        "tools": {"listChanged": True}, "prompts": {"listChanged": True}, "resources": {"subscribe": True, "listChanged": True}, "completions": {},
    }  # fmt: skip


async def test_results_of_2026_say_how_long_they_may_be_kept_and_that_they_are_private():
    server = FakeServer("a", ALL)
    server.answers["resources/read"] = [{"contents": [], "cacheScope": "public", "ttlMs": 5}, {"contents": [], "unknown": 2**70}]
    results = [(await asked(engine_of(server), "resources/read", uri="x:y"))["result"] for _ in range(2)]
    assert [(one["ttlMs"], one["cacheScope"]) for one in results] == [(5, "private"), (60_000, "private")]
    assert results[1]["unknown"] == 2**70
    assert "ttlMs" not in (await asked(engine_of(FakeServer("a", ALL)), "prompts/get", name="p"))["result"]


# ---- what a server asks meanwhile ---------------------------------------------------------------------------------------

FORM = {"method": "elicitation/create", "params": {"message": "?"}}
ASKS = {"resultType": "input_required", "inputRequests": {"q": FORM}, "requestState": "theirs"}
CAN = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}


async def test_a_question_of_a_prompt_is_passed_on_with_its_state_inside_ours():
    server = FakeServer("a", ALL)
    server.answers["prompts/get"] = [ASKS, {"messages": []}]
    app = door(engine_of(server))
    asked = (await post(app, message("prompts/get", CAN, name="p"), mcp_name="p")).result
    assert (asked["inputRequests"], asked["requestState"] != "theirs") == ({"q": FORM}, True)
    again = message("prompts/get", CAN, name="p", inputResponses={"q": {"action": "accept"}}, requestState=asked["requestState"])
    assert (await post(app, again, mcp_name="p")).result["messages"] == []
    assert server.asked[-1][1] == {"name": "p", "inputResponses": {"q": {"action": "accept"}}, "requestState": "theirs"}
    assert server.capabilities[-1] == {"elicitation": {}}
    other = message("prompts/get", CAN, name="q", requestState=asked["requestState"])
    assert (await post(app, other, mcp_name="q")).json["error"]["code"] == -32602


async def test_in_a_session_it_is_asked_on_the_stream_and_the_request_made_again():
    server = FakeServer("a", ALL)
    server.answers["prompts/get"] = [ASKS, {"messages": []}]
    talk = await Talk.begin(door(engine_of(server)), capabilities={"elicitation": {}})
    exchange = talk.start({"jsonrpc": "2.0", "id": 5, "method": "prompts/get", "params": {"name": "p"}})
    [question] = await exchange.said(1)
    await talk.say({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
    assert (await exchange.answered()).events[-1]["result"] == {"messages": []}
    assert server.asked[-1][1] == {"name": "p", "inputResponses": {"q": {"action": "decline"}}, "requestState": "theirs"}


@pytest.mark.parametrize(("can", "code"), [({}, -32601), ({"elicitation": {}}, -32603)])
async def test_a_server_that_asks_too_much_or_too_often_is_an_error(can, code):
    server = FakeServer("a", ALL)
    server.answers["prompts/get"] = [{"resultType": "input_required", "requestState": str(n), **({} if can else ASKS)} for n in range(20)]
    talk = await Talk.begin(door(engine_of(server)), capabilities=can)
    assert (await talk.ask("prompts/get", name="p"))["error"]["code"] == code
    if not can:
        assert (await asked(engine_of(server), "prompts/get", name="p"))["error"]["code"] == -32603
