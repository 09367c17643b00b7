"""The facts that the ledger keeps: past tense, true when written, one class a kind.

Each event stands in one stream: a run tree (the root's id; children live in it), a principal (`principal:ID`) or `gateway`.
Fields hold JSON-ready values only (str, int, bool, None, tuples and dicts of these), so that the body in the ledger is the event.
Hashes named `arguments` and `result` point to payloads; keys and fingerprints are plain digests. New fields get defaults, none is renamed.
"""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct, field


class Event(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of all events. `VERSION` rises when the meaning of a kind changes."""

    VERSION: ClassVar[int] = 1


# ---- run ----------------------------------------------------------------------------------------------------------------


class RunEvent(Event, frozen=True):
    """An event of one run in a tree."""

    run: str


class RunOpened(RunEvent, frozen=True):
    """`limits` are `Limits` as a dict; `policy_digest` is the set's; `opened_by` differs from `principal` for a child opened by token."""

    principal: str
    opened_by: str
    policy: str
    policy_digest: str
    limits: dict[str, Any]
    task_type: str
    door: str
    parent: str | None = None
    run_key: str | None = None
    continues: str | None = None
    goal: str | None = None
    labels: dict[str, str] = field(default_factory=dict)


class RunFrozen(RunEvent, frozen=True):
    by: str
    note: str = ""


class RunResumed(RunEvent, frozen=True):
    by: str


class RunClosing(RunEvent, frozen=True):
    """No more admissions; `status` and `reason` are the terminal ones (DESIGN §4)."""

    status: str
    reason: str
    by: str
    handoff: dict[str, Any] | None = None


class RunClosed(RunEvent, frozen=True):
    """Every call is terminal or in doubt."""

    status: str
    reason: str


# ---- turn ---------------------------------------------------------------------------------------------------------------


class TurnOpened(RunEvent, frozen=True):
    """`tokens` is what is set aside for the model call (`tokens_per_turn`)."""

    turn: int
    tokens: int = 0


class TurnAnswered(RunEvent, frozen=True):
    """What the model asked for, before any of it ran. `calls`: [{call_id, tool, arguments (payload hash)}] in the model's order."""

    turn: int
    digest: str | None
    calls: tuple[dict[str, Any], ...] = ()


class TurnClosed(RunEvent, frozen=True):
    """`status`: completed, cancelled or failed."""

    turn: int
    status: str


class UsageReported(RunEvent, frozen=True):
    """`source`: self_reported (adds, never lowers) or reporter (the actual; releases what was set aside)."""

    turn: int
    source: str
    model: str | None
    input: int
    output: int
    cache_creation: int
    cache_read: int
    tokens: int
    usd_micros: int


# ---- call ---------------------------------------------------------------------------------------------------------------


class CallEvent(RunEvent, frozen=True):
    """An event of one call."""

    call: str


class CallAsked(CallEvent, frozen=True):
    """What the three intake events (denied, held, admitted) have in common: what was asked, and by which door."""

    turn: int
    call_id: str | None
    tool: str
    fingerprint: str
    door: str
    operation_id: str | None
    arguments: str | None


class CallDenied(CallAsked, frozen=True):
    """Refused before any byte went out. `findings` as dicts of `Finding`; `shadowed` are those that were only recorded."""

    findings: tuple[dict[str, Any], ...] = ()
    shadowed: tuple[dict[str, Any], ...] = ()


class CallHeld(CallAsked, frozen=True):
    """Waits for people. `digest` binds all that an approver sees; `requirements` as dicts of `Requirement`."""

    hold: str = ""
    digest: str = ""
    key: str = ""
    occurrence: int = 0
    upstream: str = ""
    effect: str = ""
    tool_digest: str = ""
    policy_digest: str = ""
    requirements: tuple[dict[str, Any], ...] = ()
    show: str = ""
    expires_at: int = 0
    execute_within_ms: int = 0
    usd_micros: int = 0
    shadowed: tuple[dict[str, Any], ...] = ()


class CallAdmitted(CallAsked, frozen=True):
    """The intent: durable before one byte of the attempt leaves. `hold` is consumed by it."""

    key: str = ""
    occurrence: int = 0
    upstream: str = ""
    effect: str = ""
    attempt: int = 1
    policy_digest: str = ""
    deadline_at: int = 0
    owner: str = ""
    lease_until: int = 0
    usd_micros: int = 0
    hold: str | None = None
    shadowed: tuple[dict[str, Any], ...] = ()


class CallSettled(CallEvent, frozen=True):
    """What became of the attempt. `state`: succeeded, failed, cancelled, in_doubt. `result` is a payload hash.

    `usd_micros` is the actual posted for this attempt. `probe_at`: when the gateway asks what became of a call in doubt; None if a person must.
    """

    attempt: int
    state: str
    reason: str | None = None
    result: str | None = None
    answered: bool = False
    not_applied: bool = False
    status: int | None = None
    usd_micros: int = 0
    by: str = ""
    probe_at: int | None = None


class CallProbed(CallEvent, frozen=True):
    """`tool` was asked what became of a call in doubt. `found`: happened, absent, unclear (neither or both), failed (no usable answer).

    `again_at`: when it is asked again; None where this ended the doubt, or where asking can't help.
    """

    tool: str
    found: str
    message: str = ""
    again_at: int | None = None


class CallReconciled(CallEvent, frozen=True):
    """A doubt has ended. `state`: succeeded, failed (it did not happen), ready (it did not, and is sent once more), abandoned.

    `by` is a person, or `probe:TOOL`; `why` is their word. `result`: hash of the payload that a repeat is answered with.
    """

    state: str
    by: str
    why: str
    result: str | None = None


class CallReplayed(CallEvent, frozen=True):
    """A repeat was answered from the record of `call`; nothing was executed. `of` names the run that holds the record.

    `joined`: it waited for the running dispatch. `loop`: the reason of a loop that this repeat is part of; it counts as an interception.
    """

    of: str
    turn: int
    call_id: str | None
    tool: str
    fingerprint: str
    door: str
    result: str | None
    same_call_id: bool = False
    joined: bool = False
    loop: str | None = None


class CallCancelled(CallEvent, frozen=True):
    """A call that waited for people (held, ready) ended before any dispatch."""

    reason: str
    by: str


# ---- hold ---------------------------------------------------------------------------------------------------------------


class HoldEvent(CallEvent, frozen=True):
    hold: str


class VoteCast(HoldEvent, frozen=True):
    """`vote`: approve or deny. `groups`: the voter's, as authenticated, so that requirements can be counted from the record."""

    by: str
    vote: str
    groups: tuple[str, ...]
    digest: str
    note: str = ""


class HoldApproved(HoldEvent, frozen=True):
    """Every requirement is met; the call is ready until `execute_by`."""

    execute_by: int


class HoldDenied(HoldEvent, frozen=True):
    by: str
    note: str = ""


class HoldExpired(HoldEvent, frozen=True):
    """Nobody decided in time (`approval.expired`), or nobody executed in time (`approval.lapsed`)."""

    reason: str


class HoldVoided(HoldEvent, frozen=True):
    """What was approved no longer is what would run: `what` changed (tool or rule)."""

    what: str


# ---- principal ----------------------------------------------------------------------------------------------------------


class PrincipalEvent(Event, frozen=True):
    principal: str


class RunRegistered(PrincipalEvent, frozen=True):
    """A root run counts against the principal's open runs; `run_key`, and what it `continues`, belong to it for good."""

    run: str
    run_key: str | None
    implicit: bool = False
    continues: str | None = None


class RunReleased(PrincipalEvent, frozen=True):
    run: str


class HoldCounted(PrincipalEvent, frozen=True):
    """A held call of any of the principal's runs counts until it is decided and executed, or ended."""

    hold: str


class HoldReleased(PrincipalEvent, frozen=True):
    hold: str


class RunRefused(PrincipalEvent, frozen=True):
    """A run was not opened, or a call had no run to stand in."""

    reason: str
    run_key: str | None = None


# ---- gateway ------------------------------------------------------------------------------------------------------------


class PoliciesLoaded(Event, frozen=True):
    """`number` rises by one with each new set of files; `digest` is over all of them; texts stand in `policies` by digest."""

    number: int
    digest: str
    files: tuple[str, ...]


class ToolsPinned(Event, frozen=True):
    """An upstream was seen for the first time (or its own definitions in the deployment's files changed): what it offered counts as accepted.

    `tools`: full name -> digest of its definition, whose canonical text stands beside the policies' by that digest.
    """

    upstream: str
    tools: dict[str, str]


class ToolsAccepted(Event, frozen=True):
    """An operator accepted these definitions in place of those before, or of none."""

    by: str
    tools: dict[str, str]


KINDS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        RunOpened, RunFrozen, RunResumed, RunClosing, RunClosed, TurnOpened, TurnAnswered, TurnClosed, UsageReported,
        CallDenied, CallHeld, CallAdmitted, CallSettled, CallProbed, CallReconciled, CallReplayed, CallCancelled,
        VoteCast, HoldApproved, HoldDenied, HoldExpired, HoldVoided,
        RunRegistered, RunReleased, HoldCounted, HoldReleased, RunRefused, PoliciesLoaded, ToolsPinned, ToolsAccepted,
    )
}  # fmt: skip
"""Name in the ledger -> class."""
