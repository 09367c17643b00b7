"""Each kind of reply as the result that an agent reads: fields for programs, words for models."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gateway.core.model import Busy, Completed, Doubt, Failed, Finding, Held, Outcome, Refused
from gateway.core.outcomes import in_doubt
from gateway.core.reasons import REASONS
from gateway.doors.mcp.results import result_of
from tests.doors.mcp.stage import DONE, LEFT

CALL, BUDGET = "tool-call-gateway/call", "tool-call-gateway/budget"


def called(reply):
    return result_of(reply)["_meta"][CALL]


def test_a_result_passes_untouched_but_for_our_own_meta():
    theirs = {
        "content": [{"type": "text", "text": "hi", "annotations": {"priority": 0.5}}, {"type": "x-new", "any": [2**70]}],
        "structuredContent": {"id": 2**53 + 1},
        "isError": True,
        "unknown": {"kept": None},
        "_meta": {"com.example/trace": "t"},
    }
    result = result_of(Completed("call_1_1", "failed", theirs, LEFT))
    ours = {name: result["_meta"].pop(name) for name in (CALL, BUDGET)}
    assert result == theirs
    assert ours[CALL] == {"call": "call_1_1", "status": "failed", "reason": None, "replayed": False, "hold": None}
    assert (ours[BUDGET]["turns_left"], ours[BUDGET]["tool_calls_left"], ours[BUDGET]["warning"]) == (11, 39, None)


def test_the_recorded_result_itself_is_not_changed():
    before = dict(DONE.result)
    result_of(DONE)
    assert DONE.result == before


def test_what_an_upstream_writes_under_our_prefix_is_dropped():
    theirs = {"content": [], "_meta": {CALL: {"status": "succeeded"}, "tool-call-gateway/grant": "all", "theirs": 1}}
    meta = result_of(replace(DONE, result=theirs))["_meta"]
    assert (set(meta), meta[CALL]["call"]) == ({CALL, BUDGET, "theirs"}, "call_1_1")


@pytest.mark.parametrize("meta", [None, 7, []])
def test_an_upstream_s_meta_that_is_no_object_gives_way(meta):
    assert set(result_of(replace(DONE, result={"content": [], "_meta": meta}))["_meta"]) == {CALL, BUDGET}


def test_a_replay_says_so_beside_the_result():
    reply = replace(DONE, replayed=True, message="Recorded.", differences={"note": ["a", "b"]})
    result = result_of(reply)
    assert result["content"] == DONE.result["content"]
    assert (called(reply)["replayed"], called(reply)["message"], called(reply)["differences"]) == (True, "Recorded.", {"note": ["a", "b"]})


def test_a_refusal_is_an_error_with_every_objection_in_words_and_fields():
    findings = (Finding("allow", "tool.not_allowed", "crm.drop isn't allowed.", "p.yaml:3"), Finding("x", "guard.failed", "x broke."))
    result = result_of(Refused("call_1_2", findings, LEFT))
    text, data = result["content"][0]["text"], result["structuredContent"]
    assert (result["isError"], data["reason"], data["status"], data["call"], len(data["findings"])) == (True, "tool.not_allowed", 403, "call_1_2", 2)
    assert all(part in text for part in ("crm.drop isn't allowed.", "x broke.", data["hint"]))
    assert result["_meta"][CALL] == {"call": "call_1_2", "status": "denied", "reason": "tool.not_allowed", "replayed": False, "hold": None}
    assert result["_meta"][BUDGET] == data["budget"]


def test_a_refusal_without_a_run_has_no_budget_to_tell():
    assert BUDGET not in result_of(Refused(None, (Finding("x", "run.unknown", "No."),)))["_meta"]


def test_a_held_call_is_no_error_and_says_that_nothing_was_executed():
    result = result_of(Held("call_1_1", "hold_1_1", 1_795_960_800_000, "approval.required", "It needs finance.", LEFT))
    text, data = result["content"][0]["text"], result["structuredContent"]
    assert (result["isError"], data["status"], data["hold"]["hold"], data["call"]) == (False, "held", "hold_1_1", "call_1_1")
    assert all(part in text for part in ("It needs finance.", REASONS["approval.required"].hint))
    assert result["_meta"][CALL] == {"call": "call_1_1", "status": "held", "reason": "approval.required", "replayed": False, "hold": "hold_1_1"}
    assert result["_meta"][BUDGET] == data["budget"]


@pytest.mark.parametrize(
    ("reply", "status", "reason"),
    [
        (Busy("call_1_1", LEFT), "admitted", "call.in_flight"),
        (Doubt("call_1_1", in_doubt("Nobody knows."), LEFT), "in_doubt", "call.in_doubt"),
        (Failed("call_1_1", Outcome("failed", "tool.timeout", "No answer in 5 s."), LEFT), "failed", "tool.timeout"),
        (Failed("call_1_1", Outcome("cancelled", "call.cancelled", "Cancelled."), LEFT), "cancelled", "call.cancelled"),
    ],
)
def test_without_a_result_there_is_an_error_with_the_call_s_state(reply, status, reason):
    result = result_of(reply)
    assert (result["isError"], result["structuredContent"]["reason"]) == (True, reason)
    assert (called(reply)["call"], called(reply)["status"], called(reply)["reason"]) == ("call_1_1", status, reason)
    assert result["content"][0]["text"]
