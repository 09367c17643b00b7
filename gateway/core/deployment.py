"""What the stream `gateway` folds to: which policies were loaded, and which definition of each tool is accepted."""

from __future__ import annotations

from immutables import Map
from msgspec import Struct, field
from msgspec.structs import replace

from gateway.core import events as e

STREAM = "gateway"


class Pin(Struct, frozen=True):
    """An accepted definition. `by`: the operator; empty for one that counts as accepted because it was the first."""

    digest: str
    by: str
    at: int


class Deployment(Struct, frozen=True):
    """`policies`: digest of the loaded files; `number` rises with each change. `pins`: full name -> what is accepted; `pinned`: upstreams that
    have been seen."""

    seq: int = 0
    at: int = 0
    number: int = 0
    policies: str = ""
    pins: Map[str, Pin] = field(default_factory=Map)
    pinned: frozenset[str] = frozenset()


def evolve_deployment(state: Deployment, seq: int, at: int, event: e.Event) -> Deployment:
    """The next state of the stream `gateway`."""
    match event:
        case e.PoliciesLoaded():
            state = replace(state, number=event.number, policies=event.digest)
        case e.ToolsPinned():
            state = replace(state, pins=_pinned(state, event.tools, "", at), pinned=state.pinned | {event.upstream})
        case e.ToolsAccepted():
            state = replace(state, pins=_pinned(state, event.tools, event.by, at))
        case _:
            raise TypeError(f"{type(event).__name__} has no place in the stream {STREAM!r}")
    return replace(state, seq=seq, at=at)


def _pinned(state: Deployment, tools: dict[str, str], by: str, at: int) -> Map[str, Pin]:
    return state.pins.update({tool: Pin(digest, by, at) for tool, digest in tools.items()})
