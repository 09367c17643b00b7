"""Rows from states: only what changed, and the same rows that a rebuild gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.core import streams
from gateway.core.events import (
    CallCancelled,
    CallProbed,
    CallReconciled,
    CallReplayed,
    Event,
    HoldApproved,
    HoldDenied,
    HoldExpired,
    HoldVoided,
    RunClosed,
    RunClosing,
    RunFrozen,
    RunOpened,
    RunRegistered,
    RunResumed,
    ToolsAccepted,
    ToolsPinned,
    TurnAnswered,
    TurnClosed,
    TurnOpened,
)
from gateway.core.lifecycle import IllegalTransition
from gateway.ledger.views import COLUMNS, FILTERS, Row, call_row, changes, everything
from tests.ledger.runs import HOLD, LIMITS, RUN, admit, hold, open_run, settle, vote


def changed(before: Any, after: Any, stream: str, event: Event, root: Any) -> tuple[list[Row], Any]:
    """All rows that an event changed, the call's as well, and the root's."""
    rows, root, call = changes(before, after, stream, event, root)
    return [*rows, *([Row("calls", call.id, call_row(call, stream, after.call_due_at(call)))] if call else [])], root


def told(*events: Event, stream: str = RUN) -> tuple[Any, list[list[Row]], dict[tuple[str, str], tuple[Any, ...]]]:
    """The state after the events, the rows each event changed, and the tables that this makes."""
    state, root, steps = streams.empty(stream), None, []
    tables: dict[tuple[str, str], tuple[Any, ...]] = {}
    for seq, event in enumerate(events, 1):
        before, state = state, streams.evolve(state, seq, 1_800_000_000_000, event)
        rows, root = changed(before, state, stream, event, root)
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
    settle(3, "in_doubt", probe_at=9),
    CallProbed(RUN, "call_r_3", "pay.find", "unclear", again_at=99),
    CallReconciled(RUN, "call_r_3", "ready", "user:mia", "no trace"),
    admit(3, attempt=2),
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
    waiting: Any = hold(number, expires_in_ms=number * 50_000)
    voting: Any = vote("user:mia", number)
    made: list[Any] = [
        admit(number), replace(waiting, hold=held), admit(number, hold=held), admit(number, attempt=2),
        *(settle(number, state) for state in ("succeeded", "failed", "in_doubt", "cancelled")), replace(voting, hold=held),
        HoldApproved(run, call, held, NOW + 70_000), HoldDenied(run, call, held, "user:mia"), HoldExpired(run, call, held, "approval.expired"),
        *(CallReconciled(run, call, state, "user:mia", "I looked") for state in ("succeeded", "failed", "ready", "abandoned")),
        CallProbed(run, call, "pay.find", "unclear"), HoldVoided(run, call, held, "tool"), CallCancelled(run, call, "call.cancelled", "agent:a"),
    ]  # fmt: skip
    return [replace(event, run=run) for event in made]


def of_a_run(run: str) -> list[Event]:
    closing = RunClosing(run, "cancelled", "caller_cancelled", "user:mia")
    turns = [kind for turn in (1, 2) for kind in (TurnOpened(run, turn), TurnAnswered(run, turn, "d"), TurnClosed(run, turn, "completed"))]
    return [*turns, RunFrozen(run, "user:mia"), RunResumed(run, "user:mia"), closing, RunClosed(run, "cancelled", "caller_cancelled")]


POOL = [
    *(event for number in (1, 2, 3) for event in of_a_call(number, RUN)), *of_a_run(RUN), open_run(CHILD, parent=RUN), *of_a_run(CHILD),
    *of_a_call(4, CHILD),
]  # fmt: skip
PAUSES = {"pause_while_held": True, "close_on": ["deadline"]}
HOLD_3 = of_a_call(3, RUN)[1]
OF_CHILD = of_a_call(4, CHILD)


def folded(state: Any, seq: int, at: int, event: Event) -> Any:
    """The state after the event; None where the fold refuses it."""
    try:
        return streams.evolve(state, seq, at, event)
    except IllegalTransition:
        return None


def lived(pick: Callable[[list[Event]], Event], times: Iterable[int], known: bool, limits: dict[str, Any]) -> None:
    """Let what `pick` chooses of the possible happen, and look at the tables after each one. `known`: the root's row is
    remembered, unlike after a load."""
    state, root, at = streams.empty(RUN), None, NOW
    tables: dict[tuple[str, str], tuple[Any, ...]] = {}
    for seq, later in enumerate([0, *times], 1):
        pool = [replace(each, limits=LIMITS | limits) if isinstance(each, RunOpened) else each for each in (POOL if seq > 1 else [open_run()])]
        event = pick([each for each in pool if folded(state, seq, at + later, each)])
        before, at = state, at + later
        state = streams.evolve(before, seq, at, event)
        rows, root = changed(before, state, RUN, event, root if known else None)
        tables.update({(row.view, row.id): row.values for row in rows})
        assert tables == {(row.view, row.id): row.values for row in everything(state, RUN)}
        assert root == tables["runs", RUN]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from([0, 0, 1, 7_000, 61_000])), max_size=20),
    st.booleans(),
    st.fixed_dictionaries({"pause_while_held": st.booleans(), "close_on": st.sampled_from([[], ["deadline"]])}),
)
def test_whatever_happens_the_tables_are_what_a_rebuild_gives(picks: list[tuple[int, int]], known: bool, limits: dict[str, Any]) -> None:
    numbers = iter([0, *(number for number, _ in picks)])
    lived(lambda possible: possible[next(numbers) % len(possible)], [later for _, later in picks], known, limits)


@pytest.mark.parametrize(
    ("events", "later", "limits"),
    [
        ([admit(1), settle(1)], 61_000, {"close_on": []}),
        ([admit(1), admit(2), HOLD_3, settle(1), settle(2)], 1_000, PAUSES),
        ([HOLD_3, admit(1)], 1_000, PAUSES),
        ([*of_a_call(1, RUN)[1:2], HoldApproved(RUN, "call_r_1", "hold_r_1", NOW + 70_000), of_a_call(1, RUN)[2]], 1_000, {}),
        ([admit(1), of_a_run(RUN)[-2], settle(1)], 1_000, {}),
        ([open_run(CHILD, parent=RUN), OF_CHILD[0], of_a_run(CHILD)[-2], OF_CHILD[4]], 1_000, {}),
    ],
    ids=["an idle minute passes", "a pause begins", "a pause ends", "a hold is consumed", "a closing run is done", "a child is done"],
)
def test_a_call_that_moves_its_runs_times_writes_the_roots_row(events: list[Event], later: int, limits: dict[str, Any]) -> None:
    opened: Any = open_run()
    left = iter([replace(opened, limits=LIMITS | limits), *events])
    lived(lambda possible: next(left), [later] * len(events), True, limits)


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
    pinned, accepted = ToolsPinned("crm", {"crm.get": "one", "crm.put": "two"}), ToolsAccepted("user:ops", {"crm.get": "three"})
    state, steps, tables = told(pinned, accepted, stream="gateway")
    assert [len(rows) for rows in steps] == [2, 1]
    assert tables == {(row.view, row.id): row.values for row in everything(state, "gateway")}
    assert told(RunRegistered("agent:a", RUN, None), stream="principal:agent:a")[2] == {}


def test_every_row_has_its_columns_its_id_first_and_its_stream() -> None:
    _, _, tables = told(*LIFE)
    for (view, id), values in tables.items():
        assert len(values) == len(COLUMNS[view])
        assert (values[0], values[COLUMNS[view].index("stream")]) == (id, RUN)
    assert {view for view, _ in tables} == {"runs", "calls", "holds", "votes"}


def test_filters_are_columns() -> None:
    for view, names in FILTERS.items():
        assert names <= set(COLUMNS[view])
