"""Which state a stream has, by its name."""

from __future__ import annotations

import pytest

from gateway.core import events as e
from gateway.core.deployment import Deployment
from gateway.core.principal import PrincipalState
from gateway.core.run import Tree
from gateway.core.streams import State, empty, evolve
from tests.core.build import limits


@pytest.mark.parametrize(("stream", "state"), [("run_r", Tree()), ("principal:agent:bot", PrincipalState()), ("gateway", Deployment())])
def test_a_streams_name_says_what_it_folds_to(stream: str, state: State) -> None:
    assert empty(stream) == state


@pytest.mark.parametrize(
    ("stream", "event"),
    [
        ("run_r", e.RunOpened("run_r", "a", "a", "p", "set", limits(), "t", "rest")),
        ("principal:a", e.RunRefused("a", "budget.open_runs")),
        ("gateway", e.ToolsPinned("crm", {"crm.get": "d"})),
    ],
)
def test_a_state_takes_the_events_of_its_stream(stream: str, event: e.Event) -> None:
    after = evolve(empty(stream), 1, 7, event)
    assert (type(after), after.seq, after.at) == (type(empty(stream)), 1, 7)
