"""MCP before 2026-07-28 as a client meets it: sessions, batches, cancels, and what a tool asks on the stream of its call."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.model import Busy, Completed, Principal, Question
from gateway.engine import Caller
from gateway.ports import RequestFault, Unanswered
from tests.doors.mcp.stage import DONE, LEFT, RESULT, SERVER, Exchange, FakeEngine, Talk, call, door, initialize, message, post, request, tool

pytestmark = pytest.mark.anyio

FORM = {"method": "elicitation/create", "params": {"message": "Sure?", "requestedSchema": {"type": "object"}}}
ASKS = Busy("call_1_1", LEFT, Question(1, {"sure": FORM}))
YES = {"action": "accept", "content": {"sure": True}}
CAN = {"elicitation": {}}


# ---- beginning and ending -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "spoken"),
    [
        *[(one, one) for one in ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")],
        ("2026-07-28", "2025-11-25"),
        (None, "2025-11-25"),
        (7, "2025-11-25"),
    ],
)
async def test_initialize_agrees_on_a_revision_and_gives_a_session(asked, spoken):
    exchange = await post(door(FakeEngine()), initialize(asked), mcp_protocol_version=None)
    result = exchange.result
    assert (exchange.status, result["protocolVersion"], result["serverInfo"], result["capabilities"]["tools"]) == (200, spoken, SERVER, {})
    assert exchange.headers["mcp-session-id"].isascii()
    assert " " not in exchange.headers["mcp-session-id"]


async def test_a_request_without_a_session_is_told_to_begin_one():
    for version in (None, "2025-06-18"):
        exchange = await post(door(FakeEngine()), call(), mcp_protocol_version=version)
        assert (exchange.status, exchange.json["error"]["code"]) == (400, -32600)


async def test_a_session_that_nobody_gave_is_unknown_and_so_is_another_principal_s():
    talk = await Talk.begin(door(FakeEngine()))
    head, _, tail = talk.session.partition(".")
    for id in ("abc", "", head, talk.session + "x", head[:-1] + "." + tail, "\xff"):
        assert (await talk.say(call(), mcp_session_id=id)).status == 404
    other = Talk(door(FakeEngine(), Caller(Principal("agent:ben"))), talk.session, talk.version)
    assert (await other.say(call())).status == 404


async def test_a_session_goes_on_in_another_process_with_the_same_secret():
    talk = await Talk.begin(door(FakeEngine()))
    assert (await Talk(door(FakeEngine()), talk.session, talk.version).ask("ping"))["result"] == {}


async def test_a_session_that_was_ended_is_over():
    talk = await Talk.begin(door(FakeEngine()))
    ended = await talk.say(b"", method="DELETE")
    assert ended.status // 100 == 2
    assert [(await talk.say(call())).status, (await talk.say(b"", method="DELETE")).status] == [404, 404]


async def test_notifications_have_no_answer():
    talk = await Talk.begin(door(FakeEngine()))
    for name in ("notifications/initialized", "notifications/roots/list_changed", "notifications/cancelled"):
        exchange = await talk.say({"jsonrpc": "2.0", "method": name, "params": {}})
        assert (exchange.status, exchange.body) == (202, b"")


# ---- requests -----------------------------------------------------------------------------------------------------------


async def test_ping_and_the_log_level_are_answered_here():
    engine = FakeEngine()
    talk = await Talk.begin(door(engine))
    assert (await talk.ask("ping"))["result"] == {}
    await talk.say(call())
    assert (await talk.ask("logging/setLevel", level="error"))["result"] == {}
    await talk.say(call())
    assert [client.log_level for client in engine.clients] == ["info", "error"]
    assert (await talk.ask("logging/setLevel", level="loud"))["error"]["code"] == -32602


async def test_tools_are_listed_without_what_only_2026_has():
    engine = FakeEngine(tool("crm.a"), tool("crm.b"))
    talk = await Talk.begin(door(engine, tools_a_page=1))
    first = (await talk.ask("tools/list"))["result"]
    rest = (await talk.ask("tools/list", cursor=first["nextCursor"]))["result"]
    assert ([one["name"] for one in first["tools"] + rest["tools"]], set(rest)) == (["crm__a", "crm__b"], {"tools"})


async def test_a_call_is_answered_as_json_with_nothing_added_but_ours():
    engine = FakeEngine()
    answer = (await (await Talk.begin(door(engine))).say(call(id="a-1", text="x"))).json
    assert (answer["id"], answer["result"] | {"_meta": 0}) == ("a-1", RESULT | {"_meta": 0})
    assert {name.partition("/")[0] for name in answer["result"]["_meta"]} == {"tool-call-gateway"}
    assert (engine.asked[0].tool, engine.asked[0].arguments) == ("crm.echo", {"text": "x"})


@pytest.mark.parametrize("meta", [7, [], "x"])
async def test_meta_that_is_no_object_is_a_mistake(meta):
    talk = await Talk.begin(door(FakeEngine()))
    assert (await talk.ask("tools/call", name="crm__echo", _meta=meta))["error"]["code"] == -32602


@pytest.mark.parametrize("method", ["tasks/get", "server/discover", "subscriptions/listen", "prompts/list", "initialized"])
async def test_a_method_that_is_not_there_is_an_error_under_http_200(method):
    exchange = await (await Talk.begin(door(FakeEngine()))).say(request(method, 9))
    assert (exchange.status, exchange.json["id"], exchange.json["error"]["code"]) == (200, 9, -32601)


async def test_a_list_that_the_gateway_refuses_is_an_error_under_http_200():
    engine = FakeEngine()

    async def refuse(who, door):
        raise RequestFault("policy.none", "No policy matches.")

    talk = await Talk.begin(door(engine))
    engine.implicit_run = refuse
    exchange = await talk.say(request("tools/list", 9))
    assert (exchange.status, exchange.json["id"], exchange.json["error"]["data"]["reason"]) == (200, 9, "policy.none")


async def test_what_is_no_message_is_refused():
    talk = await Talk.begin(door(FakeEngine()))
    for body, code in ((b"{", -32700), ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, -32600), ([request("ping")], -32600), (7, -32600)):
        exchange = await talk.say(body)
        assert (exchange.status, exchange.json["error"]["code"]) == (400, code)


async def test_a_client_that_gives_up_early_is_known_from_its_session():
    engine = FakeEngine()
    await (await Talk.begin(door(engine), name="mcp")).say(call())
    await (await Talk.begin(door(engine), name="other")).say(call())
    assert [asked.wait_ms for asked in engine.asked] == [4_000, None]


# ---- batches ------------------------------------------------------------------------------------------------------------


async def test_a_batch_is_answered_as_one():
    engine = FakeEngine()
    talk = await Talk.begin(door(engine), "2025-03-26")
    quiet = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    answers = (await talk.say([request("ping", 1), quiet, call("two"), request("nope", 3)])).json
    assert [(one["id"], "result" in one) for one in answers] == [(1, True), ("two", True), (3, False)]
    assert (await talk.say([quiet, quiet])).status == 202
    for body in ([], [request("ping", n) for n in range(51)], [initialize()]):
        assert (await talk.say(body)).json["error" if not body or len(body) > 1 else 0]


async def test_a_batch_with_progress_is_one_stream_that_ends_with_all_answers():
    engine = FakeEngine()

    async def steps(progress, gone):
        progress({"progress": 1})
        return DONE

    engine.reply = steps
    talk = await Talk.begin(door(engine), "2025-03-26")
    exchange = await talk.say([call(1, {"progressToken": "p"}), call(2, {"progressToken": "q"})])
    assert [event.get("id") or event["params"]["progressToken"] for event in exchange.events] == ["p", "q", 1, 2]


# ---- streams, leaving and stopping --------------------------------------------------------------------------------------


async def test_logs_of_a_call_are_told_on_its_stream():
    engine = FakeEngine()

    async def noisy(progress, gone):
        for level in ("info", "alert"):
            engine.clients[-1].log({"level": level, "data": 1})
        return DONE

    engine.reply = noisy
    exchange = await (await Talk.begin(door(engine))).say(call())
    told = [event["params"]["level"] for event in exchange.events if event.get("method") == "notifications/message"]
    assert (told, exchange.events[-1]["id"]) == (["info", "alert"], 1)


async def test_a_client_that_takes_no_stream_hears_no_logs_and_no_progress():
    engine = FakeEngine()
    exchange = await (await Talk.begin(door(engine))).say(call(meta={"progressToken": 1}), accept="application/json")
    assert (exchange.status, engine.clients[0].log, engine.clients[0].progress) == (200, None, None)


async def test_a_client_that_leaves_has_cancelled_nothing():
    engine = FakeEngine()

    async def after_it_left(progress, gone):
        exchange.leave()
        for _ in range(20):
            await asyncio.sleep(0)
        return Completed("c", "succeeded", {"content": [], "gone": gone.done()}, LEFT)

    engine.reply = after_it_left
    exchange = (await Talk.begin(door(engine))).start(call())
    assert (await exchange.answered()).result["gone"] is False


@pytest.mark.parametrize("id", [1, "1"])
async def test_a_cancel_reaches_the_request_that_it_names_and_no_other(id):
    engine = FakeEngine()
    started = asyncio.Event()

    async def until_gone(progress, gone):
        started.set()
        await gone
        return DONE

    engine.reply = until_gone
    app = door(engine)
    talk, other = await Talk.begin(app), await Talk.begin(app)
    exchange = talk.start(call(id))
    await asyncio.wait_for(started.wait(), 5)
    wrong = "1" if id == 1 else 1
    for who, what in ((other, id), (talk, wrong), (talk, 2), (talk, [1]), (talk, None), (talk, 1.0), (talk, True)):
        assert (await who.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": what}})).status == 202
    assert not exchange.task.done()
    await talk.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
    assert (await exchange.answered()).json["id"] == id


@pytest.mark.parametrize("token", [None, 5])
async def test_a_server_that_stops_still_ends_each_answer(token):
    engine, started = FakeEngine(), asyncio.Event()

    async def for_ever(progress, gone):
        if progress:
            progress({"progress": 1})
        started.set()
        await asyncio.Future()

    engine.reply = for_ever
    exchange = (await Talk.begin(door(engine))).start(call(meta={"progressToken": token} if token else None))
    async with asyncio.timeout(5):
        await started.wait()
        exchange.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await exchange.task
    final = exchange.events[-1] if token else exchange.json
    assert (exchange.ended, final["id"], final["result"]["structuredContent"]["reason"]) == (True, 1, "call.in_flight")


# ---- what a tool asks ---------------------------------------------------------------------------------------------------


async def asking(capabilities=CAN, **more) -> tuple[FakeEngine, Talk, Exchange]:
    engine = FakeEngine()
    engine.reply, engine.after = ASKS, [DONE]
    talk = await Talk.begin(door(engine), capabilities=capabilities)
    return engine, talk, talk.start(call(), **more)


async def test_a_question_is_a_request_on_the_call_s_stream_and_its_answer_a_post():
    engine, talk, exchange = await asking()
    [question] = await exchange.said(1)
    assert (question["method"], question["params"]) == (FORM["method"], FORM["params"])
    answer = await talk.say({"jsonrpc": "2.0", "id": question["id"], "result": YES})
    await exchange.answered()
    assert (answer.status, exchange.events[-1]["result"]["content"]) == (202, RESULT["content"])
    assert engine.resumed == [("implicit run of agent:ana by mcp", "call_1_1", 1, {"sure": YES})]


async def test_a_client_s_error_is_passed_on():
    engine, talk, exchange = await asking()
    [question] = await exchange.said(1)
    await talk.say({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "no"}})
    await exchange.answered()
    assert [(type(answer), answer.code) for *_, answer in engine.resumed] == [(Unanswered, -1)]


async def test_an_answer_that_nothing_waits_for_is_refused_where_it_arrives():
    _, talk, exchange = await asking()
    [question] = await exchange.said(1)
    answer = {"jsonrpc": "2.0", "id": question["id"], "result": YES}
    elsewhere = Talk(door(FakeEngine()), talk.session, talk.version)
    other = await Talk.begin(talk.app)
    assert [(await who.say(answer)).status for who in (elsewhere, other, talk, talk)] == [409, 409, 202, 409]
    await exchange.answered()


@pytest.mark.parametrize(("capabilities", "more"), [({}, {}), ({"sampling": {}}, {}), (CAN, {"accept": "application/json"})])
async def test_a_client_that_can_t_be_asked_is_not_asked(capabilities, more):
    engine, _, exchange = await asking(capabilities, **more)
    assert (await exchange.answered()).result["content"] == RESULT["content"]
    assert [type(answer) for *_, answer in engine.resumed] == [Unanswered]


async def test_a_cancel_ends_a_question_too():
    engine, talk, exchange = await asking()
    await exchange.said(1)
    await talk.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    await exchange.answered()
    assert [answer for *_, answer in engine.resumed] == [None]


async def test_a_2026_request_is_not_taken_for_one_of_a_session():
    talk = await Talk.begin(door(FakeEngine()))
    assert (await talk.say(message(), mcp_protocol_version="2026-07-28", mcp_method="tools/call", mcp_name="crm__echo")).status == 200
