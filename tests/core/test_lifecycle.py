"""The four tables, state by state and input by input; and the events of a run stream against them."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from gateway.core import events as e
from gateway.core.evolve import evolve_tree
from gateway.core.lifecycle import CALL, HOLD, LIVE_CALL, LIVES, RECONCILED_INPUT, RUN, SETTLED_INPUT, TURN, IllegalTransition, Table, state_of, step
from gateway.core.run import Tree
from tests.core.build import NOW, limits

RUN_ID, CALL_ID, HOLD_ID = "run_r", "call_r_1", "hold_r_1"


def inputs(table: Table) -> set[str]:
    return {by for row in table.values() for by in row}


PAIRS = [(name, state, by) for name, table in LIVES.items() for state, by in product(table, sorted(inputs(table)))]


@pytest.mark.parametrize(("name", "state", "by"), PAIRS)
def test_each_input_leads_to_the_tables_state_or_is_refused(name: str, state: str, by: str) -> None:
    table = LIVES[name]
    if by in table[state]:
        assert step(table, state, by) in table
    else:
        with pytest.raises(IllegalTransition):
            step(table, state, by)


def test_a_state_that_no_table_has_takes_nothing() -> None:
    with pytest.raises(IllegalTransition):
        step(RUN, "elsewhere", "open")


@pytest.mark.parametrize("name", LIVES)
def test_every_state_is_reached_from_new(name: str) -> None:
    table, reached = LIVES[name], {"new"}
    for _ in table:
        reached |= {after for state in reached for after in table[state].values()}
    assert reached == set(table)


def test_the_ends_of_each_life_are_those_of_the_design() -> None:
    ends = {name: {state for state, row in table.items() if not row} for name, table in LIVES.items()}
    assert ends == {
        "run": {"closed"},
        "turn": {"closed"},
        "call": {"denied", "succeeded", "failed", "cancelled", "abandoned"},
        "hold": {"denied", "expired", "void", "cancelled", "consumed"},
    }


def test_only_a_live_call_can_still_be_dispatched() -> None:
    assert {state for state, row in CALL.items() if "admitted" in row.values() and state != "new"} <= LIVE_CALL
    assert {*SETTLED_INPUT.values(), *RECONCILED_INPUT.values()} <= inputs(CALL)


def test_a_thing_is_new_before_its_first_event() -> None:
    assert state_of(None) == "new"


# ---- events -------------------------------------------------------------------------------------------------------------


def asked(kind: type[e.CallAsked], **more: Any) -> e.Event:
    return kind(RUN_ID, CALL_ID, 0, None, "pay.refund", "print", "rest", None, None, **more)


def hold(kind: type[e.HoldEvent], *fields: Any) -> e.Event:
    return kind(RUN_ID, CALL_ID, HOLD_ID, *fields)


def settled(state: str) -> e.Event:
    return e.CallSettled(RUN_ID, CALL_ID, 1, state)


def reconciled(state: str) -> e.Event:
    return e.CallReconciled(RUN_ID, CALL_ID, state, "user:mia", "I looked")


OPEN = e.RunOpened(RUN_ID, "agent:bot", "agent:bot", "p", "set", limits(), "interactive", "rest")
HELD = asked(e.CallHeld, hold=HOLD_ID, effect="non_idempotent", usd_micros=1)
ADMIT = asked(e.CallAdmitted, effect="non_idempotent", usd_micros=1)
CONSUME = asked(e.CallAdmitted, effect="non_idempotent", hold=HOLD_ID)
APPROVE = hold(e.HoldApproved, NOW)
TURN_OPEN, TURN_CLOSED = e.TurnOpened(RUN_ID, 1, 5), e.TurnClosed(RUN_ID, 1, "completed")
ANSWER = e.TurnAnswered(RUN_ID, 1, "digest", ())
CLOSE = e.RunClosing(RUN_ID, "completed", "model_final", "agent:bot")

RUN_PATHS: dict[str, list[e.Event]] = {
    "new": [], "open": [OPEN], "frozen": [OPEN, e.RunFrozen(RUN_ID, "op")], "closing": [OPEN, CLOSE],
    "closed": [OPEN, CLOSE, e.RunClosed(RUN_ID, "completed", "model_final")],
}  # fmt: skip
RUN_EVENTS: dict[str, e.Event] = {
    "open": OPEN, "freeze": e.RunFrozen(RUN_ID, "op"), "resume": e.RunResumed(RUN_ID, "op"), "close": CLOSE,
    "done": e.RunClosed(RUN_ID, "completed", "model_final"),
}  # fmt: skip
TURN_PATHS: dict[str, list[e.Event]] = {"new": [], "open": [TURN_OPEN], "answered": [TURN_OPEN, ANSWER], "closed": [TURN_OPEN, TURN_CLOSED]}
TURN_EVENTS: dict[str, e.Event] = {"open": TURN_OPEN, "answer": ANSWER, "close": TURN_CLOSED}
CALL_PATHS: dict[str, list[e.Event]] = {
    "new": [], "held": [HELD], "ready": [HELD, APPROVE], "admitted": [ADMIT], "in_doubt": [ADMIT, settled("in_doubt")],
    "denied": [HELD, hold(e.HoldDenied, "user:mia")], "succeeded": [ADMIT, settled("succeeded")], "failed": [ADMIT, settled("failed")],
    "cancelled": [ADMIT, settled("cancelled")], "abandoned": [ADMIT, settled("in_doubt"), reconciled("abandoned")],
}  # fmt: skip
CALL_EVENTS: dict[str, list[e.Event]] = {
    "refuse": [asked(e.CallDenied, findings=({"reason": "tool.unknown"},))], "deny": [hold(e.HoldDenied, "user:mia")],
    "hold": [HELD], "admit": [ADMIT, CONSUME], "approve": [APPROVE],
    "expire": [hold(e.HoldExpired, "approval.expired")],
    "void": [hold(e.HoldVoided, "tool")], "withdraw": [e.CallCancelled(RUN_ID, CALL_ID, "call.cancelled", "agent:bot")],
    "cancel": [settled("cancelled")], "doubt": [settled("in_doubt")], "succeed": [settled("succeeded"), reconciled("succeeded")],
    "fail": [settled("failed"), reconciled("failed")], "reopen": [reconciled("ready")], "abandon": [reconciled("abandoned")],
}  # fmt: skip
HOLD_PATHS: dict[str, list[e.Event]] = {
    "new": [], "held": [HELD], "approved": [HELD, APPROVE], "denied": [HELD, hold(e.HoldDenied, "user:mia")],
    "expired": [HELD, hold(e.HoldExpired, "approval.expired")], "void": [HELD, hold(e.HoldVoided, "tool")],
    "cancelled": [HELD, e.CallCancelled(RUN_ID, CALL_ID, "call.cancelled", "agent:bot")], "consumed": [HELD, APPROVE, CONSUME],
}  # fmt: skip
HOLD_EVENTS: dict[str, e.Event] = {
    "hold": HELD, "vote": hold(e.VoteCast, "user:mia", "approve", (), "d"), "approve": APPROVE, "deny": hold(e.HoldDenied, "user:mia"),
    "expire": hold(e.HoldExpired, "approval.expired"), "void": hold(e.HoldVoided, "tool"), "admit": CONSUME,
    "withdraw": e.CallCancelled(RUN_ID, CALL_ID, "call.cancelled", "agent:bot"),
}  # fmt: skip


def folded(events: list[e.Event]) -> Tree:
    tree = Tree()
    for event in events:
        tree = evolve_tree(tree, tree.seq + 1, NOW, event)
    return tree


def cases(paths: dict[str, list[e.Event]], events: dict[str, Any]) -> list[Any]:
    return [pytest.param(state, by, id=f"{state}-{by}") for state, by in product(paths, events)]


@pytest.mark.parametrize(("state", "by"), cases(RUN_PATHS, RUN_EVENTS))
def test_a_run_follows_its_table(state: str, by: str) -> None:
    follows(RUN, state, by, folded(RUN_PATHS[state]), RUN_EVENTS[by], lambda tree: state_of(tree.runs.get(RUN_ID)))


@pytest.mark.parametrize(("state", "by"), cases(TURN_PATHS, TURN_EVENTS))
def test_a_turn_follows_its_table(state: str, by: str) -> None:
    follows(TURN, state, by, folded([OPEN, *TURN_PATHS[state]]), TURN_EVENTS[by], lambda tree: state_of(tree.runs[RUN_ID].turns.get(1)))


@pytest.mark.parametrize(("state", "by"), cases(CALL_PATHS, CALL_EVENTS))
def test_a_call_follows_its_table(state: str, by: str) -> None:
    tree = folded([OPEN, *CALL_PATHS[state]])
    assert state_of(tree.calls.get(CALL_ID)) == state
    took = 0
    for event in CALL_EVENTS[by]:
        try:
            after = evolve_tree(tree, tree.seq + 1, NOW, event)
        except IllegalTransition:
            continue
        took += 1
        assert state_of(after.calls.get(CALL_ID)) == CALL[state][by]
    assert took == (1 if by in CALL[state] else 0)


@pytest.mark.parametrize(("state", "by"), cases(HOLD_PATHS, HOLD_EVENTS))
def test_a_hold_follows_its_table(state: str, by: str) -> None:
    follows(HOLD, state, by, folded([OPEN, *HOLD_PATHS[state]]), HOLD_EVENTS[by], lambda tree: state_of(tree.holds.get(HOLD_ID)))


def follows(table: Table, state: str, by: str, tree: Tree, event: e.Event, look: Any) -> None:
    """The event does what the table says; where the table says nothing it is refused, and the state before it is untouched."""
    assert look(tree) == state
    before = (tree.seq, tree.at, tree.asked, *map(dict, (tree.runs, tree.calls, tree.holds, tree.last_write)))
    if by in table[state]:
        assert look(evolve_tree(tree, tree.seq + 1, NOW + 1, event)) == table[state][by]
    else:
        with pytest.raises(IllegalTransition):
            evolve_tree(tree, tree.seq + 1, NOW + 1, event)
    assert (tree.seq, tree.at, tree.asked, *map(dict, (tree.runs, tree.calls, tree.holds, tree.last_write))) == before
