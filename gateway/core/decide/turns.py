"""Steps of turns: open, answer, usage, close. A turn is one model call and the tool calls it asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from gateway.core import events as e
from gateway.core.assess import attempt
from gateway.core.canonical import digest
from gateway.core.decide.draft import Draft
from gateway.core.decide.starting import end_if, not_open
from gateway.core.guards.guard import Bid, Placed, Stage
from gateway.core.guards.turns import over, unknown
from gateway.core.model import Amounts, Finding, Payload
from gateway.core.policy import ToolRule
from gateway.core.run import Turn, stream_of
from gateway.core.streams import State


class Usage(Struct, frozen=True):
    """One model call's figures. `tokens` is their weighted sum; `source`: self_reported or reporter."""

    model: str | None
    input: int
    output: int
    cache_creation: int
    cache_read: int
    usd_micros: int
    source: str

    @property
    def tokens(self) -> int:
        return self.input + self.output + self.cache_creation + self.cache_read


class Asked(Struct, frozen=True):
    """One call of a turn's answer."""

    call_id: str
    tool: str
    arguments: Payload


def begin(states: Mapping[str, State], run: str, guards: Sequence[Placed], now: int) -> tuple[Draft, int | tuple[Finding, ...]]:
    """Open the next turn: its number, or why not."""
    draft = Draft(states, stream_of(run), now)
    wrong = not_open(draft, run)
    number = draft.tree.runs[run].last_turn + 1
    if not wrong:
        wrong = _open(draft, run, number, guards)
    end_if(draft, run, wrong)
    return draft, wrong or number


def open_turn(draft: Draft, run: str, number: int, rule: ToolRule) -> tuple[Finding, ...]:
    """Open the turn that a call names as new; () if the budget pays for it. Shadows are for the rule's calls, not for turns."""
    return _open(draft, run, number, rule.stages[Stage.LIMIT])


def _open(draft: Draft, run: str, number: int, guards: Sequence[Placed]) -> tuple[Finding, ...]:
    tree = draft.tree
    tokens = tree.runs[run].limits.tokens_per_turn or 0
    bid = Bid(tree, run, number, draft.now, Amounts(turns=1, tokens=tokens))
    placed = [place for place in guards if place.guard.stage is Stage.LIMIT]
    wrong = tuple(finding for place in placed for finding in attempt(place, place.guard.limit, bid))
    if not wrong:
        draft.add(e.TurnOpened(run, number, tokens))
    return wrong


def answer(
    states: Mapping[str, State], run: str, number: int, asked: Sequence[Asked], message_digest: str | None, now: int
) -> tuple[Draft, Turn | Finding]:
    """Record what the model asked for, before any of it runs. The same answer again changes nothing; another is refused."""
    draft = Draft(states, stream_of(run), now)
    state = draft.tree.runs[run]
    turn = state.turns.get(number)
    if turn is None:
        return draft, unknown(state, number)
    calls = tuple({"call_id": one.call_id, "tool": one.tool, "arguments": one.arguments.hash} for one in asked)
    if turn.digest is not None and _same(turn, calls, message_digest):
        return draft, turn
    if turn.state != "open" or state.state in ("closing", "closed"):
        how = "has been answered otherwise" if turn.digest is not None else "is over"
        return draft, over(number, how)
    for one in asked:
        draft.keep(one.arguments)
    draft.add(e.TurnAnswered(run, number, message_digest or digest(list(calls)), calls))
    if not calls:
        draft.add(e.TurnClosed(run, number, "completed"))
    return draft, draft.tree.runs[run].turns[number]


def _same(turn: Turn, calls: Sequence[Mapping[str, str]], message_digest: str | None) -> bool:
    return [dict(one) for one in turn.asked] == [dict(one) for one in calls] and message_digest in (None, turn.digest)


def usage(states: Mapping[str, State], run: str, number: int, used: Usage, now: int) -> tuple[Draft, Turn | Finding]:
    """Post a model call's figures; recorded in frozen, closing and closed runs too, since they were spent."""
    draft = Draft(states, stream_of(run), now)
    if number not in draft.tree.runs[run].turns:
        return draft, unknown(draft.tree.runs[run], number)
    draft.add(
        e.UsageReported(
            run, number, used.source, used.model, used.input, used.output, used.cache_creation, used.cache_read, used.tokens, used.usd_micros
        )
    )  # fmt: skip
    return draft, draft.tree.runs[run].turns[number]


def end(states: Mapping[str, State], run: str, number: int, status: str, by: str, now: int) -> tuple[Draft, Turn | Finding]:
    """Close a turn; what of it waits for people is cancelled, the run stays open. Closing it again changes nothing."""
    draft = Draft(states, stream_of(run), now)
    turn = draft.tree.runs[run].turns.get(number)
    if turn is None:
        return draft, unknown(draft.tree.runs[run], number)
    if turn.state != "closed":
        draft.cancel_waiting(run, by, number)
        draft.add(e.TurnClosed(run, number, status))
    return draft, draft.tree.runs[run].turns[number]

