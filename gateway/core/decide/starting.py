"""May something still start in this run? Run, deadline and purse, asked before each admission; and the admission of a call that is known already."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.core import events as e
from gateway.core.assess import attempt
from gateway.core.decide.draft import Draft
from gateway.core.guards.guard import Bid, Stage
from gateway.core.model import Amounts, Finding
from gateway.core.policy import ToolRule
from gateway.core.reasons import REASONS
from gateway.core.run import CallRecord, Run


def over(run: Run, wanted: str = "") -> Finding:
    """The run isn't in the state that `wanted` asks for."""
    how = run.state if run.status is None else f"{run.state} ({run.status}: {run.reason})"
    return Finding("run", "run.not_open", f"Run {run.id} is {how}{wanted and '; ' + wanted}.")


def unknown(run: str) -> Finding:
    return Finding("run", "run.unknown", f"There is no run {run!r}.")


def forbidden(message: str) -> Finding:
    """The caller may not have this, whatever state it is in."""
    return Finding("caller", "auth.forbidden", message)


def not_open(draft: Draft, run: str, rule: ToolRule | None = None) -> tuple[Finding, ...]:
    """() if the run and every run above it are open and inside the deadline, and a write of this rule has the time it needs."""
    tree = draft.tree
    for one in tree.lineage(run):
        if not one.takes_calls:
            return (over(one),)
    left = tree.deadline_at(run, draft.now) - draft.now
    needed = rule.min_time_ms if rule is not None and rule.effect.writes else 0
    if left > 0 and left >= needed:
        return ()
    message = f"{left} ms are left; this write needs {needed} ms to start." if left > 0 else "The run's deadline has passed."
    return (Finding("run", "run.deadline", message, closes=left <= 0 and "deadline" in tree.runs[run].limits.close_on),)


def end_if(draft: Draft, run: str, findings: Iterable[Finding]) -> None:
    """End the run where a finding says that it ends with it."""
    reason = next((row for f in findings if f.closes and (row := REASONS[f.reason].run_reason)), None)
    if reason is not None and draft.tree.runs[run].state in ("open", "frozen"):
        draft.close(run, "blocked", reason, "gateway")


def may_start(draft: Draft, record: CallRecord, rule: ToolRule, amounts: Amounts, *, again: bool = False) -> bool:
    """Do run, deadline and purses allow an attempt of this call? `again`: it isn't the first."""
    if not_open(draft, record.run, rule):
        return False
    bid = Bid(draft.tree, record.run, record.turn, draft.now, amounts, record.tool, record.fingerprint, record.effect, again=again)
    purses = [place for place in rule.stages[Stage.LIMIT] if place.guard.tree and not place.shadow]
    return not any(attempt(place, place.guard.limit, bid) for place in purses)


def admit(draft: Draft, record: CallRecord, rule: ToolRule, owner: str, lease_ms: int, hold: str | None = None) -> None:
    """The intent of the next attempt of a known call; `hold` is consumed by it."""
    deadline = min(draft.now + rule.timeout_ms, draft.tree.deadline_at(record.run, draft.now))
    draft.add(
        e.CallAdmitted(
            record.run, record.id, record.turn, record.call_id, record.tool, record.fingerprint, record.door, record.operation_id, record.arguments,
            record.key, record.occurrence, record.upstream, record.effect, record.attempt + 1, record.policy_digest, deadline, owner,
            deadline + lease_ms, rule.usd_micros, hold,
        )
    )  # fmt: skip
