"""What the stream `gateway` folds to: which policies were loaded, and each tool's definition digest at first sight."""

from __future__ import annotations

from dataclasses import dataclass, field

from immutables import Map

from gateway.core import events as e
from gateway.core.run import but

STREAM = "gateway"


@dataclass(frozen=True)
class Deployment:
    """`policies`: digest of the loaded files; `number` rises with each change. `tools`: name -> definition digest."""

    seq: int = 0
    at: int = 0
    number: int = 0
    policies: str = ""
    tools: Map[str, str] = field(default_factory=Map)


def evolve_deployment(state: Deployment, seq: int, at: int, event: e.Event) -> Deployment:
    """The next state of the stream `gateway`."""
    match event:
        case e.PoliciesLoaded():
            state = but(state, number=event.number, policies=event.digest)
        case e.ToolSeen():
            state = but(state, tools=state.tools.set(event.tool, event.digest))
        case _:
            raise TypeError(f"{type(event).__name__} has no place in the stream {STREAM!r}")
    return but(state, seq=seq, at=at)
