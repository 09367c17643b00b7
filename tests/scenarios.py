"""The scenarios that must go the same way through every door, down to the events in the ledger. Written once, against an agent.

`agent.call(tool, …)` makes a call and gives what was said: `done`, `replayed`, `held`, `ready` or `refused`, with `:reason` where there is
one; the whole answer is `agent.last`. Tools and their rules stand in the tests' deployment; `id` names a case at the upstream.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

AROUND = {"turn": 0, "call_id": "", "operation": "", "hurried": False}
"""What stands around a call's arguments, and what it is if nobody says. `hurried`: the caller soon gives up waiting for others."""
Play = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True)
class Scenario:
    """`by`: the principal, and so the policy. `on`: the upstreams that it is played on. `reasons`: those that it shows."""

    name: str
    play: Play
    by: str
    on: tuple[str, ...]
    reasons: tuple[str, ...]


SCENARIOS: dict[str, Scenario] = {}
BOTH = ("web", "desk")


def scenario(*reasons: str, by: str = "plain", on: tuple[str, ...] = ("web",)) -> Callable[[Play], Play]:
    def add(play: Play) -> Play:
        SCENARIOS[play.__name__] = Scenario(play.__name__, play, by, on, reasons)
        return play

    return add


async def same(agent: Any, says: str, tool: str, times: int = 1, **more: Any) -> None:
    """The same call several times, and the same is said each time."""
    assert [await agent.call(tool, **more) for _ in range(times)] == [says] * times


# ---- scope, shape, authority --------------------------------------------------------------------------------------------


@scenario(on=BOTH)
async def only_what_a_rule_names_and_can_be_enforced_is_listed(agent: Any) -> None:
    tools = await agent.tools()
    assert {"web.read", "desk.read", "web.refund"} <= tools.keys()
    assert not {"web.ghost", "desk.ghost", "desk.odd", "web.absent"} & tools.keys()
    assert "key" not in str(tools["desk.put"])


@scenario("tool.not_allowed", "tool.unknown", "tool.schema_unsupported", on=BOTH)
async def what_is_not_listed_is_refused_without_a_byte(agent: Any) -> None:
    await same(agent, "refused:tool.not_allowed", "ghost", id="g")
    await same(agent, "refused:tool.not_allowed", "nowhere.at_all", id="g")
    await same(agent, "refused:tool.unknown", "absent", id="g")
    await same(agent, "refused:tool.schema_unsupported", "desk.odd", id="g")
    assert agent.took("g") == []


@scenario(on=BOTH)
async def a_short_name_means_its_tool_and_the_record_has_the_full_name(agent: Any) -> None:
    agent.answers.append(await agent.asked(f"{agent.on}-brief", {"id": "s"}, **AROUND))
    await same(agent, "replayed", "brief", id="s")
    assert (agent.answers[0].says, len(agent.took("s"))) == ("done", 1)
    admitted = next(one["event"] for one in await agent.events() if one["kind"] == "CallAdmitted")
    assert admitted["tool"] == f"{agent.on}.brief"


@scenario("arguments.malformed", "arguments.invalid", on=BOTH)
async def arguments_out_of_shape_are_refused_and_cost_nothing(agent: Any) -> None:
    await same(agent, "refused:arguments.malformed", "read", raw=["no", "object"])
    await same(agent, "refused:arguments.malformed", "read", raw="text")
    await same(agent, "refused:arguments.invalid", "read", id=7)
    await same(agent, "refused:arguments.invalid", "narrow", size=11)
    await same(agent, "refused:arguments.invalid", "narrow", id=7, size="big")
    assert len(agent.last.body["findings"]) >= 2
    assert agent.last.left["tool_calls_left"] == 500


@scenario("arguments.bound", on=BOTH)
async def an_injected_argument_is_hidden_filled_in_and_never_taken(agent: Any) -> None:
    assert "tenant" not in str((await agent.tools())[f"{agent.on}.bound"])
    await same(agent, "done", "bound", id="b")
    assert agent.took("b")[0]["arguments"] == {"id": "b", "tenant": "acme"}
    await same(agent, "refused:arguments.bound", "bound", id="b", tenant="other")
    assert len(agent.took("b")) == 1


@scenario("authorization.denied", "condition.failed")
async def a_condition_that_is_false_or_fails_denies(agent: Any) -> None:
    await same(agent, "done", "guarded", id="g", size=5)
    await same(agent, "refused:authorization.denied", "guarded", id="g", size=6)
    await same(agent, "refused:condition.failed", "guarded", id="g")
    assert len(agent.took("g")) == 1


# ---- repeats ------------------------------------------------------------------------------------------------------------


@scenario(on=BOTH)
async def a_read_runs_afresh_and_a_write_is_answered_from_the_record(agent: Any) -> None:
    await same(agent, "done", "read", 2, id="r")
    for tool in ("put", "pay"):
        await same(agent, "done", tool, id=tool)
        first = agent.last.result
        await same(agent, "replayed", tool, id=tool)
        assert (agent.last.result, len(agent.took(tool))) == (first, 1)
        assert agent.last.body["message"]


@scenario(on=BOTH)
async def setting_a_then_b_then_a_again_writes_three_times_under_three_keys(agent: Any) -> None:
    for value in ("a", "b", "a"):
        await same(agent, "done", "put", id="x", do=value)
    took = agent.took("x")
    assert [one["arguments"]["do"] for one in took] == ["a", "b", "a"]
    assert len({one["key"] for one in took} - {None}) == 3
    await same(agent, "replayed", "put", id="x", do="a")


@scenario("key.reused")
async def a_trusted_call_id_always_replays_and_never_means_something_else(agent: Any) -> None:
    await same(agent, "done", "read", id="r", call_id="c1")
    await same(agent, "replayed", "read", id="r", call_id="c1")
    await same(agent, "refused:key.reused", "read", id="other", call_id="c1")
    await same(agent, "done", "read", id="r", call_id="c1", turn=1)
    assert len(agent.took("r")) == 2


@scenario("key.reused", "approval.required")
async def a_deliberate_repeat_takes_a_new_operation_id_and_is_held(agent: Any) -> None:
    await same(agent, "done", "charge", id="p", operation="first")
    await same(agent, "replayed", "charge", id="p", operation="first")
    await same(agent, "refused:key.reused", "charge", id="q", operation="first")
    await same(agent, "held", "charge", id="p", operation="second")
    await agent.vote("approve", note="twice is meant")
    await same(agent, "done", "charge", id="p", operation="second")
    assert len({one["key"] for one in agent.took("p")}) == 2


@scenario()
async def what_key_from_leaves_out_makes_no_other_call_and_is_told(agent: Any) -> None:
    await same(agent, "done", "order", id="o", size=1)
    await same(agent, "replayed", "order", id="o", size=2)
    assert agent.last.body["differences"] == {"size": [1, 2]}


@scenario("call.in_flight")
async def a_repeat_joins_the_running_dispatch_or_is_told_that_it_runs(agent: Any) -> None:
    first = agent.start("put", id="j", do="gate")
    await agent.web.reached("j")
    await same(agent, "refused:call.in_flight", "put", id="j", do="gate", hurried=True)
    second = agent.start("put", id="j", do="gate")
    await agent.stage.waiting(2)
    agent.web.open_gate("j")
    assert sorted([await first, await second]) == ["done", "replayed"]
    assert len(agent.took("j")) == 1
    agent.answers.sort(key=lambda answer: answer.says)


# ---- people -------------------------------------------------------------------------------------------------------------


@scenario("approval.required", on=BOTH)
async def a_held_call_executes_once_after_approval(agent: Any) -> None:
    await same(agent, "held", "refund", 2, id="h")
    assert ((await agent.hold())["show"], agent.took("h")) == ("Refund h", [])
    assert (await agent.vote("approve", note="fine"))["status"] == "approved"
    await same(agent, "done", "refund", id="h")
    await same(agent, "replayed", "refund", id="h")
    assert len(agent.took("h")) == 1


@scenario("approval.denied")
async def a_denial_is_told_with_its_reason_and_sticks(agent: Any) -> None:
    await same(agent, "held", "refund", id="d")
    await agent.vote("deny", reason="ask the customer first")
    await same(agent, "refused:approval.denied", "refund", 2, id="d")
    assert "ask the customer first" in agent.last.body["detail"]
    await same(agent, "held", "refund", id="d", size=1)
    assert agent.took("d") == []


@scenario()
async def an_unanswered_hold_expires_and_is_asked_anew(agent: Any) -> None:
    await same(agent, "held", "expiring", id="e")
    hold = await agent.hold()
    await agent.until_hold("expired")
    await same(agent, "held", "expiring", id="e")
    assert (await agent.hold())["hold"] != hold["hold"]
    assert agent.took("e") == []


@scenario()
async def an_approval_that_nobody_used_lapses(agent: Any) -> None:
    await same(agent, "held", "lapsing", id="l")
    await agent.vote("approve")
    await agent.until_hold("expired")
    await same(agent, "held", "lapsing", id="l")
    assert agent.took("l") == []


@scenario()
async def a_caller_who_waits_gets_the_result_as_soon_as_people_have_decided(agent: Any) -> None:
    waiting = agent.start("waiting", id="w")
    hold = await agent.first_hold()
    await agent.mia.post(f"/v1/holds/{hold['hold']}/approve", json={"digest": hold["digest"]})
    assert (await waiting, len(agent.took("w"))) == ("done", 1)


@scenario()
async def a_quorum_of_two_takes_two_people(agent: Any) -> None:
    await same(agent, "held", "twice", id="q")
    assert (await agent.vote("approve"))["status"] == "held"
    await same(agent, "held", "twice", id="q")
    assert (await agent.vote("approve", by=agent.ben))["status"] == "approved"
    await same(agent, "done", "twice", id="q")


@scenario()
async def what_is_executed_at_once_needs_no_repeat(agent: Any) -> None:
    await same(agent, "held", "at_once", id="a")
    await agent.vote("approve")
    await agent.reached("a")
    await agent.until_run(calls={"succeeded": 1})
    await same(agent, "replayed", "at_once", id="a")
    assert len(agent.took("a")) == 1


# ---- budgets and turns --------------------------------------------------------------------------------------------------


@scenario("budget.tool_calls", by="tight")
async def the_call_budget_refuses_and_leaves_the_run_open_for_an_answer(agent: Any) -> None:
    for number in range(3):
        await same(agent, "done", "read", id=f"t{number}")
        assert agent.last.left["tool_calls_left"] == 2 - number
    await same(agent, "refused:budget.tool_calls", "read", id="t3")
    assert (agent.took("t3"), (await agent.look())["status"]) == ([], "open")


@scenario("budget.tool_calls_per_turn", "turn.final", "budget.turns", "run.not_open", by="tight")
async def the_last_turn_is_for_the_answer_and_one_more_ends_the_run(agent: Any) -> None:
    await same(agent, "done", "put", id="u1", turn=1)
    await same(agent, "done", "read", id="u2", turn=1)
    await same(agent, "refused:budget.tool_calls_per_turn", "read", id="u3", turn=1)
    await same(agent, "done", "read", id="u3", turn=2)
    assert agent.last.left["turns_left"] == 1
    await same(agent, "refused:turn.final", "read", id="u4", turn=3)
    assert agent.last.left["final_turn"] is True
    await same(agent, "refused:budget.turns", "read", id="u4", turn=4)
    await agent.until_run(status="blocked", reason="turn_budget")
    await same(agent, "refused:run.not_open", "read", id="u5")
    await same(agent, "replayed", "put", id="u1", turn=1)


@scenario("budget.tokens", "turn.final", by="purse")
async def a_purse_that_pays_for_two_turns_pays_for_two(agent: Any) -> None:
    await same(agent, "done", "read", id="p1", turn=1)
    await agent.post("/turns/1/usage", {"input": 100, "output": 50})
    await same(agent, "refused:turn.final", "read", id="p2", turn=2)
    assert agent.last.left["tokens_left"] == 200
    await same(agent, "refused:budget.tokens", "read", id="p3", turn=3)
    await agent.until_run(status="blocked", reason="token_budget")


@scenario("budget.input_tokens", by="history")
async def a_history_that_grew_too_long_opens_no_further_turn(agent: Any) -> None:
    await same(agent, "done", "read", id="h1", turn=1)
    await agent.post("/turns/1/usage", {"input": 101, "output": 5})
    await same(agent, "refused:budget.input_tokens", "read", id="h2", turn=2)
    await agent.until_run(status="blocked", reason="token_budget")


@scenario(by="purse")
async def only_a_trusted_figure_gives_back_what_was_set_aside(agent: Any) -> None:
    await same(agent, "done", "read", id="m1", turn=1)
    await agent.post("/turns/1/usage", {"input": 10, "output": 10}, by=agent.meter)
    await same(agent, "done", "read", id="m2", turn=2)
    assert agent.last.left["tokens_left"] == 580


@scenario("budget.cost", by="coins")
async def money_is_never_spent_twice(agent: Any) -> None:
    await same(agent, "done", "priced", 2, id="c")
    await same(agent, "refused:budget.cost", "priced", id="c")
    await same(agent, "done", "read", id="free")
    assert (agent.last.left["cost_usd_left"], len(agent.took("c"))) == (0.1, 2)


@scenario("budget.cost", by="coins_close")
async def a_run_that_closes_on_cost_ends_with_the_refusal(agent: Any) -> None:
    await same(agent, "done", "priced", 2, id="c")
    await same(agent, "refused:budget.cost", "priced", id="c")
    await agent.until_run(status="blocked", reason="cost_budget")


@scenario("budget.in_flight", by="single")
async def one_call_in_flight_leaves_no_room_for_a_second(agent: Any) -> None:
    first = agent.start("read", id="f", do="gate")
    await agent.web.reached("f")
    await same(agent, "refused:budget.in_flight", "read", id="g")
    agent.web.open_gate("f")
    assert await first == "done"
    await same(agent, "done", "read", id="g")


@scenario("budget.open_holds", by="single")
async def one_held_call_leaves_no_room_for_a_second(agent: Any) -> None:
    await same(agent, "held", "refund", id="o1")
    await same(agent, "refused:budget.open_holds", "refund", id="o2")
    await same(agent, "held", "refund", id="o1")
    await agent.vote("deny")
    await same(agent, "held", "refund", id="o2")


@scenario("turn.required", "turn.unknown", by="strict")
async def a_run_that_requires_turns_takes_only_calls_of_turns(agent: Any) -> None:
    await same(agent, "refused:turn.required", "read", id="s")
    await same(agent, "done", "read", id="s", turn=3)
    await same(agent, "refused:turn.unknown", "read", id="s", turn=2)


@scenario("turn.not_open")
async def a_cancelled_turn_takes_no_more_calls_and_the_run_goes_on(agent: Any) -> None:
    await same(agent, "held", "refund", id="t", turn=1)
    await agent.post("/turns/1/cancel")
    await same(agent, "refused:turn.not_open", "read", id="t", turn=1)
    await same(agent, "done", "read", id="t", turn=2)


@scenario()
async def a_turn_whose_answer_was_recorded_gives_its_results_again(agent: Any) -> None:
    turn = (await agent.post("/turns", status=201))["turn"]
    calls = [{"call_id": f"c{n}", "tool": "web.put", "arguments": {"id": f"v{n}"}} for n in (1, 2)]
    await agent.post(f"/turns/{turn}/answer", {"calls": calls, "digest": "d"})
    await same(agent, "done", "put", id="v1", call_id="c1", turn=turn)
    shown = (await agent.look(f"/turns/{turn}"))["calls"]
    assert [(one["call_id"], one["status"], one["result"] is None) for one in shown] == [("c1", "succeeded", False), ("c2", "new", True)]


# ---- loops --------------------------------------------------------------------------------------------------------------


@scenario("loop.repeat", by="loopy")
async def the_same_read_with_the_same_result_is_intercepted_and_then_ends_the_run(agent: Any) -> None:
    await same(agent, "done", "read", 3, id="l")
    await same(agent, "refused:loop.repeat", "read", id="l")
    await same(agent, "done", "poll", 4, id="l")
    await same(agent, "refused:loop.repeat", "read", id="l")
    await agent.until_run(status="blocked", reason="loop")
    assert len([one for one in agent.took("l") if one["tool"] == "read"]) == 3


@scenario(by="loopy")
async def results_that_change_are_no_loop(agent: Any) -> None:
    await same(agent, "done", "read", 6, id="c", do="count")


@scenario("loop.cycle", by="loopy")
async def a_circle_of_two_calls_is_intercepted(agent: Any) -> None:
    for _ in range(2):
        await same(agent, "done", "read", id="a")
        await same(agent, "done", "read", id="b")
    await same(agent, "refused:loop.cycle", "read", id="a")
    await same(agent, "done", "read", id="elsewhere")


@scenario("loop.refusals", by="loopy")
async def refusals_in_a_row_are_intercepted_and_then_end_the_run(agent: Any) -> None:
    for first in (11, 21):
        for size in range(first, first + 3):
            await same(agent, "refused:arguments.invalid", "narrow", size=size)
        await same(agent, "refused:loop.refusals", "read", id="r")
    await agent.until_run(status="blocked", reason="loop")


@scenario(by="loopy")
async def replays_still_answer_and_count_until_they_end_the_run(agent: Any) -> None:
    await same(agent, "done", "pay", id="w")
    await same(agent, "replayed", "pay", 3, id="w")
    await agent.until_run(status="blocked", reason="loop")
    await same(agent, "replayed", "pay", id="w")
    assert len(agent.took("w")) == 1
