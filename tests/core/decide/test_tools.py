"""Definitions: the first sight of an upstream accepts what it offers, later only a person does."""

from __future__ import annotations

from gateway.core import events as e
from gateway.core.decide.tools import accept, see
from gateway.core.deployment import Deployment, evolve_deployment

FIRST = {"crm.get": "d1", "crm.put": "d1"}


def after(*events: e.Event) -> Deployment:
    state = Deployment()
    for number, event in enumerate(events, 1):
        state = evolve_deployment(state, number, number, event)
    return state


def test_what_an_upstream_offers_first_is_pinned() -> None:
    assert see(Deployment(), "crm", FIRST, own=False) == (e.ToolsPinned("crm", FIRST),)


def test_an_upstream_that_was_seen_is_not_pinned_again_whatever_it_offers() -> None:
    known = after(e.ToolsPinned("crm", FIRST))
    assert see(known, "crm", {"crm.get": "d2", "crm.new": "d1"}, own=False) == ()
    assert see(known, "shop", {"shop.get": "d1"}, own=False) == (e.ToolsPinned("shop", {"shop.get": "d1"}),)


def test_an_upstream_without_tools_was_not_seen_yet() -> None:
    assert see(Deployment(), "crm", {}, own=False) == ()


def test_a_change_in_the_deployments_own_files_is_recorded_and_counts() -> None:
    known = after(e.ToolsPinned("web", {"web.get": "d1", "web.put": "d1"}))
    assert see(known, "web", {"web.get": "d2", "web.put": "d1"}, own=True) == (e.ToolsPinned("web", {"web.get": "d2"}),)
    assert see(known, "web", {"web.get": "d1"}, own=True) == ()


def test_what_is_accepted_is_recorded_with_who_did_and_only_where_it_is_news() -> None:
    known = after(e.ToolsPinned("crm", FIRST))
    event = e.ToolsAccepted("user:ops", {"crm.get": "d2", "crm.new": "d1"})
    assert accept(known, {"crm.get": "d2", "crm.put": "d1", "crm.new": "d1"}, "user:ops") == (event,)
    assert accept(known, FIRST, "user:ops") == ()
