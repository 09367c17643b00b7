"""Every effect against every fault and status: what stands, what may be tried again, what surely didn't happen."""

from __future__ import annotations

import itertools

import pytest

from gateway.core.guards.guard import ConditionFault
from gateway.core.model import Effect
from gateway.core.outcomes import FAULTS, KINDS, outcome_of_answer, outcome_of_fault, standing
from gateway.core.policy import Idempotency
from gateway.core.reasons import REASONS

READ, IDEMPOTENT, NON_IDEMPOTENT = Effect.READ_ONLY, Effect.IDEMPOTENT_WRITE, Effect.NON_IDEMPOTENT

NEVER_SENT = {"refused", "unreachable", "dns", "tls", "connect_timeout", "pool_timeout", "unavailable", "unsendable"}
MAYBE = {"reset", "closed", "timeout", "cut", "garbage", "too_large", "cancelled", "lost"}
RETRY_IS_VAIN = {"unsendable", "too_large", "cancelled"}

def product(*sides):
    return list(itertools.product(*sides))


OK = {"content": [], "isError": False}
ERROR = {"content": [{"type": "text", "text": "no"}], "isError": True}


def text(*texts: str) -> dict[str, object]:
    return {"content": [{"type": "text", "text": t} for t in texts], "isError": True}


def test_the_table_has_exactly_these_kinds_and_each_reason_has_a_row():
    assert KINDS == NEVER_SENT | MAYBE
    assert {fault.reason for fault in FAULTS.values()} <= set(REASONS)


@pytest.mark.parametrize(("effect", "kind"), product(Effect, sorted(NEVER_SENT)))
def test_a_fault_before_the_first_byte_is_not_applied_for_all_effects(effect, kind):
    outcome = outcome_of_fault(kind, "m", effect, retry_after_ms=7)
    assert (outcome.state, outcome.not_applied, outcome.answered) == ("failed", True, False)
    assert outcome.retry is (kind not in RETRY_IS_VAIN)
    assert outcome.reason == ("arguments.unsendable" if kind == "unsendable" else "upstream.unavailable")
    assert outcome.message == "m"


@pytest.mark.parametrize("kind", sorted(MAYBE))
def test_a_read_that_may_have_run_fails_and_is_tried_again(kind):
    outcome = outcome_of_fault(kind, "m", READ)
    assert outcome.state == ("cancelled" if kind == "cancelled" else "failed")
    assert outcome.retry is (kind not in RETRY_IS_VAIN)
    assert not outcome.not_applied
    assert not outcome.answered


@pytest.mark.parametrize("kind", sorted(MAYBE))
def test_an_idempotent_write_that_may_have_run_is_in_doubt_and_tried_again_under_its_key(kind):
    outcome = outcome_of_fault(kind, "m", IDEMPOTENT)
    assert (outcome.state, outcome.reason) == ("in_doubt", "call.in_doubt")
    assert outcome.retry is (kind not in RETRY_IS_VAIN)
    assert not outcome.not_applied


@pytest.mark.parametrize(("kind", "status"), product(sorted(MAYBE), (None, 200, 404, 429, 500, 503)))
def test_a_non_idempotent_write_that_may_have_run_is_in_doubt_and_never_tried_again(kind, status):
    outcome = outcome_of_fault(kind, "m", NON_IDEMPOTENT, status=status, retry_after_ms=7)
    assert (outcome.state, outcome.reason, outcome.status) == ("in_doubt", "call.in_doubt", status)
    assert not outcome.retry
    assert not outcome.not_applied
    assert outcome.retry_after_ms is None


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("timeout", "tool.timeout"),
        ("garbage", "tool.error"),
        ("too_large", "result.unread"),
        ("cancelled", "call.cancelled"),
        *((kind, "upstream.unavailable") for kind in ("closed", "cut", "reset", "lost")),
    ],
)
def test_a_reads_fault_is_named_by_its_reason(kind, reason):
    assert outcome_of_fault(kind, "m", READ).reason == reason


def test_a_kind_without_a_row_counts_as_maybe_applied():
    assert outcome_of_fault("new", "m", NON_IDEMPOTENT).state == "in_doubt"


@pytest.mark.parametrize("effect", list(Effect))
def test_a_listed_status_whose_body_was_lost_is_not_applied(effect):
    outcome = outcome_of_fault("cut", "m", effect, status=503, idempotency=Idempotency(not_applied_statuses=frozenset({503})))
    assert (outcome.state, outcome.not_applied, outcome.answered, outcome.status) == ("failed", True, True, 503)
    assert outcome.result["isError"] is True
    assert outcome.retry is (effect is not NON_IDEMPOTENT)


@pytest.mark.parametrize(("effect", "status"), product(Effect, (None, 200, 201, 204, 302, 399)))
def test_an_answer_below_400_without_error_succeeded(effect, status):
    outcome = outcome_of_answer(OK, status, effect)
    assert (outcome.state, outcome.reason, outcome.answered, outcome.status) == ("succeeded", None, True, status)
    assert outcome.result is OK
    assert not outcome.retry
    assert not outcome.not_applied


@pytest.mark.parametrize(("effect", "status"), product(Effect, (None, 200, 302, 400, 401, 404, 409, 422, 499)))
def test_a_definite_error_has_failed_and_is_not_tried_again(effect, status):
    outcome = outcome_of_answer(ERROR, status, effect, retry_after_ms=7)
    assert (outcome.state, outcome.reason, outcome.answered, outcome.retry) == ("failed", "tool.error", True, False)
    assert outcome.result is ERROR
    assert not outcome.not_applied
    assert outcome.retry_after_ms is None


@pytest.mark.parametrize(("effect", "status"), product(Effect, (429, 500, 502, 503, 504, 599)))
def test_overload_and_server_errors_are_tried_again_unless_a_repeat_could_do_it_twice(effect, status):
    outcome = outcome_of_answer(ERROR, status, effect, retry_after_ms=1500)
    again = effect is not NON_IDEMPOTENT
    assert (outcome.retry, outcome.retry_after_ms) == (again, 1500 if again else None)
    doubt = effect is NON_IDEMPOTENT and status >= 500
    assert (outcome.state, outcome.answered) == (("in_doubt", False) if doubt else ("failed", True))
    assert outcome.reason == ("call.in_doubt" if doubt else "tool.error")
    assert outcome.result is ERROR, "what was answered stays with the outcome"
    assert not outcome.not_applied


def test_a_status_from_400_up_fails_whatever_the_result_says():
    assert outcome_of_answer(OK, 404, READ).state == "failed"


@pytest.mark.parametrize(("effect", "status"), product(Effect, (409, 429, 500, 503)))
def test_a_status_that_the_policy_lists_is_not_applied(effect, status):
    outcome = outcome_of_answer(ERROR, status, effect, Idempotency(not_applied_statuses=frozenset({status})))
    assert (outcome.state, outcome.reason, outcome.answered, outcome.not_applied) == ("failed", "tool.error", True, True)
    assert outcome.retry is (effect is not NON_IDEMPOTENT and status != 409)


@pytest.mark.parametrize(("effect", "status"), product(Effect, (None, 500)))
def test_a_condition_of_the_policy_over_the_result_says_that_nothing_was_done(effect, status):
    idempotency = Idempotency(not_applied_if=lambda facts: facts["result"] == {"code": "busy"})
    assert outcome_of_answer(text('{"code": "busy"}'), status, effect, idempotency).not_applied
    assert not outcome_of_answer(text('{"code": "done"}'), status, effect, idempotency).not_applied


def test_a_success_is_never_not_applied():
    idempotency = Idempotency(not_applied_statuses=frozenset({200}), not_applied_if=lambda facts: True)
    assert not outcome_of_answer(OK, 200, NON_IDEMPOTENT, idempotency).not_applied


def test_a_condition_that_fails_leaves_a_server_error_in_doubt():
    def broken(facts):
        raise ConditionFault("no such field")

    outcome = outcome_of_answer(ERROR, 500, NON_IDEMPOTENT, Idempotency(not_applied_if=broken))
    assert (outcome.state, outcome.not_applied) == ("in_doubt", False)


TIMED_OUT = outcome_of_fault("timeout", "first", IDEMPOTENT)


@pytest.mark.parametrize(
    "last",
    [
        outcome_of_fault("refused", "m", IDEMPOTENT),
        outcome_of_fault("unsendable", "m", IDEMPOTENT),
        outcome_of_fault("reset", "m", IDEMPOTENT),
        outcome_of_answer(ERROR, 429, IDEMPOTENT, retry_after_ms=9),
        outcome_of_answer(ERROR, 503, IDEMPOTENT, retry_after_ms=9),
        outcome_of_answer(ERROR, 409, IDEMPOTENT, Idempotency(not_applied_statuses=frozenset({409}))),
    ],
)
def test_an_attempt_that_did_not_get_through_leaves_an_earlier_one_in_doubt(last):
    stands = standing(TIMED_OUT, last)
    assert (stands.state, stands.message, stands.not_applied) == ("in_doubt", "first", False)
    assert (stands.retry, stands.retry_after_ms) == (last.retry, last.retry_after_ms)


@pytest.mark.parametrize("last", [outcome_of_answer(OK, 200, IDEMPOTENT), outcome_of_answer(ERROR, 409, IDEMPOTENT)])
def test_a_definite_answer_under_the_same_key_ends_the_doubt(last):
    assert standing(TIMED_OUT, last) is last


def test_without_doubt_the_last_attempt_stands():
    refused = outcome_of_fault("refused", "m", IDEMPOTENT)
    for earlier in (None, refused, outcome_of_answer(ERROR, 503, IDEMPOTENT), outcome_of_fault("timeout", "m", READ)):
        assert standing(earlier, refused) is refused
