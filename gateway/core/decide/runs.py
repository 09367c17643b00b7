"""Steps of runs: open (root, child, successor), cancel, finish, freeze, resume, and what time alone does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict

from gateway.core import events as e
from gateway.core.decide.draft import Draft
from gateway.core.decide.starting import not_open, over, unknown
from gateway.core.model import Finding, Limits, Principal
from gateway.core.policy import PolicySet, stricter
from gateway.core.principal import PrincipalState
from gateway.core.run import Run, ends_at, idle_at, principal_stream, stream_of
from gateway.core.streams import State


class OpenCommand(Struct, frozen=True):
    """A run to open. `id` is fresh (ignored for a child, whose id its parent's tree gives). `tighten`: the caller's own, lower caps."""

    id: str
    principal: Principal
    policies: PolicySet
    task_type: str
    door: str
    tighten: Limits
    open_runs: int | None
    run_key: str | None = None
    parent: str | None = None
    continues: str | None = None
    goal: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    implicit: bool = False


class Opened(Struct, frozen=True):
    """The run, and whether it existed already."""

    run: str
    existed: bool


TREE_RUNS = 200
"""How many runs one tree may ever hold: what follows from one run's end is worked out for all of them."""


def open_root(states: Mapping[str, State], command: OpenCommand, now: int) -> tuple[Draft, Opened | Finding]:
    """A new root run, or the one that has the run_key already."""
    own = principal_stream(command.principal.id)
    mine = states[own]
    assert isinstance(mine, PrincipalState)
    draft = Draft(states, command.id, now)
    if command.run_key is not None and command.run_key in mine.run_keys:
        return draft, Opened(mine.run_keys[command.run_key], True)
    if command.implicit and mine.implicit is not None and mine.implicit in mine.open_runs:
        return draft, Opened(mine.implicit, True)  # another of its calls opened it meanwhile
    if command.open_runs is not None and len(mine.open_runs) >= command.open_runs:
        many = _many(f"{command.principal.id!r} has {len(mine.open_runs)} open runs; {command.open_runs} are allowed.")
        draft.tell(command.principal.id, e.RunRefused(command.principal.id, many.reason, command.run_key))
        return draft, many
    if command.continues is not None and (wrong := _not_continuable(draft, command, mine)) is not None:
        return draft, wrong
    draft.add(_opened(command, command.id))
    draft.tell(command.principal.id, e.RunRegistered(command.principal.id, command.id, command.run_key, command.implicit, command.continues))
    return draft, Opened(command.id, False)


def _many(message: str) -> Finding:
    return Finding("budgets", "budget.open_runs", message)


def _not_continuable(draft: Draft, command: OpenCommand, mine: PrincipalState) -> Finding | None:
    """A successor inherits keys: its predecessor must be over and the principal's own, and two successors would share their keys."""
    before = command.continues or ""
    run = draft.tree_of(before).runs.get(before)
    if run is None or run.principal != command.principal.id:
        return unknown(before)
    if run.state != "closed":
        return over(run, "only a closed run can be continued")
    if before in mine.continued:
        return Finding("run", "run.continued", f"Run {before} is continued by {mine.continued[before]} already; go on with that one.")
    return None


def open_child(states: Mapping[str, State], command: OpenCommand, now: int) -> tuple[Draft, Opened | Finding]:
    """A child in its parent's tree; it draws on its parent's purse."""
    parent = command.parent or ""
    draft = Draft(states, stream_of(parent), now)
    if command.run_key is not None:
        for run in draft.tree.runs.values():
            if (run.parent, run.run_key) == (parent, command.run_key):
                return draft, Opened(run.id, True)
    if wrong := not_open(draft, parent):
        return draft, wrong[0]
    if len(draft.tree.runs) >= TREE_RUNS:
        return draft, _many(f"This tree has had {TREE_RUNS} runs, which is as many as one may have.")
    id = f"{draft.tree.root}.{len(draft.tree.runs)}"
    draft.add(_opened(command, id))
    return draft, Opened(id, False)


def _opened(command: OpenCommand, id: str) -> e.RunOpened:
    caps = asdict(stricter(command.policies.limits, command.tighten))
    return e.RunOpened(
        id, command.principal.id, command.principal.id, command.policies.policy.name, command.policies.digest, caps, command.task_type,
        command.door, command.parent, command.run_key, command.continues, command.goal, dict(command.labels),
    )  # fmt: skip


def cancel(states: Mapping[str, State], run: str, by: str, now: int) -> tuple[Draft, Run]:
    """End as cancelled. Calls in flight are the engine's to reach; over already is no fault."""
    draft = Draft(states, stream_of(run), now)
    draft.close(run, "cancelled", "caller_cancelled", by)
    return draft, draft.tree.runs[run]


def finish(states: Mapping[str, State], run: str, by: str, handoff: dict[str, Any] | None, now: int) -> tuple[Draft, Run | Finding]:
    """End as completed. Again is no fault; after another end it is."""
    draft = Draft(states, stream_of(run), now)
    state = draft.tree.runs[run]
    if state.state in ("open", "frozen"):
        draft.close(run, "completed", "model_final", by, handoff)
    elif state.status != "completed":
        return draft, over(state)
    return draft, draft.tree.runs[run]


def freeze(states: Mapping[str, State], run: str, by: str, note: str, now: int) -> tuple[Draft, Run | Finding]:
    """Admit nothing more, here and below; outcomes, usage and votes are still recorded."""
    draft = Draft(states, stream_of(run), now)
    if draft.tree.runs[run].state not in ("open", "frozen"):
        return draft, over(draft.tree.runs[run])
    for one in draft.tree.family(run):
        if one.state == "open":
            draft.add(e.RunFrozen(one.id, by, note))
    return draft, draft.tree.runs[run]


def resume(states: Mapping[str, State], run: str, by: str, now: int) -> tuple[Draft, Run | Finding]:
    """Let a frozen run, and what was frozen with it, go on."""
    draft = Draft(states, stream_of(run), now)
    if draft.tree.runs[run].state not in ("open", "frozen"):
        return draft, over(draft.tree.runs[run])
    for one in draft.tree.family(run):
        if one.state == "frozen":
            draft.add(e.RunResumed(one.id, by))
    return draft, draft.tree.runs[run]


def sweep(states: Mapping[str, State], stream: str, now: int) -> tuple[Draft, int]:
    """What time alone does: expiries, lapses, deadlines, idleness, endings. How many events that was."""
    draft = Draft(states, stream, now)
    expire_holds(draft)
    for id in [run.id for run in draft.tree.in_order()]:
        run = draft.tree.runs[id]
        if run.state in ("open", "frozen"):
            if now >= ends_at(run, now):
                draft.close(id, "blocked", "deadline_exceeded", "gateway")
            elif now >= idle_at(run) and id not in draft.tree.busy():
                draft.close(id, "failed", "abandoned", "gateway")
    draft.settle_endings()
    return draft, len(draft.events)


def expire_holds(draft: Draft) -> None:
    """End every hold whose clock has run out."""
    tree = draft.tree
    live = [tree.calls[call] for run in tree.runs.values() for call, state in run.live.items() if state != "admitted"]
    for record in sorted(live, key=lambda one: (one.asked_at, one.id)):
        draft.expire(tree.holds[record.hold or ""])
