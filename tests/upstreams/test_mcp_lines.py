"""Requests and answers over lines: which answer is whose, what can't be read, and whom a question of the server's belongs to."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gateway.ports import Client, UpstreamFault
from gateway.upstreams.lines import Overlong
from tests.cycles import is_let_go
from tests.upstreams.conversation import Conversation
from tests.upstreams.origin import dispatch

pytestmark = pytest.mark.anyio


def calling(talk: Conversation, **more) -> asyncio.Task:
    return asyncio.ensure_future(asyncio.wait_for(talk.peer.call(dispatch(**more)), 5))


async def test_answers_and_progress_that_belong_to_nobody_are_ignored():
    talk, steps = Conversation(), []
    call = calling(talk, client=Client(steps.append))
    asked = await talk.next("tools/call")
    for token in (asked["id"] + 1, True, "1", None, [], {}):
        talk.says(method="notifications/progress", params={"progressToken": token, "progress": 1})
    talk.says(id=asked["id"] + 1, result={})
    talk.says(id=str(asked["id"]), result={})
    talk.says(id=None, error={"code": -32700, "message": "?"})
    for _ in range(2):
        talk.says(id=asked["id"], result={"content": []})
    assert (await call).result == {"content": []}
    assert steps == []
    talk.says(id=asked["id"], result={"content": ["late"]})


async def test_the_end_leaves_what_is_in_flight_unknown_and_refuses_the_rest():
    talk = Conversation()
    call = calling(talk)
    await talk.next("tools/call")
    talk.lines.end("it died")
    with pytest.raises(UpstreamFault) as caught:
        await call
    assert caught.value.kind == "closed"
    with pytest.raises(UpstreamFault) as caught:
        await calling(talk)
    assert caught.value.kind == "unavailable"


async def test_a_fault_leaves_nothing_behind():
    talk = Conversation()

    async def dies() -> None:
        asyncio.get_running_loop().call_later(0.01, talk.lines.end, "it died")
        await talk.peer.call(dispatch())

    assert await is_let_go(dies, UpstreamFault)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}', "garbage"),
        (b'{"result":{"a":NaN},"jsonrpc":"2.0","id":1}', "garbage"),
        (b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 200 + b"]" * 200 + b"}", "garbage"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"text":"' + b"x" * 2_000_000 + b'"}]}}', "too_large"),
        (Overlong(b'{"jsonrpc": "2.0", "id": 1, "result": {"content": [{"id": 9}', b'xxx"}'), "too_large"),
        (Overlong(b'{"result": {"id":9}', b'"}, "jsonrpc": "2.0", "id": 1 } '), "too_large"),
    ],
)
async def test_an_unreadable_answer_fails_its_own_call_at_once(line, kind):
    talk = Conversation()
    call = calling(talk, max_bytes=1000)
    assert (await talk.next("tools/call"))["id"] == 1
    talk.lines.hear(line)
    with pytest.raises(UpstreamFault) as caught:
        await call
    assert caught.value.kind == kind


async def test_what_cannot_be_read_is_logged_by_its_hash_only(caplog):
    talk = Conversation()
    with caplog.at_level(logging.DEBUG):
        talk.lines.hear(b'{"secret": 1')
        talk.lines.hear(Overlong(b'{"secret', b"secret"))
    assert len(caplog.messages) == 2
    assert "secret" not in caplog.text


# ---- questions of the server's ------------------------------------------------------------------------------------------


async def test_a_question_belongs_to_the_only_call_in_flight():
    talk = Conversation()

    async def ask(questions):
        return {id: {"roots": []} for id in questions}

    call = calling(talk, client=Client(ask=ask))
    asked = await talk.next("tools/call")
    talk.says(id="q", method="roots/list")
    assert await talk.next() == {"jsonrpc": "2.0", "id": "q", "result": {"roots": []}}
    talk.says(id=asked["id"], result={"content": []})
    await call


async def test_with_more_calls_in_flight_or_none_a_question_is_refused_at_once():
    talk = Conversation()

    async def ask(questions):
        raise AssertionError("it may be another's")

    talk.says(id="before", method="roots/list")
    assert (await talk.next())["error"]["code"] == -32601
    calls = [calling(talk, client=Client(ask=ask)) for _ in range(2)]
    asked = [await talk.next("tools/call") for _ in calls]
    talk.says(id="q", method="elicitation/create", params={})
    assert (await talk.next())["error"]["code"] == -32601
    for one in asked:
        talk.says(id=one["id"], result={"content": []})
    await asyncio.gather(*calls)


async def test_a_log_message_goes_to_the_only_call_in_flight_and_is_else_nobodys():
    talk, heard = Conversation(), []
    call = calling(talk, client=Client(log=heard.append))
    asked = await talk.next("tools/call")
    talk.says(method="notifications/message", params={"level": "info", "data": 1})
    talk.says(id=asked["id"], result={"content": []})
    await call
    talk.says(method="notifications/message", params={"level": "info", "data": 2})
    assert ([one["data"] for one in heard], [one.params["data"] for one in talk.noticed]) == ([1], [2])
