"""One step's draft: the events it wants, over the states it was given. What follows from events whoever causes them stands here:
a closing run cancels what is held and closes when nothing is live; holds and open runs count in the principal's stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.core import events as e
from gateway.core.model import Payload
from gateway.core.outcomes import FAULTS
from gateway.core.run import Hold, Tree, principal_stream, stream_of
from gateway.core.streams import State, evolve


class NeedsStream(Exception):
    """The step has something to say in a stream that it wasn't given; decide again with it."""

    def __init__(self, stream: str):
        super().__init__(stream)
        self.stream = stream


class Draft:
    """Mutable, inside one step only. `tree` is the run stream's state as if the events so far were written."""

    def __init__(self, states: Mapping[str, State], stream: str, now: int):
        self.states = states
        self.stream = stream
        self.now = now
        self.events: list[tuple[str, e.Event]] = []
        self.payloads: list[tuple[str, Payload]] = []
        self._tree: Any = states[stream]
        self._unfolded: list[e.Event] = []

    @property
    def tree(self) -> Tree:
        if self._unfolded:
            for event in self._unfolded:
                self._tree = evolve(self._tree, self._tree.seq + 1, self.now, event)
            self._unfolded.clear()
        tree: Tree = self._tree
        return tree

    def add(self, event: e.Event) -> None:
        """One more event of the run stream, and what it means for the principal's."""
        self.events.append((self.stream, event))
        self._unfolded.append(event)
        if isinstance(event, _TOLD):
            self._tell(event)

    def keep(self, payload: Payload) -> str:
        """Store a payload beside the events; its hash."""
        self.payloads.append((self.stream, payload))
        return payload.hash

    def _tell(self, event: Any) -> None:
        """Holds and the root's end also stand in the stream of the tree's principal."""
        if isinstance(event, e.RunClosed):
            if event.run == self.tree.root:
                self._count(e.RunReleased, event.run)
            return
        hold = self.tree.calls[event.call].hold if isinstance(event, e.CallCancelled) else event.hold
        if hold is not None:
            self._count(e.HoldCounted if isinstance(event, e.CallHeld) else e.HoldReleased, hold)

    def _count(self, kind: type[e.RunReleased] | type[e.HoldCounted] | type[e.HoldReleased], what: str) -> None:
        principal = self.tree.runs[self.tree.root].principal
        self.tell(principal, kind(principal, what))

    def given(self, stream: str) -> State:
        """Another stream's state; raises NeedsStream."""
        if stream not in self.states:
            raise NeedsStream(stream)
        return self.states[stream]

    def tree_of(self, id: str) -> Tree:
        """The tree in which a run, call or hold lives, this or another; raises NeedsStream."""
        stream = stream_of(id)
        found = self.tree if stream == self.stream else self.given(stream)
        assert isinstance(found, Tree)
        return found

    def tell(self, principal: str, event: e.PrincipalEvent) -> None:
        stream = principal_stream(principal)
        self.given(stream)
        self.events.append((stream, event))

    def expire(self, hold: Hold) -> bool:
        """End the hold if its clock has run out: nobody decided in time, or nobody executed in time."""
        if hold.due_at is None or self.now < hold.due_at:
            return False
        reason = "approval.expired" if hold.state == "held" else "approval.lapsed"
        self.add(e.HoldExpired(hold.run, hold.call, hold.id, reason))
        return True

    # ---- endings --------------------------------------------------------------------------------------------------------

    def close(self, run: str, status: str, reason: str, by: str, handoff: dict[str, Any] | None = None) -> None:
        """End a run and its descendants: nothing more is admitted, what waits for people is cancelled, what runs may finish."""
        for one in self.tree.family(run):
            if one.state in ("open", "frozen"):
                own = one.id == run
                self.add(e.RunClosing(one.id, status, reason if own else "parent_closed", by, handoff if own else None))
                self.cancel_waiting(one.id, by)
        self.settle_endings()

    def cancel_waiting(self, run: str, by: str, turn: int | None = None) -> None:
        """Cancel held and ready calls of a run (of one turn)."""
        tree = self.tree
        for call, state in sorted(tree.runs[run].live.items()):
            if state != "admitted" and turn in (None, tree.calls[call].turn):
                self.add(e.CallCancelled(run, call, FAULTS["cancelled"].reason, by))

    def is_ending(self, run: str) -> bool:
        """Is the run already ending? Asked before folding, so that an ordinary outcome costs nothing more."""
        state = self.states[self.stream]
        return isinstance(state, Tree) and state.runs[run].state == "closing"

    def settle_endings(self) -> None:
        """Close every closing run in which and below which nothing is live, children before their parents."""
        busy = self.tree.busy()
        for run in reversed(self.tree.in_order()):
            if run.state == "closing" and run.id not in busy:
                self.add(e.RunClosed(run.id, run.status or "failed", run.reason or "unrecoverable_error"))


_TOLD = (e.RunClosed, e.CallHeld, e.CallAdmitted, e.CallCancelled, e.HoldDenied, e.HoldExpired, e.HoldVoided)
"""Events that the principal's stream counts."""
