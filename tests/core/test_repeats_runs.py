"""What a run owes to the runs it continues, what frozen and closed runs still answer, and each meaning by itself."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.repeats import Asked, Fresh, Join, Replay, Reused, Sticky, Waiting, judge
from tests.core.build import DOUBT, REFUSED, World, opened, verdict

# ---- runs ---------------------------------------------------------------------------------------------------------------


def test_another_run_owes_nothing_to_the_first() -> None:
    world = opened()
    first = world.does("mail.send", a=1)
    assert world.does("mail.send", run=world.open(), a=1).key != first.key


@pytest.mark.parametrize("generations", [1, 2])
def test_a_successor_inherits_keys_and_answers(generations: int) -> None:
    world = opened()
    sent, refused = world.does("mail.send", a=1), world.does("mail.send", REFUSED, a=2)
    last = world.run_id
    for _ in range(generations):
        world.finish(last)
        last = world.open(continues=last)
    answer = world.call("mail.send", run=last, a=1)
    assert (verdict(answer), answer.record, world.kinds) == ("replay", sent, ["CallReplayed"])
    assert world.does("mail.send", run=last, a=2).key == refused.key
    assert verdict(world.call("mail.send", run=last, a=2)) == "replay"


def test_a_successor_inherits_denials_doubts_and_operations() -> None:
    world = opened()
    world.vote(world.call("pay.refund", a=1), vote="deny", note="not this month")
    world.does("mail.send", DOUBT, a=2)
    world.does("crm.set", operation_id="op", a=3)
    world.finish()
    next = world.open(continues=world.run_id)
    denied = world.call("pay.refund", run=next, a=1)
    assert (verdict(denied), "not this month" in denied.findings[0].message) == ("approval.denied", True)
    assert verdict(world.call("mail.send", run=next, a=2)) == "doubt"
    assert verdict(world.call("crm.set", run=next, operation_id="op", a=4)) == "key.reused"
    assert verdict(world.call("mail.send", run=next, operation_id="new", a=2)) == "hold"


def test_a_successors_write_supersedes_what_it_inherited() -> None:
    world = opened()
    first = world.does("crm.set", v="a")
    world.finish()
    next = world.open(continues=world.run_id)
    assert verdict(world.call("crm.set", run=next, v="a")) == "replay"
    world.does("crm.set", run=next, v="b")
    again = world.does("crm.set", run=next, v="a")
    assert (again.occurrence, again.key != first.key) == (1, True)
    assert verdict(world.call("crm.set", run=next, v="a")) == "replay", "nothing was written after it, in its own run or a later one"


@pytest.mark.parametrize("how", ["freeze", "finish", "cancel"])
def test_frozen_and_closed_runs_still_answer_from_the_record(how: str) -> None:
    world = opened()
    world.does("crm.set", a=1)
    world.does("mail.send", DOUBT, a=2)
    world.does("crm.get", call_id="c1", a=3)
    getattr(world, how)()
    assert verdict(world.call("crm.set", a=1)) == "replay"
    assert verdict(world.call("mail.send", a=2)) == "doubt"
    assert verdict(world.call("crm.get", call_id="c1", a=3)) == "replay"
    assert verdict(world.call("crm.get", a=3)) == "run.not_open"


# ---- judge, by itself ---------------------------------------------------------------------------------------------------


def asked(world: World, name: str, **more: Any) -> Asked:
    command = world.command(name, **more)
    found, request = command.assessment, command.request
    return Asked(request.turn, request.call_id, name, found.fingerprint, request.operation_id, found.rule.effect, found.rule.idempotency)


def test_what_was_never_asked_is_fresh() -> None:
    world = opened()
    assert judge(((world.tree(), world.run()),), asked(world, "crm.get", call_id="c1", operation_id="op", a=1)) == Fresh(0)


def test_each_state_of_a_record_has_its_meaning() -> None:
    world = opened()
    for number, name in enumerate(("pay.a", "pay.b", "pay.c", "crm.set", "crm.get")):
        world.call(name, n=number)
    world.vote("call_r1_2")
    world.vote("call_r1_3", vote="deny")
    world.settle("call_r1_5")
    past = ((world.tree(), world.run()),)
    records = [world.record(f"call_r1_{n}") for n in range(1, 6)]
    meanings = [judge(past, asked(world, record.tool, n=n)) for n, record in enumerate(records)]
    assert meanings == [Waiting(records[0], False), Waiting(records[1], True), Sticky(records[2]), Join(records[3]), Fresh(1)]
    assert judge(past, asked(world, "crm.set", n=3, call_id="x")) == Join(records[3])


def test_identity_reused_names_what_was_reused() -> None:
    world = opened()
    record = world.does("crm.set", call_id="c1", operation_id="op", a=1)
    past = ((world.tree(), world.run()),)
    assert judge(past, asked(world, "crm.set", call_id="c1", a=2)) == Reused("call_id", record)
    assert judge(past, asked(world, "crm.set", operation_id="op", a=2)) == Reused("operation_id", record)
    assert judge(past, asked(world, "crm.set", call_id="c1", operation_id="other", a=1)) == Replay(record, True)
