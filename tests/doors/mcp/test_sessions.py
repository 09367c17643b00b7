"""A session is in its id: whose it is, what was agreed, how long it lasts."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.doors.mcp import sessions
from gateway.doors.mcp.sessions import Session, Sessions
from tests.fakes import FakeClock

KEYS = [b"k" * 32]
WHO = "agent:ana"


def begun(params: dict[str, Any] | None = None, clock: FakeClock | None = None) -> tuple[Sessions, Session]:
    these = Sessions(KEYS, clock or FakeClock())
    return these, these.begin(WHO, params or {})


def test_all_that_was_agreed_is_found_again_by_another_process() -> None:
    said = {
        "protocolVersion": "2025-06-18", "capabilities": {"elicitation": {"form": {}}, "roots": {"listChanged": True}, "tasks": {}},
        "clientInfo": {"name": "x" * 300},
    }  # fmt: skip
    _, session = begun(said)
    assert Sessions(KEYS, FakeClock()).find(session.id, WHO) == session
    assert (session.version, session.client, session.has_batches) == ("2025-06-18", "x" * 64, False)
    assert session.capabilities == {"elicitation": {"form": {}}, "roots": {"listChanged": True}}


@pytest.mark.parametrize("params", [{}, {"capabilities": 7, "clientInfo": "x", "protocolVersion": {}}, {"clientInfo": {"name": 7}}])
def test_whatever_a_client_says_of_itself_it_gets_a_session(params: dict[str, Any]) -> None:
    _, session = begun(params)
    assert (session.version, session.client, session.capabilities) == ("2025-11-25", "", {})


def test_capabilities_that_would_make_a_long_header_are_cut_to_their_names() -> None:
    _, session = begun({"capabilities": {"sampling": {"x": "y" * 600}, "elicitation": {"form": {}}}})
    assert session.capabilities == {"sampling": {}, "elicitation": {}}
    assert len(session.id) < 1000


def test_two_sessions_are_never_one() -> None:
    these, first = begun()
    second = these.begin(WHO, {})
    these.end(first)
    assert [these.find(one.id, WHO) for one in (first, second)] == [None, second]


def test_a_session_is_its_principal_s_and_has_an_end() -> None:
    clock = FakeClock()
    these, session = begun(clock=clock)
    assert these.find(session.id, "agent:ben") is None
    clock.now += sessions.LIFETIME_MS - 1
    assert these.find(session.id, WHO) == session
    clock.now += 1
    assert these.find(session.id, WHO) is None


def test_a_log_level_is_a_session_s_own() -> None:
    these, session = begun()
    other = these.begin(WHO, {})
    these.set_level(session, "debug")
    assert [these.level(session), these.level(other)] == ["debug", "info"]


def test_what_is_kept_is_bounded_and_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "KEPT", 2)
    these, _ = begun()
    ended = [these.begin(WHO, {}) for _ in range(3)]
    for one in ended:
        these.end(one)
    assert [these.find(one.id, WHO) is None for one in ended] == [False, True, True]
