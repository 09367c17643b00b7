"""The checker itself: a lawful history breaks nothing, and each unlawful one breaks the promise that it is about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.history import Broken, Principals, TreeHistory
from gateway.core.run import Tree
from gateway.core.streams import empty, evolve
from tests.core import build
from tests.core.build import ACT, BOT, DOUBT, ERROR, FREED, LEE, MIA, READ, REFUSED, TIMEOUT, WRITE, World, asks, never, opened

POLICY = build.policy(
    build.rule("crm.get", READ, usd_micros=2), build.rule("crm.set", WRITE, usd_micros=3), build.rule("pay.ask", ACT, asks(quorum=2), usd_micros=5),
    build.rule("pay.now", ACT, never(), usd_micros=5),
    turns=4, tool_calls=6, tool_calls_per_turn=2, tokens=60, tokens_per_turn=10, usd_micros=20, deadline_ms=60_000, in_flight_calls=2, open_holds=1,
)  # fmt: skip


def broken(world: World) -> list[Broken]:
    """All that the run's events break."""
    history, found = TreeHistory(), []
    tree: Any = empty(world.run_id)
    for at, event in world.log[world.run_id]:
        after = evolve(tree, tree.seq + 1, at, event)
        found += history.saw(tree, at, event, after)
        tree = after
    return found


def promises(world: World) -> set[str]:
    return {one.promise for one in broken(world)}


@pytest.fixture
def world() -> World:
    return opened(POLICY)


def last(world: World, kind: type[Any]) -> Any:
    return next(event for _, event in reversed(world.log[world.run_id]) if isinstance(event, kind))


def happened(world: World, event: Any, **changes: Any) -> None:
    world.happened(world.run_id, replace(event, **changes))


def instead(world: World, kind: type[Any], **changes: Any) -> None:
    """The last event of this kind was another."""
    log = world.log[world.run_id]
    index = max(index for index, (_, event) in enumerate(log) if isinstance(event, kind))
    log[index] = (log[index][0], replace(log[index][1], **changes))


# ---- lawful -------------------------------------------------------------------------------------------------------------


def a_whole_life(world: World) -> None:
    world.begin()
    world.does("crm.get", turn=1, n=1)
    world.does("crm.get", FREED, n=1)
    world.uses(1, 25)
    held = world.call("pay.ask", n=1)
    world.vote(held)
    world.vote(held, LEE)
    world.does("pay.ask", n=1)
    assert build.verdict(world.call("pay.ask", n=1)) == "replay"
    world.finish()


def tried_again(world: World) -> None:
    call = world.call("pay.now", n=1)
    world.again(call, REFUSED)
    world.settle(call)
    other = world.call("crm.set", n=2)
    world.again(other, dead=True, owner="two")
    world.settle(other, owner="two")


def freed(world: World) -> None:
    world.does("pay.now", REFUSED, n=1)
    world.does("pay.now", n=1)


def in_doubt_at_the_end(world: World) -> None:
    world.does("pay.now", DOUBT, n=1)
    world.again(world.call("crm.set", n=2), dead=True, owner="two")
    world.cancel()
    world.settle("call_r1_2", DOUBT)


def gone_on_with_by_a_repeat_that_names_no_operation(world: World) -> None:
    hold = world.call("pay.ask", operation_id="op", n=1)
    world.vote(hold)
    world.vote(hold, LEE)
    assert world.does("pay.ask", n=1).operation_id == "op"


@pytest.mark.parametrize("live", [a_whole_life, tried_again, freed, in_doubt_at_the_end, gone_on_with_by_a_repeat_that_names_no_operation])
def test_a_lawful_history_breaks_nothing(world: World, live: Callable[[World], None]) -> None:
    live(world)
    assert broken(world) == []


# ---- unlawful -----------------------------------------------------------------------------------------------------------


def sent_twice(world: World) -> None:
    call = world.does("pay.now", ERROR, n=1)
    happened(world, last(world, e.CallAdmitted), call=call.id + "1")


def sent_again_by_another_process(world: World) -> None:
    world.call("pay.now", n=1)
    happened(world, last(world, e.CallAdmitted), attempt=2, owner="two")


def attempts_left_out(world: World) -> None:
    world.call("crm.set", n=1)
    happened(world, last(world, e.CallAdmitted), attempt=3)


def a_key_of_the_attempt(world: World) -> None:
    world.call("crm.set", n=1)
    happened(world, last(world, e.CallAdmitted), attempt=2, key="f" * 64)


def a_key_of_the_attempt_in_a_run_that_continues_another(world: World) -> None:
    world.finish()
    world.run_id = world.open(continues=world.run_id)
    world.call("crm.set", n=1)
    happened(world, last(world, e.CallAdmitted), attempt=2, key="f" * 64)


def a_key_of_nobody(world: World) -> None:
    world.call("crm.set", n=1)
    instead(world, e.CallAdmitted, key="f" * 64)


def an_occurrence_under_the_key_of_another(world: World) -> None:
    world.call("crm.set", n=1)
    instead(world, e.CallAdmitted, occurrence=1)


def an_outcome_of_an_attempt_before(world: World) -> None:
    call = world.call("crm.get", n=1)
    world.again(call)
    world.settle(call)
    instead(world, e.CallSettled, attempt=1)


def a_replay_of_something_else(world: World) -> None:
    world.does("pay.now", n=1)
    world.call("pay.now", n=1)
    instead(world, e.CallReplayed, result="other")


def a_replay_of_what_is_in_doubt(world: World) -> None:
    world.does("pay.now", n=1)
    world.call("pay.now", n=1)
    instead(world, e.CallSettled, state="in_doubt")


def more_calls_than_allowed(world: World) -> None:
    for n in range(6):
        world.does("crm.get", FREED, n=n)
    happened(world, last(world, e.CallAdmitted), call="call_r1_9")


def more_money_than_allowed(world: World) -> None:
    world.call("crm.get", n=1)
    instead(world, e.CallAdmitted, usd_micros=21)


def more_at_once_than_allowed(world: World) -> None:
    for n in range(2):
        world.call("crm.get", n=n)
    happened(world, last(world, e.CallAdmitted), call="call_r1_9")


def more_in_a_turn_than_allowed(world: World) -> None:
    world.begin()
    for n in range(2):
        world.does("crm.get", turn=1, n=n)
    happened(world, last(world, e.CallAdmitted), call="call_r1_9")


def more_held_than_allowed(world: World) -> None:
    world.call("pay.ask", n=1)
    happened(world, last(world, e.CallHeld), call="call_r1_9", hold="hold_r1_9")


def more_turns_than_allowed(world: World) -> None:
    for _ in range(4):
        world.begin()
        world.end(world.run().last_turn, "completed")
    happened(world, last(world, e.TurnOpened), turn=5, tokens=0)


def tokens_spent_before_the_turn(world: World) -> None:
    world.begin()
    world.uses(1, 55)
    happened(world, last(world, e.TurnOpened), turn=2)


def started_in_a_frozen_run(world: World) -> None:
    world.does("crm.get", n=1)
    world.freeze()
    happened(world, last(world, e.CallAdmitted), call="call_r1_9")


def started_past_the_deadline(world: World) -> None:
    world.does("crm.get", n=1)
    world.now += 60_000
    happened(world, last(world, e.CallAdmitted), call="call_r1_9")


def held_past_the_deadline(world: World) -> None:
    world.does("crm.get", n=1)
    world.call("pay.ask", n=1)
    log = world.log[world.run_id]
    log[-1] = (log[-1][0] + 60_000, log[-1][1])


def a_turn_in_a_closing_run(world: World) -> None:
    world.call("crm.get", n=1)
    world.begin()
    world.cancel()
    happened(world, last(world, e.TurnOpened), turn=2)


def longer_than_its_run(world: World) -> None:
    world.call("crm.get", n=1)
    instead(world, e.CallAdmitted, deadline_at=world.now + 60_001, lease_until=world.now + 99_999)


def a_lease_that_ends_too_soon(world: World) -> None:
    world.call("crm.get", n=1)
    instead(world, e.CallAdmitted, lease_until=world.now)


def held(world: World) -> Any:
    return world.call("pay.ask", n=1)


def approved(world: World) -> None:
    hold = held(world)
    world.vote(hold)
    world.vote(hold, LEE)


def executed(world: World) -> None:
    approved(world)
    world.call("pay.ask", n=1)


def free_of_charge(world: World) -> None:
    executed(world)
    instead(world, e.CallAdmitted, usd_micros=0)


def after_its_approval_lapsed(world: World) -> None:
    executed(world)
    instead(world, e.HoldApproved, execute_by=world.now)


def approved_by_one_of_two(world: World) -> None:
    hold = held(world)
    world.vote(hold)
    cast = last(world, e.VoteCast)
    world.happened(world.run_id, e.HoldApproved(cast.run, cast.call, cast.hold, world.now + 1_000))


def voted_on_by_who_asked(world: World) -> None:
    world.vote(held(world))
    instead(world, e.VoteCast, by=BOT.id)


def voted_on_by_somebody_else(world: World) -> None:
    world.vote(held(world))
    instead(world, e.VoteCast, groups=("sales",))


def voted_on_twice_by_one(world: World) -> None:
    world.vote(held(world))
    happened(world, last(world, e.VoteCast))


def voted_on_too_late(world: World) -> None:
    world.vote(held(world))
    instead(world, e.CallHeld, expires_at=world.now)


def voted_on_something_else(world: World) -> None:
    world.vote(held(world))
    instead(world, e.VoteCast, digest="other")


def an_answer_from_somebody_else(world: World) -> None:
    world.does("crm.set", n=1)
    instead(world, e.CallSettled, by="two")


def a_write_that_just_failed(world: World) -> None:
    world.does("pay.now", TIMEOUT, n=1)


def a_write_that_was_cancelled(world: World) -> None:
    world.does("crm.set", DOUBT, n=1)
    instead(world, e.CallSettled, state="cancelled")


def closed_while_something_runs(world: World) -> None:
    world.call("crm.get", n=1)
    world.cancel()
    world.happened(world.run_id, e.RunClosed(world.run_id, "cancelled", "caller_cancelled"))


UNLAWFUL: dict[str, tuple[Callable[[World], None], ...]] = {
    "P2": (sent_twice, sent_again_by_another_process, attempts_left_out),
    "P3": (
        a_key_of_the_attempt, a_key_of_the_attempt_in_a_run_that_continues_another, a_key_of_nobody, an_occurrence_under_the_key_of_another,
    ),
    "P4": (an_outcome_of_an_attempt_before, a_replay_of_something_else, a_replay_of_what_is_in_doubt),
    "P5": (
        more_calls_than_allowed, more_money_than_allowed, more_at_once_than_allowed, more_in_a_turn_than_allowed, more_held_than_allowed,
        more_turns_than_allowed, tokens_spent_before_the_turn,
    ),
    "P7": (started_in_a_frozen_run, started_past_the_deadline, held_past_the_deadline, a_turn_in_a_closing_run),
    "P8": (
        free_of_charge, after_its_approval_lapsed, approved_by_one_of_two, voted_on_by_who_asked, voted_on_by_somebody_else, voted_on_twice_by_one,
        voted_on_too_late, voted_on_something_else,
    ),
    "P10": (closed_while_something_runs,),
    "P11": (an_answer_from_somebody_else,),
    "P12": (longer_than_its_run, a_lease_that_ends_too_soon),
    "P13": (a_write_that_just_failed, a_write_that_was_cancelled),
}  # fmt: skip


def unlawful() -> Iterator[Any]:
    for promise, lives in UNLAWFUL.items():
        yield from (pytest.param(promise, live, id=f"{promise}-{live.__name__}") for live in lives)


@pytest.mark.parametrize(("promise", "live"), list(unlawful()))
def test_an_unlawful_history_breaks_the_promise_that_it_is_about(world: World, promise: str, live: Callable[[World], None]) -> None:
    live(world)
    assert promise in promises(world)


def test_what_a_shadowed_budget_let_through_is_no_broken_promise(world: World) -> None:
    more_calls_than_allowed(world)
    instead(world, e.CallAdmitted, shadowed=tuple({"guard": "budgets", "reason": f"budget.{name}"} for name in ("tool_calls", "in_flight")))
    assert broken(world) == []


def test_a_child_draws_on_the_purse_above(world: World) -> None:
    child = world.open(parent=world.run_id)
    for n in range(6):
        world.does("crm.get", FREED, run=child, n=n)
    happened(world, last(world, e.CallAdmitted), run=world.run_id, call="call_r1_9")
    assert promises(world) >= {"P5"}


def test_keys_of_a_run_that_continues_another_are_not_judged_by_its_own_id(world: World) -> None:
    world.finish()
    successor = world.open(continues=world.run_id)
    world.does("pay.now", run=successor, n=1)
    world.run_id = successor
    assert broken(world) == []


def test_a_principal_counts_what_stands_in_its_trees(world: World) -> None:
    held(world)
    counted = Principals()
    for stream, state in world.states.items():
        counted.saw(stream, state)
    assert list(counted.broken()) == []
    counted.saw("run_r9", replace(world.tree(), runs=world.tree().runs.set(world.run_id, replace(world.run(), id="run_r9"))))
    counted.saw("run_r8", Tree())
    assert [who for who, _ in counted.broken()] == [BOT.id]
    alone = Principals()
    alone.saw(f"principal:{MIA.id}", world.mine())
    assert [who for who, _ in alone.broken()] == [MIA.id] * 2
