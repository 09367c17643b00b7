"""Folding: what events make of a tree's records, indexes and clocks. Legal and illegal transitions: test_lifecycle."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.evolve import evolve_tree
from gateway.core.lifecycle import IllegalTransition
from gateway.core.model import Limits, Requirement
from gateway.core.run import Tree
from tests.core.build import ACT, BOT, DOUBT, NOW, READ, WRITE, World, asks, limits, opened, policy, rule

OPEN = e.RunOpened("run_r", "agent:bot", "user:mia", "p", "set", limits(turns=3), "interactive", "rest", labels={"a": "b"})


def test_each_event_moves_the_streams_place_and_time() -> None:
    tree = evolve_tree(Tree(), 1, NOW, OPEN)
    after = evolve_tree(tree, 2, NOW + 5, e.RunFrozen("run_r", "op"))
    assert (tree.seq, tree.at, tree.root, after.seq, after.at, after.root) == (1, NOW, "run_r", 2, NOW + 5, "run_r")


def test_limits_come_back_as_they_were() -> None:
    raw = {**limits(turns=3), "close_on": ["turns", "deadline"]}
    tree = evolve_tree(Tree(), 1, NOW, e.RunOpened("run_r", "a", "b", "p", "set", raw, "t", "rest"))
    assert tree.runs["run_r"].limits == Limits(turns=3, close_on=("turns", "deadline"))


def test_requirements_come_back_as_they_were_from_lists_too() -> None:
    world = opened(policy(rule("*", ACT, asks("user:mia", editable=("a",), show="x", quorum=2))))
    hold = world.hold(world.call("pay.refund"))
    event = world.log[world.run_id][-1][1]
    assert isinstance(event, e.CallHeld)
    listed = [{name: list(value) if isinstance(value, tuple) else value for name, value in row.items()} for row in event.requirements]
    tree = evolve_tree(evolve_tree(Tree(), 1, NOW, OPEN), 2, NOW, replace(event, run="run_r", requirements=tuple(listed)))
    assert tree.holds[hold.id].requirements == hold.requirements == (Requirement("p.yaml:9", "r", ("user:mia",), 2, editable=("a",), show="x"),)


@pytest.mark.parametrize("event", [e.RunReleased("agent:bot", "run_r"), e.ToolsPinned("crm", {"crm.get": "d"})])
def test_an_event_of_another_kind_of_stream_has_no_place_here(event: e.Event) -> None:
    with pytest.raises(TypeError):
        evolve_tree(Tree(), 1, NOW, event)


def test_a_run_event_that_no_fold_knows_has_no_place_here() -> None:
    with pytest.raises(TypeError):
        evolve_tree(Tree(), 1, NOW, e.RunEvent("run_r"))


@pytest.mark.parametrize(
    "event",
    [
        e.RunFrozen("run_r", "op"),
        e.TurnClosed("run_r", 4, "failed"),
        e.UsageReported("run_r", 4, "reporter", None, 1, 0, 0, 0, 1, 0),
        e.CallSettled("run_r", "call_r_9", 1, "succeeded"),
        e.VoteCast("run_r", "call_r_9", "hold_r_9", "user:mia", "approve", (), "d"),
        e.CallReplayed("run_r", "call_r_9", "run_r", 0, None, "crm.get", "f", "rest", None),
    ],
)
def test_an_event_that_names_what_is_not_there_is_illegal(event: e.Event) -> None:
    tree = Tree() if isinstance(event, e.RunFrozen | e.CallReplayed) else evolve_tree(Tree(), 1, NOW, OPEN)
    with pytest.raises(IllegalTransition):
        evolve_tree(tree, 2, NOW, event)


def test_a_new_call_consumes_no_hold_and_an_approved_one_its_own() -> None:
    world = opened()
    held = [world.call("pay.refund", n=n) for n in range(2)]
    for call in held:
        world.vote(call)
    running = world.record(world.call("crm.set"))
    admit = dict.fromkeys(("operation_id", "call_id"), None)
    for call, hold in ((held[0].call, "hold_r1_2"), (held[0].call, None), (running.id, "hold_r1_1"), ("call_r1_9", "hold_r1_1")):
        event = e.CallAdmitted(
            run=world.run_id, call=call, turn=0, tool="t", fingerprint="f", door="rest", arguments=None, effect="read_only", hold=hold, **admit
        )
        with pytest.raises(IllegalTransition):
            evolve_tree(world.tree(), world.tree().seq + 1, NOW, event)


# ---- indexes ------------------------------------------------------------------------------------------------------------


def test_a_call_is_found_by_what_was_asked_and_by_its_names() -> None:
    world = opened()
    first = world.does("crm.set", turn=1, call_id="c1", operation_id="op", a=1)
    second = world.does("crm.set", turn=1, call_id="c2", a=1)
    run = world.run()
    assert dict(run.by_print[("crm.set", first.fingerprint)]) == {"op": first.id, None: second.id}
    assert (dict(run.by_call_id), dict(run.by_operation)) == ({(1, "c1"): first.id, (1, "c2"): second.id}, {"op": first.id})


def test_a_call_without_names_is_found_by_what_was_asked_alone() -> None:
    world = opened()
    world.does("crm.set", a=1)
    assert (len(world.run().by_call_id), len(world.run().by_operation), len(world.run().by_print)) == (0, 0, 1)


def test_another_attempt_changes_no_index() -> None:
    world = opened()
    first = world.call("crm.get", a=1)
    indexes = (world.run().by_print, world.run().by_call_id)
    world.again(first)
    assert (world.run().by_print, world.run().by_call_id, world.tree().asked) == (*indexes, 1)


def test_a_replay_is_found_by_its_call_id_only_where_the_record_is_in_this_tree() -> None:
    world = opened()
    first = world.does("crm.set", call_id="c1", a=1)
    world.finish()
    next = world.open(continues=world.run_id)
    world.call("crm.set", run=next, call_id="c2", a=1)
    assert (len(world.run(next).by_call_id), world.events[0].call) == (0, first.id)  # type: ignore[attr-defined]


def test_live_calls_and_doubts_are_counted_as_they_come_and_go() -> None:
    world = opened()
    held, running, sent = world.call("pay.refund"), world.call("crm.set"), world.call("mail.send")
    assert dict(world.run().live) == {held.call: "held", running.call: "admitted", sent.call: "admitted"}
    world.vote(held)
    world.settle(running)
    world.settle(sent, DOUBT)
    assert (dict(world.run().live), world.run().in_doubt) == ({held.call: "ready"}, 1)
    world.happened(world.run_id, e.CallReconciled(world.run_id, sent.call, "failed", "user:mia", "I looked"))
    world.call("pay.refund")
    world.cancel()
    assert (dict(world.run().live), world.run().in_doubt) == ({held.call: "admitted"}, 0)


def test_the_last_write_of_each_upstream_is_remembered() -> None:
    world = opened()
    world.call("crm.get")
    assert dict(world.tree().last_write) == {}
    world.call("crm.set")
    seq = world.tree().seq
    world.call("mail.send")
    assert dict(world.tree().last_write) == {"crm": seq, "mail": world.tree().seq}


def test_calls_are_counted_once_each() -> None:
    world = opened()
    world.vote(world.call("pay.refund"))
    world.call("pay.refund")
    world.call("no.way")
    world.call("crm.get")
    assert world.tree().asked == 3


# ---- records ------------------------------------------------------------------------------------------------------------


def test_a_refused_call_stands_with_its_first_reason() -> None:
    world = opened()
    world.wait(5)
    record = world.record(world.call("no.way", turn=3, call_id="c1", a=1))
    assert (record.state, record.reason, record.settled_at, record.asked_at) == ("denied", "tool.not_allowed", NOW + 5, NOW + 5)
    assert (record.turn, record.call_id, record.door, record.hold) == (3, "c1", "rest", None)


def test_a_held_call_stands_as_it_would_be_dispatched() -> None:
    world = opened(policy(rule("*", ACT, asks(), usd_micros=3)))
    world.call("pay.refund", turn=1, call_id="c1", operation_id="op", a=1)
    record = world.record("call_r1_1")
    assert (record.effect, record.upstream, record.usd_micros, record.tool_digest, record.policy_digest) == (ACT, "pay", 3, "d", "set of p")
    world.vote(record.id)
    world.does("pay.refund", operation_id="op", a=1)
    after = world.record(record.id)
    assert (after.key, after.tool_digest, after.usd_micros) == (record.key, "d", 3)


def test_a_held_occurrence_is_counted_on() -> None:
    world = opened(policy(rule("crm.set", WRITE, asks()), rule("crm.put", WRITE)))
    for occurrence in range(2):
        held = world.call("crm.set", a=1)
        assert world.record(held).occurrence == occurrence
        world.vote(held)
        world.does("crm.set", a=1)
        world.does("crm.put", n=occurrence)


def test_a_void_hold_says_what_changed() -> None:
    world = opened()
    held = world.call("pay.refund")
    world.vote(held)
    world.execute(held, "changed")
    hold = world.hold(held)
    assert (hold.state, hold.reason, "changed" in hold.note) == ("void", "approval.void", True)


def test_loops_of_a_child_are_its_own_but_its_purse_is_not() -> None:
    world = opened()
    child = world.open(parent=world.run_id)
    world.does("crm.get", run=child)
    assert (set(world.run().facts), set(world.run(child).facts)) == ({"budgets"}, {"budgets", "loops"})


# ---- times --------------------------------------------------------------------------------------------------------------


def test_an_approved_call_keeps_when_it_was_asked_and_gets_when_it_ran() -> None:
    world = opened()
    held = world.call("pay.refund", turn=1)
    world.wait(10)
    world.vote(held)
    assert world.record(held).settled_at is None
    world.wait(10)
    world.call("pay.refund", turn=1)
    record = world.record(held)
    assert (record.asked_at, record.admitted_at, record.turn) == (NOW, NOW + 20, 1)


def test_the_longest_turn_is_measured_without_its_pauses() -> None:
    world = opened(pause_while_held=True, deadline_ms=10**9)
    world.begin()
    world.wait(1_000)
    world.answer(1, ("c1", "pay.refund"))
    held = world.call("pay.refund", turn=1)
    world.wait(50_000)
    world.vote(held, vote="deny")
    world.wait(200)
    world.begin()
    assert world.run().longest_turn_ms == 1_200
    world.wait(500)
    world.begin()
    assert world.run().longest_turn_ms == 1_200
    world.wait(9_000)
    world.begin()
    assert world.run().longest_turn_ms == 9_000


def test_activity_counts_for_all_above_and_never_goes_back() -> None:
    world = opened()
    child = world.open(parent=world.run_id)
    grandchild = world.open(parent=child)
    world.wait(10)
    world.begin(grandchild)
    assert [world.run(run).active_at for run in (world.run_id, child, grandchild)] == [NOW + 10] * 3
    world.wait(10)
    world.begin()
    assert [world.run(run).active_at for run in (world.run_id, child, grandchild)] == [NOW + 20, NOW + 10, NOW + 10]
    world.freeze(child)
    assert world.run().active_at == NOW + 20


def test_states_before_an_event_stay_as_they_were() -> None:
    world = World(policy(rule("*", READ)))
    world.open(BOT)
    before = world.tree()
    run = before.runs[world.run_id]
    world.does("crm.get")
    assert (len(before.calls), len(run.live), before.seq) == (0, 0, 1)
