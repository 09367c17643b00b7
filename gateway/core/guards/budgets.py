"""budgets: turns, tool calls, tokens and money of a run tree: set aside at admission, posted with the outcome, never exceeded.

A child draws on every purse up its lineage. One attempt costs one tool call, failures included; replays and joins cost nothing; a hold
carries its amounts until it ends. What a model call is expected to use (`tokens_per_turn`) stays set aside until a trusted figure comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from immutables import Map
from msgspec import Struct, field
from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.guards.guard import Bid, Fold, Guard, Section, Stage
from gateway.core.model import NOTHING, Amounts, Finding, Limits
from gateway.core.run import Run, Tree
from gateway.core.units import SPAN, USD, duration_ms, usd_micros


class Purse(Struct, frozen=True):
    """What a run (with its descendants) has set aside and spent. `calls_in_turn`: (run, turn) -> calls admitted or held.

    `last_input`: input tokens of the latest reported model call (a history that grows).
    """

    pending: Amounts = NOTHING
    posted: Amounts = NOTHING
    in_flight: int = 0
    holds: int = 0
    calls_in_turn: Map[tuple[str, int], int] = field(default_factory=Map)
    last_input: int = 0

    @property
    def used(self) -> Amounts:
        return self.pending + self.posted

    def last_turn_paid(self, limits: Limits) -> bool:
        """Could no further turn be paid?"""
        used = self.used
        return (
            _over(used.turns + 1, limits.turns)
            or _over(used.tokens + (limits.tokens_per_turn or 1), limits.tokens)
            or _over(used.usd_micros + 1, limits.usd_micros)
        )


def _over(amount: int, limit: int | None) -> bool:
    return limit is not None and amount > limit


def purse(run: Run) -> Purse:
    """The run's purse as folded so far."""
    found = run.facts.get(Budgets.kind)
    return found if isinstance(found, Purse) else Budgets.start


# ---- fold ---------------------------------------------------------------------------------------------------------------


def _turn_opened(fact: Purse, event: e.TurnOpened, tree: Tree) -> Purse:
    return replace(fact, posted=fact.posted + Amounts(turns=1), pending=fact.pending + Amounts(tokens=event.tokens))


def _usage(fact: Purse, event: e.UsageReported, tree: Tree) -> Purse:
    turn = tree.runs[event.run].turns[event.turn]
    fact = replace(fact, last_input=event.input + event.cache_creation + event.cache_read)
    if event.source == "reporter":
        already = Amounts(tokens=max(0, turn.reported - turn.tokens))
        posted = fact.posted - already + Amounts(tokens=turn.reported + event.tokens, usd_micros=event.usd_micros)
        return replace(fact, pending=fact.pending - Amounts(tokens=turn.tokens), posted=posted)
    beyond = max(0, turn.reported + event.tokens - turn.tokens) - max(0, turn.reported - turn.tokens)
    return replace(fact, posted=fact.posted + Amounts(tokens=beyond, usd_micros=event.usd_micros))


def _counted(fact: Purse, event: e.CallAsked) -> Map[tuple[str, int], int]:
    turn = (event.run, event.turn)
    return fact.calls_in_turn.set(turn, fact.calls_in_turn.get(turn, 0) + 1)


def _held(fact: Purse, event: e.CallHeld, tree: Tree) -> Purse:
    pending = fact.pending + Amounts(tool_calls=1, usd_micros=event.usd_micros)
    return replace(fact, pending=pending, holds=fact.holds + 1, calls_in_turn=_counted(fact, event))


def _admitted(fact: Purse, event: e.CallAdmitted, tree: Tree) -> Purse:
    before = tree.calls.get(event.call)
    if before is not None and event.attempt == 1:
        dearer = Amounts(usd_micros=event.usd_micros - before.usd_micros)
        return replace(fact, pending=fact.pending + dearer, holds=fact.holds - 1, in_flight=fact.in_flight + 1)
    amounts = Amounts(tool_calls=1, usd_micros=event.usd_micros)
    if before is None:
        return replace(fact, pending=fact.pending + amounts, in_flight=fact.in_flight + 1, calls_in_turn=_counted(fact, event))
    if before.state == "ready":  # once more after a doubt, which posted the attempt before
        return replace(fact, pending=fact.pending + amounts, in_flight=fact.in_flight + 1)
    last = Amounts(tool_calls=1, usd_micros=before.usd_micros)
    return replace(fact, pending=fact.pending - last + amounts, posted=fact.posted + last)


def _settled(fact: Purse, event: e.CallSettled, tree: Tree) -> Purse:
    before = tree.calls[event.call]
    pending = fact.pending - Amounts(tool_calls=1, usd_micros=before.usd_micros)
    posted = fact.posted + Amounts(tool_calls=1, usd_micros=event.usd_micros)
    return replace(fact, pending=pending, posted=posted, in_flight=fact.in_flight - 1)


def _released(fact: Purse, event: e.CallEvent, tree: Tree) -> Purse:
    before = tree.calls[event.call]
    return replace(fact, pending=fact.pending - Amounts(tool_calls=1, usd_micros=before.usd_micros), holds=fact.holds - 1)


_FOLDS: dict[type[e.Event], Fold] = {
    e.TurnOpened: _turn_opened,
    e.UsageReported: _usage,
    e.CallHeld: _held,
    e.CallAdmitted: _admitted,
    e.CallSettled: _settled,
    e.CallCancelled: _released,
    e.HoldDenied: _released,
    e.HoldExpired: _released,
    e.HoldVoided: _released,
}


# ---- the guard ----------------------------------------------------------------------------------------------------------

_CLOSES = ("turns", "tool_calls", "tokens", "cost", "deadline")
_COUNTS = {
    "turns": "model calls; the last is for the answer, without tools",
    "tool_calls": "attempts of tool calls, failures included; replays are free",
    "tool_calls_per_turn": "calls that one turn may ask for",
    "tokens": "tokens of all model calls: input, output, cache creation and cache reads",
    "tokens_per_turn": "tokens that a model call is expected to use: set aside when its turn opens",
    "input_tokens_per_turn": "input tokens of a model call, beyond which no further turn opens",
    "in_flight_calls": "calls that may run at once",
    "open_holds": "calls that may wait for people at once (5)",
}


def _cap(wanted: Mapping[str, Any], description: str) -> dict[str, Any]:
    return {"description": description, "anyOf": [wanted, {"const": "unlimited"}]}


@dataclass(frozen=True)
class Budgets(Guard):
    kind: ClassVar[str] = "budgets"
    stage: ClassVar[Stage] = Stage.LIMIT
    schema: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "run": {
            "budgets": {
                "type": "object",
                "description": "the caps of a run and its children: turns, tool_calls, deadline, and tokens or cost_usd; `unlimited` lifts one",
                "additionalProperties": False,
                "properties": {
                    **{name: _cap({"type": "integer", "minimum": 0}, what) for name, what in _COUNTS.items()},
                    "deadline": _cap(SPAN, "a duration from the opening on, such as 90s"),
                    "cost_usd": _cap(USD, "dollars for tools (`price`) and models, such as 2.00"),
                },
            },
            "on_exhausted": {
                "type": "object",
                "description": "a mapping of a budget to what its end does: `refuse` (default of tool_calls) or `close` the run (of the others)",
                "additionalProperties": False,
                "properties": {name: {"enum": ["refuse", "close"], "description": "what its end does"} for name in _CLOSES},
            },
            "pause_while_held": {"type": "boolean", "description": "true if the deadline stands still while only people are waited for (false)"},
            "max_age": {**SPAN, "description": "a duration: the run's greatest age, pauses included (7d)"},
            "idle_after": {**SPAN, "description": "a duration that a silent run stays open (30m)"},
        }
    }
    per_rule: ClassVar[bool] = False
    start: ClassVar[Purse] = Purse()
    folds: ClassVar[Mapping[type[e.Event], Fold]] = _FOLDS
    tree: ClassVar[bool] = True

    @classmethod
    def build(cls, section: Section) -> Self | None:
        """A ceiling's stands beside the policy's, so that a rule of the policy can't shadow it away."""
        budgets: Mapping[str, Any] = section.data["run"].get("budgets", {})
        at = f"{section.pointer['run']}/budgets"
        try:
            limits_of({"budgets": budgets})
        except ValueError as wrong:
            section.report(f"{at}/cost_usd", str(wrong))
        if section.kind == "ceiling":
            return cls() if budgets else None
        for name in ("turns", "tool_calls", "deadline"):
            if name not in budgets:
                section.report(f"{at}/{name}", f"budget `{name}` is missing; give a cap, or write `{name}: unlimited`")
        if "tokens" not in budgets and "cost_usd" not in budgets:
            section.report(at, "one of the budgets `tokens` and `cost_usd` is missing; give a cap, or write `unlimited`")
        return cls()

    def limit(self, bid: Bid) -> Sequence[Finding]:
        found: list[Finding] = []
        for run in bid.tree.lineage(bid.run):
            found += _exceeded(run, bid)
            found += _crowded(run, bid)
        return found


def _exceeded(run: Run, bid: Bid) -> list[Finding]:
    limits, fact, more = run.limits, purse(run), bid.amounts
    posted, pending = fact.posted, fact.pending
    found: list[Finding] = []
    for code, amount, limit in (
        ("budget.turns", posted.turns + pending.turns + more.turns, limits.turns),
        ("budget.tool_calls", posted.tool_calls + pending.tool_calls + more.tool_calls, limits.tool_calls),
        ("budget.tokens", posted.tokens + pending.tokens + more.tokens, limits.tokens),
        ("budget.cost", posted.usd_micros + pending.usd_micros + more.usd_micros, limits.usd_micros),
    ):
        if limit is not None and amount > limit:
            name = code.removeprefix("budget.")
            found.append(Finding(Budgets.kind, code, _spent(name, amount, limit, run, bid), closes=name in limits.close_on))
    return found


def _crowded(run: Run, bid: Bid) -> Sequence[Finding]:
    """What is too much at once: calls of this turn, calls in flight, held calls; or, for a new turn, the history that grows."""
    limits, fact = run.limits, purse(run)
    if not bid.tool:
        return _overgrown(run, fact)
    if bid.again:
        return ()
    wrong = []
    if bid.turn and bid.amounts.tool_calls and limits.tool_calls_per_turn is not None:
        calls = fact.calls_in_turn.get((bid.run, bid.turn), 0)
        if calls >= limits.tool_calls_per_turn:
            wrong.append(Finding(Budgets.kind, "budget.tool_calls_per_turn", f"Turn {bid.turn} has had its {limits.tool_calls_per_turn} calls."))
    if not bid.holds and limits.in_flight_calls is not None and fact.in_flight >= limits.in_flight_calls:
        message = f"{fact.in_flight} calls are running; this run may have {limits.in_flight_calls} at once."
        wrong.append(Finding(Budgets.kind, "budget.in_flight", message))
    return [*wrong, *held_enough(fact.holds, limits.open_holds, "this run")] if bid.holds else wrong


def held_enough(held: int, most: int | None, whose: str) -> Sequence[Finding]:
    """May one more call of a run, or of a principal, wait for people?"""
    if most is None or held < most:
        return ()
    return (Finding(Budgets.kind, "budget.open_holds", f"{held} calls of {whose} wait for people; there may be {most} at once."),)


def _overgrown(run: Run, fact: Purse) -> Sequence[Finding]:
    limits = run.limits
    if not _over(fact.last_input, limits.input_tokens_per_turn):
        return ()
    message = f"The last model call read {fact.last_input} tokens; {limits.input_tokens_per_turn} are allowed. Start over with less history."
    return (Finding(Budgets.kind, "budget.input_tokens", message, closes="tokens" in limits.close_on),)


def _spent(name: str, amount: int, limit: int | None, run: Run, bid: Bid) -> str:
    whose = "this run" if run.id == bid.run else "a run above this one"
    unit = "micro-dollars" if name == "cost" else name.replace("_", " ")
    return f"The budget of {whose} is {limit} {unit}; with this it would be {amount}."


_LONGEST_MS = 10**15
SAYS_NOTHING = Limits(max_age_ms=_LONGEST_MS, idle_after_ms=_LONGEST_MS, open_holds=None, pause_while_held=True, close_on=())
"""The base of a ceiling's limits, and of a caller's own: what they leave out tightens nothing."""


def limits_of(run: Mapping[str, Any], base: Limits = Limits()) -> Limits:  # noqa: B008  frozen
    """The `run` section of a document as Limits; what is absent is as in `base`, `unlimited` is no cap. Raises ValueError."""
    budgets = {name: None if value == "unlimited" else value for name, value in run.get("budgets", {}).items()}
    exhausted = {name: action == "close" for name, action in run.get("on_exhausted", {}).items()}
    caps: dict[str, Any] = {name: budgets[name] for name in _COUNTS if name in budgets}
    if budgets.get("deadline") is not None:
        caps["deadline_ms"] = duration_ms(budgets["deadline"])
    if budgets.get("cost_usd") is not None:
        caps["usd_micros"] = usd_micros(budgets["cost_usd"])
    for name in ("max_age", "idle_after"):
        if name in run:
            caps[f"{name}_ms"] = duration_ms(run[name])
    closes = {**dict.fromkeys(base.close_on, True), **exhausted}
    switches = {name: run[name] for name in ("pause_while_held", "require_turns") if name in run}
    return replace(base, close_on=tuple(sorted(name for name in closes if closes[name])), **switches, **caps)


def checked_caps(budgets: Mapping[str, Any]) -> Mapping[str, Any]:
    """A caller's own caps, in the names of `run.budgets`. Raises ValueError for a name or value that is none."""
    for name, value in budgets.items():
        if name in _COUNTS:
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LONGEST_MS:
                raise ValueError(f"{name} is {str(value)[:40]}; a whole number from 0 to {_LONGEST_MS} is wanted")
        elif name not in ("deadline", "cost_usd"):
            raise ValueError(f"there is no budget {name!r}; there are {', '.join((*_COUNTS, 'deadline', 'cost_usd'))}")
    return budgets
