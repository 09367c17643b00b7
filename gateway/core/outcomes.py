"""What came of one attempt: the table of faults, and the rules that make an `Outcome` of a fault or of an answer.

An outcome says how the call stands if no other attempt follows; `retry` only says that another may help, under the same key.
So an idempotent write that timed out is in doubt and to be tried again; one whose last answer was a 503 has failed with that
answer. Only what surely never reached the upstream is `not_applied`; everything else may have happened (DESIGN §4). Over several
attempts `standing` says what the call has come to.

| what came back                       | read_only         | idempotent_write  | non_idempotent            |
|--------------------------------------|-------------------|-------------------|---------------------------|
| fault before a byte left             | failed, retry     | failed, retry     | failed, retry             |
| fault after a byte may have left     | failed, retry     | in doubt, retry   | in doubt                  |
| cancelled by us after that           | cancelled         | in doubt          | in doubt                  |
| answer below 400 without `isError`   | succeeded         | succeeded         | succeeded                 |
| `isError`, or 400–499 except 429     | failed            | failed            | failed                    |
| 429                                  | failed, retry     | failed, retry     | failed                    |
| 5xx                                  | failed, retry     | failed, retry     | in doubt                  |
| failure that the policy says did not apply (`not_applied_on`) | as above | as above | failed, not applied |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from gateway.core.guards.guard import ConditionFault
from gateway.core.guards.result import structured
from gateway.core.model import Effect, Json, Outcome
from gateway.core.policy import Idempotency


class Fault(Struct, frozen=True):
    """`sent`: bytes may have left. `retry`: the same attempt again may end otherwise. `reason`: what a read's caller is told."""

    sent: bool
    reason: str
    retry: bool = True


_UNAVAILABLE: Final = "upstream.unavailable"
_TOOL_ERROR: Final = "tool.error"

FAULTS: Final[Mapping[str, Fault]] = {
    # -- surely not applied
    "refused": Fault(False, _UNAVAILABLE),
    "unreachable": Fault(False, _UNAVAILABLE),
    "dns": Fault(False, _UNAVAILABLE),
    "tls": Fault(False, _UNAVAILABLE),
    "connect_timeout": Fault(False, _UNAVAILABLE),
    "pool_timeout": Fault(False, _UNAVAILABLE),
    "unavailable": Fault(False, _UNAVAILABLE),  # a process that isn't running, an upstream that is closed
    "unsendable": Fault(False, "arguments.unsendable", retry=False),  # arguments that can't be put into a request
    # -- may have been applied
    "reset": Fault(True, _UNAVAILABLE),
    "closed": Fault(True, _UNAVAILABLE),
    "timeout": Fault(True, "tool.timeout"),
    "cut": Fault(True, _UNAVAILABLE),
    "garbage": Fault(True, _TOOL_ERROR),
    "too_large": Fault(True, "result.unread", retry=False),
    "cancelled": Fault(True, "call.cancelled", retry=False),
    "lost": Fault(True, _UNAVAILABLE),  # whoever sent it died before the outcome was recorded
}
"""Every kind that an `UpstreamFault` may carry."""

KINDS: Final = frozenset(FAULTS)

_PLAIN: Final = Idempotency()


def outcome_of_fault(
    kind: str,
    message: str,
    effect: Effect,
    *,
    status: int | None = None,
    retry_after_ms: int | None = None,
    idempotency: Idempotency = _PLAIN,
) -> Outcome:
    """No answer, or one whose body was lost (`status`). A kind without a row counts as one that may have been applied."""
    fault = FAULTS.get(kind, FAULTS["garbage"])
    if not fault.sent:
        return Outcome("failed", fault.reason, message, not_applied=True, retry=fault.retry, retry_after_ms=retry_after_ms)
    if status in idempotency.not_applied_statuses:
        lost = {"content": [{"type": "text", "text": message}], "isError": True}
        return outcome_of_answer(lost, status, effect, idempotency, retry_after_ms)
    if effect is Effect.READ_ONLY:
        state = "cancelled" if kind == "cancelled" else "failed"
        return Outcome(state, fault.reason, message, status=status, retry=fault.retry, retry_after_ms=retry_after_ms)
    again = fault.retry and effect is Effect.IDEMPOTENT_WRITE
    return in_doubt(message, status=status, retry=again, retry_after_ms=retry_after_ms if again else None)


def in_doubt(message: str, **more: Any) -> Outcome:
    """It may have happened, and nobody knows; `more` is what else is known of the attempt."""
    return Outcome("in_doubt", "call.in_doubt", message, **more)


def called_off(message: str) -> Outcome:
    """We cancelled it before a byte left."""
    return Outcome("cancelled", FAULTS["cancelled"].reason, message, not_applied=True)


def outcome_of_answer(
    result: Mapping[str, Json],
    status: int | None,
    effect: Effect,
    idempotency: Idempotency = _PLAIN,
    retry_after_ms: int | None = None,
) -> Outcome:
    """`result` is a CallToolResult, kept as it is. `status` is HTTP's, None where the protocol has none."""
    code = status or 0
    if code < 400 and not result.get("isError"):
        return Outcome("succeeded", result=result, status=status, answered=True)
    message = f"the tool answered with status {status}" if code >= 400 else "the tool reported an error"
    nothing_done = code in idempotency.not_applied_statuses or _says_nothing_done(result, idempotency)
    if effect is Effect.NON_IDEMPOTENT and code >= 500 and not nothing_done:
        return in_doubt(message, result=result, status=status)
    again = effect is not Effect.NON_IDEMPOTENT and (code == 429 or code >= 500)
    return Outcome(
        "failed", _TOOL_ERROR, message, result, status,
        answered=True, not_applied=nothing_done, retry=again, retry_after_ms=retry_after_ms if again else None,
    )  # fmt: skip


def standing(earlier: Outcome | None, last: Outcome) -> Outcome:
    """What the call has come to when `last` is the next attempt after `earlier` (itself what stood until then).

    An attempt that didn't get through says nothing about an earlier one that may have: the doubt stays.
    """
    if earlier is None or earlier.state != "in_doubt" or not (last.not_applied or last.retry):
        return last
    return replace(earlier, retry=last.retry, retry_after_ms=last.retry_after_ms)


def _says_nothing_done(result: Mapping[str, Json], idempotency: Idempotency) -> bool:
    """A condition that can't be evaluated says nothing: the safe side is that it may have been applied."""
    if idempotency.not_applied_if is None:
        return False
    try:
        return idempotency.not_applied_if({"result": structured(result)}) is True
    except ConditionFault:
        return False
