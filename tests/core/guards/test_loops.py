"""loops: what repeats itself is intercepted and, ignored, ends the run; what changes is no loop."""

from typing import Any

import pytest

from gateway.core import events as e
from gateway.core.decide.calls import Answered
from gateway.core.guards.loops import MOST_REFUSALS, History, Loops, history, refused_out
from gateway.core.model import Limits, Outcome
from gateway.core.run import Run
from tests.core.guards.given import ACT, MIA, READ, WRITE, Given, Written, asks, given, policy, reasons, rule, verdict


def looped(*rules: Any, loops: Loops | None = None) -> Given:
    return given(policy(*rules, guards=(loops or Loops(),), limits=Limits()))


def the_run(run: Given) -> Run:
    return run.tree.runs[run.run]


# ---- the same call, the same result -------------------------------------------------------------------------------------


def test_the_same_read_with_the_same_result_is_let_pass_ten_times() -> None:
    run = looped()
    assert [verdict(run.happens(result={"n": 1})) for _ in range(11)] == ["allow"] * 10 + ["deny"]
    assert reasons(run.when()) == ["loop.repeat"]


def test_who_goes_on_all_the_same_is_intercepted_each_time_and_the_third_time_ends_the_run() -> None:
    run = looped()
    verdicts = [(verdict(run.happens(result=1)), the_run(run).state) for _ in range(13)]
    assert verdicts[10:] == [("deny", "open"), ("deny", "open"), ("deny", "closed")]
    assert (the_run(run).status, the_run(run).reason) == ("blocked", "loop")


def test_results_that_change_are_no_loop() -> None:
    run = looped()
    assert {verdict(run.happens(result=n)) for n in range(30)} == {"allow"}


def test_a_result_that_changed_once_starts_the_count_again() -> None:
    run = looped(loops=Loops(reads=3))
    for result in (1, 1, 2, 2):
        run.happens(result=result)
    assert verdict(run.happens(result=2)) == "allow"
    assert verdict(run.happens(result=2)) == "deny"


def test_failures_repeat_too() -> None:
    run = looped(loops=Loops(reads=2))
    for _ in range(2):
        run.happens(outcome=Outcome("failed", "tool.timeout"))
    assert reasons(run.when()) == ["loop.repeat"]


def test_other_arguments_are_another_call() -> None:
    run = looped(loops=Loops(reads=1))
    assert {verdict(run.happens(n=n)) for n in range(30)} == {"allow"}


def test_a_tool_that_is_polled_is_exempt() -> None:
    run = looped(rule(poll=True), loops=Loops(reads=1))
    assert {verdict(run.happens(result=1)) for _ in range(15)} == {"allow"}


def test_the_window_is_twenty() -> None:
    run = looped(loops=Loops(reads=3))
    for _ in range(2):
        run.happens(result=1)
    for n in range(19):
        run.happens(n=n)
    assert len(history(the_run(run)).seen) == 20
    assert [verdict(run.happens(result=1)) for _ in range(2)] == ["allow", "allow"]


# ---- replays ------------------------------------------------------------------------------------------------------------


def test_a_replay_still_returns_the_record_and_counts_as_an_interception() -> None:
    run = looped(rule(effect=WRITE))
    asked = [run.happens(result=1) for _ in range(5)]
    assert [verdict(one) for one in asked] == ["allow", "replay", "replay", "replay", "replay"]
    assert [event.loop for one in asked for event in one.events if isinstance(event, e.CallReplayed)] == [None, None, "loop.repeat", "loop.repeat"]
    run.when()
    assert (the_run(run).status, the_run(run).reason) == ("blocked", "loop")
    assert isinstance(run.when().next, Answered)


def test_a_replay_by_the_same_call_id_is_no_sign_of_a_loop() -> None:
    run = looped(rule(effect=WRITE))
    run.happens(call_id="c1")
    assert [verdict(run.when(call_id="c1")) for _ in range(6)] == ["replay"] * 6
    assert (history(the_run(run)).intercepted, len(history(the_run(run)).seen)) == (0, 1)


# ---- cycles -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("period", [2, 3])
def test_a_cycle_of_two_or_three_calls_is_let_pass_three_times(period: int) -> None:
    run = looped()
    for turn in range(3 * period):
        assert verdict(run.happens(n=turn % period)) == "allow"
    assert reasons(run.when(n=0)) == ["loop.cycle"]
    assert verdict(run.when(n=9)) == "allow"


def test_a_cycle_whose_results_change_is_none() -> None:
    run = looped()
    assert {verdict(run.happens(n=turn % 2, result=turn)) for turn in range(30)} == {"allow"}


def test_a_cycle_of_four_is_seen_by_nobody() -> None:
    run = looped()
    assert {verdict(run.happens(n=turn % 4)) for turn in range(12)} == {"allow"}


# ---- refusals -----------------------------------------------------------------------------------------------------------


def refused(run: Given, times: int) -> None:
    for n in range(times):
        run.when("nobody.has_this", n=n)


def test_after_ten_refusals_in_a_row_the_next_good_call_is_intercepted_once() -> None:
    run = looped(rule())
    refused(run, 10)
    assert reasons(run.when(n=1)) == ["loop.refusals"]
    assert verdict(run.when(n=1)) == "allow"


def test_a_call_that_ran_in_between_breaks_the_row() -> None:
    run = looped(rule())
    refused(run, 9)
    run.happens()
    refused(run, 9)
    assert verdict(run.when(n=1)) == "allow"


def test_a_replay_breaks_the_row_too() -> None:
    run = looped(rule(effect=WRITE))
    run.happens()
    refused(run, 9)
    run.happens()
    refused(run, 1)
    assert verdict(run.when(n=1)) == "allow"


def test_the_two_hundredth_refusal_ends_the_run_and_later_ones_are_not_recorded() -> None:
    run = looped(rule())
    refused(run, MOST_REFUSALS - 1)
    assert (the_run(run).state, refused_out(the_run(run))) == ("open", True)
    refused(run, 1)
    assert (the_run(run).state, the_run(run).reason) == ("closed", "loop")
    assert run.when("nobody.has_this", n=999).events == ()


# ---- shadow, building ---------------------------------------------------------------------------------------------------


def test_in_the_shadow_of_its_rule_a_loop_is_recorded_only() -> None:
    run = looped(rule(name="crm.get", shadow=("loops",)), rule(name="crm.find"), loops=Loops(reads=1))
    run.happens("crm.get")
    asked = run.happens("crm.get")
    assert (verdict(asked), asked.shadowed) == ("allow", ("loop.repeat",))
    run.happens("crm.find")
    assert reasons(run.when("crm.find")) == ["loop.repeat"]


def test_a_held_call_is_neither_a_result_nor_a_refusal() -> None:
    run = looped(rule(asks(), effect=ACT))
    run.when()
    run.vote(MIA, "approve")
    assert history(the_run(run)) == History()
    assert verdict(run.when()) == "allow"


def test_it_is_built_from_loops_at_the_top_or_with_the_defaults() -> None:
    assert Loops.build(Written().section) == Loops(3, 10, 3, 10, 3)
    assert Loops.build(Written(top={"loops": {"reads": 2}}).section) == Loops(reads=2)


def test_a_ceiling_has_it_only_where_it_says_so() -> None:
    assert Loops.build(Written(kind="ceiling").section) is None
    assert Loops.build(Written(kind="ceiling", top={"loops": {}}).section) == Loops()


def test_no_number_can_be_written_that_the_window_could_never_see() -> None:
    limits = Loops.schema["top"]["loops"]["properties"]
    assert {name: limit["maximum"] for name, limit in limits.items()} == {"writes": 20, "reads": 20, "cycles": 6, "refusals": 200, "close_after": 200}
    assert Loops(reads=20).reads == 20
    assert READ.writes is False
