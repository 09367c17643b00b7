"""Runs, rules and sections for tests of guards: given events, when command, then verdict and events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gateway.core.decide.calls import Admit, Answered, Deny, Wait
from gateway.core.decide.turns import Usage
from gateway.core.guards.allow import Allow
from gateway.core.guards.approval import Approval
from gateway.core.guards.guard import Ask, Bid, Guard, Placed, RunFacts, Section
from gateway.core.model import Amounts, CallRequest, Effect, Limits, Outcome, Principal, Requirement, Tool
from gateway.core.policy import Match, Policy, PolicySet, ToolRule
from gateway.policy.play import Asked, Play, completed

NOW = 1_796_000_000_000
BOT = Principal("agent:bot", frozenset({"support"}), claims={"tenant": "acme"}, trust=frozenset({"call_id"}))
MIA = Principal("user:mia", frozenset({"finance"}), roles=frozenset({"approver"}), person=True)
READ, WRITE, ACT = Effect.READ_ONLY, Effect.IDEMPOTENT_WRITE, Effect.NON_IDEMPOTENT


def tool(name: str = "crm.get", *, shape: Any = None, unsupported: str | None = None, unaccepted: str | None = None) -> Tool:
    upstream, _, local = name.partition(".")
    return Tool(name, upstream, local, {}, "d" * 64, shape, unsupported, unaccepted)


def rule(*guards: Guard, name: str = "crm.*", effect: Effect = READ, shadow: tuple[str, ...] = (), **more: Any) -> ToolRule:
    placed = tuple(Placed(guard, "p.yaml:9", guard.kind in shadow) for guard in (Allow(), *guards))
    return ToolRule(name, "p.yaml:9", "r", effect, placed, shadow=frozenset(shadow), **more)


def policy(*rules: ToolRule, guards: tuple[Guard, ...] = (), limits: Limits | None = None) -> PolicySet:
    """`guards` are those of the document. Without rules one lets everything through."""
    placed = tuple(Placed(guard, "p.yaml:3") for guard in guards)
    deny = ToolRule("*", "p.yaml:7", "d", ACT, (Placed(Allow(permitted=False), "p.yaml:7"),))
    one = Policy("p", "p.yaml", "x", "policy", 0, "new_runs", Match(), limits or Limits(), rules or (rule(name="*"),), placed, deny)
    return PolicySet("set", one)


def asks(quorum: int = 1) -> Approval:
    return Approval(requirement := Requirement("p.yaml:9", "r", ("user:mia", "user:kim"), quorum), None, requirement)


class Given(Play):
    """A run under way. Reads as: `run = given(policy(…)).calls(3, "crm.get", order=1)`, then `run.when("crm.get", order=1)`."""

    def when(self, name: str = "crm.get", *, turn: int = 0, operation: str | None = None, call_id: str | None = None, **arguments: Any) -> Asked:
        """The command under test; an admitted call is left running."""
        return self.call(CallRequest(name, arguments, "rest", call_id, operation, turn))

    def happens(self, name: str = "crm.get", *, result: Any = None, outcome: Outcome | None = None, **asked: Any) -> Asked:
        """A call that is settled at once, if it is admitted."""
        done = self.when(name, **asked)
        if isinstance(done.next, Admit):
            self.settle(done, outcome or Outcome("succeeded", result=completed(result), answered=True))
        return done

    def uses(self, turn: int, tokens: int = 0, usd_micros: int = 0, source: str = "self_reported") -> None:
        self.usage(turn, Usage("m", tokens, 0, 0, 0, usd_micros, source))


def given(policies: PolicySet, principal: Principal = BOT, catalog: Callable[[str], Tool | None] = tool) -> Given:
    return Given(policies, principal, "interactive", catalog, NOW)


def verdict(asked: Asked) -> str:
    names: dict[type[Any], str] = {Admit: "allow", Deny: "deny", Wait: "hold", Answered: "replay"}
    return names[type(asked.next)]


def reasons(asked: Asked) -> list[str]:
    return [finding.reason for finding in asked.findings]


def ask(given: Any = None, *, bound: Mapping[str, Any] | None = None, name: str = "crm.get", of: Tool | None = None) -> Ask:
    """What guards before the queue see."""
    facts = RunFacts("run_1", "interactive", "goal", {"team": "a"}, "p")
    return Ask(CallRequest(name, given, "rest"), BOT, facts, of, READ, given, {**given, **bound} if bound else given)


def bid(run: Play, amounts: Amounts | None = None, **more: Any) -> Bid:
    return Bid(run.tree, run.run, more.pop("turn", 0), run.now, amounts or Amounts(tool_calls=1), more.pop("tool", "crm.get"), **more)


class Written:
    """A guard's sections as compile gives them. `reports` are the pointers complained about; texts compile to `compiled[text]`."""

    def __init__(self, *, kind: str = "policy", effect: Effect = READ, compiled: Mapping[str, Any] | None = None, **homes: Any) -> None:
        self.reports: list[str] = []
        data = {home: homes.get(home, {}) for home in ("top", "run", "defaults", "rule")}
        pointer = {"top": "", "run": "/run", "defaults": "/defaults", "rule": "/tools/0"}
        self.section = Section(
            data, pointer, effect, "p.yaml:9", "r", lambda at, message: self.reports.append(at), lambda schema, at: schema["is"],
            lambda text, variables, at: (compiled or {}).get(text), lambda text, variables, at: (compiled or {}).get(text), kind,
        )  # fmt: skip
