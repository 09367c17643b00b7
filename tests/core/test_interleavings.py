"""Whatever happens in whatever order: what must hold of runs, purses, holds and clocks (P2, P4, P5, P7, P8), checked against simple models."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.core import events as e
from gateway.core.decide import doubts, runs
from gateway.core.evolve import evolve_tree
from gateway.core.history import Principals, TreeHistory
from gateway.core.model import Amounts, Principal
from gateway.core.policy import Probe
from gateway.core.run import Run, Tree
from tests.core import build
from tests.core.build import ACT, BOSS, BOT, DONE, DOUBT, ERROR, KIM, MIA, READ, REFUSED, STOPPED, TIMEOUT, WRITE, World, asks, never, policy

POLICY = policy(
    build.rule("crm.get", READ, usd_micros=2),
    build.rule("crm.set", WRITE, usd_micros=3),
    build.rule("crm.pay", ACT, asks(quorum=2, expires_in_ms=20_000, execute_within_ms=9_000), usd_micros=5),
    build.rule("crm.ask", ACT, asks("group:leads", "agent:bot", expires_in_ms=15_000), usd_micros=5),
    build.rule("crm.act", ACT, never(), probe=Probe("crm.find", (), lambda facts: True, lambda facts: False)),
    turns=6, tool_calls=9, tool_calls_per_turn=4, tokens=100, tokens_per_turn=11, usd_micros=40, deadline_ms=60_000, max_age_ms=200_000,
    idle_after_ms=30_000, in_flight_calls=3, open_holds=2, pause_while_held=True,
)  # fmt: skip
OUTCOMES = {READ: (DONE, ERROR, TIMEOUT, REFUSED, STOPPED), WRITE: (DONE, ERROR, DOUBT, REFUSED), ACT: (DONE, ERROR, DOUBT, REFUSED)}
PEOPLE: tuple[Principal, ...] = (MIA, KIM, BOSS, BOT, build.STRANGER)
OVER = {"denied", "succeeded", "failed", "cancelled", "in_doubt", "abandoned"}
ANY = st.integers(0, 999)


def of_family(tree: Tree, run: Run) -> list[Any]:
    return [call for call in tree.calls.values() if any(up.id == run.id for up in tree.lineage(call.run))]


class Interleavings(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(POLICY, open_runs=3, open_holds=3)
        self.paused: Counter[str] = Counter()
        self.before: dict[str, Any] = {}
        self.histories: defaultdict[str, TreeHistory] = defaultdict(TreeHistory)
        self.act(self.world.open)

    def act(self, what: Any, *args: Any, **named: Any) -> Any:
        """Do something, and look at what it was allowed to do in the state that it met."""
        self.before = dict(self.world.states)
        answer = what(*args, **named)
        trees = {stream: state for stream, state in self.before.items() if isinstance(state, Tree)}
        for event in self.world.events:
            if isinstance(event, e.RunEvent):
                self.was_allowed(event)
                stream = build.stream_of(event.run)
                tree = trees.get(stream, Tree())
                trees[stream] = evolve_tree(tree, tree.seq + 1, self.world.now, event)
                assert not list(self.histories[stream].saw(tree, self.world.now, event, trees[stream]))
        return answer

    def pick(self, things: Any, number: int) -> Any:
        ordered = sorted(things)
        return ordered[number % len(ordered)] if ordered else None

    def trees(self) -> list[Tree]:
        return [state for state in self.world.states.values() if isinstance(state, Tree) and state.root]

    def all_runs(self) -> list[str]:
        return [run for tree in self.trees() for run in tree.runs]

    def calls_in(self, *states: str) -> list[str]:
        return [call.id for tree in self.trees() for call in tree.calls.values() if call.state in states]

    # ---- what can happen ------------------------------------------------------------------------------------------------

    @rule(number=ANY, how=st.sampled_from(["root", "child", "child", "continues"]))
    def open(self, number: int, how: str) -> None:
        if how == "root":
            self.act(self.world.open)
        elif how == "child":
            self.act(self.world.open, parent=self.pick(self.all_runs(), number))
        elif over := [tree.root for tree in self.trees() if tree.runs[tree.root].state == "closed"]:
            self.act(self.world.open, continues=self.pick(over, number))

    @rule(
        number=ANY, name=st.sampled_from(["get", "set", "set", "pay", "pay", "ask", "act", "none"]), n=st.integers(0, 1), turn=st.integers(0, 7),
        call_id=st.sampled_from([None, None, "c1", "c2"]), operation=st.sampled_from([None, None, None, "op"]),
    )  # fmt: skip
    def call(self, number: int, name: str, n: int, turn: int, call_id: str | None, operation: str | None) -> None:
        run = self.pick(self.all_runs(), number)
        self.act(self.world.call, f"crm.{name}", run=run, turn=turn, call_id=call_id, operation_id=operation, n=n)

    @rule(number=ANY, outcome=ANY)
    def settle(self, number: int, outcome: int) -> None:
        if call := self.pick(self.calls_in("admitted", "in_doubt", "succeeded"), number):
            outcomes = OUTCOMES[self.world.record(call).effect]
            self.act(self.world.settle, call, outcomes[outcome % len(outcomes)])

    @rule(number=ANY, dead=st.booleans())
    def again(self, number: int, dead: bool) -> None:
        if call := self.pick(self.calls_in("admitted"), number):
            self.act(self.world.again, call, REFUSED, dead=dead)

    @rule(number=ANY, who=st.sampled_from(PEOPLE), outcome=st.sampled_from(doubts.OUTCOMES), sendable=st.booleans())
    def reconcile(self, number: int, who: Principal, outcome: str, sendable: bool) -> None:
        if call := self.pick(self.calls_in("in_doubt", "in_doubt", "succeeded"), number):
            self.act(self.world.reconcile, call, outcome, who, means=self.world.means(call) if sendable else None)

    @rule(number=ANY, found=st.sampled_from(["happened", "absent", "unclear", "failed"]))
    def probe(self, number: int, found: str) -> None:
        doubted = [call for call in self.calls_in("in_doubt", "succeeded") if self.world.record(call).tool == "crm.act"]
        if call := self.pick(doubted, number):
            self.act(self.world.probe, call, found)

    @precondition(lambda self: self.calls_in("held", "ready"))
    @rule(number=ANY, who=st.sampled_from(PEOPLE), vote=st.sampled_from(["approve", "approve", "approve", "deny"]))
    def vote(self, number: int, who: Principal, vote: str) -> None:
        self.act(self.world.vote, self.pick(self.calls_in("held", "ready"), number), who, vote)

    @precondition(lambda self: self.calls_in("ready"))
    @rule(number=ANY)
    def execute(self, number: int) -> None:
        self.act(self.world.execute, self.pick(self.calls_in("ready"), number))

    @rule(number=ANY, turn=st.integers(1, 4), what=st.sampled_from(["begin", "begin", "answer", "end", "uses", "reports"]))
    def turn(self, number: int, turn: int, what: str) -> None:
        run, world = self.pick(self.all_runs(), number), self.world
        if what == "begin":
            self.act(world.begin, run)
        elif what == "answer":
            self.act(world.answer, turn, ("c1", "crm.get"), run=run)
        elif what == "end":
            self.act(world.end, turn, run=run)
        else:
            self.act(world.uses, turn, number % 17, number % 3, "reporter" if what == "reports" else "self_reported", run=run)

    @rule(number=ANY, how=st.sampled_from(["cancel", "finish", "freeze", "resume", "resume"]))
    def direct(self, number: int, how: str) -> None:
        self.act(getattr(self.world, how), self.pick(self.all_runs(), number))

    @rule(ms=st.sampled_from([1, 500, 4_000, 9_000, 31_000]), sweep=st.booleans())
    def wait(self, ms: int, sweep: bool) -> None:
        for tree in self.trees():
            for run in tree.runs.values():
                self.paused[run.id] += ms if self.stands_still(tree, run) else 0
        self.act(self.world.wait, ms, sweep=sweep)

    # ---- what each event had to meet ------------------------------------------------------------------------------------

    def was_allowed(self, event: e.RunEvent) -> None:
        tree = self.before.get(build.stream_of(event.run), Tree())
        if isinstance(event, e.CallAdmitted | e.CallHeld | e.TurnOpened):
            self.run_took_it(tree, event)
        if isinstance(event, e.RunOpened) and event.parent is not None:
            assert all(up.state == "open" for up in tree.lineage(event.parent))
        if isinstance(event, e.CallAdmitted) and event.hold is not None:
            self.people_agreed(tree, event)
        if isinstance(event, e.CallSettled):
            assert tree.calls[event.call].state == "admitted", "one outcome a call"
        if isinstance(event, e.CallReconciled):
            assert tree.calls[event.call].state == "in_doubt"
            assert event.by in {MIA.id, KIM.id, BOSS.id, "probe:crm.find"}
            assert event.state != "ready" or event.by != "probe:crm.find"

    def run_took_it(self, tree: Tree, event: e.RunEvent) -> None:
        """Every run above was open, inside its deadline, and could pay; nothing is ever admitted beyond a limit."""
        assert all(up.state == "open" for up in tree.lineage(event.run))
        assert self.world.now < tree.deadline_at(event.run, self.world.now)
        for up in self.world.tree(event.run).lineage(event.run):
            used, limits, purse = up.facts["budgets"].used, up.limits, up.facts["budgets"]
            assert used.turns <= (limits.turns or 0)
            if isinstance(event, e.TurnOpened):
                assert used.tokens <= (limits.tokens or 0)
            else:
                assert used.tool_calls <= (limits.tool_calls or 0)
                assert purse.in_flight <= (limits.in_flight_calls or 0)
                assert purse.holds <= (limits.open_holds or 0)
                assert used.usd_micros <= (limits.usd_micros or 0)

    def people_agreed(self, tree: Tree, event: e.CallAdmitted) -> None:
        hold = tree.holds[event.hold or ""]
        assert (hold.state, self.world.tree(event.call).holds[hold.id].state) == ("approved", "consumed")
        yes = {vote.by for vote in hold.votes if vote.vote == "approve"}
        assert yes <= {MIA.id, KIM.id, BOSS.id}
        assert len(yes) == len(hold.votes)
        assert yes >= {BOSS.id} if event.tool == "crm.ask" else len(yes) >= (2 if event.tool == "crm.pay" else 1)
        assert self.world.now < (hold.execute_by or 0)

    # ---- what always holds ----------------------------------------------------------------------------------------------

    @invariant()
    def purses_say_what_their_calls_say(self) -> None:
        for tree in self.trees():
            for run in tree.runs.values():
                purse, calls = run.facts.get("budgets"), of_family(tree, run)
                if purse is None:
                    continue
                running, waiting = ([call for call in calls if call.state in states] for states in (("admitted",), ("held", "ready")))
                assert (purse.in_flight, purse.holds) == (len(running), len(waiting))
                live = running + waiting
                turns = [turn for one in tree.runs.values() if run in tree.lineage(one.id) for turn in one.turns.values()]
                cost = sum(call.usd_micros for call in live)
                assert purse.pending == Amounts(0, len(live), sum(turn.tokens for turn in turns), cost)
                assert purse.posted.tool_calls == sum(call.attempt - (call.state == "admitted") for call in calls)
                assert purse.posted.tokens == sum(max(0, turn.reported - turn.tokens) for turn in turns)
                assert purse.posted.turns == len(turns)

    @invariant()
    def runs_end_when_nothing_is_live(self) -> None:
        for tree in self.trees():
            for run in tree.runs.values():
                live = [call for call in of_family(tree, run) if call.state not in OVER]
                assert dict(run.live) == {call.id: call.state for call in live if call.run == run.id}
                assert run.state != "closing" or live
                assert run.state != "closed" or not live
                assert run.state not in ("closing", "closed") or {call.state for call in live} <= {"admitted"}
                assert run.state in ("closing", "closed") or all(up.state in ("open", "frozen") for up in tree.lineage(run.id))

    @invariant()
    def the_principals_stream_says_what_the_trees_say(self) -> None:
        mine, trees = self.world.mine(), self.trees()
        assert set(mine.open_runs) == {tree.root for tree in trees if tree.runs[tree.root].state != "closed"}
        assert set(mine.open_holds) == {hold.id for tree in trees for hold in tree.holds.values() if hold.state in ("held", "approved")}
        counted = Principals()
        for stream, state in self.world.states.items():
            counted.saw(stream, state)
        assert not list(counted.broken())
        assert len(mine.open_runs) <= 3
        assert len(mine.open_holds) <= 3

    @invariant()
    def clocks_stand_still_as_a_simple_model_says(self) -> None:
        for tree in self.trees():
            for run in tree.runs.values():
                if run.state == "open":
                    assert run.paused(self.world.now) == self.paused[run.id]

    def stands_still(self, tree: Tree, run: Run) -> bool:
        states = {call.state for call in tree.calls.values() if call.run == run.id}
        open_turn = any(turn.state == "open" for turn in run.turns.values())
        return bool(states & {"held", "ready"}) and "admitted" not in states and not open_turn

    @invariant()
    def what_is_due_is_known_to_the_millisecond(self) -> None:
        for tree in self.trees():
            due, now = tree.due_at(), self.world.now
            if due is None:
                assert self.swept(tree, now + 10**9) == 0
                continue
            assert due <= now or self.swept(tree, due - 1) == 0, "due later than it happens"
            in_flight = any(call.state == "admitted" for call in tree.calls.values())  # silence is then only a lower bound
            assert in_flight or self.swept(tree, max(due, now)) > 0, "due, and nothing happens"

    def swept(self, tree: Tree, at: int) -> int:
        """How many events the sweep would write then."""
        return runs.sweep({tree.root: tree, "principal:agent:bot": self.world.mine()}, tree.root, at)[1]

    @invariant()
    def no_key_is_dispatched_twice_unless_nothing_happened(self) -> None:
        spent: set[str] = set()
        keys = {call.id: call.key for tree in self.trees() for call in tree.calls.values() if call.effect is ACT}
        meant: dict[str, tuple[Any, ...]] = {}
        events = [event for stream in self.world.log.values() for _, event in stream]
        for event in events:
            if isinstance(event, e.CallAdmitted | e.CallHeld):
                what = (event.tool, event.fingerprint, event.operation_id, event.occurrence)
                assert meant.setdefault(event.key, what) == what
            if isinstance(event, e.CallAdmitted):
                assert event.key not in spent
            if isinstance(event, e.CallSettled) and event.call in keys and not event.not_applied:
                spent.add(keys[event.call])
            if isinstance(event, e.CallReconciled) and event.call in keys and event.state in ("failed", "ready"):
                spent.discard(keys[event.call])

    def teardown(self) -> None:
        for stream, state in self.world.states.items():
            assert self.world.refolded(stream) == state
        for call in self.calls_in("admitted"):
            self.world.settle(call)
        self.world.wait(10**9)
        assert all(run.state == "closed" for tree in self.trees() for run in tree.runs.values())
        self.purses_say_what_their_calls_say()


Interleavings.TestCase.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
)
test_whatever_happens_in_whatever_order = Interleavings.TestCase
