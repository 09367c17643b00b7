"""Runs: opening roots, children and successors; cancel, finish, freeze, resume; and what time alone does."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.model import Limits
from gateway.core.run import Run
from tests.core.build import ACT, BOT, DONE, NOW, READ, STRANGER, WRITE, World, asks, document, opened, policy, rule, verdict

MINUTE = 60_000


# ---- opening ------------------------------------------------------------------------------------------------------------


def test_a_run_is_opened_as_it_was_asked_for() -> None:
    world = World()
    id = world.open(run_key="k", goal="do it", labels={"a": "b"}, implicit=True)
    run = world.run()
    assert (world.kinds, id, run.state) == (["RunOpened", "RunRegistered"], "run_r1", "open")
    assert (run.principal, run.opened_by, run.policy, run.policy_digest) == (BOT.id, BOT.id, "p", "set of p")
    assert (run.run_key, run.goal, dict(run.labels), run.task_type, run.door) == ("k", "do it", {"a": "b"}, "interactive", "rest")
    assert (run.opened_at, run.parent, run.continues) == (NOW, None, None)
    assert (dict(world.mine().open_runs), dict(world.mine().run_keys), world.mine().implicit) == ({id: NOW}, {"k": id}, id)


def test_a_run_key_finds_its_run_for_good() -> None:
    world = World()
    first = world.open(run_key="k")
    assert (world.existed, world.open(run_key="k"), world.existed, world.events) == (False, first, True, [])
    world.finish()
    assert (world.open(run_key="k"), world.existed, world.events) == (first, True, [])
    assert world.open(run_key="other") != first
    assert world.mine().implicit is None


def test_a_run_key_belongs_to_its_principal() -> None:
    world = World()
    assert world.open(run_key="k") != world.open(STRANGER, run_key="k")


@pytest.mark.parametrize(("most", "opened_runs"), [(0, 0), (2, 2), (None, 5)])
def test_a_principal_may_have_only_so_many_open_runs(most: int | None, opened_runs: int) -> None:
    world = World(open_runs=most)
    answers = [world.open() for _ in range(5)]
    assert [isinstance(answer, str) for answer in answers] == [True] * opened_runs + [False] * (5 - opened_runs)
    if most is not None:
        assert (verdict(answers[-1]), world.kinds, world.mine().refused) == ("budget.open_runs", ["RunRefused"], 5 - opened_runs)


def test_a_closed_run_makes_room_but_children_take_none() -> None:
    world = World(open_runs=1)
    first = world.open()
    assert isinstance(world.open(parent=first), str)
    assert verdict(world.open()) == "budget.open_runs"
    world.finish()
    assert isinstance(world.open(), str)


def test_the_caller_may_only_tighten() -> None:
    world = World(policy(turns=5, tokens=100))
    world.open(tighten=Limits(turns=9, tokens=7, tool_calls=3, close_on=()))
    limits = world.run().limits
    assert (limits.turns, limits.tokens, limits.tool_calls) == (5, 7, 3)


def test_a_ceiling_tightens_too() -> None:
    world = World(policy(turns=5, ceilings=(document(rule("*", READ), kind="ceiling", limits=Limits(turns=2)),)))
    world.open()
    assert world.run().limits.turns == 2


# ---- successors ---------------------------------------------------------------------------------------------------------


def test_only_a_closed_run_is_continued() -> None:
    world = opened()
    for how in ("freeze", "resume"):
        assert verdict(world.open(continues=world.run_id)) == "run.not_open"
        getattr(world, how)()
    world.call("crm.set")
    world.finish()
    assert (world.run().state, verdict(world.open(continues=world.run_id))) == ("closing", "run.not_open")
    world.settle("call_r1_1")
    assert world.run(world.open(continues=world.run_id)).continues == world.run_id


@pytest.mark.parametrize("which", ["another's", "nobody's"])
def test_only_ones_own_run_is_continued(which: str) -> None:
    world = World()
    world.open(STRANGER)
    world.finish()
    assert verdict(world.open(continues=world.run_id if which == "another's" else "run_none")) == "run.unknown"


def test_a_run_has_one_successor_since_two_would_share_their_keys() -> None:
    world = opened()
    world.finish()
    second = world.open(continues=world.run_id, run_key="k")
    assert verdict(world.open(continues=world.run_id)) == "run.continued"
    assert world.open(continues=world.run_id, run_key="k") == second
    world.finish(second)
    assert verdict(world.open(continues=world.run_id)) == "run.continued"
    assert isinstance(world.open(continues=second), str)


# ---- children -----------------------------------------------------------------------------------------------------------


def test_children_live_in_their_roots_tree() -> None:
    world = opened()
    child = world.open(parent=world.run_id, goal="part")
    grandchild = world.open(parent=child)
    assert (child, grandchild, world.kinds) == ("run_r1.1", "run_r1.2", ["RunOpened"])
    assert [one.id for one in world.tree().lineage(grandchild)] == [grandchild, child, "run_r1"]
    assert (world.run(child).goal, len(world.mine().open_runs)) == ("part", 1)


def test_a_childs_run_key_is_found_below_its_parent() -> None:
    world = opened()
    child = world.open(parent=world.run_id, run_key="k")
    assert (world.existed, world.open(parent=world.run_id, run_key="k"), world.existed, world.events) == (False, child, True, [])
    assert world.open(parent=child, run_key="k") != child
    assert world.open(parent=world.run_id, run_key="other") != child


@pytest.mark.parametrize("how", ["freeze", "finish", "cancel"])
@pytest.mark.parametrize("above", [False, True])
def test_no_child_opens_below_a_run_that_is_not_open(how: str, above: bool) -> None:
    world = opened()
    child = world.open(parent=world.run_id)
    getattr(world, how)(world.run_id if above else child)
    assert (verdict(world.open(parent=child)), world.events) == ("run.not_open", [])


def test_no_child_opens_after_the_deadline() -> None:
    world = opened(deadline_ms=1_000)
    world.wait(1_000, sweep=False)
    assert (verdict(world.open(parent=world.run_id)), world.events) == ("run.deadline", [])


def test_a_childs_calls_are_paid_by_all_above() -> None:
    world = opened(tool_calls=2)
    child = world.open(parent=world.run_id, policies=policy())
    grandchild = world.open(parent=child, policies=policy())
    assert [verdict(world.call("crm.get", run=run, a=run)) for run in (grandchild, child, world.run_id)] == ["allow", "allow", "budget.tool_calls"]
    used = [world.run(run).facts["budgets"].used.tool_calls for run in (grandchild, child, world.run_id)]
    assert used == [1, 2, 2]


# ---- ending -------------------------------------------------------------------------------------------------------------


def test_a_run_without_calls_closes_at_once() -> None:
    world = opened()
    run = world.cancel(by="user:op")
    assert (world.kinds, run.state, run.status, run.reason) == (["RunClosing", "RunClosed", "RunReleased"], "closed", "cancelled", "caller_cancelled")
    assert (run.ended_by, run.closed_at, len(world.mine().open_runs)) == ("user:op", NOW, 0)


def test_a_run_closes_when_its_last_call_is_over() -> None:
    world = opened()
    one, two = world.call("crm.get", a=1), world.call("crm.set", a=2)
    assert (world.cancel().state, world.kinds) == ("closing", ["RunClosing"])
    world.settle(one)
    assert world.run().state == "closing"
    world.settle(two)
    assert (world.run().state, world.kinds) == ("closed", ["CallSettled", "RunClosed", "RunReleased"])


def test_what_waits_for_people_ends_with_its_run() -> None:
    world = opened()
    held, ready = world.call("pay.refund", a=1), world.call("pay.refund", a=2)
    world.vote(ready)
    world.finish()
    assert [world.record(call).state for call in (held, ready)] == ["cancelled", "cancelled"]
    assert [world.hold(call).state for call in (held, ready)] == ["cancelled", "cancelled"]
    assert (world.run().state, len(world.mine().open_holds), world.hold(held).ended_by) == ("closed", 0, BOT.id)


def test_the_end_of_a_run_is_the_end_of_all_below() -> None:
    world = opened()
    child = world.open(parent=world.run_id)
    grandchild, sibling = world.open(parent=child), world.open(parent=world.run_id)
    world.cancel(child)
    ends = [(world.run(run).state, world.run(run).reason) for run in (child, grandchild)]
    assert ends == [("closed", "caller_cancelled"), ("closed", "parent_closed")]
    assert [event.run for event in world.events if isinstance(event, e.RunClosed)] == [grandchild, child]
    assert (world.run(sibling).state, world.run().state) == ("open", "open")


def test_a_run_waits_for_what_still_runs_below() -> None:
    world = opened()
    child = world.open(parent=world.run_id)
    call = world.call("crm.set", run=child)
    world.finish()
    assert (world.run().state, world.run(child).state, len(world.mine().open_runs)) == ("closing", "closing", 1)
    world.settle(call)
    assert world.kinds == ["CallSettled", "RunClosed", "RunClosed", "RunReleased"]
    assert (world.run().state, world.run(child).state) == ("closed", "closed")


def test_a_childs_earlier_end_stays_what_it_was() -> None:
    world = opened()
    child = world.open(parent=world.run_id)
    world.finish(child)
    world.cancel()
    assert (world.run(child).status, world.run(child).reason) == ("completed", "model_final")


def test_cancelling_what_is_over_is_no_fault() -> None:
    world = opened()
    world.finish()
    assert (world.cancel().status, world.events) == ("completed", [])


def test_a_finished_run_may_leave_a_handoff() -> None:
    world = opened()
    child = world.open(parent=world.run_id)
    run = world.finish(handoff={"done": "half", "open": [], "next": "rest"})
    assert isinstance(run, Run)
    assert (run.status, run.reason, dict(run.handoff or {})) == ("completed", "model_final", {"done": "half", "open": [], "next": "rest"})
    assert world.run(child).handoff is None


def test_finishing_again_is_no_fault_but_after_another_end_it_is() -> None:
    world = opened()
    world.finish()
    again = world.finish()
    assert isinstance(again, Run)
    assert world.events == []
    other = opened()
    other.cancel()
    assert (verdict(other.finish()), other.events) == ("run.not_open", [])


# ---- frozen -------------------------------------------------------------------------------------------------------------


def test_freezing_reaches_all_below_and_resuming_too() -> None:
    world = opened()
    child = world.open(parent=world.run_id)
    sibling = world.open(parent=world.run_id)
    world.finish(sibling)
    world.freeze()
    assert (world.kinds, world.run().state, world.run(child).state, world.run(sibling).state) == (["RunFrozen"] * 2, "frozen", "frozen", "closed")
    world.freeze()
    assert world.events == []
    world.resume()
    assert (world.kinds, world.run().state, world.run(child).state) == (["RunResumed"] * 2, "open", "open")
    world.resume()
    assert world.events == []


@pytest.mark.parametrize("how", ["freeze", "resume"])
def test_what_is_over_is_neither_frozen_nor_resumed(how: str) -> None:
    world = opened()
    world.finish()
    assert (verdict(getattr(world, how)()), world.events) == ("run.not_open", [])


def test_a_frozen_run_can_be_ended() -> None:
    for how in ("cancel", "finish"):
        world = opened()
        world.freeze()
        getattr(world, how)()
        assert world.run().state == "closed"


# ---- time ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frozen", [False, True])
def test_a_run_ends_at_its_deadline(frozen: bool) -> None:
    world = opened(deadline_ms=1_000)
    if frozen:
        world.freeze()
    assert world.wait(999) == 0
    world.wait(1)
    assert (world.run().status, world.run().reason, world.run().ended_by) == ("blocked", "deadline_exceeded", "gateway")


def test_a_run_whose_deadline_only_refuses_ends_with_age() -> None:
    world = opened(deadline_ms=1_000, close_on=(), max_age_ms=5_000)
    assert world.wait(4_999) == 0
    world.wait(1)
    assert world.run().reason == "deadline_exceeded"


def test_a_silent_run_is_given_up() -> None:
    world = opened(policy(rule("*", READ), idle_after_ms=30 * MINUTE))
    world.wait(20 * MINUTE)
    world.does("crm.get")
    assert world.wait(30 * MINUTE - 1) == 0
    world.wait(MINUTE + 1)
    assert (world.run().status, world.run().reason) == ("failed", "abandoned")


@pytest.mark.parametrize("what", ["begin", "answer", "call", "settle", "hold", "usage", "denial", "replay", "resume"])
def test_whatever_happens_in_a_run_ends_its_silence(what: str) -> None:
    world = opened(policy(rule("crm.*", WRITE), rule("pay.*", ACT, asks()), idle_after_ms=10 * MINUTE))
    world.begin()
    world.does("crm.set", a=1)
    running = world.call("crm.set", a=0)
    world.wait(9 * MINUTE)
    acts: dict[str, Any] = {
        "begin": world.begin, "answer": lambda: world.answer(1, ("c1", "crm.set")), "call": lambda: world.call("crm.set", a=2),
        "settle": lambda: world.settle(running), "hold": lambda: world.call("pay.refund"), "usage": lambda: world.uses(1, 1),
        "denial": lambda: world.call("no.way"), "replay": lambda: world.call("crm.set", a=1), "resume": lambda: (world.freeze(), world.resume()),
    }  # fmt: skip
    acts[what]()
    assert world.run().active_at == NOW + 9 * MINUTE


@pytest.mark.parametrize("name", ["pay.refund", "crm.set"])
def test_a_run_in_which_something_waits_or_runs_is_not_given_up(name: str) -> None:
    world = opened(policy(rule("pay.*", ACT, asks(expires_in_ms=10**9)), rule("crm.*", WRITE), idle_after_ms=MINUTE))
    child = world.open(parent=world.run_id)
    world.call(name, run=child)
    assert world.wait(60 * MINUTE) == 0
    assert (world.run().state, world.run(child).state) == ("open", "open")


def test_a_run_is_not_silent_while_its_child_is_busy() -> None:
    world = opened(idle_after_ms=10 * MINUTE)
    child = world.open(parent=world.run_id)
    grandchild = world.open(parent=child)
    for number in range(5):
        world.wait(8 * MINUTE)
        world.does("crm.get", run=grandchild, n=number)
    assert [world.run(run).state for run in (world.run_id, child, grandchild)] == ["open"] * 3
    world.wait(12 * MINUTE)
    assert [world.run(run).reason for run in (world.run_id, child, grandchild)] == ["abandoned", "parent_closed", "parent_closed"]


def test_a_busy_parent_does_not_keep_its_child() -> None:
    world = opened(idle_after_ms=10 * MINUTE)
    child = world.open(parent=world.run_id)
    for number in range(3):
        world.wait(8 * MINUTE)
        world.does("crm.get", n=number)
    assert (world.run().state, world.run(child).reason) == ("open", "abandoned")


def test_holds_expire_and_approvals_lapse() -> None:
    world = opened(idle_after_ms=10**9)
    held, ready = world.call("pay.refund", a=1), world.call("pay.refund", a=2)
    world.vote(ready)
    assert world.wait(899_999) == 0
    assert (world.wait(1), world.record(ready).reason, world.hold(ready).reason) == (2, "approval.lapsed", "approval.lapsed")
    assert world.wait(86_399_999 - 900_000) == 0
    assert (world.wait(1), world.record(held).reason, len(world.mine().open_holds)) == (2, "approval.expired", 0)
    assert world.run().state == "open"


def test_the_sweep_closes_what_nobody_else_did() -> None:
    world = opened()
    world.happened(world.run_id, e.RunClosing(world.run_id, "completed", "model_final", BOT.id))
    assert (world.wait(0), world.run().state) == (2, "closed")


def test_a_deadline_reaches_children() -> None:
    world = opened(deadline_ms=1_000)
    child = world.open(parent=world.run_id, policies=policy())
    call = world.call("crm.set", run=child)
    world.wait(1_000)
    assert (world.run(child).reason, world.run(child).state, world.run().state) == ("parent_closed", "closing", "closing")
    world.settle(call, DONE)
    assert world.run().state == "closed"


def test_a_childs_own_deadline_leaves_its_parent_open() -> None:
    world = opened(deadline_ms=5_000)
    child = world.open(parent=world.run_id, tighten=replace(Limits(), deadline_ms=1_000))
    world.wait(1_000)
    assert (world.run(child).reason, world.run().state) == ("deadline_exceeded", "open")
