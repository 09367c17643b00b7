"""The step of one call: repeats first, then the assessment's denial, the run's state, LIMIT and CONSENT; then held or admitted.

Pure: the engine gives the command, the ledger the states and the time. The answer says what the engine has to do next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import asdict

from gateway.core import events as e
from gateway.core.assess import Assessment, attempt, broken
from gateway.core.canonical import call_key, digest
from gateway.core.decide.draft import Draft
from gateway.core.decide.starting import end_if, not_open
from gateway.core.decide.turns import open_turn
from gateway.core.guards.budgets import held_enough
from gateway.core.guards.guard import Bid, Stage
from gateway.core.guards.loops import refused_out
from gateway.core.model import NOTHING, Amounts, CallRequest, Effect, Finding, Payload, Principal, Requirement
from gateway.core.policy import ToolRule
from gateway.core.principal import PrincipalState
from gateway.core.repeats import (
    Asked,
    Doubtful,
    Join,
    Past,
    Replay,
    Reused,
    Sticky,
    Waiting,
    executed_before,
    judge,
)  # fmt: skip
from gateway.core.run import CallRecord, Hold, Run, Tree, principal_stream, stream_of
from gateway.core.streams import State


class CallCommand(Struct, frozen=True):
    """What the engine asks the ledger to decide. `arguments` is the sealed payload; `lease_ms` is added to the attempt's deadline."""

    run: str
    principal: Principal
    request: CallRequest
    assessment: Assessment
    arguments: Payload | None
    owner: str
    lease_ms: int
    open_holds: int | None


class Admit(Struct, frozen=True):
    """Durable intent: dispatch this attempt now."""

    call: str


class Deny(Struct, frozen=True):
    """Nothing happens. `call` is the refused call's own id, or that of the record that refuses it."""

    call: str | None
    findings: tuple[Finding, ...]


class Wait(Struct, frozen=True):
    """Held for people, by this call or already."""

    call: str
    hold: Hold


class Answered(Struct, frozen=True):
    """The record answers."""

    record: CallRecord


class Reassess(Struct, frozen=True):
    """The run is governed by another policy set than the one it was judged by."""

    digest: str


Next = Admit | Deny | Wait | Answered | Join | Doubtful | Reassess


def call(states: Mapping[str, State], command: CallCommand, now: int) -> tuple[Draft, Next]:
    """Decide one call. Raises NeedsStream; IllegalTransition is a fault of ours."""
    draft = Draft(states, stream_of(command.run), now)
    run = draft.tree.runs[command.run]
    if run.policy_digest != command.assessment.policy_digest:
        return draft, Reassess(run.policy_digest)
    asked = _asked(command)
    past = _past(draft, run)
    repeat = judge(past, asked)
    match repeat:
        case Reused(what, record):
            message = f"This {what} was used for another call ({record.id}, {record.tool!r})."
            return draft, _deny(draft, command, (Finding("repeats", "key.reused", message),))
        case Replay(record, same_call_id):
            return draft, _replay(draft, command, record, same_call_id)
        case Sticky(record):
            return draft, _sticky(draft, command, record)
        case Join() | Doubtful():
            return draft, repeat
    if command.assessment.findings:
        return draft, _deny(draft, command, command.assessment.findings)
    if isinstance(repeat, Waiting):
        return draft, _waiting(draft, command, repeat, past, asked)
    return draft, _judge_anew(draft, command, repeat.occurrence, past, asked)


def _asked(command: CallCommand) -> Asked:
    request, found = command.request, command.assessment
    call_id = request.call_id if "call_id" in command.principal.trust else None
    return Asked(
        request.turn, call_id, request.tool, found.fingerprint, request.operation_id, found.rule.effect, found.rule.idempotency
    )  # fmt: skip


def _past(draft: Draft, run: Run) -> Past:
    """The run and those it continues."""
    past, at = [(draft.tree, run)], run
    while at.continues is not None:
        tree = draft.tree_of(at.continues)
        at = tree.runs[at.continues]
        past.append((tree, at))
    return tuple(past)


# ---- the record answers -------------------------------------------------------------------------------------------------


def _replay(draft: Draft, command: CallCommand, record: CallRecord, same_call_id: bool) -> Next:
    request, run = command.request, draft.tree.runs[command.run]
    findings = [] if same_call_id else _limits(draft, command, NOTHING, loops_only=True)
    loop = findings[0].reason if findings else None
    draft.add(
        e.CallReplayed(
            run.id, record.id, record.run, request.turn, request.call_id, record.tool, record.fingerprint, request.door, record.result,
            same_call_id, False, loop,
        )
    )  # fmt: skip
    end_if(draft, run.id, findings)
    return Answered(record)


def joined(states: Mapping[str, State], command: CallCommand, call: str, now: int) -> tuple[Draft, Next]:
    """The running call that this one joined is over: note that its record answered this one too."""
    draft = Draft(states, stream_of(command.run), now)
    record, request = draft.tree.calls[call], command.request
    if record.state in ("succeeded", "failed"):
        draft.add(
            e.CallReplayed(
                command.run, call, record.run, request.turn, request.call_id, record.tool, record.fingerprint, request.door, record.result,
                joined=True,
            )
        )  # fmt: skip
    return draft, Answered(record)


def _sticky(draft: Draft, command: CallCommand, record: CallRecord) -> Next:
    note = draft.tree_of(record.run).holds[record.hold or ""].note
    said = f" The reason given: “{note}”" if note else ""
    return _deny(draft, command, (Finding("approval", record.refusal, f"A person denied exactly this call ({record.id}).{said}"),))


# ---- denial -------------------------------------------------------------------------------------------------------------


def _new_call(tree: Tree) -> str:
    return f"call_{tree.root.partition('_')[2]}_{tree.asked + 1}"


def _asked_fields(draft: Draft, command: CallCommand, call: str) -> tuple[str, str, int, str | None, str, str, str, str | None, str | None]:
    request = command.request
    kept = draft.keep(command.arguments) if command.arguments is not None else None
    return (
        command.run, call, request.turn, request.call_id, request.tool, command.assessment.fingerprint, request.door, request.operation_id, kept,
    )  # fmt: skip


def _shadowed(command: CallCommand, findings: Iterable[Finding] = ()) -> tuple[dict[str, object], ...]:
    return tuple(asdict(finding) for finding in (*command.assessment.shadowed, *findings))


def _deny(draft: Draft, command: CallCommand, findings: tuple[Finding, ...], shadowed: Iterable[Finding] = ()) -> Next:
    """Record a refusal, and end the run where a finding or the number of refusals says so. A run long over records no more."""
    run = draft.tree.runs[command.run]
    out = refused_out(run)
    if out and not run.takes_calls:
        return Deny(None, findings)
    call = _new_call(draft.tree)
    draft.add(
        e.CallDenied(*_asked_fields(draft, command, call), tuple(asdict(f) for f in findings), _shadowed(command, shadowed))
    )  # fmt: skip
    if out:
        draft.close(run.id, "blocked", "loop", "gateway")
    else:
        end_if(draft, run.id, findings)
    return Deny(call, findings)


# ---- judging anew -------------------------------------------------------------------------------------------------------


def _judge_anew(draft: Draft, command: CallCommand, occurrence: int, past: Past, asked: Asked) -> Next:
    found = command.assessment
    wrong = _not_startable(draft, command)
    if wrong:
        return _deny(draft, command, wrong)
    requirements = _demanded(found, past, asked)
    amounts = Amounts(tool_calls=1, usd_micros=found.rule.usd_micros)
    shadowed: list[Finding] = []
    wrong = (*_limits(draft, command, amounts, holds=bool(requirements), shadowed=shadowed),)
    if not wrong and requirements:
        wrong = _nobody(requirements) or tuple(_principal_holds(draft, command.open_holds))
    if wrong:
        return _deny(draft, command, wrong, shadowed)
    if requirements:
        return _hold(draft, command, occurrence, requirements, past, shadowed)
    return _admit(draft, command, _new_call(draft.tree), _key(command, occurrence, past), occurrence, None, shadowed)


def _not_startable(draft: Draft, command: CallCommand) -> tuple[Finding, ...]:
    """May the run start this call now? A turn that the call names as new is opened."""
    request, rule = command.request, command.assessment.rule
    wrong = not_open(draft, command.run, rule)
    if not wrong and request.turn > draft.tree.runs[command.run].last_turn:
        wrong = open_turn(draft, command.run, request.turn, rule)
    return wrong


_NOBODY = Requirement("", "", ())
"""What a deliberate repeat waits for where the policy names nobody: it can't be met."""


def _demanded(found: Assessment, past: Past, asked: Asked) -> tuple[Requirement, ...]:
    """The assessment's requirements; a deliberate repeat of a non_idempotent call is held whatever the rule says."""
    if found.requirements or asked.operation_id is None or found.rule.effect is not Effect.NON_IDEMPOTENT:
        return found.requirements
    return (found.repeat or _NOBODY,) if executed_before(past, asked.tool, asked.fingerprint) else ()


def _nobody(requirements: tuple[Requirement, ...]) -> tuple[Finding, ...]:
    if _NOBODY not in requirements:
        return ()
    return (broken("approval", "This deliberate repeat needs people to agree, and the policy names nobody."),)


def _limits(
    draft: Draft, command: CallCommand, amounts: Amounts, *, holds: bool = False, loops_only: bool = False, shadowed: list[Finding] | None = None
) -> list[Finding]:
    """What enforces; what is only recorded goes into `shadowed`."""
    found = command.assessment
    rule: ToolRule = found.rule
    enforced: list[Finding] = []
    bid = Bid(
        draft.tree, command.run, command.request.turn, draft.now, amounts, command.request.tool, found.fingerprint, rule.effect, holds, rule.poll
    )  # fmt: skip
    for place in rule.stages[Stage.LIMIT]:
        if loops_only and place.guard.kind != "loops":
            continue
        for finding in attempt(place, place.guard.limit, bid):
            if place.enforces(finding.reason):
                enforced.append(finding)
            elif shadowed is not None:
                shadowed.append(finding)
    return enforced


def _principal_holds(draft: Draft, most: int | None) -> Sequence[Finding]:
    principal = draft.tree.runs[draft.tree.root].principal
    state = draft.given(principal_stream(principal))
    assert isinstance(state, PrincipalState)
    return held_enough(len(state.open_holds), most, repr(principal))


def _key(command: CallCommand, occurrence: int, past: Past) -> str:
    origin = past[-1][1].id
    request = command.request
    return call_key(origin, request.tool, command.assessment.fingerprint, request.operation_id, occurrence)


# ---- held ---------------------------------------------------------------------------------------------------------------


def _binding(command: CallCommand, key: str, requirements: Iterable[Requirement]) -> str:
    """Digest of all that an approval binds: change any of it and the approval is void."""
    found = command.assessment
    tool = found.tool.digest if found.tool is not None else ""
    rules = [r.rule_digest for r in requirements]
    return digest([command.run, command.principal.id, command.request.tool, tool, found.arguments, key, rules])


def _hold(
    draft: Draft, command: CallCommand, occurrence: int, requirements: tuple[Requirement, ...], past: Past, shadowed: Iterable[Finding]
) -> Next:
    found = command.assessment
    call = _new_call(draft.tree)
    hold = "hold" + call.removeprefix("call")
    key = _key(command, occurrence, past)
    expires_at = min(draft.now + min(r.expires_in_ms for r in requirements), _age_out(draft.tree, command.run))
    draft.add(
        e.CallHeld(
            *_asked_fields(draft, command, call), hold, _binding(command, key, requirements), key, occurrence, _upstream(command), found.rule.effect,
            found.tool.digest if found.tool else "", found.policy_digest, tuple(asdict(r) for r in requirements), found.show, expires_at,
            min(r.execute_within_ms for r in requirements), found.rule.usd_micros, _shadowed(command, shadowed),
        )
    )  # fmt: skip
    return Wait(call, draft.tree.holds[hold])


def _age_out(tree: Tree, run: str) -> int:
    return min(one.opened_at + one.limits.max_age_ms for one in tree.lineage(run))


def _upstream(command: CallCommand) -> str:
    return command.request.tool.partition(".")[0]


def _waiting(draft: Draft, command: CallCommand, repeat: Waiting, past: Past, asked: Asked) -> Next:
    """The call is held, or approved: then it goes on if it is still what was approved."""
    record = repeat.record
    hold = draft.tree.holds[record.hold or ""]
    if draft.expire(hold):
        return _judge_anew(draft, command, record.occurrence, past, asked)
    if not repeat.ready:
        return Wait(record.id, hold)
    if _binding(command, record.key, _demanded(command.assessment, past, asked)) != hold.digest:
        draft.add(e.HoldVoided(record.run, record.id, hold.id, "the tool's definition, the rule or the arguments changed"))
        return _judge_anew(draft, command, record.occurrence, past, asked)
    shadowed: list[Finding] = []
    wrong = _not_startable(draft, command) or tuple(_limits(draft, command, NOTHING, shadowed=shadowed))
    if wrong:
        return _deny(draft, command, wrong, shadowed)
    return _admit(draft, command, record.id, record.key, record.occurrence, hold.id, shadowed)


# ---- admitted -----------------------------------------------------------------------------------------------------------


def _admit(draft: Draft, command: CallCommand, call: str, key: str, occurrence: int, hold: str | None, shadowed: Iterable[Finding]) -> Next:
    found = command.assessment
    deadline = min(draft.now + found.rule.timeout_ms, draft.tree.deadline_at(command.run, draft.now))
    event = e.CallAdmitted(
        *_asked_fields(draft, command, call), key, occurrence, _upstream(command), found.rule.effect, 1, found.policy_digest, deadline,
        command.owner, deadline + command.lease_ms, found.rule.usd_micros, hold, _shadowed(command, shadowed),
    )  # fmt: skip
    draft.add(event)
    return Admit(call)
