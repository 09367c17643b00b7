"""The guards there are. A new one is its file and one line in `GUARDS`."""

from __future__ import annotations

from gateway.core import events as e
from gateway.core.guards.allow import Allow
from gateway.core.guards.approval import Approval
from gateway.core.guards.arguments import Arguments
from gateway.core.guards.authorize import Authorize
from gateway.core.guards.budgets import Budgets
from gateway.core.guards.guard import Guard, Stage
from gateway.core.guards.loops import Loops
from gateway.core.guards.result import ResultGuard
from gateway.core.guards.turns import Turns

GUARDS: tuple[type[Guard], ...] = (Allow, Arguments, Authorize, Turns, Budgets, Loops, Approval, ResultGuard)


class FOLDED:
    """The guards that keep a little state of their own, and the events they may fold."""

    guards: tuple[type[Guard], ...] = tuple(guard for guard in GUARDS if guard.stage is Stage.LIMIT and guard.start is not None)
    shared: tuple[type[Guard], ...] = tuple(guard for guard in guards if guard.tree)
    kinds: tuple[type[e.Event], ...] = (e.CallEvent, e.TurnOpened, e.UsageReported)
