"""An MCP server of either era, message by message, without a process: the greeting, its tools, calls that ask back, other requests."""

from __future__ import annotations

import asyncio

import pytest

from gateway.ports import Client, Unanswered, UpstreamFault, UpstreamRefusal
from tests.upstreams.conversation import LEGACY, MODERN, Conversation
from tests.upstreams.origin import dispatch

pytestmark = pytest.mark.anyio

QUESTION = {"approval": {"method": "elicitation/create", "params": {"message": "Sure?"}}}
ENVELOPE = "io.modelcontextprotocol/"


def later(coroutine) -> asyncio.Task:
    return asyncio.ensure_future(asyncio.wait_for(coroutine, 5))


async def version_after(talk: Conversation) -> str | None:
    """The envelope of the next request says which era was found."""
    listing = later(talk.peer.tools())
    asked = await talk.next("tools/list")
    talk.says(id=asked["id"], result={"tools": []})
    assert await listing == []
    return asked.get("params", {}).get("_meta", {}).get(ENVELOPE + "protocolVersion")


# ---- the era ------------------------------------------------------------------------------------------------------------


async def test_an_answer_to_discover_means_the_new_era():
    talk = Conversation()
    greet = talk.greeting()
    talk.says(id=(await talk.next("server/discover"))["id"], result=MODERN)
    await greet
    assert await version_after(talk) == "2026-07-28"
    assert talk.peer.offers == {"logging": {}}


@pytest.mark.parametrize("code", [-32601, -32602, -32600])
async def test_any_refusal_of_discover_means_the_old_era(code):
    talk = Conversation()
    greet = talk.greeting()
    talk.says(id=(await talk.next("server/discover"))["id"], error={"code": code, "message": "?"})
    initialize = await talk.next("initialize")
    assert set(initialize["params"]["capabilities"]) == {"elicitation", "sampling", "roots"}
    talk.says(id=initialize["id"], result=LEGACY)
    await greet
    await talk.next("notifications/initialized")
    assert (await version_after(talk), talk.peer.is_2026, talk.peer.offers) == (None, False, {"logging": {}})


async def test_a_slow_new_server_is_recognised_after_initialize_went_out():
    talk = Conversation()
    greet = talk.greeting(patience_s=0)
    discover, _ = await talk.next("server/discover"), await talk.next("initialize")
    talk.says(id=discover["id"], result=MODERN)
    await greet
    assert await version_after(talk) == "2026-07-28"


async def test_without_a_probe_initialize_comes_first():
    talk = Conversation()
    greet = talk.greeting(probe=False)
    talk.says(id=(await talk.next("initialize"))["id"], result=LEGACY)
    await greet
    await talk.next("notifications/initialized")


@pytest.mark.parametrize("answer", [{"error": {"code": -1, "message": "no"}}, {"result": {"protocolVersion": "1999-01-01"}}, {"result": None}])
async def test_a_server_of_no_era_is_garbage(answer):
    talk = Conversation()
    greet = talk.greeting(probe=False)
    talk.says(id=(await talk.next("initialize"))["id"], **answer)
    with pytest.raises(UpstreamFault) as caught:
        await greet
    assert caught.value.kind == "garbage"


# ---- tools --------------------------------------------------------------------------------------------------------------


async def test_a_change_while_the_tools_are_being_read_is_not_lost():
    talk = Conversation()
    talk.peer.told = True
    listing = later(talk.peer.tools())
    asked = await talk.next("tools/list")
    talk.says(method="notifications/tools/list_changed")
    talk.says(id=asked["id"], result={"tools": []})
    assert await listing == []
    again = later(talk.peer.tools())
    talk.says(id=(await talk.next("tools/list"))["id"], result={"tools": [{"name": "new", "inputSchema": {}}]})
    assert [one["name"] for one in await again] == ["new"]
    assert [one.method for one in talk.noticed] == ["notifications/tools/list_changed"]


@pytest.mark.parametrize(
    ("result", "told", "kept"),
    [({}, True, True), ({}, False, False), ({"ttlMs": 60_000}, False, True), ({"ttlMs": 0}, False, False), ({"ttlMs": "x"}, False, False)],
)
async def test_a_list_is_kept_only_while_a_change_would_be_told_or_the_server_says_so(result, told, kept):
    talk = Conversation()
    talk.peer.told = told
    first = later(talk.peer.tools())
    talk.says(id=(await talk.next("tools/list"))["id"], result={"tools": [], **result})
    await first
    second = later(talk.peer.tools())
    if not kept:
        talk.says(id=(await talk.next("tools/list"))["id"], result={"tools": []})
    assert (await second, talk.sent.empty()) == ([], True)


async def test_a_list_that_goes_in_circles_is_garbage():
    talk = Conversation()
    listing = later(talk.peer.tools())
    for _ in range(2):
        talk.says(id=(await talk.next("tools/list"))["id"], result={"tools": [], "nextCursor": "same"})
    with pytest.raises(UpstreamFault) as caught:
        await listing
    assert caught.value.kind == "garbage"


@pytest.mark.parametrize("answer", [{"error": {"code": -32603, "message": "x"}}, {"result": {"tools": [{"name": 1}]}}])
async def test_a_list_that_cannot_be_read_is_garbage(answer):
    talk = Conversation()
    listing = later(talk.peer.tools())
    talk.says(id=(await talk.next("tools/list"))["id"], **answer)
    with pytest.raises(UpstreamFault) as caught:
        await listing
    assert caught.value.kind == "garbage"


async def test_a_server_without_tools_has_none():
    talk = Conversation()
    listing = later(talk.peer.tools())
    talk.says(id=(await talk.next("tools/list"))["id"], error={"code": -32601, "message": "Method not found"})
    assert await listing == []


# ---- calls that ask back ------------------------------------------------------------------------------------------------


def answering(*answers) -> tuple[Client, list]:
    """A client that can be asked, and what it was asked."""
    asked: list = []
    left = list(answers)

    async def ask(questions):
        asked.append(questions)
        if isinstance(left[0], Exception):
            raise left[0]
        return left.pop(0)

    return Client(capabilities={"elicitation": {}}, ask=ask), asked


async def test_what_a_2026_server_asks_is_answered_with_the_same_call_again():
    talk = await Conversation().greeted("modern")
    client, asked = answering({"approval": {"action": "accept"}})
    call = later(talk.peer.call(dispatch({"amount": 5}, client=client)))
    first = await talk.next("tools/call")
    assert first["params"]["_meta"][ENVELOPE + "clientCapabilities"] == {"elicitation": {}}
    talk.says(id=first["id"], result={"resultType": "input_required", "inputRequests": QUESTION, "requestState": "s.1"})
    second = await talk.next("tools/call")
    assert second["id"] != first["id"]
    assert (second["params"]["inputResponses"], second["params"]["requestState"]) == ({"approval": {"action": "accept"}}, "s.1")
    assert all(second["params"][name] == first["params"][name] for name in ("name", "arguments"))
    talk.says(id=second["id"], result={"content": []})
    assert ((await call).result, asked) == ({"content": []}, [QUESTION])


async def test_a_state_alone_is_given_back_without_asking_anybody():
    talk = await Conversation().greeted("modern")
    call = later(talk.peer.call(dispatch()))
    talk.says(id=(await talk.next("tools/call"))["id"], result={"resultType": "input_required", "requestState": "s"})
    second = await talk.next("tools/call")
    assert (second["params"]["requestState"], "inputResponses" in second["params"]) == ("s", False)
    talk.says(id=second["id"], result={"content": []})
    assert (await call).result == {"content": []}


@pytest.mark.parametrize("client", [Client(), answering(Unanswered(-32601, "no"))[0]])
@pytest.mark.parametrize("questions", [QUESTION, ["?"]])
async def test_a_call_that_asks_what_nobody_answers_has_failed(client, questions):
    talk = await Conversation().greeted("modern")
    call = later(talk.peer.call(dispatch(client=client)))
    talk.says(id=(await talk.next("tools/call"))["id"], result={"resultType": "input_required", "inputRequests": questions})
    answer = await call
    assert (answer.result["isError"], talk.sent.empty()) == (True, True)


async def test_a_call_that_never_stops_asking_has_failed():
    talk = await Conversation().greeted("modern")
    client, asked = answering(*[{"approval": {}}] * 20)
    call = later(talk.peer.call(dispatch(client=client)))
    for _ in range(11):
        talk.says(id=(await talk.next("tools/call"))["id"], result={"resultType": "input_required", "inputRequests": QUESTION})
    assert ((await call).result["isError"], len(asked)) == (True, 11)


async def test_who_does_not_answer_in_time_leaves_the_call_failed():
    talk = await Conversation().greeted("modern")

    async def ask(questions):
        await asyncio.get_running_loop().create_future()

    call = later(talk.peer.call(dispatch(client=Client(ask=ask), remaining_ms=50)))
    talk.says(id=(await talk.next("tools/call"))["id"], result={"resultType": "input_required", "inputRequests": QUESTION})
    assert (await call).result["isError"] is True


# ---- logs ---------------------------------------------------------------------------------------------------------------


async def test_a_2026_server_is_told_with_each_request_what_of_its_log_is_wanted():
    talk = await Conversation().greeted("modern")
    for wanted in ("warning", None):
        call = later(talk.peer.call(dispatch(client=Client(log=print, log_level=wanted))))
        asked = await talk.next("tools/call")
        assert asked["params"]["_meta"].get(ENVELOPE + "logLevel") == wanted
        talk.says(id=asked["id"], result={"content": []})
        await call


async def test_the_level_of_a_session_is_the_most_talkative_that_anyone_wanted():
    talk = await Conversation().greeted("legacy")
    heard: list = []
    for wanted, is_set in (("warning", True), ("error", False), ("info", True), ("info", False), (None, False)):
        call = later(talk.peer.call(dispatch(client=Client(log=heard.append, log_level=wanted))))
        if is_set:
            setting = await talk.next("logging/setLevel")
            assert setting["params"]["level"] == wanted
            talk.says(id=setting["id"], result={})
        asked = await talk.next("tools/call")
        for level in ("debug", "error"):
            talk.says(method="notifications/message", params={"level": level, "data": wanted})
        talk.says(id=asked["id"], result={"content": []})
        await call
    assert [one["level"] for one in heard] == ["error", "error", "error", "error", "debug", "error"]


# ---- other requests -----------------------------------------------------------------------------------------------------


async def test_a_result_of_another_request_is_passed_on_untouched_but_for_our_prefix():
    talk = await Conversation().greeted("modern")
    params = {"uri": "file:///a", "_meta": {"theirs": 1, "progressToken": 2, ENVELOPE + "x": 3, "tool-call-gateway/run": 4}}
    asked = later(talk.peer.request("resources/read", params, remaining_ms=5000, client=Client(capabilities={"roots": {}})))
    message = await talk.next("resources/read")
    meta = message["params"].pop("_meta")
    assert (message["params"], meta["theirs"], meta[ENVELOPE + "clientCapabilities"]) == ({"uri": "file:///a"}, 1, {"roots": {}})
    assert not {"progressToken", ENVELOPE + "x", "tool-call-gateway/run"} & set(meta)
    result = {"contents": [{"new": 2**70}], "resultType": "input_required", "_meta": {"a": 1, "tool-call-gateway/call": "faked"}}
    talk.says(id=message["id"], result=result)
    assert await asked == {**result, "_meta": {"a": 1}}


async def test_a_refusal_of_another_request_keeps_its_code_and_data():
    talk = await Conversation().greeted("legacy")
    asked = later(talk.peer.request("resources/read", {"uri": "x"}, remaining_ms=5000))
    talk.says(id=(await talk.next("resources/read"))["id"], error={"code": -32002, "message": "none", "data": {"uri": "x"}})
    with pytest.raises(UpstreamRefusal) as caught:
        await asked
    assert (caught.value.code, caught.value.message, caught.value.data) == (-32002, "none", {"uri": "x"})


async def test_a_result_that_is_none_is_garbage():
    talk = await Conversation().greeted("legacy")
    asked = later(talk.peer.request("prompts/list", {}, remaining_ms=5000))
    talk.says(id=(await talk.next("prompts/list"))["id"], result=[])
    with pytest.raises(UpstreamFault) as caught:
        await asked
    assert caught.value.kind == "garbage"
