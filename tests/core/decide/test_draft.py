"""What follows from events whoever causes them: the principal's stream is told, endings cascade, a missing stream is asked for."""

from __future__ import annotations

import pytest

from gateway.core import events as e
from gateway.core.decide.draft import Draft, NeedsStream
from gateway.core.principal import PrincipalState
from gateway.core.run import principal_stream
from tests.core.build import BOT, NOW, World, opened, sealed

PRINCIPAL = principal_stream(BOT.id)


def draft(world: World, *, with_principal: bool = True) -> Draft:
    states = {world.run_id: world.tree(), **({PRINCIPAL: world.mine()} if with_principal else {})}
    return Draft(states, world.run_id, world.now)


def test_the_tree_is_as_if_the_events_so_far_were_written() -> None:
    world = opened()
    one = draft(world)
    one.add(e.RunFrozen(world.run_id, "op"))
    assert (one.tree.runs[world.run_id].state, one.tree.seq) == ("frozen", world.tree().seq + 1)
    one.add(e.RunResumed(world.run_id, "op"))
    assert (one.tree.runs[world.run_id].state, world.run().state) == ("open", "open")
    assert one.events == [(world.run_id, e.RunFrozen(world.run_id, "op")), (world.run_id, e.RunResumed(world.run_id, "op"))]


def test_payloads_stand_beside_the_events_of_their_stream() -> None:
    one = draft(opened())
    assert (one.keep(sealed(1)), one.payloads) == (sealed(1).hash, [("run_r1", sealed(1))])


def test_a_stream_that_was_not_given_is_asked_for() -> None:
    world = opened()
    with pytest.raises(NeedsStream) as need:
        draft(world, with_principal=False).close(world.run_id, "cancelled", "caller_cancelled", "me")
    assert need.value.stream == PRINCIPAL


def test_given_streams_are_found() -> None:
    assert isinstance(draft(opened()).given(PRINCIPAL), PrincipalState)


def test_only_the_end_of_the_root_is_told_to_the_principal() -> None:
    world = opened()
    child = world.open(parent=world.run_id)
    one = draft(world)
    one.close(child, "completed", "model_final", "me")
    assert {stream for stream, _ in one.events} == {world.run_id}
    one.close(world.run_id, "completed", "model_final", "me")
    assert one.events[-1] == (PRINCIPAL, e.RunReleased(BOT.id, world.run_id))


def test_the_holds_of_all_runs_of_a_tree_count_for_the_roots_principal() -> None:
    world = opened()
    child = world.open(parent=world.run_id)
    world.call("pay.refund", run=child)
    assert (world.kinds, dict(world.mine().open_holds)) == (["CallHeld", "HoldCounted"], {"hold_r1_1": NOW})


def test_an_admission_without_a_hold_tells_nobody() -> None:
    world = opened()
    world.call("crm.get")
    assert world.kinds == ["CallAdmitted"]


def test_waiting_calls_are_cancelled_by_run_or_by_turn() -> None:
    world = opened()
    for turn in (1, 2):
        world.call("pay.refund", turn=turn, n=turn)
    world.call("crm.set", turn=1)
    one, all = draft(world), draft(world)
    one.cancel_waiting(world.run_id, "me", 2)
    all.cancel_waiting(world.run_id, "me")
    cancelled = [[event.call for _, event in each.events if isinstance(event, e.CallCancelled)] for each in (one, all)]
    assert cancelled == [["call_r1_2"], ["call_r1_1", "call_r1_2"]]


def test_whether_a_run_is_ending_is_asked_of_the_state_before_the_step() -> None:
    world = opened()
    assert not draft(world).is_ending(world.run_id)
    world.call("crm.set")
    world.finish()
    assert draft(world).is_ending(world.run_id)


def test_a_run_that_is_over_is_not_closed_again() -> None:
    world = opened()
    world.call("crm.set")
    world.finish()
    one = draft(world)
    one.close(world.run_id, "cancelled", "caller_cancelled", "me")
    assert one.events == []


def test_a_closing_run_that_says_nothing_about_its_end_has_failed() -> None:
    world = opened()
    one = draft(world)
    one.add(e.RunClosing(world.run_id, "", "", "me"))
    one.settle_endings()
    assert one.events[1] == (world.run_id, e.RunClosed(world.run_id, "failed", "unrecoverable_error"))
