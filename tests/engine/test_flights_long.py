"""Results that are too long to be shown: the note, the way to the whole, and who may take it."""

from __future__ import annotations

import pytest

from gateway.core.guards.result import RESULTS
from gateway.core.model import Completed
from gateway.ports import Answer, RequestFault
from tests.engine.stage import BOT, OTHER, POLICY, READ, Stage, ok, stage

pytestmark = pytest.mark.anyio

CAPPED = POLICY.replace("  - tool: crm.get_*\n", "  - {tool: crm.get_order, effect: read_only, result: {max_bytes: 400B}}\n  - tool: crm.get_*\n")
LONG = ok(pages=["x" * 500, 2**70])


@pytest.fixture
async def desk(tmp_path):
    async with stage(tmp_path, CAPPED) as it:
        yield it


async def test_a_long_result_is_kept_aside_and_its_note_leads_there(desk: Stage) -> None:
    run = await desk.open()
    desk.tools.plan(READ, LONG)
    reply = await desk.call(run, READ, call_id="c1")
    assert isinstance(reply, Completed)
    assert (reply.status, reply.reason, reply.result["isError"]) == ("succeeded", "result.too_large", False)
    link = reply.result["content"][-1]
    assert await desk.engine.kept_aside(BOT, run, link["uri"].removeprefix(RESULTS)) == LONG.result
    again = await desk.call(run, READ, call_id="c1")
    assert isinstance(again, Completed)
    assert (again.result, again.replayed, len(desk.tools.sent)) == (reply.result, True, 1)


async def test_nobody_else_takes_it_and_a_key_of_nothing_has_expired(desk: Stage) -> None:
    run = await desk.open()
    desk.tools.plan(READ, LONG)
    reply = await desk.call(run, READ)
    assert isinstance(reply, Completed)
    key = reply.result["content"][-1]["uri"].removeprefix(RESULTS)
    for who, its_key, reason in ((OTHER, key, "run.unknown"), (BOT, "0" * 64, "result.expired"), (BOT, "", "result.expired")):
        with pytest.raises(RequestFault) as caught:
            await desk.engine.kept_aside(who, run, its_key)
        assert caught.value.reason == reason


async def test_of_a_failure_that_is_tried_again_nothing_is_kept_aside(desk: Stage) -> None:
    run = await desk.open()
    desk.tools.plan(READ, Answer({"content": [{"type": "text", "text": "x" * 2000}], "isError": True}, 503))
    reply = await desk.call(run, READ)
    assert isinstance(reply, Completed)
    assert [block["type"] for block in reply.result["content"]] == ["text"]


async def test_no_more_of_an_answer_is_read_than_its_rule_can_keep(desk: Stage) -> None:
    run = await desk.open()
    await desk.call(run, READ)
    assert desk.tools.sent[0].max_bytes == 1024 * 1024
