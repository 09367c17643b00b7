"""The steps over tools' definitions, in the stream `gateway` (DESIGN §11): first sight accepts what an upstream offers, later only a person does.

What stands in the deployment's own files (`own`) is the operator's word already: a change there is recorded, and nobody asked.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.core import events as e
from gateway.core.deployment import Deployment


def see(known: Deployment, upstream: str, digests: Mapping[str, str], *, own: bool) -> tuple[e.Event, ...]:
    """Pin what an upstream offers when it offers something for the first time. `digests`: full name -> definition digest."""
    new = _others(known, digests)
    return (e.ToolsPinned(upstream, new),) if new and (own or upstream not in known.pinned) else ()


def accept(known: Deployment, digests: Mapping[str, str], by: str) -> tuple[e.Event, ...]:
    """Accept these definitions, as `by` saw them."""
    new = _others(known, digests)
    return (e.ToolsAccepted(by, new),) if new else ()


def _others(known: Deployment, digests: Mapping[str, str]) -> dict[str, str]:
    """Those that aren't what is accepted already."""
    return {tool: digest for tool, digest in digests.items() if (pin := known.pins.get(tool)) is None or pin.digest != digest}
