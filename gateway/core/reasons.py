"""Every reason code there is, one row each: what the run ends with, the HTTP status, whether trying again helps, and the hint.

Codes are stable and dotted. Doors take statuses from here, never from themselves; messages of findings add the particulars.
"""

from __future__ import annotations

from msgspec import Struct


class Reason(Struct, frozen=True):
    """`run_reason`: the terminal reason where this code may end the run. `hint`: what a model or caller should do next.

    `wait_s`: seconds after which asking again may help; None where waiting changes nothing. `binding`: no policy's `shadow` suspends it.
    """

    code: str
    status: int
    retryable: bool
    title: str
    hint: str
    run_reason: str | None = None
    wait_s: int | None = None
    binding: bool = False


def _rows(*rows: Reason) -> dict[str, Reason]:
    return {row.code: row for row in rows}


REASONS: dict[str, Reason] = _rows(
    # -- the request itself
    Reason("request.malformed", 400, False, "Malformed request", "Correct the request as the detail says; nothing was done."),
    Reason("request.too_large", 413, False, "Request too large", "Send less in one request; nothing was done."),
    Reason("auth.required", 401, False, "Not authenticated", "Send a valid key or run token as `Authorization: Bearer …`."),
    Reason("auth.forbidden", 403, False, "Not permitted", "Ask an operator for the role, or the entry in gateway.yaml's `task_types`, it needs."),
    Reason("origin.forbidden", 403, False, "Wrong host or origin", "Use the gateway's own address, and no page of another site."),
    Reason("route.unknown", 404, False, "No such path", "See /openapi.json for the paths there are."),
    Reason("route.method", 405, False, "Method not allowed", "Use a method that the Allow header names."),
    Reason("run.unknown", 404, False, "No such run", "Open a run first, or check its id."),
    Reason("call.unknown", 404, False, "No such call", "Check the call's id; it belongs to one run."),
    Reason("hold.unknown", 404, False, "No such hold", "Check the hold's id, and that its approvers include you."),
    Reason("policy.none", 403, False, "No policy governs this", "Ask the platform team for a policy that matches this principal and task type."),
    # -- scope
    Reason("tool.unknown", 404, False, "No such tool", "Use only the tools that are listed; its upstream doesn't offer this one now.", binding=True),
    Reason("tool.not_allowed", 403, False, "Tool not allowed", "Use only the tools that are listed; asking again won't help.", binding=True),
    Reason("tool.changed", 403, False, "Tool changed", "Go on without this tool; an operator has to accept its new definition.", binding=True),
    Reason("tool.digest", 409, False, "Not what you saw", "Look at the definition again and accept it by its current digest."),
    Reason("tool.schema_unsupported", 403, False, "Tool held back", "Go on without this tool; its schema can't be enforced here.", binding=True),
    # -- shape
    Reason("arguments.malformed", 422, True, "Malformed arguments", "Send the arguments as one complete JSON object.", binding=True),
    Reason("arguments.invalid", 422, True, "Invalid arguments", "Correct the arguments as described and call again; nothing was executed."),
    Reason("arguments.bound", 422, True, "Argument is injected", "Leave this argument out; the gateway fills it in.", binding=True),
    Reason("arguments.unsendable", 422, True, "Arguments can't be sent", "The tool's request can't carry such values: change them and call again."),
    # -- authority
    Reason("authorization.denied", 403, False, "Not authorized", "These arguments aren't permitted here; choose others or go on without."),
    Reason("condition.failed", 403, False, "Condition failed", "The policy can't judge these arguments, so they are refused; try simpler ones."),
    Reason("guard.failed", 403, False, "Guard failed", "The gateway couldn't judge this call and refused it; tell the platform team."),
    # -- limits
    Reason("budget.turns", 429, False, "No turns left", "Answer with what you have; this run takes no more turns.", "turn_budget"),
    Reason("budget.tool_calls", 429, False, "No tool calls left", "Answer with what you have; this run takes no more tool calls.", "tool_budget"),
    Reason(
        "budget.tool_calls_per_turn", 429, True, "Too many calls in this turn", "Go on in the next turn, with fewer calls at once.", "tool_budget"
    ),
    Reason("budget.tokens", 429, False, "No tokens left", "Answer with what you have; this run's tokens are spent.", "token_budget"),
    Reason("budget.input_tokens", 429, False, "History too long", "Answer with what you have, or go on in a new run.", "token_budget"),
    Reason("budget.cost", 429, False, "No money left", "Answer with what you have, or use a cheaper tool.", "cost_budget"),
    Reason("budget.in_flight", 429, True, "Too many calls in flight", "Wait for a running call to end, then call again.", wait_s=1),
    Reason("budget.open_holds", 429, True, "Too many held calls", "Wait until people have decided on the calls that are held.", wait_s=30),
    Reason("budget.open_runs", 429, True, "Too many open runs", "Finish or cancel a run before opening another.", wait_s=30),
    Reason("turn.final", 429, False, "Last turn", "Don't call tools now: give your final answer, or hand off what is left."),
    Reason("turn.required", 422, True, "Turn not declared", "Declare the turn first (POST …/turns, or the turn's number with the call)."),
    Reason("turn.unknown", 404, False, "No such turn", "Use the number that opening the turn returned.", binding=True),
    Reason("turn.not_open", 409, False, "Turn is over", "Open a new turn; this one takes no more.", binding=True),
    Reason("run.not_open", 409, False, "Run is not open", "It takes no new calls (an operator may resume a frozen run); replays still answer."),
    Reason("run.continued", 409, False, "Run is continued already", "Go on in the run that continues it; two would share their keys."),
    Reason("run.deadline", 409, False, "Deadline passed", "Time is up: answer with what you have.", "deadline_exceeded"),
    Reason("loop.repeat", 429, False, "Same call, same result", "It was answered the same way each time: change the arguments or the plan.", "loop"),
    Reason("loop.cycle", 429, False, "Calls go in a circle", "You are repeating a cycle of calls: change the plan, or answer now.", "loop"),
    Reason("loop.refusals", 429, False, "Refused too often", "Read the refusals before calling again: change the plan, or answer now.", "loop"),
    # -- consent
    Reason("approval.required", 202, True, "Waiting for approval", "Nothing was executed. Make the same call again later.", wait_s=5, binding=True),
    Reason("approval.denied", 403, False, "Denied by a person", "Don't repeat this call: read the reason and choose another way.", binding=True),
    Reason("approval.expired", 403, True, "Approval expired", "Nobody decided in time; nothing was executed. Call again to ask anew.", binding=True),
    Reason("approval.lapsed", 403, True, "Approval lapsed", "It was approved but not executed in time; call again to ask once more.", binding=True),
    Reason("approval.void", 403, True, "Approval void", "What was approved has changed; call again to ask once more.", binding=True),
    Reason("hold.conflict", 409, False, "Already decided", "Look at the hold's state; your vote was not counted."),
    Reason("hold.digest", 409, False, "Not what you saw", "Read the hold again and vote with its current digest."),
    Reason("hold.forbidden", 403, False, "May not vote", "Only the people whom the policy names may vote, never the requester."),
    # -- repeats and outcomes
    Reason("key.reused", 422, False, "Identity reused", "Use a new call_id or operation_id for different arguments."),
    Reason("call.in_flight", 409, True, "Still running", "The same call is running; wait, then make it again to get its result.", wait_s=1),
    Reason("call.in_doubt", 409, False, "Outcome unknown", "It may have happened. Don't repeat it; a person has to find out."),
    Reason("call.not_in_doubt", 409, False, "Not in doubt", "Look at the call's state; nothing was changed."),
    Reason("call.not_applied", 409, True, "Did not happen", "It was found out that nothing was executed; call again if it is still wanted."),
    Reason("call.cancelled", 409, False, "Cancelled", "It was cancelled; go on without its result."),
    Reason("result.too_large", 200, False, "Result too large", "The tool ran; read the whole by the link, if there is one, or ask for less."),
    Reason("result.unread", 502, False, "Answer too long to read", "The tool ran, but the gateway didn't read all of its answer; ask for less."),
    Reason("result.invalid", 200, False, "Result not as promised", "The tool ran, but its answer is not usable; don't repeat a write."),
    Reason("result.expired", 410, False, "Result erased", "It was executed once; its result is no longer kept, and it isn't executed again."),
    Reason("tool.error", 502, False, "Tool failed", "The tool reported a failure; read it before trying another way."),
    Reason("tool.timeout", 504, True, "Tool timed out", "The tool didn't answer in time; ask for less, or try again later.", wait_s=5),
    Reason("upstream.unavailable", 502, True, "Tool not reachable", "Nothing was executed; try again later or go on without.", wait_s=5),
    Reason("gateway.stopping", 503, True, "Gateway is stopping", "Nothing was started; try again shortly.", wait_s=2),
    Reason("gateway.failed", 500, False, "Fault of the gateway", "It is not your request's fault; tell the platform team."),
    Reason("ledger.unavailable", 503, True, "Ledger not available", "Nothing was started that isn't recorded; try again shortly.", wait_s=2),
)


def reason(code: str) -> Reason:
    """The row of a code; KeyError is a fault of ours (a test holds that every code raised has a row)."""
    return REASONS[code]
