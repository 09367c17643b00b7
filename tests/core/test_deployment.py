"""The stream `gateway`: which policies were loaded, and each tool's digest."""

from __future__ import annotations

import pytest

from gateway.core import events as e
from gateway.core.deployment import Deployment, evolve_deployment


def test_the_latest_policies_and_digests_stand() -> None:
    state = Deployment()
    events = [e.PoliciesLoaded(1, "one", ("a.yaml",)), e.ToolSeen("crm.get", "d1"), e.PoliciesLoaded(2, "two", ()), e.ToolSeen("crm.get", "d2")]
    for number, event in enumerate(events, 1):
        state = evolve_deployment(state, number, number * 10, event)
    assert (state.number, state.policies, dict(state.tools), state.seq, state.at) == (2, "two", {"crm.get": "d2"}, 4, 40)


def test_an_event_of_another_stream_has_no_place_here() -> None:
    with pytest.raises(TypeError):
        evolve_deployment(Deployment(), 1, 0, e.RunFrozen("run_r", "op"))
