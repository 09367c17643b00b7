"""How doubts end: by whom, with what, and when what did not happen is sent once more."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.decide import calls, doubts
from gateway.core.guards.budgets import purse
from gateway.core.guards.guard import ConditionFault
from gateway.core.model import Outcome, Principal
from gateway.core.policy import Probe
from gateway.core.repeats import Doubtful
from gateway.core.run import CallRecord
from tests.core.build import (
    ACT,
    BOSS,
    BOT,
    DONE,
    DOUBT,
    MIA,
    NOW,
    WRITE,
    World,
    asks,
    never,
    opened,
    policy,
    rule,
    sealed,
    verdict,
)  # fmt: skip

OPS = Principal("user:ops", roles=frozenset({"operator"}), person=True)
ANSWER = sealed("found")


def in_doubt(world: World, name: str = "mail.send", outcome: Outcome = DOUBT, **asked: Any) -> CallRecord:
    call = world.call(name, **(asked or {"a": 1}))
    assert isinstance(call, calls.Admit)
    world.settle(call, outcome)
    return world.record(call)


# ---- who ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", [MIA, OPS, BOSS])
def test_an_approver_whom_the_rule_names_and_an_operator_may_end_a_doubt(who: Principal) -> None:
    world = opened()
    assert world.reconcile(in_doubt(world), "abandoned", who) == world.record("call_r1_1")
    assert world.record("call_r1_1").state == "abandoned"


@pytest.mark.parametrize(
    "who",
    [
        replace(MIA, person=False),
        replace(MIA, roles=frozenset()),
        replace(MIA, groups=frozenset({"leads"})),
        replace(MIA, roles=frozenset({"viewer"})),
        replace(OPS, person=False),
        replace(OPS, id=BOT.id),
        replace(MIA, id=BOT.id),
    ],
    ids=["a machine", "no role", "another rule's", "a viewer", "a machine of operations", "an operator that asked", "an approver that asked"],
)
def test_nobody_else_may(who: Principal) -> None:
    world = opened()
    assert verdict(world.reconcile(in_doubt(world), "happened", who)) == "auth.forbidden"
    assert world.events == []


def test_who_opened_a_run_above_has_asked_too() -> None:
    world = opened()
    child = world.open(parent=world.run_id)
    record = in_doubt(world, run=child, a=1)
    assert verdict(world.reconcile(record, "happened", replace(OPS, id=BOT.id))) == "auth.forbidden"
    assert isinstance(world.reconcile(record, "happened", OPS), CallRecord)


# ---- what ---------------------------------------------------------------------------------------------------------------


def test_what_happened_is_answered_with_what_the_person_gave_and_never_sent() -> None:
    world = opened()
    record = in_doubt(world)
    world.now += 7
    world.reconcile(record, "happened")
    [event] = world.events
    assert event == e.CallReconciled(world.run_id, record.id, "succeeded", MIA.id, "I looked", ANSWER.hash)
    after = world.record(record.id)
    assert (after.state, after.reason, after.answered, after.result, after.settled_at) == ("succeeded", None, True, ANSWER.hash, NOW + 7)
    assert world.run().in_doubt == 0
    assert verdict(world.call("mail.send", a=1)) == "replay"


def test_what_was_given_up_stays_unknown_and_is_never_sent() -> None:
    world = opened()
    record = in_doubt(world)
    world.reconcile(record, "abandoned")
    assert (world.record(record.id).state, world.run().in_doubt) == ("abandoned", 0)
    assert isinstance(world.call("mail.send", a=1), Doubtful)


def test_what_did_not_happen_is_sent_once_more_under_its_key() -> None:
    world = opened(tool_calls=2)
    record = in_doubt(world)
    answer = world.reconcile(record, "did_not_happen", means=world.means(record))
    assert world.kinds == ["CallReconciled", "CallAdmitted"]
    assert isinstance(answer, CallRecord)
    assert (answer.state, answer.attempt, answer.key, answer.owner, answer.result) == ("admitted", 2, record.key, "two", None)
    assert (answer.deadline_at, answer.lease_until) == (NOW + 30_000, NOW + 35_000)
    assert (dict(world.run().live), world.run().in_doubt) == ({record.id: "admitted"}, 0)
    assert (purse(world.run()).in_flight, purse(world.run()).used.tool_calls) == (1, 2)
    assert verdict(world.call("mail.send", a=1)) == "join"
    world.settle(record.id, DONE, owner="two")
    assert (purse(world.run()).in_flight, purse(world.run()).pending.tool_calls, purse(world.run()).posted.tool_calls) == (0, 0, 2)
    assert world.refolded(world.run_id) == world.tree()


def test_a_call_that_people_had_approved_needs_no_second_hold_to_be_sent_once_more() -> None:
    world = opened()
    held = world.call("pay.refund", a=1)
    world.vote(held)
    sent = world.call("pay.refund", a=1)
    world.settle(sent, DOUBT)
    record = world.record(sent)
    world.reconcile(record, "did_not_happen", means=world.means(record))
    assert (world.record(record.id).state, world.hold(record.id).state) == ("admitted", "consumed")
    assert world.refolded(world.run_id) == world.tree()


def test_sent_once_more_it_may_be_in_doubt_once_more() -> None:
    world = opened()
    record = in_doubt(world)
    world.reconcile(record, "did_not_happen", means=world.means(record))
    world.settle(record.id, DOUBT, owner="two")
    assert isinstance(world.call("mail.send", a=1), Doubtful)
    assert isinstance(world.reconcile(record, "happened"), CallRecord)


CANNOT_START: dict[str, Any] = {
    "frozen": lambda world: world.freeze(),
    "closed": lambda world: world.cancel(),
    "late": lambda world: world.wait(90_000, sweep=False),
    "spent": lambda world: world.does("crm.get", b=1),
}


@pytest.mark.parametrize("why", CANNOT_START)
def test_where_nothing_may_start_what_did_not_happen_has_failed_and_frees_its_key(why: str) -> None:
    world = opened(tool_calls=2, deadline_ms=90_000)
    record = in_doubt(world)
    CANNOT_START[why](world)
    world.reconcile(record, "did_not_happen", means=world.means(record))
    after = world.record(record.id)
    assert (world.kinds, after.state, after.reason, after.not_applied) == (["CallReconciled"], "failed", "call.not_applied", True)
    assert world.run().in_doubt == 0


def test_what_is_no_longer_what_was_asked_for_is_not_sent() -> None:
    world = opened()
    held = world.call("pay.refund", a=1)
    world.vote(held)
    world.settle(world.call("pay.refund", a=1), DOUBT)
    world.reconcile(record := world.record(held.call), "did_not_happen", means=world.means(record, "changed"))
    assert world.record(held.call).state == "failed"


def test_what_can_not_be_sent_any_more_has_failed_and_a_repeat_is_a_new_call_under_its_key() -> None:
    world = opened()
    record = in_doubt(world)
    world.reconcile(record, "did_not_happen")
    fresh = world.call("mail.send", a=1)
    assert isinstance(fresh, calls.Admit)
    assert (world.record(fresh).key, world.record(fresh).occurrence) == (record.key, record.occurrence)
    assert fresh.call != record.id


def test_a_key_that_its_upstream_may_have_forgotten_is_not_sent_again() -> None:
    policies = policy(rule("crm.set", WRITE, upstream_key_ttl_ms=60_000))
    for waited, state in ((60_000, "admitted"), (60_001, "failed")):
        world = opened(policies)
        record = in_doubt(world, "crm.set")
        world.now += waited
        world.reconcile(record, "did_not_happen", means=world.means(record))
        assert world.record(record.id).state == state


def test_a_call_has_its_place_in_its_turn_already() -> None:
    world = opened(tool_calls_per_turn=1)
    record = in_doubt(world, turn=1, a=1)
    assert verdict(world.call("crm.get", turn=1, b=1)) == "budget.tool_calls_per_turn"
    world.reconcile(record, "did_not_happen", means=world.means(record))
    assert world.record(record.id).state == "admitted"


@pytest.mark.parametrize("outcome", doubts.OUTCOMES)
def test_only_a_doubt_can_be_ended_and_only_once(outcome: str) -> None:
    world = opened()
    record = in_doubt(world)
    world.reconcile(record, outcome)
    assert verdict(world.reconcile(record, "happened")) == "call.not_in_doubt"
    assert verdict(world.reconcile(world.does("crm.set", b=1), outcome)) == "call.not_in_doubt"
    assert world.events == []


def test_another_write_after_the_doubt_supersedes_it_whenever_it_is_found_out() -> None:
    world = opened()
    first = in_doubt(world, "crm.set", v="a")
    world.does("crm.set", v="b")
    world.reconcile(first, "happened")
    assert verdict(world.call("crm.set", v="a")) == "allow"


def test_a_doubt_in_a_closed_run_can_be_ended() -> None:
    world = opened()
    record = in_doubt(world)
    world.cancel()
    world.reconcile(record, "happened")
    assert (world.run().state, world.run().in_doubt, world.record(record.id).state) == ("closed", 0, "succeeded")
    assert verdict(world.call("mail.send", a=1)) == "replay"


# ---- probes -------------------------------------------------------------------------------------------------------------


def shows(name: str) -> Any:
    """True where the result says so; a result that says nothing can't be judged."""

    def judge(facts: Any) -> bool:
        if facts["result"] is None:
            raise ConditionFault("nothing there")
        return name in facts["result"]

    return judge


PROBE = Probe("pay.find", (), shows("done"), shows("gone"), 60_000)
PROBED = policy(rule("mail.*", ACT, never(), probe=PROBE), rule("pay.*", ACT, asks(), probe=PROBE))


def answered(*words: str) -> Outcome:
    return replace(DONE, result={"structuredContent": list(words)})


@pytest.mark.parametrize(
    ("outcome", "found"),
    [
        (answered("done"), "happened"),
        (answered("gone"), "absent"),
        (answered(), "unclear"),
        (answered("done", "gone"), "unclear"),
        (replace(DONE, result={"content": []}), "unclear"),
        (Outcome("failed", "tool.error", result={"structuredContent": ["gone"], "isError": True}, answered=True), "failed"),
        (Outcome("failed", "tool.timeout", retry=True), "failed"),
    ],
)
def test_only_a_definite_answer_that_shows_one_and_not_the_other_is_sure(outcome: Outcome, found: str) -> None:
    assert doubts.found_out(PROBE, outcome)[0] == found


@pytest.mark.parametrize("outcome", [DOUBT, replace(DOUBT, result={"isError": True}, status=500)])
def test_a_doubt_whose_rule_has_a_probe_says_when_to_ask(outcome: Outcome) -> None:
    world = opened(PROBED)
    record = in_doubt(world, outcome=outcome)
    assert (record.probe_at, world.tree().call_due_at(record)) == (NOW + 60_000, NOW + 60_000)


def test_nothing_else_has_a_time_for_a_probe() -> None:
    world = opened(PROBED)
    call = world.call("mail.send", a=1)
    assert world.tree().call_due_at(world.record(call)) == world.record(call).lease_until
    world.settle(call)
    assert world.tree().call_due_at(world.record(call)) is None
    other = opened()
    assert other.tree().call_due_at(in_doubt(other)) is None


def test_a_dead_owners_doubt_is_probed_too() -> None:
    world = opened(PROBED)
    call = world.call("mail.send", a=1)
    world.again(call, dead=True)
    assert (world.record(call).state, world.record(call).probe_at) == ("in_doubt", NOW + 60_000)


def test_a_probe_that_found_it_ends_the_doubt_with_its_finding() -> None:
    world = opened(PROBED)
    record = in_doubt(world)
    after = world.probe(record, "happened")
    assert world.events == [
        e.CallProbed(world.run_id, record.id, "pay.find", "happened", "it says"),
        e.CallReconciled(world.run_id, record.id, "succeeded", "probe:pay.find", "it says", ANSWER.hash),
    ]
    assert (after.state, after.result, after.probe_at, world.run().in_doubt) == ("succeeded", ANSWER.hash, None, 0)
    assert verdict(world.call("mail.send", a=1)) == "replay"


def test_a_probe_that_found_it_absent_frees_the_key_and_sends_nothing() -> None:
    world = opened(PROBED)
    record = in_doubt(world)
    after = world.probe(record, "absent")
    assert (world.kinds, after.state, after.not_applied, after.attempt) == (["CallProbed", "CallReconciled"], "failed", True, 1)
    assert verdict(world.call("mail.send", a=1)) == "allow"


def test_a_probe_that_is_not_sure_is_made_again_at_doubling_distances_up_to_six_hours() -> None:
    world = opened(PROBED)
    record = in_doubt(world)
    waits = []
    for found in ("unclear", "failed") * 6:
        record = world.probe(record, found)
        assert (record.state, world.run().in_doubt) == ("in_doubt", 1)
        waits.append((record.probe_at or 0) - world.now)
        world.now = record.probe_at or 0
    assert waits == [60_000 << n for n in range(1, 9)] + [doubts.MOST_WAIT_MS] * 4
    assert world.tree().call_due_at(record) == record.probe_at


def test_a_probe_that_can_not_help_is_not_made_again() -> None:
    world = opened(PROBED)
    assert world.probe(in_doubt(world), "failed", hopeless=True).probe_at is None


def test_of_two_probes_at_once_one_counts() -> None:
    world = opened(PROBED)
    record = in_doubt(world)
    world.probe(record, "unclear")
    world.probe(record, "absent", probes=0)
    assert (world.events, world.record(record.id).state) == ([], "in_doubt")
    world.reconcile(record, "happened")
    world.probe(record, "absent", probes=1)
    assert (world.events, world.record(record.id).state) == ([], "succeeded")


def test_a_doubt_after_another_dispatch_is_probed_from_the_beginning() -> None:
    world = opened(PROBED)
    record = in_doubt(world)
    record = world.probe(record, "unclear")
    world.reconcile(record, "did_not_happen", means=world.means(record))
    world.settle(record.id, DOUBT, owner="two")
    assert (world.record(record.id).probes, world.record(record.id).probe_at) == (0, world.now + 60_000)


def test_a_person_ends_the_probing() -> None:
    world = opened(PROBED)
    record = in_doubt(world)
    world.reconcile(record, "abandoned")
    assert world.tree().call_due_at(world.record(record.id)) is None


def test_a_probe_costs_nothing() -> None:
    world = opened(PROBED)
    record = in_doubt(world)
    before = purse(world.run())
    world.probe(record, "unclear")
    assert purse(world.run()) == before
