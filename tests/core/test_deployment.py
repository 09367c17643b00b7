"""The stream `gateway`: which policies were loaded, and each tool's digest."""

from __future__ import annotations

import pytest

from gateway.core import events as e
from gateway.core.deployment import Deployment, Pin, evolve_deployment


def test_the_latest_policies_and_digests_stand() -> None:
    state = Deployment()
    events = [
        e.PoliciesLoaded(1, "one", ("a.yaml",)), e.ToolsPinned("crm", {"crm.get": "d1", "crm.put": "d1"}), e.PoliciesLoaded(2, "two", ()),
        e.ToolsAccepted("user:ops", {"crm.get": "d2"}),
    ]  # fmt: skip
    for number, event in enumerate(events, 1):
        state = evolve_deployment(state, number, number * 10, event)
    assert (state.number, state.policies, state.seq, state.at, state.pinned) == (2, "two", 4, 40, {"crm"})
    assert dict(state.pins) == {"crm.get": Pin("d2", "user:ops", 40), "crm.put": Pin("d1", "", 20)}


def test_an_event_of_another_stream_has_no_place_here() -> None:
    with pytest.raises(TypeError):
        evolve_deployment(Deployment(), 1, 0, e.RunFrozen("run_r", "op"))
