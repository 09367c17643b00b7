"""How a doubt ends: a person says what became of the call, or the rule's probe found out. Never by a blind retry (P13).

What didn't happen frees its key; only a person's word sends the same call once more, under the same key, if its run still lets it start and it
is still what was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.decide.draft import Draft
from gateway.core.decide.holds import askers
from gateway.core.decide.settle import key_forgotten, one_more
from gateway.core.decide.starting import admit, forbidden, may_start
from gateway.core.guards.guard import ConditionFault
from gateway.core.guards.result import structured
from gateway.core.model import Finding, Outcome, Payload, Principal
from gateway.core.policy import Probe, ToolRule
from gateway.core.run import CallRecord, Tree, stream_of
from gateway.core.streams import State

OUTCOMES = ("happened", "did_not_happen", "abandoned")
"""What a person may say."""

MOST_WAIT_MS = 6 * 3_600_000
"""Probes that find nothing out are made at doubling distances, up to this one."""


# ---- by a person --------------------------------------------------------------------------------------------------------


class Again(Struct, frozen=True):
    """What one more dispatch takes. `tool_digest`: the definition as it is now."""

    rule: ToolRule
    tool_digest: str
    owner: str
    lease_ms: int


class ReconcileCommand(Struct, frozen=True):
    """A person's word, one of OUTCOMES. `approvers`: whom the call's rule names; `result`: what a repeat is answered with if it happened.

    `again` is None where the call can't be sent any more: its tool, rule or arguments are gone.
    """

    call: str
    by: Principal
    outcome: str
    why: str
    approvers: frozenset[str]
    result: Payload
    again: Again | None


def reconcile(states: Mapping[str, State], command: ReconcileCommand, now: int) -> tuple[Draft, str | Finding]:
    """End the doubt. The call's id: its record says how; `admitted` means that it is to be dispatched once more, now."""
    draft = Draft(states, stream_of(command.call), now)
    record = draft.tree.calls[command.call]
    if not may_reconcile(command.by, command.approvers, draft.tree, record):
        return draft, forbidden(f"{command.by.id!r} is not among those who may say what became of this call.")
    if record.state != "in_doubt":
        return draft, Finding("reconcile", "call.not_in_doubt", f"{record.id} is {record.state}.")
    if command.outcome == "happened":
        _end(draft, record, "succeeded", command.by.id, command.why, draft.keep(command.result))
    elif command.outcome == "abandoned":
        _end(draft, record, "abandoned", command.by.id, command.why)
    elif command.again is not None and _may_go_again(draft, record, command.again):
        _end(draft, record, "ready", command.by.id, command.why)
        admit(draft, draft.tree.calls[record.id], command.again.rule, command.again.owner, command.again.lease_ms)
    else:
        _end(draft, record, "failed", command.by.id, command.why)
    return draft, record.id


def may_reconcile(who: Principal, approvers: frozenset[str], tree: Tree, record: CallRecord) -> bool:
    """A person with the role operator, or one whom the rule names as approver; never one who asked, here or up the lineage."""
    able = "operator" in who.roles or ("approver" in who.roles and who.matches(approvers))
    return able and who.person and who.id not in askers(tree, record.run)


def _end(draft: Draft, record: CallRecord, state: str, by: str, why: str, result: str | None = None) -> None:
    draft.add(e.CallReconciled(record.run, record.id, state, by, why, result))


def _may_go_again(draft: Draft, record: CallRecord, again: Again) -> bool:
    same = record.tool_digest in ("", again.tool_digest) and draft.tree.runs[record.run].policy_digest == record.policy_digest
    if not same or key_forgotten(record, again.rule, draft.now):
        return False
    in_no_turn = replace(record, turn=0)  # it has its place in its turn already
    return may_start(draft, in_no_turn, again.rule, one_more(again.rule))


# ---- by a probe ---------------------------------------------------------------------------------------------------------


class ProbedCommand(Struct, frozen=True):
    """What a probe found out. `probes`: how many there had been when this one began. `result`: what a repeat gets if it happened."""

    call: str
    probes: int
    probe: Probe
    found: str
    message: str
    result: Payload | None = None
    hopeless: bool = False


def probed(states: Mapping[str, State], command: ProbedCommand, now: int) -> tuple[Draft, str]:
    """Record the probe; where it is sure, the doubt ends, else it is asked again later. Another process's probe may have been quicker."""
    draft = Draft(states, stream_of(command.call), now)
    record = draft.tree.calls[command.call]
    if record.state != "in_doubt" or record.probes != command.probes:
        return draft, record.id
    sure = command.found in ("happened", "absent")
    again_at = None if sure or command.hopeless else now + min(command.probe.after_ms << min(record.probes + 1, 32), MOST_WAIT_MS)
    draft.add(e.CallProbed(record.run, record.id, command.probe.tool, command.found, command.message, again_at))
    if sure:
        kept = draft.keep(command.result) if command.result is not None else None
        _end(draft, record, "succeeded" if command.found == "happened" else "failed", f"probe:{command.probe.tool}", command.message, kept)
    return draft, record.id


def found_out(probe: Probe, outcome: Outcome) -> tuple[str, str]:
    """(found, message): happened, absent, unclear or failed. Only a definite answer without error is judged: an error page shows nothing absent."""
    if outcome.state != "succeeded" or outcome.result is None:
        return "failed", f"{probe.tool} gave no usable answer ({outcome.reason or outcome.state})."
    facts = {"result": structured(outcome.result)}
    try:
        happened, absent = probe.happened_if(facts), probe.absent_if(facts)
    except ConditionFault as fault:
        return "unclear", f"What {probe.tool} answered can't be judged: {fault}"
    if happened is absent:
        return "unclear", f"{probe.tool} shows {'both' if happened else 'neither'}: that it happened, and that it didn't."
    return ("happened", f"{probe.tool} shows that it happened.") if happened else ("absent", f"{probe.tool} shows that it did not happen.")
