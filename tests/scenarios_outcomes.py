"""More scenarios for every door: what upstreams do to calls, and what the ends of runs do. See `scenarios`."""

from __future__ import annotations

from typing import Any

from tests.scenarios import BOTH, same, scenario

# ---- upstreams ----------------------------------------------------------------------------------------------------------


@scenario("upstream.unavailable", on=("down",))
async def what_never_reached_the_upstream_has_failed_and_may_be_made_again(agent: Any) -> None:
    for tool in ("read", "put", "pay"):
        await same(agent, "refused:upstream.unavailable", tool, 2, id=tool)
    assert "127.0.0.1" not in str(agent.last.body)


@scenario("upstream.unavailable")
async def a_read_that_broke_off_has_failed_and_a_write_is_in_doubt(agent: Any) -> None:
    await same(agent, "refused:upstream.unavailable", "read", id="r", do="cut")
    await same(agent, "refused:call.in_doubt", "pay", 2, id="p", do="cut")
    assert (len(agent.took("r")), len(agent.took("p"))) == (1, 1)


@scenario("tool.error", on=("desk",))
async def an_answer_that_is_none_fails_a_read(agent: Any) -> None:
    await same(agent, "refused:tool.error", "read", id="g", do="garbage")
    await same(agent, "refused:call.in_doubt", "pay", id="g", do="garbage")


@scenario("tool.timeout", "call.in_doubt", on=BOTH)
async def a_read_times_out_and_a_write_that_timed_out_is_in_doubt(agent: Any) -> None:
    await same(agent, "refused:tool.timeout", "quick", id="t", do="hang")
    await same(agent, "refused:call.in_doubt", "quick_put", 2, id="u", do="hang")
    await same(agent, "refused:call.in_doubt", "quick_pay", 2, id="v", do="hang")
    assert [len(agent.took(id)) for id in "tuv"] == [1, 1, 1]
    assert (await agent.look())["awaiting_approval"] is True


@scenario("tool.error", on=BOTH)
async def what_the_tool_calls_an_error_is_its_answer(agent: Any) -> None:
    await same(agent, "done:tool.error", "read", 2, id="e", do="error")
    await same(agent, "done:tool.error", "pay", id="f", do="error")
    assert agent.last.result["isError"] is True
    await same(agent, "replayed:tool.error", "pay", id="f", do="error")
    assert len(agent.took("f")) == 1


@scenario("tool.error")
async def an_error_that_the_policy_says_did_nothing_frees_the_key(agent: Any) -> None:
    await same(agent, "done:tool.error", "freed", 2, id="f", do="taken")
    assert len({one["key"] for one in agent.took("f")}) == 2


@scenario("call.in_doubt")
async def a_5xx_fails_a_read_and_leaves_a_write_in_doubt(agent: Any) -> None:
    await same(agent, "done:tool.error", "read", id="r", do="fail")
    await same(agent, "refused:call.in_doubt", "pay", 2, id="p", do="fail")
    await same(agent, "done:tool.error", "put", id="i", do="fail")
    assert len(agent.took("p")) == 1


async def reconciled(agent: Any, outcome: str, **more: Any) -> None:
    """A person's word on the last call."""
    said = {"outcome": outcome, "why": "it was looked up", **more}
    answer = await agent.mia.post(f"/v1/runs/{agent.run}/calls/{agent.last.body['call']}/reconcile", json=said)
    assert answer.status_code == 200, answer.text


@scenario("call.in_doubt", on=BOTH)
async def a_person_ends_a_doubt_and_a_repeat_gets_what_they_found(agent: Any) -> None:
    await same(agent, "refused:call.in_doubt", "quick_pay", id="h", do="hang")
    await reconciled(agent, "happened", result={"paid": 1})
    await same(agent, "replayed", "quick_pay", id="h", do="hang")
    assert agent.last.result["structuredContent"] == {"paid": 1}
    await same(agent, "refused:call.in_doubt", "quick_pay", id="a", do="hang")
    await reconciled(agent, "abandoned")
    await same(agent, "refused:call.in_doubt", "quick_pay", id="a", do="hang")
    assert [len(agent.took(id)) for id in "ha"] == [1, 1]


@scenario("call.in_doubt")
async def what_did_not_happen_is_sent_once_more_under_its_key(agent: Any) -> None:
    await same(agent, "refused:call.in_doubt", "pay", id="n", do="cut")
    await reconciled(agent, "did_not_happen")
    await agent.reached("n", 2)
    await agent.until_calls(in_doubt=1)
    await same(agent, "refused:call.in_doubt", "pay", id="n", do="cut")
    assert (len(agent.took("n")), len({one["key"] for one in agent.took("n")})) == (2, 1)


@scenario()
async def retries_keep_the_key_and_cost_a_call_each(agent: Any) -> None:
    await same(agent, "done", "again", id="r", do="flaky")
    assert agent.last.left["tool_calls_left"] == 497
    await same(agent, "done", "again_put", id="w", do="flaky")
    assert (len(agent.took("w")), len({one["key"] for one in agent.took("w")})) == (3, 1)
    await same(agent, "done:tool.error", "again", id="b", do="busy")
    assert len(agent.took("b")) == 3


@scenario("result.too_large", "result.invalid", on=BOTH)
async def results_are_capped_checked_and_redacted_before_they_are_recorded(agent: Any) -> None:
    await same(agent, "done:result.too_large", "capped", id="c", do="big")
    await same(agent, "done:result.invalid", "shaped", id="s")
    await same(agent, "done", "masked", id="m", do="secret")
    assert agent.last.result["structuredContent"]["card"] == {"number": "[redacted]", "brand": "visa"}
    assert "4111" not in str(agent.last.body)


@scenario("arguments.unsendable")
async def arguments_that_no_request_can_carry_are_refused_unsent_and_the_key_stays_free(agent: Any) -> None:
    await same(agent, "refused:arguments.unsendable", "placed", 2, id="..")
    await same(agent, "done", "placed", id="here")
    assert len(agent.stage.web.took) == 1


@scenario("result.unread")
async def an_answer_beyond_what_is_read_fails_a_read_and_leaves_a_write_in_doubt(agent: Any) -> None:
    await same(agent, "refused:result.unread", "read", id="l", do="flood")
    await same(agent, "refused:call.in_doubt", "pay", id="l", do="flood")


@scenario("call.in_doubt", on=("desk",))
async def a_process_that_dies_leaves_a_write_in_doubt_and_comes_back(agent: Any) -> None:
    await same(agent, "refused:call.in_doubt", "pay", 2, id="d", do="die")
    assert len(agent.took("d")) == 1
    await agent.stage.desk_is_back()
    await same(agent, "done", "read", id="back")


# ---- runs ---------------------------------------------------------------------------------------------------------------


@scenario("run.not_open")
async def a_frozen_run_records_outcomes_admits_nothing_and_goes_on_when_resumed(agent: Any) -> None:
    first = agent.start("pay", id="f", do="gate")
    await agent.web.reached("f")
    await same(agent, "held", "refund", id="h")
    await agent.post("/freeze", {"note": "let me look"}, by=agent.mia)
    await same(agent, "refused:run.not_open", "read", id="r")
    agent.web.open_gate("f")
    assert await first == "done"
    await same(agent, "replayed", "pay", id="f", do="gate")
    await agent.post("/resume", by=agent.mia)
    await same(agent, "held", "refund", id="h")
    await same(agent, "done", "read", id="r")


@scenario("run.not_open")
async def a_cancelled_run_takes_nothing_more_and_its_record_answers(agent: Any) -> None:
    await same(agent, "done", "pay", id="p")
    await same(agent, "held", "refund", id="h")
    assert (await agent.post("/cancel"))["status"] == "cancelled"
    await same(agent, "refused:run.not_open", "read", id="r")
    await same(agent, "refused:run.not_open", "refund", id="h")
    await same(agent, "replayed", "pay", id="p")
    await agent.post("/finish", status=409)


@scenario("call.cancelled", "call.in_doubt", on=BOTH)
async def cancelling_a_run_reaches_its_calls_in_flight(agent: Any) -> None:
    read, write = (agent.start(tool, id=tool, do="hang") for tool in ("read", "pay"))
    await agent.reached("read")
    await agent.reached("pay")
    await agent.post("/cancel")
    assert (await read, await write) == ("refused:call.cancelled", "refused:call.in_doubt")
    await agent.until_run(status="cancelled")
    agent.answers.sort(key=lambda answer: answer.says)


@scenario("run.not_open")
async def a_finished_run_is_over_for_good(agent: Any) -> None:
    await same(agent, "done", "put", id="p")
    over = await agent.post("/finish", {"handoff": {"done": "all", "open": None, "next": "rest"}})
    assert (over["status"], over["reason"]) == ("completed", "model_final")
    await same(agent, "refused:run.not_open", "read", id="r")
    await same(agent, "replayed", "put", id="p")


@scenario("run.deadline")
async def a_write_without_the_time_that_it_needs_does_not_start(agent: Any) -> None:
    await same(agent, "refused:run.deadline", "hasty", id="h")
    assert agent.took("h") == []


@scenario("run.deadline", by="late")
async def past_its_deadline_a_run_refuses(agent: Any) -> None:
    await agent.until_late()
    await same(agent, "refused:run.deadline", "read", id="r")
    assert agent.took("r") == []


@scenario("run.not_open", by="short")
async def the_deadline_ends_a_run_and_reaches_its_call_in_flight(agent: Any) -> None:
    await same(agent, "refused:call.in_doubt", "pay", id="p", do="hang")
    await agent.until_run(status="blocked", reason="deadline_exceeded")
    await agent.web.left("p")
    await same(agent, "refused:run.not_open", "read", id="r")
    assert agent.took("r") == []
