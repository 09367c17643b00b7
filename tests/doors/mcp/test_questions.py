"""Questions on a stream and the posts that answer them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.doors.mcp.questions import Questions
from gateway.ports import Unanswered
from gateway.wire.jsonrpc import Response

pytestmark = pytest.mark.anyio

ASKED = {"a": {"method": "roots/list"}, "b": {"method": "elicitation/create", "params": {"message": "?"}}}


async def posed(questions: Questions, session: str = "s1") -> tuple[asyncio.Task[Any], list[Any]]:
    said: list[Any] = []
    task = asyncio.ensure_future(questions.ask(session, said.append, ASKED))
    await asyncio.sleep(0)
    return task, said


async def test_each_question_is_a_request_of_its_own_and_answers_may_come_in_any_order() -> None:
    questions = Questions()
    task, said = await posed(questions)
    assert [(one["method"], one.get("params")) for one in said] == [("roots/list", None), ("elicitation/create", {"message": "?"})]
    assert all(questions.answered("s1", Response(one["id"], {"to": one["method"]}, None)) for one in reversed(said))
    assert await task == {"a": {"to": "roots/list"}, "b": {"to": "elicitation/create"}}


async def test_one_error_is_the_answer_to_all() -> None:
    questions = Questions()
    task, said = await posed(questions)
    questions.answered("s1", Response(said[0]["id"], {}, None))
    questions.answered("s1", Response(said[1]["id"], None, {"code": -1, "message": "no"}))
    answer = await task
    assert (type(answer), answer.code) == (Unanswered, -1)


async def test_an_answer_is_taken_once_and_from_its_own_session_only() -> None:
    questions = Questions()
    task, said = await posed(questions)
    answer = Response(said[0]["id"], {}, None)
    assert [questions.answered(session, answer) for session in ("s2", "s1", "s1")] == [False, True, False]
    assert not questions.answered("s1", Response(None, None, {"code": 1, "message": ""}))
    task.cancel()


async def test_nothing_waits_for_a_question_that_was_given_up() -> None:
    questions = Questions()
    task, said = await posed(questions)
    task.cancel()
    await asyncio.wait({task})
    assert not questions.answered("s1", Response(said[0]["id"], {}, None))
