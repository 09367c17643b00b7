"""turns: a call stands in an open turn, and not in the one that is left for the answer."""

from typing import Any

from gateway.core.decide import turns
from gateway.core.guards.budgets import Budgets
from gateway.core.guards.turns import Turns, is_final
from gateway.core.model import Limits
from tests.core.guards.given import Given, Written, asks, bid, given, policy, reasons, rule, verdict


def limited(*rules: Any, **limits: Any) -> Given:
    return given(policy(*rules, guards=(Turns(), Budgets()), limits=Limits(**limits)))


def close(run: Given, turn: int) -> None:
    run._fold(turns.end(run.states, run.run, turn, "completed", "agent:bot", run.now)[0])


def test_a_call_without_a_turn_is_fine_unless_turns_are_required() -> None:
    assert verdict(limited().when()) == "allow"
    assert reasons(limited(require_turns=True).when()) == ["turn.required"]
    run = limited(require_turns=True)
    run.open_turn()
    assert verdict(run.when(turn=1)) == "allow"


def test_a_number_that_was_skipped_is_no_turn() -> None:
    run = limited()
    run.when(turn=3, n=1)
    assert reasons(run.when(turn=2, n=2)) == ["turn.unknown"]


def test_a_turn_that_is_over_takes_no_more_calls() -> None:
    run = limited()
    run.open_turn()
    close(run, 1)
    assert reasons(run.when(turn=1)) == ["turn.not_open"]


def test_the_last_turn_that_turns_pay_is_for_the_answer() -> None:
    run = limited(turns=2)
    run.open_turn()
    assert verdict(run.happens(turn=1, n=1)) == "allow"
    run.open_turn()
    assert [reasons(run.when(turn=turn, n=2)) for turn in (2, 0)] == [["turn.final"], ["turn.final"]]
    assert verdict(run.when(turn=1, n=3)) == "allow"


def test_the_last_turn_that_tokens_pay_is_for_the_answer() -> None:
    run = limited(tokens=25, tokens_per_turn=10)
    run.open_turn()
    assert verdict(run.happens(turn=1)) == "allow"
    run.open_turn()
    assert reasons(run.when(turn=2)) == ["turn.final"]


def test_the_last_turn_that_money_pays_is_for_the_answer() -> None:
    run = limited(usd_micros=10)
    run.open_turn()
    run.uses(1, usd_micros=10)
    assert reasons(run.when(turn=1)) == ["turn.final"]


def test_the_last_turn_that_time_pays_is_for_the_answer() -> None:
    run = limited(deadline_ms=10_000)
    run.open_turn()
    run.wait(4_000)
    run.open_turn()
    assert verdict(run.happens(turn=2, n=1)) == "allow"
    run.wait(2_001)
    assert reasons(run.when(turn=2, n=2)) == ["turn.final"]


def test_a_run_without_turns_has_no_final_one() -> None:
    run = limited(usd_micros=0)
    assert not is_final(run.tree, run.tree.runs[run.run], run.now)


def test_a_shadow_suspends_the_final_turn_but_not_what_a_turn_is() -> None:
    run = limited(rule(shadow=("turns",)), turns=1)
    run.open_turn()
    asked = run.when(turn=1, n=1)
    assert (verdict(asked), asked.shadowed) == ("allow", ("turn.final",))
    close(run, 1)
    assert reasons(run.when(turn=1, n=2)) == ["turn.not_open"]


def test_an_approved_call_meets_it_again_in_the_turn_that_repeats_it() -> None:
    run = limited(rule(asks()), turns=2)
    run.open_turn()
    run.when(turn=1)
    run.open_turn()
    assert verdict(run.when(turn=2)) == "hold"


def test_turns_themselves_are_not_its_matter() -> None:
    run = limited(turns=1)
    run.open_turn()
    assert list(Turns().limit(bid(run, tool="", turn=2))) == []


def test_a_policy_always_has_it_and_a_ceiling_where_it_caps_turns() -> None:
    assert Turns.build(Written().section) == Turns()
    assert Turns.build(Written(kind="ceiling").section) is None
    assert Turns.build(Written(kind="ceiling", run={"require_turns": True}).section) == Turns()
    assert Turns.build(Written(kind="ceiling", run={"budgets": {"turns": 3}}).section) == Turns()
