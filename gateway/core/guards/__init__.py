"""The guards there are. A new one is its file and one line in `GUARDS`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from gateway.core import events as e
from gateway.core.guards.allow import Allow
from gateway.core.guards.approval import Approval
from gateway.core.guards.arguments import Arguments
from gateway.core.guards.authorize import Authorize
from gateway.core.guards.budgets import Budgets
from gateway.core.guards.guard import Fold, Guard
from gateway.core.guards.loops import Loops
from gateway.core.guards.result import ResultGuard
from gateway.core.guards.turns import Turns

GUARDS: tuple[type[Guard], ...] = (Allow, Arguments, Authorize, Turns, Budgets, Loops, Approval, ResultGuard)


class Folding(NamedTuple):
    """What one guard's little state makes of one kind of event."""

    kind: str
    start: Any
    fold: Fold


def _foldings(guards: Iterable[type[Guard]]) -> dict[type[e.Event], tuple[Folding, ...]]:
    kinds = {event for guard in guards for event in guard.folds}
    return {event: tuple(Folding(guard.kind, guard.start, guard.folds[event]) for guard in guards if event in guard.folds) for event in kinds}


FOLDINGS = _foldings(GUARDS)
"""Kind of event -> whose state in its run it changes."""
SHARED = _foldings([guard for guard in GUARDS if guard.tree])
"""The same for the runs above."""
