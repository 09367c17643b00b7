"""Events as they stand in the ledger: named, plain, and each with a place."""

from __future__ import annotations

import json
from typing import Any, get_origin

import pytest
from msgspec import NODEFAULT
from msgspec.structs import asdict, fields

from gateway.core import events as e
from gateway.core.evolve import evolve_tree
from gateway.core.run import Tree
from gateway.core.streams import empty, evolve
from tests.core.build import DOUBT, World, opened

ABSTRACT = {e.Event, e.RunEvent, e.CallEvent, e.CallAsked, e.HoldEvent, e.PrincipalEvent}


def kinds(of: type[e.Event] = e.Event) -> set[type[e.Event]]:
    return {of} | {kind for below in of.__subclasses__() for kind in kinds(below)}


def test_every_kind_has_its_name_in_the_ledger() -> None:
    assert set(e.KINDS) == {kind.__name__ for kind in kinds()} - {kind.__name__ for kind in ABSTRACT}
    assert all(name == kind.__name__ for name, kind in e.KINDS.items())


@pytest.mark.parametrize("kind", e.KINDS.values())
def test_every_kind_has_a_place_in_one_sort_of_stream(kind: type[e.Event]) -> None:
    event = kind(**{field.name: _some(field.type) for field in fields(kind) if field.default is field.default_factory is NODEFAULT})
    places = []
    for stream in ("run_r", "principal:p", "gateway"):
        try:
            evolve(empty(stream), 1, 0, event)
        except TypeError:
            continue
        except Exception:  # noqa: BLE001  it has a place here, but this state can't take it
            pass
        places.append(stream)
    assert len(places) == 1


def _some(kind: Any) -> Any:
    return {dict: {"close_on": ()}, tuple: (), int: 1}.get(get_origin(kind) or kind, "x")


def world() -> World:
    one = opened(turns=9, tokens=10**6, tokens_per_turn=5)
    one.begin()
    one.answer(1, ("c1", "crm.get"))
    one.uses(1, 7)
    for name in ("crm.get", "crm.set", "mail.send", "no.way"):
        one.call(name, turn=1, a=1)
    one.settle("call_r1_2")
    one.call("crm.set", a=1)
    one.settle("call_r1_3", DOUBT)
    for number, vote in enumerate(("approve", "deny")):
        one.vote(one.call("pay.refund", n=number), vote=vote)
    one.freeze()
    one.resume()
    one.end(1)
    one.wait(10**8)
    return one


def test_an_event_is_plain_data_and_back() -> None:
    for events in world().log.values():
        for _, event in events:
            again = type(event)(**json.loads(json.dumps(asdict(event))))
            assert json.dumps(asdict(again)) == json.dumps(asdict(event))


def test_a_tree_folds_the_same_from_what_the_ledger_gives_back() -> None:
    one = world()
    tree: Tree = Tree()
    for at, event in one.log["run_r1"]:
        tree = evolve_tree(tree, tree.seq + 1, at, type(event)(**json.loads(json.dumps(asdict(event)))))
    assert tree == one.tree() == one.refolded("run_r1")
