"""The checker about doubts: however they end by the rules, nothing is broken; a doubt that its asker or a probe ends otherwise is seen."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from gateway.core import events as e
from tests.core import build
from tests.core.build import BOT, DOUBT, MIA, World, opened
from tests.core.test_history import POLICY, broken, promises


@pytest.fixture
def world() -> World:
    return opened(POLICY)


def ends(world: World, state: str, by: str) -> None:
    """However the doubt about the first call ended."""
    world.happened(world.run_id, e.CallReconciled(world.run_id, "call_r1_1", state, by, "so it is"))


def test_a_doubt_may_end_again_and_again_by_a_persons_word(world: World) -> None:
    doubted = world.does("pay.now", DOUBT, n=1)
    world.reconcile(doubted, "did_not_happen", means=world.means(doubted))
    world.settle(doubted.id, DOUBT, owner="two")
    world.reconcile(doubted, "did_not_happen")
    world.does("pay.now", DOUBT, n=1)
    world.reconcile("call_r1_2", "happened")
    assert build.verdict(world.call("pay.now", n=1)) == "replay"
    assert broken(world) == []


@pytest.mark.parametrize("state", ["succeeded", "failed"])
def test_a_probe_may_end_it(world: World, state: str) -> None:
    world.does("pay.now", DOUBT, n=1)
    ends(world, state, "probe:pay.find")
    assert broken(world) == []


def by_who_asked(world: World) -> None:
    ends(world, "succeeded", BOT.id)


def sent_once_more_by_a_probe(world: World) -> None:
    ends(world, "ready", "probe:pay.find")


def sent_under_the_key_of_a_doubt_that_was_given_up(world: World) -> None:
    ends(world, "abandoned", MIA.id)
    first = next(event for _, event in world.log[world.run_id] if isinstance(event, e.CallAdmitted))
    world.happened(world.run_id, replace(first, call="call_r1_2"))


def one_too_many_at_once(world: World) -> None:
    first = next(event for _, event in world.log[world.run_id] if isinstance(event, e.CallAdmitted))
    for n in (2, 3):
        world.call("crm.get", n=n)
    ends(world, "ready", MIA.id)
    world.happened(world.run_id, replace(first, attempt=2))


UNLAWFUL = {by_who_asked: "P13", sent_once_more_by_a_probe: "P13", sent_under_the_key_of_a_doubt_that_was_given_up: "P2", one_too_many_at_once: "P5"}


@pytest.mark.parametrize("live", UNLAWFUL)
def test_any_other_end_is_seen(world: World, live: Callable[[World], None]) -> None:
    world.does("pay.now", DOUBT, n=1)
    live(world)
    assert promises(world) == {UNLAWFUL[live]}
