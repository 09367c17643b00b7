"""What a tool asks in the midst of a call: the caller is told, comes back with answers, and it stays one call with one dispatch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.core.model import Busy, Completed, Question, Reply
from gateway.engine.inquiry import Inquiry
from gateway.ports import NOBODY, Answer, Client, Dispatch, RequestFault, Unanswered
from tests.cycles import is_let_go
from tests.engine.stage import ACT, BOT, OTHER, READ, MovedClock, Stage, ok, soon, stage
from tests.fakes import FakeClock

pytestmark = pytest.mark.anyio

ABLE = Client(capabilities={"elicitation": {}})
SURE: Mapping[str, Any] = {"sure": {"method": "elicitation/create", "params": {"message": "Sure?"}}}
YES: Mapping[str, Any] = {"sure": {"action": "accept"}}


@pytest.fixture
async def desk(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as it:
        yield it


def asking(*questions: Mapping[str, Any]) -> Any:
    """A tool that asks one after the other, and answers with all answers, or with why there are none."""

    async def tool(dispatch: Dispatch) -> Answer:
        assert dispatch.client.ask is not None
        try:
            return ok(answers=[await dispatch.client.ask(one) for one in questions])
        except Unanswered as nobody:
            return ok(why=nobody.code)

    return tool


async def resume(desk: Stage, run: str, asked: Reply, answers: Any, who: Any = BOT, **options: Any) -> Reply:
    assert isinstance(asked, Busy)
    assert asked.question is not None
    given: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    if answers is not None:
        given.set_result(answers)
    return await soon(desk.engine.resume(who, run, asked.call, asked.question.number, given, client=ABLE, **options))


def answered(reply: Reply) -> Any:
    assert isinstance(reply, Completed)
    return reply.result["structuredContent"]


@pytest.mark.parametrize("tool", [READ, ACT])
async def test_a_call_that_asks_twice_is_one_call_one_dispatch_and_one_outcome(desk: Stage, tool: str) -> None:
    run = await desk.open()
    desk.tools.plan(tool, asking(SURE, {"really": SURE["sure"]}))
    first = await desk.call(run, tool, client=ABLE)
    assert (type(first), first.question) == (Busy, Question(1, SURE))  # type: ignore[union-attr]
    second = await resume(desk, run, first, YES)
    assert second.question == Question(2, {"really": SURE["sure"]})  # type: ignore[union-attr]
    last = await resume(desk, run, second, {})
    assert (answered(last), last.replayed) == ({"answers": [YES, {}]}, False)  # type: ignore[union-attr]
    kinds = [type(event).__name__ for event in await desk.events(run) if getattr(event, "call", None)]
    assert (kinds, len(desk.tools.sent)) == (["CallAdmitted", "CallSettled"], 1)
    assert (first.budget.tool_calls_left, last.budget.tool_calls_left) == (19, 19)  # type: ignore[union-attr]


async def test_a_question_that_was_answered_is_not_answered_again(desk: Stage) -> None:
    run = await desk.open()
    desk.tools.plan(READ, asking(SURE, SURE))
    first = await desk.call(run, READ, client=ABLE)
    second = await resume(desk, run, first, YES)
    late = await resume(desk, run, first, {"sure": "too late"})
    assert late.question == second.question  # type: ignore[union-attr]
    assert answered(await resume(desk, run, second, YES)) == {"answers": [YES, YES]}
    again = await resume(desk, run, second, YES)
    assert (again.replayed, again.call) == (True, second.call)  # type: ignore[union-attr]


async def test_a_repeat_is_told_the_open_question_and_one_who_can_t_answer_waits(desk: Stage) -> None:
    run = await desk.open()
    desk.tools.plan(ACT, asking(SURE))
    first = await desk.call(run, ACT, client=ABLE)
    repeat = await desk.call(run, ACT, client=ABLE)
    assert (repeat.question, repeat.call) == (first.question, first.call)  # type: ignore[union-attr]
    other = await desk.joining(run, ACT)
    await resume(desk, run, first, YES)
    assert answered(await soon(other)) == {"answers": [YES]}


async def test_without_a_client_that_can_be_asked_there_is_nobody_to_ask(desk: Stage) -> None:
    run = await desk.open()

    async def tool(dispatch: Dispatch) -> Answer:
        return ok(asks=dispatch.client.ask is not None)

    desk.tools.plan(READ, tool, tool)
    assert answered(await desk.call(run, READ, client=Client(progress=lambda params: None))) == {"asks": False}
    assert answered(await desk.call(run, READ)) == {"asks": False}


async def test_a_refusal_reaches_the_tool(desk: Stage) -> None:
    run = await desk.open()
    desk.tools.plan(READ, asking(SURE))
    assert answered(await resume(desk, run, await desk.call(run, READ, client=ABLE), Unanswered(-7, "no"))) == {"why": -7}


async def test_a_question_ends_before_the_call_s_time_does(desk: Stage) -> None:
    run = await desk.open()
    desk.tools.plan(ACT, asking(SURE))
    asked = await desk.call(run, ACT, client=ABLE)
    await desk.clock.asleep(28_000)
    desk.clock.move(28_000)
    assert (await desk.settled(asked.call)).state == "succeeded"  # type: ignore[union-attr]
    assert answered(await resume(desk, run, asked, YES)) == {"why": -1}


async def test_a_read_whose_caller_went_to_find_answers_goes_on_and_one_whose_caller_left_does_not(desk: Stage) -> None:
    run = await desk.open()
    hang = desk.tools.hang(READ)

    async def tool(dispatch: Dispatch) -> Answer:
        assert dispatch.client.ask is not None
        await dispatch.client.ask(SURE)
        return await hang(dispatch)

    desk.tools.plans[READ] = [tool]
    asked = await desk.call(run, READ, client=ABLE)
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    going = asyncio.ensure_future(resume(desk, run, asked, YES, gone=gone))
    await soon(hang.reached.wait())
    gone.set_result(None)
    await soon(going)
    await soon(hang.cancelled.wait())
    assert (await desk.settled(asked.call)).state == "cancelled"  # type: ignore[union-attr]


async def test_who_leaves_while_asked_has_given_up(desk: Stage) -> None:
    run = await desk.open()
    desk.tools.plan(ACT, asking(SURE))
    asked = await desk.call(run, ACT, client=ABLE)
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    gone.set_result(None)
    await resume(desk, run, asked, None, gone=gone)
    assert (await desk.settled(asked.call)).state == "succeeded"  # type: ignore[union-attr]


async def test_only_the_run_s_owner_answers_and_only_for_its_own_calls(desk: Stage) -> None:
    run, beside = await desk.open(), await desk.open()
    desk.tools.plan(ACT, asking(SURE))
    asked = await desk.call(run, ACT, client=ABLE)
    for where, who, reason in ((run, OTHER, "run.unknown"), (beside, BOT, "call.unknown")):
        with pytest.raises(RequestFault) as refused:
            await resume(desk, where, asked, YES, who=who)
        assert refused.value.reason == reason
    assert answered(await resume(desk, run, asked, YES)) == {"answers": [YES]}


async def test_another_process_says_that_it_can_t_take_the_answer(desk: Stage) -> None:
    run = await desk.open()
    desk.tools.plan(ACT, asking(SURE))
    asked = await desk.call(run, ACT, client=ABLE)
    flight = desk.engine.flights.pop(asked.call)  # type: ignore[union-attr]
    told = await resume(desk, run, asked, YES)
    assert (type(told), told.question) == (Busy, None)  # type: ignore[union-attr]
    desk.engine.flights[flight.record.id] = flight
    await resume(desk, run, asked, YES)


async def test_stopping_ends_open_questions_at_once_and_refuses_further_ones(desk: Stage) -> None:
    run = await desk.open()

    async def stubborn(dispatch: Dispatch) -> Answer:
        assert dispatch.client.ask is not None
        codes = []
        for _ in range(2):
            try:
                await dispatch.client.ask(SURE)
            except Unanswered as nobody:
                codes.append(nobody.code)
        return ok(codes=codes)

    desk.tools.plan(ACT, stubborn)
    asked = await desk.call(run, ACT, client=ABLE)
    await soon(desk.engine.stop(4_000))
    assert (await desk.record(asked.call)).state == "succeeded"  # type: ignore[union-attr]


async def test_what_a_call_says_goes_to_who_listens_now() -> None:
    heard: list[Any] = []

    def hearing(name: str) -> Client:
        return Client(lambda params: heard.append((name, params)), lambda params: heard.append((name, params)), "info", ABLE.capabilities)

    inquiry = Inquiry(hearing("first"), FakeClock(), 0)
    assert inquiry.client.progress is not None
    assert inquiry.client.log is not None
    inquiry.client.progress({"n": 1})
    inquiry.listener = hearing("second")
    inquiry.client.log({"n": 2})
    inquiry.listener = NOBODY
    inquiry.client.progress({"n": 3})
    assert (heard, inquiry.client.log_level) == ([("first", {"n": 1}), ("second", {"n": 2})], "info")
    quiet = Inquiry(ABLE, FakeClock(), 0).client
    assert (quiet.progress, quiet.log, quiet.capabilities) == (None, None, ABLE.capabilities)


async def test_questions_of_one_call_come_one_after_the_other() -> None:
    inquiry = Inquiry(ABLE, MovedClock(), MovedClock().now + 60_000)
    assert inquiry.client.ask is not None
    asking = [asyncio.ensure_future(inquiry.client.ask({name: {}})) for name in ("a", "b")]
    for number, name in ((1, "a"), (2, "b")):
        await soon(inquiry.asked)
        assert inquiry.open == Question(number, {name: {}})
        inquiry.answer(number + 1, {"not": "meant"})
        inquiry.answer(number, {name: number})
    assert await soon(asyncio.gather(*asking)) == [{"a": 1}, {"b": 2}]
    assert (inquiry.open, inquiry.asked.done()) == (None, False)


async def test_a_refusal_to_answer_leaves_nothing_behind() -> None:
    inquiry = Inquiry(ABLE, FakeClock(), 60_000)

    async def asked() -> None:
        assert inquiry.client.ask is not None
        asyncio.get_running_loop().call_soon(lambda: inquiry.answer(1, Unanswered(-7, "no")))
        await inquiry.client.ask({"who": {}})

    assert await is_let_go(asked, Unanswered)
