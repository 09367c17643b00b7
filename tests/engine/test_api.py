"""What doors and engine hand each other: nobody can change it on the way."""

from __future__ import annotations

import pytest
from msgspec import Struct

from gateway import engine
from gateway.core.model import Principal
from gateway.engine import Caller, RunRequest, UsageRequest

NOUNS = [getattr(engine, name) for name in engine.__all__ if isinstance(getattr(engine, name), type) and issubclass(getattr(engine, name), Struct)]


@pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: noun.__name__)
def test_what_is_handed_over_is_frozen(noun: type[Struct]) -> None:
    thing = noun(*noun.__struct_fields__)
    with pytest.raises(AttributeError, match="immutable"):
        setattr(thing, noun.__struct_fields__[0], "other")
    assert not hasattr(thing, "__dict__")


def test_a_caller_is_no_run_token_unless_it_says_so() -> None:
    assert Caller(Principal("agent:bot")).run is None


def test_a_request_that_says_nothing_asks_for_nothing() -> None:
    one, two = RunRequest("rest"), RunRequest("rest")
    assert one == two
    assert one.labels is not two.labels
    assert (one.run_key, one.parent_run, one.continues, one.implicit, dict(one.budgets)) == (None, None, None, False, {})
    assert (UsageRequest().cost_usd, UsageRequest().input) == (None, 0)
