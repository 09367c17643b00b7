"""The step of one vote: who may vote on what, and what a vote makes of a hold. A denial closes; the last approval makes the call ready."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from gateway.core import events as e
from gateway.core.decide.draft import Draft
from gateway.core.model import Finding, Principal
from gateway.core.run import Hold, Tree, stream_of
from gateway.core.streams import State


class VoteCommand(Struct, frozen=True):
    """`vote`: approve or deny. `digest`: what the voter saw."""

    hold: str
    voter: Principal
    vote: str
    digest: str
    note: str = ""


def vote(states: Mapping[str, State], command: VoteCommand, now: int) -> tuple[Draft, Hold | Finding]:
    """Count one person's say. The same vote again is no fault; opposite, late or unseen is `hold.conflict` or `hold.digest`."""
    draft = Draft(states, stream_of(command.hold), now)
    hold = draft.tree.holds[command.hold]
    if not may_vote(command.voter, hold, draft.tree):
        return draft, forbidden(f"{command.voter.id!r} is not among those who may decide on this, or asked for it.")
    if command.digest != hold.digest:
        return draft, Finding("approval", "hold.digest", "The digest is not that of the hold as it stands.")
    if any(v.by == command.voter.id and v.vote == command.vote for v in hold.votes):
        return draft, hold
    if hold.state != "held" or now >= hold.expires_at or any(v.by == command.voter.id for v in hold.votes):
        how = hold.state if hold.state != "held" else "expired" if now >= hold.expires_at else "voted on by you"
        return draft, Finding("approval", "hold.conflict", f"The hold is {how} already.")
    _count(draft, command, hold)
    return draft, draft.tree.holds[hold.id]


def forbidden(message: str) -> Finding:
    return Finding("approval", "hold.forbidden", message)


def _count(draft: Draft, command: VoteCommand, hold: Hold) -> None:
    voter = command.voter
    where = (hold.run, hold.call, hold.id)
    draft.add(e.VoteCast(*where, voter.id, command.vote, tuple(sorted(voter.groups)), command.digest, command.note))
    if command.vote == "deny":
        draft.add(e.HoldDenied(*where, voter.id, command.note))
        return
    after = draft.tree.holds[hold.id]
    if all(after.met(requirement) for requirement in after.requirements):
        draft.add(e.HoldApproved(*where, min(draft.now + hold.execute_within_ms, _last_moment(draft.tree, hold.run, draft.now))))


def _last_moment(tree: Tree, run: str, now: int) -> int:
    """When the run can last be open; a deadline that stands still while the call is ready doesn't count."""
    return min(one.age_out_at if one.limits.pause_while_held else one.deadline_at(now) for one in tree.lineage(run))


def may_vote(voter: Principal, hold: Hold, tree: Tree) -> bool:
    """An authenticated person with the role, named by a requirement, and never one who asked, here or up the lineage."""
    named = any(voter.matches(frozenset(requirement.approvers)) for requirement in hold.requirements)
    return named and voter.person and "approver" in voter.roles and voter.id not in askers(tree, hold.run)


def askers(tree: Tree, run: str) -> set[str]:
    """Who asks for what a run does: whose it is and who opened it, here and up the lineage."""
    return {name for one in tree.lineage(run) for name in (one.principal, one.opened_by)}
