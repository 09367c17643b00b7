"""Reconciling a call in doubt: what a person found out, and what that makes of the call."""

from __future__ import annotations

from gateway.core.decide.doubts import OUTCOMES
from gateway.doors.render import reconciled_json
from gateway.doors.rest.operation import Answer, Exchange, Operation
from gateway.doors.rest.schemas import NOTE, fields, refer
from gateway.engine.doubts import Word
from gateway.ports import malformed


async def reconcile(x: Exchange) -> Answer:
    """What did not happen is sent once more where its run allows; the answer doesn't wait for that (`status` is then `admitted`)."""
    word = Word(x.body["outcome"], x.body["why"], x.body.get("result"))
    if word.result is not None and word.outcome != "happened":
        raise malformed("`result` goes with the outcome `happened` only.")
    return Answer(200, reconciled_json(await x.engine.reconcile(x.caller, x.path["run"], x.path["call"], word)))


OPERATIONS = (
    Operation(
        "POST", "/v1/runs/{run}/calls/{call}/reconcile", reconcile, "Say what became of a call in doubt", {200: refer("ReconciledCall")},
        fields(
            {
                "outcome": {
                    "enum": list(OUTCOMES), "type": "string",
                    "description": "did_not_happen: sent once more under its key where its run allows, else it frees the key.",
                },
                "why": {**NOTE, "minLength": 1, "description": "How you know; it is recorded with your name."},
                "result": {"description": "The tool's own JSON answer if you have it: what a repeat of the call is answered with."},
            },
            "outcome", "why",
        ),
    ),
)  # fmt: skip
