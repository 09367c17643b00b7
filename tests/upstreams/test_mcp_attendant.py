"""Who stands for a client: what it hears, and that each question of a server's is answered or refused, never left."""

from __future__ import annotations

import asyncio

import pytest

from gateway.ports import Client, Unanswered
from gateway.upstreams.mcp_attendant import MAX_OPEN, Attendant, at_least
from gateway.wire.jsonrpc import Notification, Request

pytestmark = pytest.mark.anyio

ASKING = Request("q", "elicitation/create", {"message": "Sure?"})


class Desk:
    """An attendant, and what it said to the server."""

    def __init__(self, client: Client) -> None:
        self.said: asyncio.Queue = asyncio.Queue()
        self.otherwise: list = []
        self.attendant = Attendant(client, self.said.put_nowait, self.otherwise.append)

    async def answer_to(self, request: Request) -> dict:
        self.attendant.heard(request)
        async with asyncio.timeout(5):
            return await self.said.get()


def asking(answer) -> Client:
    async def ask(questions):
        if isinstance(answer, Exception):
            raise answer
        return answer(questions) if callable(answer) else answer

    return Client(ask=ask)


async def test_a_question_gets_the_clients_own_answer():
    desk = Desk(asking(lambda questions: {id: {"asked": question} for id, question in questions.items()}))
    said = await desk.answer_to(ASKING)
    assert said == {"jsonrpc": "2.0", "id": "q", "result": {"asked": {"method": ASKING.method, "params": ASKING.params}}}


@pytest.mark.parametrize(
    ("client", "code"),
    [
        (Client(), -32601),
        (asking(Unanswered(-32042, "later")), -32042),
        (asking({}), -32603),
        (asking(ValueError("a fault of ours")), -32603),
    ],
)
async def test_what_nobody_answers_is_refused_with_a_code(client, code):
    said = await Desk(client).answer_to(ASKING)
    assert (said["id"], said["error"]["code"]) == ("q", code)


async def test_a_ping_is_answered_and_any_other_request_refused():
    desk = Desk(asking({}))
    assert (await desk.answer_to(Request(1, "ping", {})))["result"] == {}
    assert (await desk.answer_to(Request(2, "tools/call", {})))["error"]["code"] == -32601


async def test_the_end_of_a_call_ends_its_questions_with_a_refusal():
    desk = Desk(Client(ask=lambda questions: asyncio.get_running_loop().create_future()))
    desk.attendant.heard(ASKING)
    await asyncio.sleep(0)
    desk.attendant.end()
    async with asyncio.timeout(5):
        assert (await desk.said.get())["error"]["code"] == -32603


async def test_a_server_cannot_ask_without_bounds():
    desk = Desk(Client(ask=lambda questions: asyncio.get_running_loop().create_future()))
    for number in range(MAX_OPEN):
        desk.attendant.heard(Request(number, "roots/list", {}))
    assert (await desk.answer_to(ASKING))["error"]["code"] == -32600
    desk.attendant.end()


async def test_each_notification_goes_to_who_listens():
    progress, logged = [], []
    desk = Desk(Client(progress.append, logged.append, "warning"))
    for level in ("info", "warning", "alert", "odd"):
        desk.attendant.heard(Notification("notifications/message", {"level": level}))
    desk.attendant.heard(Notification("notifications/progress", {"progress": 1}))
    desk.attendant.heard(Notification("notifications/tools/list_changed", {}))
    assert [one["level"] for one in logged] == ["warning", "alert", "odd"]
    assert (progress, [one.method for one in desk.otherwise]) == ([{"progress": 1}], ["notifications/tools/list_changed"])


async def test_what_nobody_listens_to_is_dropped():
    desk = Desk(Client())
    desk.attendant.heard(Notification("notifications/message", {"level": "info"}))
    desk.attendant.heard(Notification("notifications/progress", {"progress": 1}))
    assert desk.otherwise == []


@pytest.mark.parametrize(
    ("level", "wanted", "enough"), [("debug", "info", False), ("info", "info", True), ("x", "info", True), ("debug", None, True)]
)
def test_levels_have_the_order_of_syslog(level, wanted, enough):
    assert at_least(level, wanted) is enough
