"""What a tree's state answers by itself: lineage, deadlines and pauses, what is due, who has met a requirement, where an id lives."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gateway.core.model import Limits, Requirement
from gateway.core.run import Hold, Run, Tree, Vote, ends_at, idle_at, principal_stream, stream_of
from tests.core.build import ACT, NOW, READ, WRITE, World, asks, opened, policy, rule

MINUTE = 60_000
DAY = 86_400_000
PAUSES: dict[str, Any] = {"deadline_ms": 10_000, "pause_while_held": True, "idle_after_ms": 10**12}


def test_a_changed_copy_leaves_the_first_as_it_was() -> None:
    tree = Tree()
    assert (replace(tree, seq=5), tree) == (Tree(seq=5), Tree())


# ---- ids ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", ["run_R", "run_R.2", "call_R_7", "hold_R_7"])
def test_an_id_says_in_which_stream_it_lives(id: str) -> None:
    assert stream_of(id) == "run_R"


def test_the_ids_that_are_given_out_say_so_too() -> None:
    world = opened()
    child = world.open(parent=world.run_id)
    held = world.call("pay.refund", run=child)
    assert {stream_of(id) for id in (child, held.call, held.hold.id)} == {world.run_id}
    assert principal_stream("agent:bot") == "principal:agent:bot"


# ---- families -----------------------------------------------------------------------------------------------------------


def family() -> World:
    world = opened()
    for parent in ("run_r1", "run_r1", "run_r1.1", "run_r1.3", *["run_r1"] * 8):
        world.open(parent=parent)
    return world


def test_a_lineage_goes_up_and_a_family_down() -> None:
    tree = family().tree()
    assert [run.id for run in tree.lineage("run_r1.4")] == ["run_r1.4", "run_r1.3", "run_r1.1", "run_r1"]
    assert [run.id for run in tree.family("run_r1.1")] == ["run_r1.1", "run_r1.3", "run_r1.4"]


def test_a_lineage_may_be_longer_than_pythons_stack() -> None:
    world = opened()
    run, tree = world.run(), world.tree()
    runs = {f"run_r1.{n}": replace(run, id=f"run_r1.{n}", parent=f"run_r1.{n - 1}" if n > 1 else "run_r1") for n in range(1, 2_000)}
    deep = replace(tree, runs=tree.runs.update(runs))
    assert len(deep.lineage("run_r1.1999")) == 2_000
    assert deep.deadline_at("run_r1.1999", NOW) == run.age_out_at


def test_runs_come_in_the_order_of_their_opening() -> None:
    assert [run.id for run in family().tree().in_order()] == ["run_r1", *(f"run_r1.{n}" for n in range(1, 13))]


def test_a_run_is_busy_with_what_is_live_below_it() -> None:
    world = family()
    assert world.tree().busy() == set()
    call = world.call("crm.get", run="run_r1.3")
    assert world.tree().busy() == {"run_r1", "run_r1.1", "run_r1.3"}
    world.settle(call)
    assert world.tree().busy() == set()


# ---- deadlines ----------------------------------------------------------------------------------------------------------


def test_without_a_deadline_there_is_the_greatest_age() -> None:
    world = opened(max_age_ms=5)
    assert (world.run().deadline_at(NOW), world.run().age_out_at) == (NOW + 5, NOW + 5)


@pytest.mark.parametrize(("deadline_ms", "max_age_ms", "at"), [(7, 9, 7), (9, 7, 7)])
def test_no_deadline_is_later_than_age(deadline_ms: int, max_age_ms: int, at: int) -> None:
    assert opened(deadline_ms=deadline_ms, max_age_ms=max_age_ms).run().deadline_at(NOW) == NOW + at


def test_the_earliest_deadline_above_counts() -> None:
    world = opened(deadline_ms=9_000)
    child = world.open(parent=world.run_id, tighten=replace(Limits(), deadline_ms=5_000))
    grandchild = world.open(parent=child)
    assert [world.tree().deadline_at(run, NOW) for run in (grandchild, child, world.run_id)] == [NOW + 5_000, NOW + 5_000, NOW + 9_000]


def left(world: World) -> int:
    return world.run().deadline_at(world.now) - world.now


def test_the_clock_stands_still_while_only_people_are_waited_for() -> None:
    world = opened(**PAUSES)
    world.wait(1_000)
    held = world.call("pay.refund", a=1)
    world.wait(50_000)
    assert (left(world), world.run().state) == (9_000, "open")
    world.vote(held)
    world.wait(50_000)
    assert left(world) == 9_000, "an approved call waits too"
    running = world.call("pay.refund", a=1)
    world.wait(1_000)
    assert left(world) == 8_000
    world.settle(running)
    world.wait(1_000)
    assert left(world) == 7_000


def test_a_running_call_or_an_open_turn_keeps_the_clock_going() -> None:
    world = opened(**PAUSES)
    running = world.call("crm.set")
    world.call("pay.refund", a=1)
    world.wait(1_000)
    assert left(world) == 9_000
    world.settle(running)
    world.wait(1_000)
    assert left(world) == 9_000
    world.begin()
    world.wait(1_000)
    assert left(world) == 8_000
    world.answer(1, ("c1", "crm.get"))
    world.wait(1_000)
    assert left(world) == 8_000, "an answered turn is not open"
    world.cancel()


def test_a_turn_that_ends_unanswered_lets_the_clock_rest() -> None:
    world = opened(**PAUSES)
    world.call("pay.refund", turn=1, a=1)
    world.call("pay.refund", turn=2, a=2)
    world.end(2)
    world.wait(1_000)
    assert left(world) == 9_000
    world.answer(1, ("c1", "pay.refund"))
    world.wait(1_000)
    assert left(world) == 9_000


@pytest.mark.parametrize("end", ["deny", "expire"])
def test_the_clock_goes_on_when_nothing_waits_any_more(end: str) -> None:
    world = opened(policy(rule("pay.*", ACT, asks(expires_in_ms=5_000)), **PAUSES))
    held = world.call("pay.refund")
    world.wait(5_000)
    if end == "deny":
        world.now -= 1
        world.vote(held, vote="deny")
    world.wait(1_000)
    assert left(world) in (9_000, 9_001)


def test_without_pauses_held_calls_do_not_stop_the_clock() -> None:
    world = opened(deadline_ms=10_000)
    world.call("pay.refund")
    world.wait(1_000)
    assert left(world) == 9_000


def test_age_does_not_pause() -> None:
    world = opened(policy(rule("*", ACT, asks(expires_in_ms=DAY)), **{**PAUSES, "max_age_ms": 20_000}))
    world.call("pay.refund")
    world.wait(19_999)
    assert (left(world), world.run().state) == (1, "open")
    world.wait(1)
    assert world.run().reason == "deadline_exceeded"


# ---- due ----------------------------------------------------------------------------------------------------------------


def test_nothing_is_due_once_all_is_closed() -> None:
    world = opened()
    assert Tree().due_at() is None
    world.finish()
    assert world.tree().due_at() is None


def test_a_deadline_is_due_and_so_is_silence() -> None:
    world = opened(deadline_ms=5 * MINUTE, idle_after_ms=30 * MINUTE)
    assert world.tree().due_at() == NOW + 5 * MINUTE
    world = opened(deadline_ms=90 * MINUTE, idle_after_ms=30 * MINUTE)
    assert world.tree().due_at() == idle_at(world.run())
    assert NOW + 30 * MINUTE < idle_at(world.run()) <= NOW + 31 * MINUTE


def test_what_is_due_changes_at_most_once_a_minute_with_activity() -> None:
    run = opened().run()
    assert {idle_at(replace(run, active_at=NOW // MINUTE * MINUTE + late)) for late in range(0, MINUTE, 7_000)} == {idle_at(run)}


def test_a_deadline_that_only_refuses_is_not_due() -> None:
    world = opened(deadline_ms=5, close_on=(), max_age_ms=90 * MINUTE)
    assert (ends_at(world.run(), NOW), world.tree().due_at()) == (NOW + 90 * MINUTE, idle_at(world.run()))


def test_a_hold_is_due_when_it_expires_and_when_its_approval_lapses() -> None:
    world = opened(idle_after_ms=10**12, max_age_ms=10**12)
    held = world.call("pay.refund", a=1)
    assert world.tree().due_at() == NOW + DAY
    world.vote(held)
    assert world.tree().due_at() == NOW + 900_000
    world.call("pay.refund", a=1)
    assert world.tree().due_at() == NOW + 10**12


def test_a_run_that_waits_for_people_is_due_by_nothing_that_cannot_happen() -> None:
    world = opened(policy(rule("*", ACT, asks()), **{**PAUSES, "idle_after_ms": MINUTE}))
    world.call("pay.refund")
    assert world.tree().due_at() == NOW + DAY, "neither the standing clock nor silence can end it sooner"


@pytest.mark.parametrize("late", [0, 1])
def test_a_deadline_that_passed_before_the_pause_is_due_at_once(late: int) -> None:
    world = opened(policy(rule("pay.*", ACT, asks()), rule("crm.*", WRITE), **PAUSES))
    running = world.call("crm.set")
    world.call("pay.refund")
    world.wait(10_000 + late, sweep=False)
    world.settle(running)
    due = world.tree().due_at()
    assert due is not None
    assert due <= world.now
    world.wait(0)
    assert world.run().reason == "deadline_exceeded"


def test_a_closing_run_with_nothing_live_is_due_at_once_and_with_a_running_call_never() -> None:
    world = opened()
    child = world.open(parent=world.run_id)
    call = world.call("crm.set", run=child)
    world.finish()
    assert world.tree().due_at() is None
    tree = replace(world.tree(), runs=world.tree().runs.set(child, replace(world.run(child), live=world.run(child).live.delete(call.call))))
    assert tree.due_at() == 0


# ---- holds --------------------------------------------------------------------------------------------------------------


def voted(*votes: tuple[str, str, tuple[str, ...]]) -> Hold:
    return Hold("h", "c", "r", "d", (), "", 0, 5, 5, votes=tuple(Vote(by, vote, groups, 0) for by, vote, groups in votes))


@pytest.mark.parametrize(
    ("votes", "met"),
    [
        ([], False),
        ([("user:a", "approve", ())], True),
        ([("user:b", "approve", ("finance",))], True),
        ([("user:b", "approve", ("sales",))], False),
        ([("user:a", "deny", ("finance",))], False),
    ],
)
def test_a_requirement_is_met_by_those_it_names(votes: Any, met: bool) -> None:
    assert voted(*votes).met(Requirement("", "", ("user:a", "group:finance"))) is met


def test_a_hold_that_has_ended_is_due_never() -> None:
    assert {state: replace(voted(), state=state, execute_by=9).due_at for state in ("held", "approved", "consumed", "denied")} == {
        "held": 5, "approved": 9, "consumed": None, "denied": None,
    }  # fmt: skip


def test_only_an_open_run_takes_calls() -> None:
    run = opened(policy(rule("*", READ))).run()
    assert isinstance(run, Run)
    assert [replace(run, state=state).takes_calls for state in ("open", "frozen", "closing", "closed")] == [True, False, False, False]
