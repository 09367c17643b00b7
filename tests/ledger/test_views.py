"""Rows from states: only what changed, and the same rows that a rebuild gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core import streams
from gateway.core.events import (
    CallCancelled,
    CallReplayed,
    Event,
    HoldApproved,
    HoldDenied,
    HoldExpired,
    HoldVoided,
    RunClosed,
    RunClosing,
    RunFrozen,
    RunRegistered,
    RunResumed,
    ToolSeen,
    TurnAnswered,
    TurnClosed,
    TurnOpened,
)
from gateway.core.lifecycle import IllegalTransition
from gateway.ledger.views import COLUMNS, FILTERS, Row, changes, everything
from tests.ledger.runs import HOLD, LIMITS, RUN, admit, hold, open_run, settle, vote


def told(*events: Event, stream: str = RUN) -> tuple[Any, list[list[Row]], dict[tuple[str, str], tuple[Any, ...]]]:
    """The state after the events, the rows each event changed, and the tables that this makes."""
    state, root, steps = streams.empty(stream), None, []
    tables: dict[tuple[str, str], tuple[Any, ...]] = {}
    for seq, event in enumerate(events, 1):
        before, state = state, streams.evolve(state, seq, 1_800_000_000_000, event)
        rows, root = changes(before, state, stream, event, root)
        tables.update({(row.view, row.id): row.values for row in rows})
        steps.append(rows)
    return state, steps, tables


LIFE = [
    open_run(),
    TurnOpened(RUN, 1),
    admit(1),
    settle(1),
    open_run("run_r.2", parent=RUN),
    hold(2),
    vote("user:mia", 2),
    vote("user:leo", 2),
    HoldApproved(RUN, "call_r_2", HOLD, 1_800_000_100_000),
    admit(2, hold=HOLD),
    settle(2, "failed", reason="tool.error"),
    admit(3),
    settle(3, "in_doubt"),
    CallReplayed(RUN, "call_r_1", RUN, 0, None, "billing.refund", "print1", "rest", None),
    RunClosing("run_r.2", "cancelled", "caller_cancelled", "user:mia"),
    RunClosed("run_r.2", "cancelled", "caller_cancelled"),
]


@pytest.mark.parametrize("count", range(1, len(LIFE) + 1))
def test_after_any_event_the_tables_are_what_a_rebuild_gives(count: int) -> None:
    state, _, tables = told(*LIFE[:count])
    assert tables == {(row.view, row.id): row.values for row in everything(state, RUN)}


CHILD = "run_r.2"
NOW = 1_800_000_000_000


def of_a_call(number: int, run: str) -> list[Event]:
    """All that can befall a call, in an order in which some of it is allowed."""
    call, held = f"call_r_{number}", f"hold_r_{number}"
    made = [
        admit(number), replace(hold(number, expires_in_ms=number * 50_000), hold=held), admit(number, hold=held), admit(number, attempt=2),
        *(settle(number, state) for state in ("succeeded", "failed", "in_doubt", "cancelled")), replace(vote("user:mia", number), hold=held),
        HoldApproved(run, call, held, NOW + 70_000), HoldDenied(run, call, held, "user:mia"), HoldExpired(run, call, held, "approval.expired"),
        HoldVoided(run, call, held, "tool"), CallCancelled(run, call, "call.cancelled", "agent:a"),
    ]  # fmt: skip
    return [replace(event, run=run) for event in made]  # type: ignore[call-arg]


def of_a_run(run: str) -> list[Event]:
    closing = RunClosing(run, "cancelled", "caller_cancelled", "user:mia")
    turns = [kind for turn in (1, 2) for kind in (TurnOpened(run, turn), TurnAnswered(run, turn, "d"), TurnClosed(run, turn, "completed"))]
    return [*turns, RunFrozen(run, "user:mia"), RunResumed(run, "user:mia"), closing, RunClosed(run, "cancelled", "caller_cancelled")]


CALLS = st.sampled_from([event for number in (1, 2, 3) for event in of_a_call(number, RUN)])
OTHERS = st.sampled_from([*of_a_run(RUN), open_run(CHILD, parent=RUN), *of_a_run(CHILD), *of_a_call(4, CHILD)])
LATER = st.sampled_from([0, 0, 1, 7_000, 61_000])


@given(
    st.lists(st.tuples(CALLS | CALLS | OTHERS, LATER, st.booleans()), max_size=50),
    st.fixed_dictionaries({"pause_while_held": st.booleans(), "close_on": st.sampled_from([(), ("deadline",)])}),
)
@example([(event, 0, True) for event in (admit(1), admit(2), settle(1), hold(3), settle(2))], {"pause_while_held": True, "close_on": ()})
@example([(event, 61_000, True) for event in (admit(1), admit(2), settle(1))], {})
def test_whatever_happens_the_tables_are_what_a_rebuild_gives(happened: list[tuple[Event, int, bool]], limits: dict[str, Any]) -> None:
    """Also when the root's row isn't known, as after a load. What the fold refuses didn't happen."""
    state, root, at = streams.empty(RUN), None, NOW
    tables: dict[tuple[str, str], tuple[Any, ...]] = {}
    for seq, (event, later, known) in enumerate([(replace(open_run(), limits=LIMITS | limits), 0, True), *happened], 1):
        before, at = state, at + later
        try:
            state = streams.evolve(before, seq, at, event)
        except IllegalTransition:
            continue
        rows, root = changes(before, state, RUN, event, root if known else None)
        tables.update({(row.view, row.id): row.values for row in rows})
        assert tables == {(row.view, row.id): row.values for row in everything(state, RUN)}
        assert root == tables["runs", RUN]


@pytest.mark.parametrize("end", [HoldDenied(RUN, "call_r_1", HOLD, "user:mia"), CallCancelled(RUN, "call_r_1", "call.cancelled", "agent:a")])
def test_the_end_of_a_hold_reaches_the_rows_of_hold_and_call(end: Event) -> None:
    state, steps, tables = told(open_run(), hold(1), end)
    assert {row.view for row in steps[-1]} >= {"calls", "holds"}
    assert tables == {(row.view, row.id): row.values for row in everything(state, RUN)}


def test_a_call_does_not_touch_the_row_of_its_run() -> None:
    _, steps, _ = told(open_run(), admit(1), settle(1), admit(2))
    assert [[row.view for row in rows] for rows in steps] == [["runs"], ["calls"], ["calls"], ["calls"]]


def test_a_replay_changes_no_row() -> None:
    _, steps, _ = told(open_run(), admit(1), settle(1), CallReplayed(RUN, "call_r_1", RUN, 0, None, "t", "p", "rest", None))
    assert steps[-1] == []


def test_a_replay_of_another_runs_call_changes_no_row() -> None:
    _, steps, _ = told(open_run(), CallReplayed(RUN, "call_other_1", "run_other", 0, None, "t", "p", "rest", None))
    assert steps[-1] == []


def test_the_roots_row_alone_says_when_something_is_due() -> None:
    state, _, tables = told(open_run(), open_run("run_r.2", parent=RUN))
    at = COLUMNS["runs"].index("due_at")
    assert tables["runs", RUN][at] == state.due_at()
    assert tables["runs", "run_r.2"][at] is None


def test_tools_have_rows_and_principals_none() -> None:
    state, steps, tables = told(ToolSeen("crm.get", "one"), ToolSeen("crm.put", "two"), ToolSeen("crm.get", "three"), stream="gateway")
    assert [len(rows) for rows in steps] == [1, 1, 1]
    assert tables == {(row.view, row.id): row.values for row in everything(state, "gateway")}
    assert told(RunRegistered("agent:a", RUN, None), stream="principal:agent:a")[2] == {}


def test_every_row_has_its_columns_and_ends_with_its_stream() -> None:
    _, _, tables = told(*LIFE)
    for (view, id), values in tables.items():
        assert len(values) == len(COLUMNS[view])
        assert (values[0], values[-1]) == (id, RUN)
    assert {view for view, _ in tables} == {"runs", "calls", "holds", "votes"}


def test_filters_are_columns() -> None:
    for view, names in FILTERS.items():
        assert names <= set(COLUMNS[view])
