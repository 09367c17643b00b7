"""What a repeated call means: each line of the table in DESIGN §4, and how occurrences make keys."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.model import Effect, Outcome
from gateway.core.repeats import executed_before, superseded
from tests.core.build import (
    ACT,
    DONE,
    DOUBT,
    ERROR,
    FREED,
    READ,
    REFUSED,
    STOPPED,
    STRANGER,
    TIMEOUT,
    WRITE,
    World,
    asks,
    keyed,
    opened,
    policy,
    rule,
    verdict,
)  # fmt: skip

EACH: dict[Effect, str] = {READ: "crm.get", WRITE: "crm.set", ACT: "mail.send"}


def keys(world: World, name: str, times: int, **asked: Any) -> list[str]:
    return [world.does(name, **asked).key for _ in range(times)]


# ---- the table ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", EACH)
def test_a_repeat_of_a_running_call_joins_its_dispatch(effect: Effect) -> None:
    world = opened()
    first = world.call(EACH[effect], a=1)
    answer = world.call(EACH[effect], a=1)
    assert (verdict(answer), answer.record.id, world.kinds) == ("join", world.record(first).id, [])


@pytest.mark.parametrize("outcome", [DONE, ERROR, replace(ERROR, status=404), replace(ERROR, status=503)])
@pytest.mark.parametrize("name", ["crm.set", "mail.send"])
def test_a_definite_answer_to_a_write_is_replayed(name: str, outcome: Outcome) -> None:
    world = opened()
    first = world.does(name, outcome, a=1)
    answer = world.call(name, a=1)
    assert (verdict(answer), answer.record, world.kinds) == ("replay", first, ["CallReplayed"])


def test_a_read_runs_afresh_under_the_next_occurrence() -> None:
    world = opened()
    assert len(set(keys(world, "crm.get", 3, a=1))) == 3


@pytest.mark.parametrize("name", EACH.values())
def test_what_surely_did_not_happen_is_a_new_call_under_the_same_key(name: str) -> None:
    world = opened()
    first, second = world.does(name, REFUSED, a=1), world.does(name, a=1)
    assert (first.id != second.id, first.key) == (True, second.key)


def test_a_held_call_is_held_again_and_a_ready_one_goes_on() -> None:
    world = opened()
    held = world.call("pay.refund", a=1)
    assert (verdict(again := world.call("pay.refund", a=1)), again.call, world.kinds) == ("hold", held.call, [])
    world.vote(held)
    assert (verdict(done := world.call("pay.refund", a=1)), done.call, world.kinds) == ("allow", held.call, ["CallAdmitted", "HoldReleased"])


def test_a_persons_denial_sticks_to_the_key_and_gives_its_reason() -> None:
    world = opened()
    held = world.call("pay.refund", a=1)
    world.vote(held, vote="deny", note="not this month")
    answer = world.call("pay.refund", a=1)
    assert (verdict(answer), world.kinds) == ("approval.denied", ["CallDenied"])
    assert "not this month" in answer.findings[0].message
    assert verdict(world.call("pay.refund", a=1)) == "approval.denied", "the refusal of the refusal binds no less"
    assert verdict(world.call("pay.refund", a=2)) == "hold"


def test_a_denial_without_a_note_says_nothing_in_the_persons_name() -> None:
    world = opened()
    world.vote(world.call("pay.refund", a=1), vote="deny")
    assert "“" not in world.call("pay.refund", a=1).findings[0].message


def test_guards_denials_bind_nothing() -> None:
    world = opened(in_flight_calls=1)
    running = world.call("crm.set", a=1)
    assert verdict(world.call("crm.set", a=2)) == "budget.in_flight"
    world.settle(running)
    assert verdict(world.call("crm.set", a=2)) == "allow"


def test_an_expiry_binds_nothing_and_keeps_the_key() -> None:
    world = opened(idle_after_ms=10**9)
    first = world.call("pay.refund", a=1)
    world.wait(86_400_000)
    assert world.record(first).reason == "approval.expired"
    second = world.call("pay.refund", a=1)
    assert (verdict(second), world.record(second).key) == ("hold", world.record(first).key)


@pytest.mark.parametrize("name", ["crm.set", "mail.send"])
def test_what_is_in_doubt_is_never_dispatched_again(name: str) -> None:
    world = opened()
    first = world.does(name, DOUBT, a=1)
    answer = world.call(name, a=1)
    assert (verdict(answer), answer.record, world.kinds) == ("doubt", first, [])


def test_an_abandoned_doubt_stays_a_doubt() -> None:
    world = opened()
    first = world.does("mail.send", DOUBT, a=1)
    world.happened(world.run_id, e.CallReconciled(world.run_id, first.id, "abandoned", "user:mia", "nobody knows"))
    assert verdict(world.call("mail.send", a=1)) == "doubt"


def test_a_trusted_call_id_with_other_arguments_is_refused() -> None:
    world = opened()
    world.does("crm.get", call_id="c1", a=1)
    assert (verdict(world.call("crm.get", call_id="c1", a=2)), world.kinds) == ("key.reused", ["CallDenied"])
    assert verdict(world.call("crm.poll", call_id="c1", a=1)) == "key.reused"


def test_an_operation_id_with_other_arguments_is_refused() -> None:
    world = opened()
    world.does("crm.set", operation_id="op", a=1)
    assert verdict(world.call("crm.set", operation_id="op", a=2)) == "key.reused"
    assert verdict(world.call("crm.get", operation_id="op", a=1)) == "key.reused"
    assert verdict(world.call("crm.set", operation_id="op", a=1)) == "replay"


# ---- call ids -----------------------------------------------------------------------------------------------------------


def test_the_same_trusted_call_id_always_replays_a_read_too() -> None:
    world = opened()
    first = world.does("crm.get", call_id="c1", a=1)
    world.does("crm.set", a=1)
    world.does("crm.get", call_id="c2", a=1)
    answer = world.call("crm.get", call_id="c1", a=1)
    assert (verdict(answer), answer.record, world.events[0].same_call_id) == ("replay", first, True)  # type: ignore[attr-defined]


def test_the_same_trusted_call_id_replays_a_superseded_write_and_one_that_was_freed() -> None:
    world = opened(policy(rule("*", WRITE, idempotency=keyed(on_error="retry"))))
    world.does("crm.set", call_id="c1", a=1)
    world.does("crm.set", call_id="c2", a=2)
    assert verdict(world.call("crm.set", call_id="c1", a=1)) == "replay"
    world.does("crm.set", FREED, call_id="c3", a=3)
    assert verdict(world.call("crm.set", call_id="c3", a=3)) == "replay"


def test_an_untrusted_call_id_identifies_nothing() -> None:
    world = World()
    world.open(STRANGER)
    world.does("crm.get", who=STRANGER, call_id="call_0", a=1)
    assert verdict(world.call("crm.get", who=STRANGER, call_id="call_0", a=2)) == "allow"
    assert verdict(world.call("crm.set", who=STRANGER, call_id="call_0", a=1)) == "allow"


def test_a_call_id_is_unique_per_turn_only() -> None:
    world = opened()
    first = world.does("crm.get", turn=1, call_id="c1", a=1)
    second = world.does("crm.get", turn=2, call_id="c1", a=2)
    assert first.id != second.id


def test_a_replay_under_a_new_call_id_can_be_found_by_it() -> None:
    world = opened()
    first = world.does("crm.set", call_id="c1", a=1)
    world.call("crm.set", call_id="c2", a=1)
    assert world.run().by_call_id[(0, "c2")] == first.id
    assert verdict(world.call("crm.set", call_id="c2", a=2)) == "key.reused"


@pytest.mark.parametrize("first", [REFUSED, STOPPED])
def test_the_call_id_of_a_call_that_came_to_nothing_does_not_hide_a_later_one_with_its_key(first: Outcome) -> None:
    world = opened()
    assert world.does("mail.send", first, call_id="c1", a=1).key == world.does("mail.send", call_id="c2", a=1).key
    assert verdict(world.call("mail.send", call_id="c1", a=1)) == "replay"


def test_the_call_id_of_an_expired_hold_does_not_hide_a_later_call_with_its_key() -> None:
    world = opened(idle_after_ms=10**9)
    world.call("pay.refund", call_id="c1", a=1)
    world.wait(86_400_000)
    world.vote(world.call("pay.refund", call_id="c2", a=1))
    world.does("pay.refund", call_id="c2", a=1)
    assert verdict(world.call("pay.refund", call_id="c1", a=1)) == "replay"


# ---- operations ---------------------------------------------------------------------------------------------------------


def test_a_deliberate_repeat_is_a_call_of_its_own_and_is_held() -> None:
    world = opened()
    first = world.does("mail.send", a=1)
    again = world.call("mail.send", operation_id="twice", a=1)
    assert (verdict(again), world.record(again).key != first.key) == ("hold", True)


def test_an_operation_id_on_the_first_call_asks_for_nobody() -> None:
    world = opened()
    assert verdict(world.call("mail.send", operation_id="once", a=1)) == "allow"
    assert verdict(world.call("mail.send", operation_id="twice", a=1)) == "hold", "the first may be happening"


@pytest.mark.parametrize(("outcome", "means"), [(DONE, "replay"), (DOUBT, "doubt"), (None, "join"), (REFUSED, "allow")])
def test_leaving_the_operation_id_out_is_no_way_to_do_it_again(outcome: Outcome | None, means: str) -> None:
    world = opened()
    first = world.call("mail.send", operation_id="once", a=1)
    if outcome is not None:
        world.settle(first, outcome)
    assert verdict(world.call("mail.send", a=1)) == means


def test_of_several_operations_the_latest_that_may_have_happened_answers() -> None:
    world = opened()
    world.does("mail.send", REFUSED, a=1)
    done = world.does("mail.send", operation_id="once", a=1)
    answer = world.call("mail.send", a=1)
    assert (verdict(answer), answer.record) == ("replay", done)


@pytest.mark.parametrize(("outcome", "held"), [(DONE, True), (ERROR, True), (DOUBT, True), (REFUSED, False), (STOPPED, False)])
def test_a_repeat_is_deliberate_only_where_the_first_may_have_happened(outcome: Outcome, held: bool) -> None:
    world = opened()
    first = world.does("mail.send", outcome, a=1)
    assert executed_before(((world.tree(), world.run()),), "mail.send", first.fingerprint) is held
    assert verdict(world.call("mail.send", operation_id="op", a=1)) == ("hold" if held else "allow")


def test_a_deliberate_repeat_of_an_idempotent_write_is_not_held() -> None:
    world = opened()
    world.does("crm.set", a=1)
    assert verdict(world.call("crm.set", operation_id="op", a=1)) == "allow"


def test_a_deliberate_repeat_that_nobody_may_approve_is_refused() -> None:
    world = opened(policy(rule("*", ACT)))
    world.does("mail.send", a=1)
    assert verdict(world.call("mail.send", operation_id="op", a=1)) == "guard.failed"


# ---- occurrences --------------------------------------------------------------------------------------------------------


def test_writing_a_then_b_then_a_makes_three_keys() -> None:
    world = opened()
    a, b, again = world.does("crm.set", v="a"), world.does("crm.set", v="b"), world.does("crm.set", v="a")
    assert len({a.key, b.key, again.key}) == 3
    assert (a.occurrence, again.occurrence) == (0, 1)


def test_a_write_supersedes_only_after_settlement() -> None:
    world = opened()
    a, b = world.call("crm.set", v="a"), world.call("crm.set", v="b")
    world.settle(b)
    world.settle(a)
    assert verdict(world.call("crm.set", v="a")) == "replay"
    assert verdict(world.call("crm.set", v="b")) == "replay"


@pytest.mark.parametrize(("between", "again"), [("crm.get", "replay"), ("mail.send", "replay"), ("crm.set", "allow")])
def test_only_another_write_on_the_same_upstream_supersedes(between: str, again: str) -> None:
    world = opened()
    world.does("crm.set", v="a")
    world.does(between, v="b")
    assert verdict(world.call("crm.set", v="a")) == again


def test_a_write_that_is_only_held_supersedes_nothing() -> None:
    world = opened(policy(rule("crm.set", WRITE), rule("crm.act", ACT, asks())))
    world.does("crm.set", v="a")
    assert verdict(world.call("crm.act")) == "hold"
    assert verdict(world.call("crm.set", v="a")) == "replay"


def test_a_childs_write_supersedes_its_parents() -> None:
    world = opened()
    world.does("crm.set", v="a")
    child = world.open(parent=world.run_id)
    world.does("crm.set", run=child, v="b")
    assert verdict(world.call("crm.set", v="a")) == "allow"


def test_a_write_is_not_superseded_by_its_own_attempts() -> None:
    world = opened()
    a = world.call("crm.set", v="a")
    world.again(a)
    world.settle(a)
    assert verdict(world.call("crm.set", v="a")) == "replay"
    assert not superseded(((world.tree(), world.run()),), world.record(a))


def test_an_answer_frees_the_key_only_where_the_policy_says_so() -> None:
    kept, retried = (opened(policy(rule("*", WRITE, idempotency=keyed(on_error=what)))) for what in ("keep", "retry"))
    for world, again in ((kept, "replay"), (retried, "allow")):
        world.does("crm.set", FREED, a=1)
        assert verdict(world.call("crm.set", a=1)) == again
    assert [retried.record(call).occurrence for call in ("call_r1_1", "call_r1_2")] == [0, 1]
    retried.settle("call_r1_2", ERROR)
    assert verdict(retried.call("crm.set", a=1)) == "replay", "an error alone never frees a key"


def test_a_cancelled_call_keeps_its_key_for_the_next() -> None:
    world = opened()
    assert world.does("crm.set", STOPPED, a=1).key == world.does("crm.set", a=1).key


def test_a_read_that_failed_without_an_answer_runs_again() -> None:
    world = opened()
    assert world.does("crm.get", TIMEOUT, a=1).key != world.does("crm.get", a=1).key


def test_key_from_picks_what_counts() -> None:
    world = opened(policy(rule("*", WRITE, idempotency=keyed("order", "missing"))))
    first = world.does("crm.set", order=1, note="hello")
    answer = world.call("crm.set", order=1, note="hello again")
    assert (verdict(answer), answer.record.arguments) == ("replay", first.arguments)
    assert verdict(world.call("crm.set", order=2, note="hello")) == "allow"
