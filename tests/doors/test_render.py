"""JSON shapes, and foreign text that can't act."""

import unicodedata

import pytest
from immutables import Map

from gateway.core.events import CallReplayed, TurnAnswered
from gateway.core.model import Completed, Effect, Held, Limits, Requirement
from gateway.core.run import CallRecord, Hold, Run, Turn, Vote
from gateway.doors import render
from gateway.doors.render import visible
from gateway.engine import HoldView, RunView, TurnResult, TurnView
from gateway.ports import Recorded
from tests.fakes import budget

AT = 1_796_000_000_123
AT_TEXT = "2026-11-30T00:53:20.123Z"
BUDGET = {
    "turns_left": 5, "final_turn": False, "tool_calls_left": 12, "tokens_left": 9000, "cost_usd_left": 1.25,
    "deadline": "2026-11-30T00:54:50.000Z", "seconds_left": 88.5, "warning": None,
}  # fmt: skip


def run(**changes: object) -> Run:
    known = {
        "id": "run_1", "principal": "agent:bot", "opened_by": "agent:bot", "policy": "refunds", "policy_digest": "abc", "limits": Limits(),
        "task_type": "interactive", "opened_at": AT, "door": "rest", "run_key": "ticket-881", "goal": "help", "labels": Map({"team": "a"}),
    }  # fmt: skip
    return Run(**{**known, **changes})  # type: ignore[arg-type]


def test_times_are_rfc_3339_to_the_millisecond() -> None:
    assert render.time_text(AT) == AT_TEXT
    assert render.time_text(0) == "1970-01-01T00:00:00.000Z"
    assert render.time_text(None) is None


def test_a_budget_has_its_eight_fields() -> None:
    assert render.budget_json(budget()) == BUDGET
    assert render.budget_json(budget(deadline_at=None, turns_left="unmetered"))["deadline"] is None


def test_budget_headers_leave_out_what_is_unlimited() -> None:
    headers = dict(render.budget_headers(budget(tokens_left=None)))
    assert headers[b"gateway-budget-turns-left"] == b"5"
    assert headers[b"gateway-budget-deadline"] == b"2026-11-30T00:54:50.000Z"
    assert b"gateway-budget-tokens-left" not in headers


def test_an_open_run_shows_its_state_and_a_closed_one_how_it_ended() -> None:
    view = RunView(run(), budget(), ("crm.get_order",), {"succeeded": 2}, True)
    shown = render.run_json(view)
    assert shown["run"] == "run_1"
    assert (shown["status"], shown["reason"]) == ("open", None)
    assert shown["policy"] == {"name": "refunds", "digest": "abc"}
    assert (shown["tools"], shown["calls"], shown["awaiting_approval"]) == (["crm.get_order"], {"succeeded": 2}, True)
    assert (shown["run_key"], shown["labels"], shown["opened_at"], shown["closed_at"]) == ("ticket-881", {"team": "a"}, AT_TEXT, None)
    assert shown["budget"] == BUDGET
    closing = run(state="closing", status="blocked", reason="loop")
    assert render.run_json(RunView(closing, budget(), (), {}, False))["status"] == "closing"
    closed = run(state="closed", status="blocked", reason="loop", closed_at=AT, handoff=Map({"done": "x"}))
    shown = render.run_json(RunView(closed, budget(), (), {}, False))
    assert (shown["status"], shown["reason"], shown["closed_at"], shown["handoff"]) == ("blocked", "loop", AT_TEXT, {"done": "x"})


def test_a_row_shows_times_and_hides_the_streams() -> None:
    assert render.row_json({"run": "run_1", "opened_at": AT, "closed_at": None, "due_at": 1, "stream": "run_1"}) == {
        "run": "run_1", "opened_at": AT_TEXT, "closed_at": None,
    }  # fmt: skip


def test_a_turn_shows_what_became_of_each_asked_call() -> None:
    results = (TurnResult("toolu_1", "crm.get_order", "call_1", "succeeded", {"content": []}), TurnResult("toolu_2", "x.y", None, "new", None, True))
    shown = render.turn_json(TurnView(Turn(3, AT, state="answered", digest="d"), budget(), results))
    assert (shown["turn"], shown["status"], shown["digest"], shown["opened_at"]) == (3, "answered", "d", AT_TEXT)
    assert shown["calls"][0] == {
        "call_id": "toolu_1", "tool": "crm.get_order", "call": "call_1", "status": "succeeded", "synthetic": False, "result": {"content": []},
    }  # fmt: skip
    assert shown["calls"][1]["synthetic"] is True
    assert shown["budget"] == BUDGET
    assert render.turn_json(TurnView(Turn(3, AT, state="closed", status="cancelled"), budget(), ()))["status"] == "cancelled"


def test_an_event_shows_its_kind_and_fields() -> None:
    event = TurnAnswered("run_1", 2, None, ({"call_id": "a", "tool": "x.y", "arguments": "h"},))
    shown = render.event_json(Recorded("run_1", 7, "event_1", AT, event, "ff"))
    assert (shown["seq"], shown["at"], shown["kind"], shown["hash"]) == (7, AT_TEXT, "TurnAnswered", "ff")
    assert shown["event"]["run"] == "run_1"
    assert shown["event"]["turn"] == 2
    replayed = CallReplayed("run_1", "call_1", "run_1", 0, None, "x.y", "f", "rest", None)
    assert render.event_json(Recorded("run_1", 8, "event_2", AT, replayed, "ff"))["event"]["call"] == "call_1"


def test_a_completed_call_has_the_contracts_fields() -> None:
    reply = Completed("call_1", "failed", {"content": [], "isError": True}, budget(), "tool.error", True, "nothing was executed", {"a": [1, 2]})
    assert render.completed_json(reply) == {
        "call": "call_1", "status": "failed", "reason": "tool.error", "replayed": True, "message": "nothing was executed",
        "differences": {"a": [1, 2]}, "result": {"content": [], "isError": True}, "budget": BUDGET,
    }  # fmt: skip


def test_a_held_call_says_where_its_hold_is() -> None:
    assert render.held_json(Held("call_1", "hold_1_1", AT, "approval.required", "not executed", budget())) == {
        "call": "call_1", "status": "held", "reason": "approval.required",
        "hold": {"hold": "hold_1_1", "url": "/v1/holds/hold_1_1", "expires_at": AT_TEXT},
        "message": "not executed", "budget": BUDGET,
    }  # fmt: skip


def hold_view(**changes: object) -> HoldView:
    needs = (
        Requirement("policies/r.yaml:12", "d1", ("group:finance",), 1, editable=("amount", "note")),
        Requirement("policies/c.yaml:3", "d2", ("group:leads",), 2, editable=("amount",)),
    )
    votes = (Vote("user:mia", "approve", ("finance",), AT, "fine"),)
    hold = Hold("hold_1_1", "call_1", "run_1", "digest", needs, "Refund 5 EUR", AT, AT, 900_000, votes=votes)
    call = CallRecord("call_1", "run_1", 0, None, "billing.refund", "f", None, "h", AT, "rest", effect=Effect.NON_IDEMPOTENT)
    return HoldView(hold, call, run(), {"amount": 5})


def test_a_hold_shows_all_that_an_approver_must_see() -> None:
    shown = render.hold_json(hold_view())
    assert (shown["hold"], shown["status"], shown["digest"], shown["run"], shown["tool"]) == ("hold_1_1", "held", "digest", "run_1", "billing.refund")
    assert (shown["arguments"], shown["rule"], shown["principal"]) == ({"amount": 5}, "policies/r.yaml:12", "agent:bot")
    assert shown["requirements"] == [
        {"rule": "policies/r.yaml:12", "approvers": ["group:finance"], "quorum": 1, "met": True},
        {"rule": "policies/c.yaml:3", "approvers": ["group:leads"], "quorum": 2, "met": False},
    ]
    assert shown["votes"] == [{"by": "user:mia", "vote": "approve", "at": AT_TEXT, "note": "fine"}]
    assert (shown["expires_at"], shown["execute_by"], shown["show"]) == (AT_TEXT, None, "Refund 5 EUR")


def test_a_field_may_be_edited_only_if_every_requirement_lets_it() -> None:
    assert render.hold_json(hold_view())["editable"] == ["amount"]


# ---- foreign text -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, 100% of it", "plain text, 100% of it"),
        ("Größe 東京 😀", "Größe 東京 😀"),
        ("\x1b[2J\x1b]0;title\x07", "␛[2J␛]0;title␇"),
        ("a\nb\r\tc\x00\x7f", "a␊b␍␉c␀␡"),
        ("\x9b31m", "<U+009B>31m"),
        ("pay \u202e05$\u202c", "pay <U+202E>05$<U+202C>"),
        ("\u2066a\u2069\u200b\u200d\ufeff\u00ad", "<U+2066>a<U+2069><U+200B><U+200D><U+FEFF><U+00AD>"),
        ("a\u2028b\u2029c\u00a0d\u3000e", "a<U+2028>b<U+2029>c<U+00A0>d<U+3000>e"),
        ("\U000e0041\U000e0001", "<U+E0041><U+E0001>"),
        ("\u3164\u115f\u2800\ufe0f\U000e0100", "<U+3164><U+115F><U+2800><U+FE0F><U+E0100>"),
        ("\ue000\uffff\ud800", "<U+E000><U+FFFF><U+D800>"),
        ("", ""),
    ],
)
def test_what_would_act_or_hide_is_shown(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_nothing_invisible_is_left_of_any_character() -> None:
    for code in range(0x110000):
        shown = visible(chr(code))
        assert shown == " " or all(unicodedata.category(one)[0] not in "CZ" for one in shown), hex(code)
