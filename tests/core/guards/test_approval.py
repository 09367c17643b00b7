"""approval: who must agree before a call runs; what nobody can shadow, shorten or forget."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from gateway.core.decide.calls import Admit, Wait
from gateway.core.guards.approval import Approval
from gateway.core.guards.guard import ConditionFault, Placed
from gateway.core.model import Finding, Requirement
from gateway.core.run import Hold
from tests.core.guards.given import ACT, BOT, MIA, READ, WRITE, Given, Written, asks, given, policy, reasons, rule, verdict

KIM = msgspec.structs.replace(MIA, id="user:kim")


def acting(*guards: Approval) -> Given:
    return given(policy(rule(*guards, name="crm.*", effect=ACT)))


def test_a_call_that_a_rule_demands_people_for_is_held() -> None:
    asked = acting(asks()).when("crm.pay", amount=5)
    assert isinstance(asked.next, Wait)
    assert (asked.next.hold.requirements[0].approvers, asked.next.hold.state) == (("user:mia", "user:kim"), "held")


def test_once_approved_the_agents_repeat_runs_once() -> None:
    run = acting(asks())
    run.when("crm.pay", amount=5)
    vote = run.vote(MIA, "approve")
    assert isinstance(vote, Hold)
    assert vote.state == "approved"
    assert isinstance(run.when("crm.pay", amount=5).next, Admit)
    assert verdict(run.happens("crm.pay", amount=6)) == "hold"


def test_a_denial_sticks_to_the_call() -> None:
    run = acting(asks())
    run.when("crm.pay", amount=5)
    run.vote(MIA, "deny", "not this customer")
    asked = run.when("crm.pay", amount=5)
    assert (verdict(asked), reasons(asked)) == ("deny", ["approval.denied"])
    assert "not this customer" in asked.findings[0].message


def test_the_requester_cannot_approve_its_own_call() -> None:
    run = acting(Approval(Requirement("p.yaml:9", "r", ("agent:bot",)), None, None))
    run.when("crm.pay")
    vote = run.vote(msgspec.structs.replace(BOT, person=True, roles=frozenset({"approver"})), "approve")
    assert isinstance(vote, Finding)
    assert vote.reason == "hold.forbidden"


def test_a_quorum_takes_that_many_people() -> None:
    run = acting(asks(quorum=2))
    run.when("crm.pay")
    states = [vote.state for person in (MIA, MIA, KIM) if isinstance(vote := run.vote(person, "approve"), Hold)]
    assert states == ["held", "held", "approved"]


def test_each_rule_that_demands_people_is_its_own_requirement() -> None:
    run = acting(asks(), Approval(Requirement("c.yaml:4", "c", ("group:legal",)), None, None))
    asked = run.when("crm.pay")
    assert isinstance(asked.next, Wait)
    assert [r.rule for r in asked.next.hold.requirements] == ["p.yaml:9", "c.yaml:4"]
    assert isinstance(vote := run.vote(MIA, "approve"), Hold)
    assert vote.state == "held"


def over_100(facts: Mapping[str, Any]) -> bool:
    if "amount" not in facts["args"]:
        raise ConditionFault("args.amount is missing")
    return bool(facts["args"]["amount"] > 100)


def test_a_condition_says_which_calls_wait() -> None:
    run = acting(replace(asks(), when=over_100))
    assert verdict(run.when("crm.pay", amount=101)) == "hold"
    assert verdict(run.when("crm.pay", amount=100)) == "allow"


def test_a_condition_that_cannot_be_judged_denies() -> None:
    assert reasons(acting(replace(asks(), when=over_100)).when("crm.pay")) == ["condition.failed"]


def test_a_deliberate_repeat_waits_though_the_rule_asks_nobody() -> None:
    run = acting(replace(asks(), requirement=None))
    run.happens("crm.pay", amount=5, operation="first")
    assert verdict(run.when("crm.pay", amount=5, operation="first")) == "replay"
    assert verdict(run.when("crm.pay", amount=5, operation="second")) == "hold"
    assert verdict(run.when("crm.pay", amount=6, operation="third")) == "allow"


def test_a_shadow_does_not_suspend_it() -> None:
    run = given(policy(replace(rule(effect=ACT), guards=(Placed(asks(), "p.yaml:9", shadow=True),))))
    assert verdict(run.when("crm.get")) == "hold"


def test_a_skipped_rules_demand_is_recorded_only() -> None:
    for guard, noted in ((asks(), "approval.required"), (replace(asks(), when=over_100), "condition.failed")):
        placed = (*rule().guards, Placed(guard, "p.yaml:5", shadow=True, skipped=True))
        asked = given(policy(replace(rule(effect=ACT), guards=placed))).when("crm.get")
        assert (verdict(asked), asked.shadowed) == ("allow", (noted,))


def test_a_skipped_rule_demands_nobody_for_a_deliberate_repeat_either() -> None:
    placed = (*rule().guards, Placed(asks(), "p.yaml:5", shadow=True, skipped=True))
    assert given(policy(replace(rule(effect=ACT), guards=placed))).when("crm.get").assessment.repeat is None


NAMES = {"approvers": ["group:leads"]}


def test_a_non_idempotent_tool_waits_for_the_default_approvers() -> None:
    guard = Approval.build(Written(effect=ACT, defaults=NAMES).section)
    assert guard == Approval(wanted := Requirement("p.yaml:9", "r", ("group:leads",)), None, wanted)


def test_other_effects_wait_for_nobody_unless_the_rule_says_so() -> None:
    assert Approval.build(Written(effect=READ, defaults=NAMES).section) is None
    assert Approval.build(Written(effect=WRITE, defaults=NAMES).section) is None
    assert Approval.build(Written(effect=READ, defaults=NAMES, rule={"approval": {}}).section) is not None
    assert Approval.build(Written(effect=WRITE, rule={"approval": "never"}).section) is None


def test_never_lifts_the_gate_but_not_that_of_deliberate_repeats() -> None:
    guard = Approval.build(Written(effect=ACT, defaults=NAMES, rule={"approval": "never"}).section)
    assert guard == Approval(None, None, Requirement("p.yaml:9", "r", ("group:leads",)))


def test_a_hold_that_names_nobody_is_a_mistake_even_where_only_a_deliberate_repeat_would_be_held() -> None:
    blocks: list[dict[str, Any]] = [{}, {"approval": {}}, {"approval": "never"}]
    for block in blocks:
        written = Written(effect=ACT, rule=block)
        Approval.build(written.section)
        assert written.reports == ["/tools/0/approval"]


def test_a_ceiling_demands_people_only_where_it_says_so() -> None:
    assert Approval.build(Written(kind="ceiling", effect=ACT, defaults=NAMES).section) is None
    assert Approval.build(Written(kind="ceiling", defaults=NAMES, rule={"approval": {}}).section) is not None


def test_every_key_of_the_block_reaches_the_requirement() -> None:
    block = {
        "when": "big", "approvers": ["user:mia"], "quorum": 1, "expires_in": "2h", "execute_within": "5m", "hold_open": "4s",
        "editable": ["amount"], "show": "Pay {args.amount}", "execute": "at_once", "grants": {"max_count": 2},
    }  # fmt: skip
    guard = Approval.build(Written(effect=ACT, defaults=NAMES, rule={"approval": block}, compiled={"big": over_100}).section)
    wanted = Requirement("p.yaml:9", "r", ("user:mia",), 1, 7_200_000, 300_000, 4_000, ("amount",), "Pay {args.amount}", "at_once")
    assert guard == Approval(wanted, over_100, wanted)
