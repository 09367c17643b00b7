"""What a principal's stream folds to: open runs, run_keys for good, held calls, the implicit run. Quotas will live here too."""

from __future__ import annotations

from immutables import Map
from msgspec import Struct, field
from msgspec.structs import replace

from gateway.core import events as e


class PrincipalState(Struct, frozen=True):
    """`run_keys` never forgets (`POST /runs` with a known key returns that run, closed ones too). `implicit`: the newest implicit run.

    `continued`: a run -> its one successor.
    """

    seq: int = 0
    at: int = 0
    open_runs: Map[str, int] = field(default_factory=Map)
    run_keys: Map[str, str] = field(default_factory=Map)
    open_holds: Map[str, int] = field(default_factory=Map)
    implicit: str | None = None
    continued: Map[str, str] = field(default_factory=Map)
    refused: int = 0


def evolve_principal(state: PrincipalState, seq: int, at: int, event: e.Event) -> PrincipalState:
    """The next state of a principal's stream."""
    match event:
        case e.RunRegistered():
            keys = state.run_keys if event.run_key is None else state.run_keys.set(event.run_key, event.run)
            continued = state.continued if event.continues is None else state.continued.set(event.continues, event.run)
            implicit = event.run if event.implicit else state.implicit
            state = replace(state, open_runs=state.open_runs.set(event.run, at), run_keys=keys, continued=continued, implicit=implicit)
        case e.RunReleased():
            state = replace(state, open_runs=state.open_runs.delete(event.run))
        case e.HoldCounted():
            state = replace(state, open_holds=state.open_holds.set(event.hold, at))
        case e.HoldReleased():
            state = replace(state, open_holds=state.open_holds.delete(event.hold))
        case e.RunRefused():
            state = replace(state, refused=state.refused + 1)
        case _:
            raise TypeError(f"{type(event).__name__} has no place in a principal's stream")
    return replace(state, seq=seq, at=at)
