"""One error shape, with statuses from reason rows only."""

import pytest

from gateway.core.model import Busy, Doubt, Failed, Finding, Outcome, Refused
from gateway.core.outcomes import in_doubt
from gateway.core.reasons import REASONS, reason
from gateway.doors.problems import failure, problem
from gateway.doors.render import budget_json
from gateway.ports import LedgerFault, PolicyError, RequestFault
from tests.fakes import budget

MEMBERS = {"type", "title", "status", "reason", "detail", "findings", "retryable", "hint", "call", "budget"}


@pytest.mark.parametrize("code", sorted(REASONS))
def test_every_reason_has_its_problem_with_the_rows_words(code: str) -> None:
    told = problem(RequestFault(code, "because"))
    row = reason(code)
    assert told.body.keys() == MEMBERS
    assert told.status == told.body["status"] == row.status
    assert (told.body["title"], told.body["hint"], told.body["retryable"]) == (row.title, row.hint, row.retryable)
    assert told.body["type"].endswith(code)
    assert told.body["detail"] == "because"


def test_a_refusal_is_its_first_finding_and_tells_all() -> None:
    spent = Finding("budgets", "budget.tool_calls", "40 of 40", "policies/refunds.yaml:12")
    findings = (spent, Finding("loops", "loop.repeat", "again", closes=True))
    told = problem(Refused("call_1", findings, budget()))
    assert (told.status, told.body["reason"], told.body["detail"], told.body["call"]) == (429, "budget.tool_calls", "40 of 40", "call_1")
    assert told.body["findings"] == [
        {"guard": "budgets", "reason": "budget.tool_calls", "message": "40 of 40", "rule": "policies/refunds.yaml:12"},
        {"guard": "loops", "reason": "loop.repeat", "message": "again", "rule": ""},
    ]
    assert told.body["budget"] == budget_json(budget())


def test_a_running_call_says_when_to_ask_again() -> None:
    told = problem(Busy("call_1", budget()))
    assert (told.status, told.body["reason"], told.body["call"]) == (409, "call.in_flight", "call_1")
    assert dict(told.headers)[b"retry-after"] == b"1"


def test_a_call_in_doubt_carries_its_reconciliation_id_and_no_invitation_to_retry() -> None:
    told = problem(Doubt("call_1", in_doubt("it was sent"), budget()))
    assert (told.status, told.body["reason"], told.body["call"], told.body["retryable"]) == (409, "call.in_doubt", "call_1", False)
    assert told.headers == ()


@pytest.mark.parametrize(
    ("code", "status"), [("tool.timeout", 504), ("upstream.unavailable", 502), ("call.cancelled", 409), ("tool.error", 502)]
)
def test_a_call_without_an_answer_has_its_reasons_status(code: str, status: int) -> None:
    told = problem(Failed("call_1", Outcome("failed", code, "it broke"), budget()))
    assert (told.status, told.body["detail"], told.body["call"]) == (status, "it broke", "call_1")


def test_an_upstreams_own_time_to_wait_is_passed_on_in_whole_seconds() -> None:
    told = problem(Failed("call_1", Outcome("failed", "upstream.unavailable", retry_after_ms=1200), budget()))
    assert dict(told.headers)[b"retry-after"] == b"2"


def test_where_waiting_does_not_help_an_upstreams_time_is_not_passed_on() -> None:
    assert problem(Failed("call_1", Outcome("failed", "call.cancelled", retry_after_ms=1200), budget())).headers == ()


def test_a_ledger_fault_is_503_and_keeps_its_cause_to_itself() -> None:
    told = problem(LedgerFault("disk /var/lib/x is full"))
    assert (told.status, told.body["reason"]) == (503, "ledger.unavailable")
    assert "/var" not in str(told.body)
    assert b"retry-after" in dict(told.headers)


def test_a_fault_of_our_own_is_500() -> None:
    assert (failure().status, failure().body["reason"]) == (500, "gateway.failed")
    assert problem(PolicyError("policies/x.yaml:1:1: gone")) == failure()


def test_a_faults_data_stands_beside_the_members_and_never_over_them() -> None:
    told = problem(RequestFault("hold.conflict", "late", data={"state": "denied", "status": 200}), budget())
    assert told.body["state"] == "denied"
    assert told.body["status"] == told.status == 409
    assert told.body["budget"] == budget_json(budget())


def test_retry_after_stands_only_where_the_reason_says_that_trying_again_helps() -> None:
    assert b"retry-after" not in dict(problem(RequestFault("budget.tool_calls", "")).headers)


def test_only_401_asks_for_credentials() -> None:
    asking = [code for code in REASONS if b"www-authenticate" in dict(problem(RequestFault(code, "")).headers)]
    assert asking == ["auth.required"]
