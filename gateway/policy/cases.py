"""Tests of policies: each case plays a run on the pure core and compares the verdict. What no case mentions is expected to be denied.

With `tools` and `principals` written out, each tool that no case lets a principal call must meet no rule for it: an allowance that nobody
tested is a failure. Time stands still at `now`, except for `wait`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from gateway.core.decide.calls import Admit, Answered, Deny, Next, Wait
from gateway.core.decide.turns import Usage
from gateway.core.guards.result import structured
from gateway.core.model import CallRequest, Finding, Json, Malformed, Outcome, Principal, Tool
from gateway.core.outcomes import KINDS, outcome_of_answer, outcome_of_fault
from gateway.core.policy import ungoverned
from gateway.core.repeats import Join
from gateway.core.units import duration_ms, usd_micros
from gateway.policy.cases_schema import BUDGET, CASES_SCHEMA
from gateway.policy.play import Asked, Play, completed
from gateway.policy.schema_index import ShapeError
from gateway.policy.shapes import compile_shape
from gateway.policy.store import LoadedPolicies
from gateway.ports import PolicyError
from gateway.source import Mistake, Source, SourceError, child, read_and_check

_NOW = "2026-01-01T00:00:00Z"
_TASK_TYPE = "interactive"


@dataclass(frozen=True)
class CaseResult:
    """One case. `wrong`: what differs, as `field: expected x, got y`; `findings`: what was objected, for the reader of a failure."""

    where: str
    name: str
    wrong: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.wrong

    def __str__(self) -> str:
        if self.passed:
            return f"{self.where}: {self.name}: passed"
        objections = (f"{f.guard}: {f.reason}: {f.message} ({f.rule})" for f in self.findings)
        return "\n    ".join((f"{self.where}: {self.name}: FAILED", *self.wrong, *objections))


def run_cases(path: Path, policies: LoadedPolicies) -> list[CaseResult]:
    """Play all cases of one `*_test.yaml`. Raises PolicyError if the file can't be used."""
    try:
        source, mistakes = read_and_check(path.name, path.read_bytes(), CASES_SCHEMA)
    except OSError as error:
        raise PolicyError(f"{path.name}:1:1: can't be read: {error.strerror}") from None
    except SourceError as error:
        raise PolicyError(str(error)) from None
    mistakes = mistakes or _contradictions(source, policies)
    if mistakes:
        raise PolicyError("\n".join(map(str, sorted(mistakes))))
    tests = _Tests(source, policies)
    return [*(tests.result(index, case) for index, case in enumerate(source.data["cases"])), *tests.unlisted()]


def _named(wanted: str, policies: LoadedPolicies) -> str | None:
    """The policy's name, given that or its file's."""
    return next((policy.name for policy in policies.policies if wanted in (policy.name, policy.file)), None)


def _contradictions(source: Source, policies: LoadedPolicies) -> list[Mistake]:
    """What the schema can't see: names that mean nothing, steps that make no sense."""
    data = source.data
    wrong = [] if _named(data["policy"], policies) else [("/policy", f"there is no policy {data['policy']!r}")]
    try:
        if datetime.fromisoformat(data.get("now", _NOW)).tzinfo is None:
            raise ValueError("it names no zone")
    except ValueError as error:
        wrong.append(("/now", f"no time such as {_NOW}: {error}"))
    for index, case in enumerate(data["cases"]):
        at = child("/cases", index)
        for pointer, who in [(f"{at}/when/principal", case["when"]["principal"]), *_voters(at, case)]:
            if isinstance(who, str) and who not in data.get("principals", {}):
                wrong.append((pointer, f"{who!r} is not among `principals`"))
        wrong += [found for number, step in enumerate(case.get("given", ())) for found in _odd(f"{at}/given/{number}", step)]
        wrong += _odd_outcome(f"{at}/when/outcome", case["when"].get("outcome"))
    return [Mistake(source.at(pointer), message, pointer) for pointer, message in wrong]


def _voters(at: str, case: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for number, step in enumerate(case.get("given", ())):
        if "vote" in step:
            yield f"{at}/given/{number}/vote/by", step["vote"]["by"]


def _odd(at: str, step: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    doings = [name for name in ("call", "turn", "usage", "vote", "wait") if name in step]
    if len(doings) != 1:
        yield at, f"one step is one thing; found {' and '.join(doings) or 'none'} of call, turn, usage, vote and wait"
    elif doings != ["call"] and ("outcome" in step or "times" in step):
        yield at, "`outcome` and `times` belong to a call"
    yield from _odd_outcome(f"{at}/outcome", step.get("outcome"))


def _odd_outcome(at: str, outcome: Any) -> Iterator[tuple[str, str]]:
    given = [name for name in ("result", "error", "fault") if isinstance(outcome, dict) and name in outcome]
    if len(given) > 1:
        yield at, f"an outcome is one of result, error and fault; found {' and '.join(given)}"
    elif given == ["fault"] and outcome["fault"] not in KINDS:
        yield f"{at}/fault", f"{outcome['fault']!r} is none of {', '.join(sorted(KINDS))}"


class _Tests:
    """One file's facts."""

    def __init__(self, source: Source, policies: LoadedPolicies) -> None:
        self.source, self.policies = source, policies
        self.policy = _named(source.data["policy"], policies)
        self.now = int(datetime.fromisoformat(source.data.get("now", _NOW)).timestamp() * 1000)
        self.principals = {name: _principal(facts) for name, facts in source.data.get("principals", {}).items()}
        self.tools = {name: _tool(name, definition) for name, definition in source.data["tools"].items()} if "tools" in source.data else None
        self.tried: set[tuple[str, str]] = set()

    def result(self, index: int, case: Mapping[str, Any]) -> CaseResult:
        where = f"{self.source.file}:{self.source.at(child('/cases', index)).line}"
        when, then = case["when"], case["then"]
        principal = self.who(when["principal"])
        if then["verdict"] != "deny":
            self.tried.add((principal.id, when["tool"]))
        play = self.play(principal, when, case.get("run", {}))
        if isinstance(play, Finding):
            denied = {"verdict": "deny", "reason": play.reason, "findings": [play.reason]}
            return CaseResult(where, case["name"], tuple(_differences(then, denied)), (play,))
        try:
            for step in case.get("given", ()):
                self.happen(play, step)
            got, findings = _judged(play, when)
        except LookupError as error:
            return CaseResult(where, case["name"], (f"given: {error}",))
        return CaseResult(where, case["name"], tuple(_differences(then, got)), findings)

    def who(self, who: Any) -> Principal:
        return self.principals[who] if isinstance(who, str) else _principal(who)

    def play(self, principal: Principal, when: Mapping[str, Any], run: Mapping[str, Any]) -> Play | Finding:
        task_type = when.get("task_type") or min(principal.task_types, default=_TASK_TYPE)
        governing = self.policies.choose(principal, task_type, self.policy)
        if governing is None:
            return ungoverned(principal, task_type, self.policy)
        return Play(governing, principal, task_type, self.tool, self.now, run.get("goal"), run.get("labels", {}))

    def tool(self, name: str) -> Tool | None:
        """Where the file lists no tools, any name is a tool that takes anything."""
        return _tool(name, {}) if self.tools is None else self.tools.get(name)

    def happen(self, play: Play, step: Mapping[str, Any]) -> None:
        """One thing that happened before. Raises LookupError if it can't have."""
        if "call" in step:
            for _ in range(step.get("times", 1)):
                asked = play.call(_request(step["call"]))
                if isinstance(asked.next, Admit) and step.get("outcome") != "running":
                    play.settle(asked, _outcome(asked, step.get("outcome", {})))
        elif "turn" in step:
            while (last := play.tree.runs[play.run].last_turn) < step["turn"]:
                if not isinstance(play.open_turn(), int):
                    raise LookupError(f"turn {last + 1} could not be opened")
        elif "usage" in step:
            _use(play, step["usage"])
        elif "vote" in step:
            say = step["vote"]
            found = play.vote(self.who(say["by"]), say["say"], say.get("note", ""))
            if isinstance(found, Finding):
                raise LookupError(f"the vote was not counted: {found.message}")
        else:
            play.wait(duration_ms(step["wait"]))

    def unlisted(self) -> Iterator[CaseResult]:
        """Each pair of a principal and a tool that no case lets happen."""
        for name, principal in self.principals.items():
            for tool in self.tools or ():
                if (principal.id, tool) in self.tried or isinstance(play := self.play(principal, {}, {}), Finding):
                    continue
                allowed = play.policies.rule_for(tool).listed
                where = f"{self.source.file}:{self.source.key_at(child('/tools', tool)).line}"
                wrong = (f"no case lets {name} call it, so a denial is expected; {play.policies.rule_for(tool).where} allows it",) if allowed else ()
                yield CaseResult(where, f"{tool} is denied to {name}", wrong)


def _principal(facts: Mapping[str, Any]) -> Principal:
    sets = {name: frozenset(facts.get(name, ())) for name in ("groups", "task_types", "trust", "roles")}
    return Principal(facts["id"], claims=facts.get("claims", {}), person=facts.get("person", False), **sets)


def _tool(name: str, definition: Mapping[str, Any]) -> Tool:
    upstream, _, local = name.partition(".")
    shape, unsupported = None, None
    try:
        shape = compile_shape(definition.get("inputSchema", {"type": "object"}))
    except ShapeError as error:
        unsupported = str(error)
    return Tool(name, upstream, local, definition, hashlib.sha256(repr(definition).encode()).hexdigest(), shape, unsupported)


def _request(call: Mapping[str, Any]) -> CallRequest:
    arguments = call.get("arguments", {})
    return CallRequest(
        call["tool"], Malformed("they are no JSON") if isinstance(arguments, str) else arguments, "test", call.get("call_id"),
        call.get("operation_id"), call.get("turn", 0),
    )  # fmt: skip


def _outcome(asked: Asked, written: Mapping[str, Any]) -> Outcome:
    rule = asked.assessment.rule
    status = written.get("status")
    if "fault" in written:
        return outcome_of_fault(written["fault"], "as the test says", rule.effect, status=status, idempotency=rule.idempotency)
    return outcome_of_answer(completed(written.get("result"), error=written.get("error")), status, rule.effect, rule.idempotency)


def _use(play: Play, used: Mapping[str, Any]) -> None:
    last = play.tree.runs[play.run].last_turn
    number = used.get("turn", last)
    if not 0 < number <= last:
        raise LookupError(f"turn {number} was never opened, so it can't have used anything")
    counts = {name: used.get(name, 0) for name in ("input", "output", "cache_creation", "cache_read")}
    source = used.get("source", "self_reported")
    play.usage(number, Usage(model=None, usd_micros=usd_micros(used.get("cost_usd", 0)), source=source, **counts))


def _judged(play: Play, when: Mapping[str, Any]) -> tuple[dict[str, Json], tuple[Finding, ...]]:
    """What the call under test came to, by the names that `then` uses."""
    asked = play.call(_request(when))
    got: dict[str, Json] = {
        "verdict": _verdict(asked.next), "findings": [f.reason for f in asked.findings], "shadowed": list(asked.shadowed),
        "reason": asked.findings[0].reason if asked.findings else None, "arguments": asked.assessment.arguments,
        "approvers": [name for requirement in asked.assessment.requirements for name in requirement.approvers],
    }  # fmt: skip
    if isinstance(asked.next, Wait):
        got["approvers"] = [name for requirement in asked.next.hold.requirements for name in requirement.approvers]
    if isinstance(asked.next, Admit) and "outcome" in when:
        got["result"] = structured(play.settle(asked, _outcome(asked, when["outcome"])).result or {})
    left = play.budget
    return {**got, "budget": {name: getattr(left, name) for name in BUDGET}}, asked.findings


def _verdict(next: Next) -> str:
    match next:
        case Admit():
            return "allow"
        case Deny():
            return "deny"
        case Wait():
            return "hold"
        case Answered():
            return "replay"
        case Join():
            return "busy"
    return "doubt"


def _differences(then: Mapping[str, Any], got: Mapping[str, Json]) -> Iterator[str]:
    for name, expected in then.items():
        found = got.get(name)
        if name == "budget":
            yield from _differences(expected, found or {})
        elif isinstance(expected, list) and isinstance(found, list) and name != "result":
            if sorted(set(expected)) != sorted(set(found)):
                yield f"{name}: expected {sorted(expected)}, got {sorted(set(found))}"
        elif expected != found:
            yield f"{name}: expected {expected!r}, got {found!r}"
