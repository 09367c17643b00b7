"""A principal's stream: open runs, run keys for good, successors, held calls, the implicit run."""

from __future__ import annotations

from functools import reduce

import pytest

from gateway.core import events as e
from gateway.core.principal import PrincipalState, evolve_principal


def folded(*events: e.Event) -> PrincipalState:
    return reduce(lambda state, event: evolve_principal(state, state.seq + 1, state.at + 10, event), events, PrincipalState())


def test_a_run_counts_until_it_is_released_and_its_key_stays() -> None:
    opened = e.RunRegistered("a", "run_1", "k")
    assert (dict(folded(opened).open_runs), dict(folded(opened).run_keys)) == ({"run_1": 10}, {"k": "run_1"})
    after = folded(opened, e.RunReleased("a", "run_1"))
    assert (dict(after.open_runs), dict(after.run_keys), after.seq, after.at) == ({}, {"k": "run_1"}, 2, 20)


def test_a_run_without_key_or_predecessor_leaves_none() -> None:
    state = folded(e.RunRegistered("a", "run_1", None))
    assert (len(state.run_keys), len(state.continued), state.implicit) == (0, 0, None)


def test_the_newest_implicit_run_is_remembered() -> None:
    implicit = [e.RunRegistered("a", f"run_{n}", None, implicit=n < 3) for n in (1, 2, 3)]
    assert folded(*implicit).implicit == "run_2"


def test_what_a_run_continues_is_remembered() -> None:
    assert dict(folded(e.RunRegistered("a", "run_2", None, continues="run_1")).continued) == {"run_1": "run_2"}


def test_a_hold_counts_until_it_is_released() -> None:
    assert dict(folded(e.HoldCounted("a", "hold_1")).open_holds) == {"hold_1": 10}
    assert len(folded(e.HoldCounted("a", "hold_1"), e.HoldReleased("a", "hold_1")).open_holds) == 0


def test_refusals_are_counted() -> None:
    assert folded(e.RunRefused("a", "budget.open_runs"), e.RunRefused("a", "policy.none")).refused == 2


def test_an_event_of_another_stream_has_no_place_here() -> None:
    with pytest.raises(TypeError):
        folded(e.ToolsPinned("crm", {"crm.get": "d"}))
