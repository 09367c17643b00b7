"""Votes: who may, on what, when, and what they make of a hold."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.decide.holds import may_vote
from gateway.core.model import Principal
from tests.core.build import ACT, BOSS, BOT, KIM, LEE, MIA, NOW, World, asks, limits, opened, policy, rule, verdict


def held(*guards: Any, **caps: Any) -> tuple[World, Any]:
    world = opened(policy(rule("*", ACT, *(guards or (asks(),))), **caps))
    return world, world.call("pay.refund", a=1)


def test_the_vote_that_meets_all_requirements_makes_the_call_ready() -> None:
    world, call = held()
    hold = world.vote(call, MIA, note="fine")
    assert (hold.state, world.record(call).state, world.kinds) == ("approved", "ready", ["VoteCast", "HoldApproved"])
    assert (hold.execute_by, hold.votes[0].by, hold.votes[0].note, hold.votes[0].groups) == (NOW + 900_000, "user:mia", "fine", ("finance",))
    assert len(world.mine().open_holds) == 1, "it counts until it is executed"


def test_one_denial_closes_with_its_reason() -> None:
    world, call = held(asks(quorum=2))
    world.vote(call, MIA)
    hold = world.vote(call, KIM, "deny", note="no")
    assert (hold.state, hold.ended_by, hold.note, hold.reason) == ("denied", "user:kim", "no", "approval.denied")
    assert (world.kinds, world.record(call).state) == (["VoteCast", "HoldDenied", "HoldReleased"], "denied")
    assert (world.record(call).reason, world.record(call).settled_at, len(world.mine().open_holds)) == ("approval.denied", NOW, 0)


# ---- who ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "voter",
    [
        pytest.param(replace(MIA, person=False), id="a service"),
        pytest.param(replace(MIA, roles=frozenset({"operator"})), id="without the role"),
        pytest.param(replace(MIA, groups=frozenset({"sales"})), id="not named"),
        pytest.param(replace(MIA, id=BOT.id), id="the requester"),
    ],
)
def test_nobody_votes_who_may_not(voter: Principal) -> None:
    world, call = held()
    assert (verdict(world.vote(call, voter)), world.events, world.hold(call).votes) == ("hold.forbidden", [], ())


def test_nobody_votes_on_what_their_own_runs_ask_for_here_and_above() -> None:
    world = World()
    root = world.open(MIA)
    child = world.open(KIM, parent=root)
    grandchild = world.open(BOT, parent=child)
    call = world.call("pay.refund", run=grandchild, a=1)
    assert [may_vote(who, world.hold(call), world.tree()) for who in (MIA, KIM, LEE)] == [False, False, True]


def test_whoever_opened_a_run_for_another_does_not_vote_on_its_calls() -> None:
    world = World()
    event = e.RunOpened("run_r1", BOT.id, MIA.id, "p", "set of p", limits(), "interactive", "rest")
    world.happened("run_r1", event)
    world.run_id = "run_r1"
    call = world.call("pay.refund", a=1)
    assert [may_vote(who, world.hold(call), world.tree()) for who in (MIA, KIM)] == [False, True]


def test_one_may_vote_who_is_named_by_any_of_the_requirements() -> None:
    world, call = held(asks("user:kim"), asks("group:leads"))
    assert [may_vote(who, world.hold(call), world.tree()) for who in (MIA, KIM, BOSS)] == [False, True, True]


# ---- what and when ------------------------------------------------------------------------------------------------------


def test_a_vote_on_something_else_than_the_hold_is_not_counted() -> None:
    world, call = held()
    assert (verdict(world.vote(call, digest="of another")), world.events) == ("hold.digest", [])


def test_the_same_vote_again_changes_nothing_even_late() -> None:
    world, call = held()
    world.vote(call)
    world.wait(10**8, sweep=False)
    assert (world.vote(call).state, world.events) == ("approved", [])


@pytest.mark.parametrize("first", ["approve", "deny"])
def test_the_opposite_vote_of_the_same_person_is_a_conflict(first: str) -> None:
    world, call = held(asks(quorum=2))
    world.vote(call, vote=first)
    assert (verdict(world.vote(call, vote="deny" if first == "approve" else "approve")), world.events) == ("hold.conflict", [])


@pytest.mark.parametrize(("after", "then"), [(86_399_999, "Hold"), (86_400_000, "hold.conflict")])
def test_a_late_vote_is_a_conflict(after: int, then: str) -> None:
    world, call = held()
    world.wait(after, sweep=False)
    assert verdict(world.vote(call)) == then


@pytest.mark.parametrize("end", ["approve", "deny", "cancel", "expire"])
def test_a_vote_on_a_hold_that_has_ended_is_a_conflict(end: str) -> None:
    world, call = held(idle_after_ms=10**9)
    if end in ("approve", "deny"):
        world.vote(call, MIA, end)
    elif end == "cancel":
        world.cancel()
    else:
        world.wait(10**8)
    assert (verdict(world.vote(call, KIM)), world.events) == ("hold.conflict", [])


def test_of_two_racing_approvers_one_decides() -> None:
    world, call = held()
    answers = [world.vote(call, MIA), world.vote(call, KIM)]
    assert [verdict(answer) for answer in answers] == ["Hold", "hold.conflict"]
    assert [vote.by for vote in world.hold(call).votes] == ["user:mia"]


def test_votes_count_in_a_frozen_run() -> None:
    world, call = held()
    world.freeze()
    assert world.vote(call).state == "approved"
    assert verdict(world.call("pay.refund", a=1)) == "run.not_open"
    world.resume()
    assert verdict(world.call("pay.refund", a=1)) == "allow"


# ---- how many -----------------------------------------------------------------------------------------------------------


def test_a_quorum_takes_as_many_people() -> None:
    world, call = held(asks(quorum=2))
    assert world.vote(call, MIA).state == "held"
    assert world.vote(call, MIA).state == "held"
    assert world.vote(call, KIM).state == "approved"


def test_every_requirement_takes_its_own_people() -> None:
    world, call = held(asks("group:finance", quorum=2), asks("group:leads"))
    assert [world.vote(call, who).state for who in (MIA, KIM, BOSS)] == ["held", "held", "approved"]


def test_one_person_may_count_for_several_requirements() -> None:
    world, call = held(asks("group:finance"), asks("group:leads"))
    assert world.vote(call, BOSS).state == "approved"


def test_a_voters_groups_are_those_of_the_vote() -> None:
    world, call = held(asks("group:finance", quorum=2), asks("group:leads"))
    world.vote(call, BOSS)
    assert world.vote(call, replace(BOSS, groups=frozenset({"finance"}))).state == "held"
    assert world.vote(call, MIA).state == "approved"


# ---- until when ---------------------------------------------------------------------------------------------------------


def test_execution_ends_with_the_deadline_of_the_run_or_of_one_above() -> None:
    world = opened(deadline_ms=500_000)
    for pauses in (False, True):
        child = world.open(parent=world.run_id, policies=policy(pause_while_held=pauses, deadline_ms=600_000))
        assert world.vote(world.call("pay.refund", run=child)).execute_by == NOW + 500_000


def test_a_deadline_that_stands_still_does_not_end_execution_but_age_does() -> None:
    world, call = held(deadline_ms=1_000, pause_while_held=True, max_age_ms=700_000)
    assert world.vote(call).execute_by == NOW + 700_000
    world, call = held(deadline_ms=1_000, pause_while_held=True)
    assert world.vote(call).execute_by == NOW + 900_000
