"""Which state a stream has, by its name: `run_…` a tree, `principal:…` a principal, `gateway` the deployment."""

from __future__ import annotations

from gateway.core import events as e
from gateway.core.deployment import STREAM, Deployment, evolve_deployment
from gateway.core.evolve import evolve_tree
from gateway.core.principal import PrincipalState, evolve_principal
from gateway.core.run import Tree

State = Tree | PrincipalState | Deployment

FOLD_VERSION = 1
"""Rises when a fold changes meaning, so that checkpoints of the old one are ignored."""


def empty(stream: str) -> State:
    """The state of a stream without events."""
    if stream == STREAM:
        return Deployment()
    return PrincipalState() if stream.startswith("principal:") else Tree()


def evolve(state: State, seq: int, at: int, event: e.Event) -> State:
    """The state after one more event. Raises IllegalTransition."""
    if isinstance(state, Tree):
        return evolve_tree(state, seq, at, event)
    if isinstance(state, PrincipalState):
        return evolve_principal(state, seq, at, event)
    return evolve_deployment(state, seq, at, event)
