"""Turns: how they open, are answered, are paid for, and end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from gateway.core import events as e
from gateway.core.decide import turns
from gateway.core.guards.budgets import Budgets, Purse
from gateway.core.guards.guard import Bid
from gateway.core.model import Finding
from tests.core.build import NOW, READ, World, opened, policy, rule, sealed, verdict


def purse(world: World) -> Purse:
    found = world.run().facts["budgets"]
    assert isinstance(found, Purse)
    return found


# ---- opening ------------------------------------------------------------------------------------------------------------


def test_turns_are_numbered_from_one() -> None:
    world = opened()
    assert [world.begin() for _ in range(3)] == [1, 2, 3]
    assert (world.kinds, world.run().last_turn, world.run().open_turns) == (["TurnOpened"], 3, 3)


def test_a_declared_turn_follows_one_that_a_call_named() -> None:
    world = opened()
    world.call("crm.get", turn=7)
    assert world.begin() == 8


@pytest.mark.parametrize(("turns", "tools"), [(1, 0), (2, 1), (4, 3)])
def test_of_n_turns_all_but_the_last_have_tools(turns: int, tools: int) -> None:
    world = opened(turns=turns)
    said = []
    for number in range(1, turns + 1):
        assert world.begin() == number
        said.append(verdict(world.call("crm.get", turn=number, n=number)))
    assert said == ["allow"] * tools + ["turn.final"]
    assert world.run().state == "open"


def test_one_turn_more_than_the_budget_ends_the_run() -> None:
    world = opened(turns=1)
    world.begin()
    assert verdict(world.begin()) == "budget.turns"
    assert (world.kinds, world.run().status, world.run().reason) == (["RunClosing", "RunClosed", "RunReleased"], "blocked", "turn_budget")


def test_a_budget_that_only_refuses_leaves_the_run_open() -> None:
    world = opened(turns=0, close_on=())
    assert (verdict(world.begin()), world.events, world.run().state) == ("budget.turns", [], "open")


def test_a_childs_turn_is_paid_by_its_parent_too() -> None:
    world = opened(turns=2)
    child = world.open(parent=world.run_id, policies=policy())
    world.begin()
    assert world.begin(child) == 1
    assert (verdict(world.begin(child)), world.run(child).state, world.run().state) == ("budget.turns", "closed", "open")


@pytest.mark.parametrize("how", ["freeze", "finish", "cancel"])
def test_no_turn_opens_in_a_run_that_is_not_open(how: str) -> None:
    world = opened()
    getattr(world, how)()
    assert (verdict(world.begin()), world.events) == ("run.not_open", [])


def test_no_turn_opens_after_the_deadline() -> None:
    world = opened(deadline_ms=1_000)
    world.wait(1_000, sweep=False)
    assert (verdict(world.begin()), world.run().reason) == ("run.deadline", "deadline_exceeded")


def test_the_final_turn_is_also_final_for_calls_without_a_number() -> None:
    world = opened(turns=1)
    assert verdict(world.call("crm.get")) == "allow"
    world.begin()
    assert verdict(world.call("crm.get", a=1)) == "turn.final"


def test_a_turn_before_the_last_keeps_its_tools() -> None:
    world = opened(turns=2)
    world.begin()
    world.begin()
    assert verdict(world.call("crm.get", turn=1)) == "allow"
    assert verdict(world.call("crm.get", turn=2, a=1)) == "turn.final"


def test_a_run_that_requires_turns_takes_no_call_without_one() -> None:
    world = opened(require_turns=True)
    assert verdict(world.call("crm.get")) == "turn.required"
    assert verdict(world.call("crm.get", turn=1)) == "allow"


# ---- the purse ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "opened_turns"), [(30, 3), (39, 3), (40, 4)])
def test_what_a_turn_is_expected_to_use_is_set_aside_exactly(tokens: int, opened_turns: int) -> None:
    world = opened(tokens=tokens, tokens_per_turn=10)
    assert [world.begin() for _ in range(opened_turns)] == list(range(1, opened_turns + 1))
    assert verdict(world.begin()) == "budget.tokens"


def test_where_no_figure_is_expected_nothing_is_set_aside() -> None:
    world = opened(tokens=5)
    world.begin()
    assert (purse(world).used.tokens, world.run().turns[1].tokens) == (0, 0)


@pytest.mark.parametrize(("reports", "used"), [([], 10), ([3], 10), ([3, 7], 10), ([3, 8], 11), ([15], 15), ([15, 5], 20)])
def test_self_reported_usage_adds_and_never_releases(reports: list[int], used: int) -> None:
    world = opened(tokens=100, tokens_per_turn=10)
    world.begin()
    for tokens in reports:
        world.uses(1, tokens)
    assert purse(world).used.tokens == used


@pytest.mark.parametrize(("reported", "left"), [(3, 3), (10, 10), (25, 25)])
def test_a_reporter_releases_what_was_set_aside(reported: int, left: int) -> None:
    world = opened(tokens=100, tokens_per_turn=10)
    world.begin()
    world.uses(1, reported, 7, "reporter")
    assert (purse(world).pending.tokens, purse(world).posted.tokens, purse(world).posted.usd_micros) == (0, left, 7)
    assert (world.run().turns[1].tokens, world.run().turns[1].reported) == (0, reported)


def test_usage_counts_all_its_tokens() -> None:
    world = opened()
    world.begin()
    used = turns.Usage("m", 1, 20, 300, 4_000, 5, "self_reported")
    world.decided(lambda states: turns.usage(states, world.run_id, 1, used, NOW), world.run_id)
    event = world.events[0]
    assert isinstance(event, e.UsageReported)
    assert (used.tokens, event.tokens, event.model, event.source) == (4_321, 4_321, "m", "self_reported")
    assert (event.input, event.output, event.cache_creation, event.cache_read, event.usd_micros) == (1, 20, 300, 4_000, 5)


@pytest.mark.parametrize("how", ["freeze", "finish", "end"])
def test_usage_is_recorded_in_frozen_and_closed_runs_and_closed_turns_too(how: str) -> None:
    world = opened()
    world.begin()
    if how == "end":
        world.end(1)
    else:
        getattr(world, how)()
    assert (world.uses(1, 5).reported, world.kinds) == (5, ["UsageReported"])


def test_usage_of_a_turn_that_was_never_opened_is_refused() -> None:
    world = opened()
    assert (verdict(world.uses(1, 5)), world.events) == ("turn.unknown", [])


# ---- the answer ---------------------------------------------------------------------------------------------------------


def test_an_answer_says_what_was_asked_before_it_runs() -> None:
    world = opened()
    world.begin()
    turn = world.answer(1, ("c1", "crm.get"), ("c2", "crm.set"), digest="message")
    assert (world.kinds, turn.state, turn.digest, world.run().open_turns) == (["TurnAnswered"], "answered", "message", 0)
    assert [dict(one) for one in turn.asked] == [
        {"call_id": "c1", "tool": "crm.get", "arguments": sealed("c1").hash}, {"call_id": "c2", "tool": "crm.set", "arguments": sealed("c2").hash},
    ]  # fmt: skip


def test_the_arguments_of_an_answer_are_kept() -> None:
    world = opened()
    world.begin()
    asked = [turns.Asked("c1", "crm.get", sealed("c1"))]
    draft, _ = turns.answer({world.run_id: world.tree()}, world.run_id, 1, asked, None, NOW)
    assert draft.payloads == [(world.run_id, sealed("c1"))]


def test_an_answer_without_a_digest_gets_one_of_its_calls() -> None:
    worlds = [opened(), opened(), opened()]
    for world, call_id in zip(worlds, ("c1", "c1", "c2"), strict=True):
        world.begin()
        world.answer(1, (call_id, "crm.get"))
    digests = [world.run().turns[1].digest for world in worlds]
    assert digests[0] == digests[1] != digests[2]


def test_an_answer_without_calls_ends_the_turn() -> None:
    world = opened()
    world.begin()
    turn = world.answer(1)
    assert (world.kinds, turn.state, turn.status) == (["TurnAnswered", "TurnClosed"], "closed", "completed")


@pytest.mark.parametrize("asked", [(), (("c1", "crm.get"),)])
def test_the_same_answer_again_changes_nothing(asked: Any) -> None:
    world = opened()
    world.begin()
    first = world.answer(1, *asked)
    world.end(1)
    again = world.answer(1, *asked)
    assert (again.digest, again.asked, world.events) == (first.digest, first.asked, [])


@pytest.mark.parametrize("digest", [None, "message"])
def test_another_answer_is_refused(digest: str | None) -> None:
    world = opened()
    world.begin()
    world.answer(1, ("c1", "crm.get"), digest="first")
    asked = ("c2", "crm.get") if digest is None else ("c1", "crm.get")
    assert (verdict(world.answer(1, asked, digest=digest)), world.events) == ("turn.not_open", [])


@pytest.mark.parametrize("how", ["end", "finish", "never"])
def test_what_is_over_or_never_was_takes_no_answer(how: str) -> None:
    world = opened()
    world.call("crm.set")
    if how != "never":
        world.begin()
        world.end(1) if how == "end" else world.finish()
    assert (verdict(world.answer(1, ("c1", "crm.get"))), world.events) == ("turn.unknown" if how == "never" else "turn.not_open", [])


def test_a_frozen_run_still_takes_answers() -> None:
    world = opened()
    world.begin()
    world.freeze()
    assert world.answer(1, ("c1", "crm.get")).state == "answered"


def test_a_call_may_run_in_its_answered_turn() -> None:
    world = opened()
    world.begin()
    world.answer(1, ("c1", "crm.get"))
    assert verdict(world.call("crm.get", turn=1, call_id="c1")) == "allow"


def test_several_turns_may_be_open_and_are_answered_in_any_order() -> None:
    world = opened()
    world.begin()
    world.begin()
    assert (world.answer(2, ("c1", "crm.get")).state, world.run().open_turns) == ("answered", 1)
    assert (world.answer(1, ("c1", "crm.get")).state, world.run().open_turns) == ("answered", 0)
    first, second = (world.does("crm.get", turn=number, call_id="c1", n=number) for number in (1, 2))
    assert first.id != second.id


# ---- the end ------------------------------------------------------------------------------------------------------------


def test_a_cancelled_turn_takes_its_waiting_calls_along_and_leaves_the_run_open() -> None:
    world = opened()
    mine, ready, other = (world.call("pay.refund", turn=turn, n=n) for n, turn in enumerate((1, 1, 2)))
    running = world.call("crm.set", turn=1)
    world.vote(ready)
    turn = world.end(1)
    assert (turn.state, turn.status, turn.closed_at) == ("closed", "cancelled", NOW)
    assert world.kinds == ["CallCancelled", "HoldReleased", "CallCancelled", "HoldReleased", "TurnClosed"]
    assert [world.record(call).state for call in (mine, ready, other, running)] == ["cancelled", "cancelled", "held", "admitted"]
    assert (world.run().state, world.run().open_turns, len(world.mine().open_holds)) == ("open", 1, 1)
    assert world.record(mine).reason == "call.cancelled"


def test_an_ended_turn_takes_no_calls() -> None:
    world = opened()
    world.begin()
    world.end(1, "failed")
    assert verdict(world.call("crm.get", turn=1)) == "turn.not_open"


def test_ending_a_turn_again_changes_nothing() -> None:
    world = opened()
    world.begin()
    world.end(1, "failed")
    assert (world.end(1).status, world.events) == ("failed", [])


def test_a_turn_that_was_never_opened_cannot_end() -> None:
    world = opened()
    assert (verdict(world.end(3)), world.events) == ("turn.unknown", [])


def test_an_answered_turn_is_no_longer_open_when_it_ends() -> None:
    world = opened()
    world.begin()
    world.answer(1, ("c1", "crm.get"))
    world.end(1)
    assert world.run().open_turns == 0


def test_a_history_that_grew_too_long_opens_no_further_turn() -> None:
    world = opened(input_tokens_per_turn=100)
    world.begin()
    world.uses(1, 100)
    assert world.begin() == 2
    world.uses(2, 101)
    assert (verdict(world.begin()), world.run().reason) == ("budget.input_tokens", "token_budget")


def test_a_guard_that_fails_opens_no_turn() -> None:
    class Broken(Budgets):
        def limit(self, bid: Bid) -> Iterable[Finding]:
            raise ZeroDivisionError

    world = opened(policy(rule("*", READ), guards=[Broken()]))
    assert (verdict(world.begin()), world.run().state, world.events) == ("guard.failed", "open", [])
