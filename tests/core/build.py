"""Worlds for tests of the pure core: policies made of its own objects, streams folded from events, and the commands as a door would give them.

Reads as: given a `World` in which things happened, when a command, then its verdict and `world.events`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from msgspec.structs import asdict, replace

from gateway.core import events as e
from gateway.core.assess import Assessment, assess
from gateway.core.canonical import digest
from gateway.core.decide import calls, doubts, holds, ready, runs, settle, turns
from gateway.core.decide.draft import Draft, NeedsStream
from gateway.core.guards.allow import Allow
from gateway.core.guards.approval import Approval
from gateway.core.guards.budgets import SAYS_NOTHING, Budgets
from gateway.core.guards.guard import Guard, Placed, RunFacts
from gateway.core.guards.loops import Loops
from gateway.core.guards.turns import Turns
from gateway.core.model import CallRequest, Effect, Finding, Limits, Outcome, Payload, Principal, Requirement, Tool
from gateway.core.policy import Idempotency, Match, Policy, PolicySet, Retry, ToolRule
from gateway.core.principal import PrincipalState
from gateway.core.repeats import Doubtful, Join
from gateway.core.run import CallRecord, Hold, Run, Tree, principal_stream, stream_of
from gateway.core.streams import State, empty, evolve

T = TypeVar("T")
NOW = 1_796_000_000_000
READ, WRITE, ACT = Effect.READ_ONLY, Effect.IDEMPOTENT_WRITE, Effect.NON_IDEMPOTENT

BOT = Principal("agent:bot", trust=frozenset({"call_id"}))
STRANGER = Principal("agent:other")
MIA, KIM, LEE = (Principal(f"user:{name}", frozenset({"finance"}), roles=frozenset({"approver"}), person=True) for name in ("mia", "kim", "lee"))
BOSS = Principal("user:boss", frozenset({"finance", "leads"}), roles=frozenset({"approver"}), person=True)

DONE = Outcome("succeeded", result={"content": []}, answered=True)
ERROR = Outcome("failed", "tool.error", result={"isError": True}, answered=True)
FREED = replace(ERROR, not_applied=True)
REFUSED = Outcome("failed", "upstream.unavailable", not_applied=True, retry=True)
TIMEOUT = Outcome("failed", "tool.timeout", retry=True)
DOUBT = Outcome("in_doubt", "call.in_doubt")
STOPPED = Outcome("cancelled", "call.cancelled", not_applied=True)


def asks(*approvers: str, digest: str = "r", **more: Any) -> Approval:
    """People are asked, always."""
    wanted = Requirement("p.yaml:9", digest, approvers or ("group:finance",), **more)
    return Approval(wanted, None, wanted)


def never(*approvers: str) -> Approval:
    """Nobody is asked, except for a deliberate repeat."""
    return Approval(None, None, Requirement("p.yaml:9", "r", approvers or ("group:finance",)))


def rule(name: str, effect: Effect, *guards: Guard, shadow: tuple[str, ...] = (), where: str = "p.yaml:9", **more: Any) -> ToolRule:
    placed = tuple(Placed(guard, where, guard.kind in shadow) for guard in (Allow(), *guards))
    return ToolRule(name, where, "r", effect, placed, shadow=frozenset(shadow), **more)


RULES = (
    rule("crm.get*", READ, retry=Retry(3)),
    rule("crm.poll*", READ, poll=True),
    rule("crm.set*", WRITE, retry=Retry(3)),
    rule("pay.*", ACT, asks()),
    rule("mail.*", ACT, never()),
)


def policy(*rules: ToolRule, guards: Iterable[Guard] | None = None, ceilings: tuple[Policy, ...] = (), name: str = "p", **caps: Any) -> PolicySet:
    """`caps` are limits. Without rules: crm.get* reads, crm.set* idempotent writes, pay.* asked for, mail.* not asked for."""
    return PolicySet(f"set of {name}", document(*rules, guards=guards, name=name, limits=Limits(**caps)), ceilings)


def document(*rules: ToolRule, guards: Iterable[Guard] | None = None, name: str = "p", kind: str = "policy", limits: Limits = SAYS_NOTHING) -> Policy:
    placed = tuple(Placed(guard, f"{name}.yaml:3") for guard in ((Turns(), Budgets(), Loops()) if guards is None else guards))
    deny = ToolRule("*", f"{name}.yaml:1", "d", ACT, (Placed(Allow(permitted=False), f"{name}.yaml:1"),))
    return Policy(name, f"{name}.yaml", name, kind, 0, "new_runs", Match(), limits, rules or RULES, placed, deny)


def tool(name: str, digest: str = "d") -> Tool:
    upstream, _, local = name.partition(".")
    return Tool(name, upstream, local, {}, digest)


def sealed(value: Any) -> Payload:
    """Equal data, equal hash."""
    return Payload(digest(value), b"", b"")


def verdict(answer: object) -> str:
    """An answer's kind; of a refusal its first reason."""
    if isinstance(answer, calls.Deny):
        return answer.findings[0].reason
    if isinstance(answer, Finding):
        return answer.reason
    if isinstance(answer, tuple):
        return str(answer[0].reason)
    names: dict[type[Any], str] = {calls.Admit: "allow", calls.Wait: "hold", calls.Answered: "replay", Join: "join", Doubtful: "doubt"}
    return names.get(type(answer), type(answer).__name__)


class World:
    """Streams with what happened in them. `events`: those of the latest command; `log`: all, by stream, with their time."""

    owner = "one"

    def __init__(self, policies: PolicySet | None = None, *, open_runs: int | None = 20, open_holds: int | None = 20, **caps: Any) -> None:
        self.policies = policies or policy(**caps)
        self.open_runs = open_runs
        self.open_holds = open_holds
        self.now = NOW
        self.states: dict[str, State] = {}
        self.log: dict[str, list[tuple[int, e.Event]]] = {}
        self.events: list[e.Event] = []
        self.digests: dict[str, str] = {}
        self.roots = 0
        self.existed = False
        self.run_id = ""

    # ---- deciding -------------------------------------------------------------------------------------------------------

    def decided(self, decide: Callable[[dict[str, State]], tuple[Draft, T]], *streams: str) -> T:
        """Decide on the streams given and those asked for, as the engine does, and write what was decided."""
        given = list(streams)
        while True:
            try:
                draft, answer = decide({stream: self.state(stream) for stream in given})
            except NeedsStream as need:
                given.append(need.stream)
            else:
                break
        self.events = []
        for stream, event in draft.events:
            self.happened(stream, event)
        return answer

    def happened(self, stream: str, event: e.Event) -> None:
        state = self.state(stream)
        self.states[stream] = evolve(state, state.seq + 1, self.now, event)
        self.log.setdefault(stream, []).append((self.now, event))
        self.events.append(event)

    def state(self, stream: str) -> State:
        return self.states.setdefault(stream, empty(stream))

    def refolded(self, stream: str) -> State:
        """The state from its events alone."""
        state = empty(stream)
        for at, event in self.log.get(stream, ()):
            state = evolve(state, state.seq + 1, at, event)
        return state

    # ---- looking --------------------------------------------------------------------------------------------------------

    def tree(self, id: str = "") -> Tree:
        found = self.state(stream_of(id or self.run_id))
        assert isinstance(found, Tree)
        return found

    def run(self, id: str = "") -> Run:
        return self.tree(id).runs[id or self.run_id]

    def record(self, call: Any) -> CallRecord:
        if isinstance(call, CallRecord):
            call = call.id
        id = call if isinstance(call, str) else call.record.id if hasattr(call, "record") else call.call
        return self.tree(id).calls[id]

    def hold(self, call: Any) -> Hold:
        return self.tree(self.record(call).id).holds[self.record(call).hold or ""]

    def mine(self, who: Principal = BOT) -> PrincipalState:
        found = self.state(principal_stream(who.id))
        assert isinstance(found, PrincipalState)
        return found

    @property
    def kinds(self) -> list[str]:
        """The names of the latest command's events."""
        return [type(event).__name__ for event in self.events]

    # ---- runs -----------------------------------------------------------------------------------------------------------

    def open(self, who: Principal = BOT, *, policies: PolicySet | None = None, tighten: Limits = SAYS_NOTHING, **more: Any) -> Any:
        """The new run's id, or what came instead."""
        self.roots += 1
        parent = more.get("parent")
        id = f"run_r{self.roots}"
        command = runs.OpenCommand(id, who, policies or self.policies, "interactive", "rest", tighten, self.open_runs, **more)
        if parent is None:
            answer = self.decided(lambda states: runs.open_root(states, command, self.now), id, principal_stream(who.id))
        else:
            answer = self.decided(lambda states: runs.open_child(states, command, self.now), stream_of(parent))
        if isinstance(answer, Finding):
            return answer
        self.existed = answer.existed
        self.run_id = self.run_id or answer.run
        return answer.run

    def cancel(self, run: str = "", by: str = BOT.id) -> Run:
        id = run or self.run_id
        return self.decided(lambda states: runs.cancel(states, id, by, self.now), stream_of(id))

    def finish(self, run: str = "", handoff: dict[str, Any] | None = None) -> Run | Finding:
        id = run or self.run_id
        return self.decided(lambda states: runs.finish(states, id, BOT.id, handoff, self.now), stream_of(id))

    def freeze(self, run: str = "") -> Run | Finding:
        id = run or self.run_id
        return self.decided(lambda states: runs.freeze(states, id, "user:op", "look", self.now), stream_of(id))

    def resume(self, run: str = "") -> Run | Finding:
        id = run or self.run_id
        return self.decided(lambda states: runs.resume(states, id, "user:op", self.now), stream_of(id))

    def wait(self, ms: int, *, sweep: bool = True) -> int:
        """Time goes by; then, usually, what time alone does. How many events that was."""
        self.now += ms
        done: list[e.Event] = []
        for stream in [stream for stream in self.states if sweep and stream.startswith("run_")]:
            self.decided(lambda states, s=stream: runs.sweep(states, s, self.now), stream)
            done += self.events
        self.events = done
        return len(done)

    # ---- turns ----------------------------------------------------------------------------------------------------------

    def begin(self, run: str = "") -> Any:
        id = run or self.run_id
        return self.decided(lambda states: turns.begin(states, id, self.policies.policy.guards, self.now), stream_of(id))

    def answer(self, number: int, *asked: tuple[str, str], digest: str | None = None, run: str = "") -> Any:
        """`asked`: (call_id, tool) each."""
        id = run or self.run_id
        wanted = [turns.Asked(call_id, name, sealed(call_id)) for call_id, name in asked]
        return self.decided(lambda states: turns.answer(states, id, number, wanted, digest, self.now), stream_of(id))

    def uses(self, number: int, tokens: int = 0, usd_micros: int = 0, source: str = "self_reported", run: str = "") -> Any:
        id = run or self.run_id
        used = turns.Usage("m", tokens, 0, 0, 0, usd_micros, source)
        return self.decided(lambda states: turns.usage(states, id, number, used, self.now), stream_of(id))

    def end(self, number: int, status: str = "cancelled", run: str = "") -> Any:
        id = run or self.run_id
        return self.decided(lambda states: turns.end(states, id, number, status, BOT.id, self.now), stream_of(id))

    # ---- calls ----------------------------------------------------------------------------------------------------------

    def command(
        self, name: str, run: str = "", who: Principal = BOT, turn: int = 0, call_id: str | None = None, operation_id: str | None = None,
        **arguments: Any,
    ) -> calls.CallCommand:  # fmt: skip
        request = CallRequest(name, arguments, "rest", call_id, operation_id, turn)
        return calls.CallCommand(
            run or self.run_id, who, request, self.assessed(request, who), sealed(arguments), self.owner, 5_000, self.open_holds
        )  # fmt: skip

    def assessed(self, request: CallRequest, who: Principal = BOT) -> Assessment:
        facts = RunFacts(self.run_id, "interactive", None, {}, "p")
        return assess(self.policies, request, who, facts, tool(request.tool, self.digests.get(request.tool, "d")))

    def call(self, name: str, **asked: Any) -> Any:
        """The command under test; an admitted call is left running."""
        return self.decide(self.command(name, **asked))

    def decide(self, command: calls.CallCommand) -> Any:
        return self.decided(lambda states: calls.call(states, command, self.now), stream_of(command.run))

    def settle(self, call: Any, outcome: Outcome = DONE, *, attempt: int | None = None, owner: str | None = None) -> CallRecord:
        record = self.record(call)
        result = sealed(outcome.result) if outcome.result is not None else None
        probe = self.policies.rule_for(record.tool).probe
        command = settle.SettleCommand(record.id, attempt or record.attempt, owner or record.owner, outcome, result, probe=probe)
        return self.record(self.decided(lambda states: settle.settle(states, command, self.now), stream_of(record.id)))

    def does(self, name: str, outcome: Outcome = DONE, *, result: Any = None, **asked: Any) -> CallRecord:
        """A call that must be admitted, and its outcome."""
        answer = self.call(name, **asked)
        assert isinstance(answer, calls.Admit), answer
        self.settle(answer, outcome if result is None else replace(outcome, result={"structuredContent": result}))
        return self.record(answer)

    def again(self, call: Any, outcome: Outcome | None = TIMEOUT, *, attempt: int | None = None, owner: str = "one", dead: bool = False) -> Any:
        """The next attempt after a fault, or (`dead`) after the owner's death: the record."""
        record, fault = self.record(call), None if dead else outcome
        result = sealed(fault.result) if fault is not None and fault.result is not None else None
        command = settle.AgainCommand(record.id, attempt or record.attempt, self.policies.rule_for(record.tool), owner, 5_000, fault, result)
        stream = stream_of(record.id)
        if dead:
            self.decided(lambda states: settle.recover(states, stream, [command], self.now), stream)
        else:
            self.decided(lambda states: settle.again(states, command, self.now), stream)
        return self.record(record)

    def execute(self, call: Any, digest: str = "d") -> CallRecord:
        record = self.record(call)
        command = ready.ReadyCommand(record.id, self.policies.rule_for(record.tool), digest, "one", 5_000)
        return self.record(self.decided(lambda states: ready.execute(states, command, self.now), stream_of(record.id)))

    def means(self, call: Any, digest: str = "d") -> doubts.Again:
        """What sends a call once more."""
        return doubts.Again(self.policies.rule_for(self.record(call).tool), digest, "two", 5_000)

    def reconcile(self, call: Any, outcome: str, who: Principal = MIA, *, means: doubts.Again | None = None, approvers: str = "group:finance") -> Any:
        """A person's word: the record, or what came instead."""
        command = doubts.ReconcileCommand(self.record(call).id, who, outcome, "I looked", frozenset({approvers}), sealed("found"), means)
        answer = self.decided(lambda states: doubts.reconcile(states, command, self.now), stream_of(command.call))
        return self.record(answer) if isinstance(answer, str) else answer

    def probe(self, call: Any, found: str, *, probes: int | None = None, hopeless: bool = False) -> CallRecord:
        """What the rule's probe found."""
        record = self.record(call)
        probe, result = self.policies.rule_for(record.tool).probe, sealed("found") if found == "happened" else None
        assert probe is not None
        command = doubts.ProbedCommand(record.id, record.probes if probes is None else probes, probe, found, "it says", result, hopeless)
        return self.record(self.decided(lambda states: doubts.probed(states, command, self.now), stream_of(record.id)))

    def vote(self, call: Any, who: Principal = MIA, vote: str = "approve", *, digest: str | None = None, note: str = "") -> Any:
        hold = self.hold(call)
        command = holds.VoteCommand(hold.id, who, vote, hold.digest if digest is None else digest, note)
        return self.decided(lambda states: holds.vote(states, command, self.now), stream_of(hold.id))


def opened(policies: PolicySet | None = None, **more: Any) -> World:
    """A world with one open run."""
    world = World(policies, **more)
    assert isinstance(world.open(), str)
    return world


def limits(**caps: Any) -> dict[str, Any]:
    """As an event holds them."""
    return asdict(Limits(**caps))


def keyed(*names: str, **more: Any) -> Idempotency:
    return Idempotency(key_from=names, **more)
