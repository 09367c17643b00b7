"""Runs, turns and holds, as doors ask for them. Each method is one decision and the view of what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.core.decide import holds, runs, starting, turns
from gateway.core.guards.budgets import SAYS_NOTHING, checked_caps, limits_of
from gateway.core.guards.turns import unknown
from gateway.core.left import budget_left
from gateway.core.model import BudgetLeft, Finding, Json, Limits
from gateway.core.policy import PolicySet, ungoverned
from gateway.core.run import CallRecord, Hold, Run, Tree, Turn, principal_stream, stream_of
from gateway.core.units import usd_micros
from gateway.engine.api import AskedCall, Caller, HoldView, ListedTool, RunRequest, RunView, TurnResult, TurnView, UsageRequest
from gateway.engine.calls import Calls
from gateway.engine.desk import fault, may_see, stopping
from gateway.engine.listing import Naming, listed
from gateway.ports import Recorded, RequestFault, malformed

DEFAULT_TASK_TYPE = "interactive"
LOOKED_THROUGH = 1_000
"""Other people's holds, at most, for one page of somebody's own."""
IMPLICIT_AGAIN_MS = 30 * 60_000


class Runs(Calls):
    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._naming = Naming()

    # ---- runs -----------------------------------------------------------------------------------------------------------

    async def open_run(self, who: Caller, request: RunRequest) -> RunView:
        """Open a run, or return the one that has its run_key. Raises RequestFault: policy.none, budget.open_runs, run.*, auth.forbidden."""
        if self.stopping:
            raise fault(stopping())
        command = self._open_command(who, request)
        streams = [command.id, principal_stream(who.principal.id)]
        if request.continues is not None:
            await self.owned(who, request.continues)
            streams.append(stream_of(request.continues))
        if request.parent_run is not None:
            if who.run != request.parent_run:
                raise forbidden("A child run is opened with its parent's run token.")
            await self.owned(who, request.parent_run)
            answer, committed = await self.decide(
                [stream_of(request.parent_run)], lambda states, now: runs.open_child(states, command, now), keep=command.policies
            )
        elif who.run is not None:
            raise forbidden("A run token opens children only; name `parent_run`, or use the principal's key.")
        else:
            answer, committed = await self.decide(streams, lambda states, now: runs.open_root(states, command, now), keep=command.policies)
        if isinstance(answer, Finding):
            raise fault(answer)
        tree = await self.ledger.state(stream_of(answer.run)) if answer.existed else committed.states[stream_of(answer.run)]
        return await self._run_view(tree, tree.runs[answer.run], existed=answer.existed)

    def _open_command(self, who: Caller, request: RunRequest) -> runs.OpenCommand:
        principal = who.principal
        task_type = request.task_type or DEFAULT_TASK_TYPE
        if task_type not in (principal.task_types or {DEFAULT_TASK_TYPE}):
            raise forbidden(f"{principal.id!r} may not claim the task type {task_type!r}.")
        if request.parent_run is not None and request.continues is not None:
            raise malformed("A child run can't continue another: give `parent_run` or `continues`, not both.")
        policies = self.policies.choose(principal, task_type, request.policy)
        if policies is None:
            raise fault(ungoverned(principal, task_type, request.policy))
        return runs.OpenCommand(
            self.ids.new("run"), principal, policies, task_type, request.door, _tightened(request.budgets), self.caps(principal).open_runs,
            request.run_key, request.parent_run, request.continues, request.goal, request.labels, request.implicit,
        )  # fmt: skip

    async def run_by_key(self, who: Caller, run_key: str, door: str) -> str:
        """The principal's run of this key, opened on first use."""
        state = self.ledger.at_hand(principal_stream(who.principal.id))
        known: str | None = state and state.run_keys.get(run_key)
        return known or (await self.open_run(who, RunRequest(door, run_key=run_key))).run.id

    async def implicit_run(self, who: Caller, door: str) -> str:
        """The run of a client that names none. One that a budget or loop closed stands for 30 minutes of silence more."""
        state = await self.ledger.state(principal_stream(who.principal.id))
        known: str | None = state.implicit
        if known is not None:
            run = (await self.ledger.state(stream_of(known))).runs[known]
            silent = self.clock.now_ms() - run.active_at >= IMPLICIT_AGAIN_MS
            if run.state in ("open", "frozen") or (run.status == "blocked" and not silent):
                return known
        return (await self.open_run(who, RunRequest(door, implicit=True))).run.id

    async def run(self, who: Caller, run: str) -> RunView:
        tree, state = await self.seen(who, run)
        return await self._run_view(tree, state)

    async def runs(self, who: Caller, *, state: str | None, limit: int, before: str | None) -> list[dict[str, Any]]:
        """Rows of the view `runs`, the caller's own, or everybody's for operators and viewers."""
        where: dict[str, Any] = {} if state is None else {"state": state}
        if who.run is not None:
            where["run"] = who.run
        elif not who.principal.roles & {"operator", "viewer"}:
            where["principal"] = who.principal.id
        return await self.ledger.rows("runs", where, limit=limit, before=before)

    async def cancel_run(self, who: Caller, run: str) -> RunView:
        """End a run as cancelled; calls in flight are reached at once."""
        await self.directed(who, run)
        _, committed = await self.decide([stream_of(run)], lambda states, now: runs.cancel(states, run, who.principal.id, now))
        tree = committed.states[stream_of(run)]
        self.cancel_flights({one.id for one in tree.family(run)})
        return await self._run_view(tree, tree.runs[run])

    async def finish_run(self, who: Caller, run: str, handoff: dict[str, Any] | None) -> RunView:
        """End a run as completed; after another end 409."""
        await self.owned(who, run)
        return await self._ran(run, lambda states, now: runs.finish(states, run, who.principal.id, handoff, now))

    async def freeze_run(self, who: Caller, run: str, note: str) -> RunView:
        await self.directed(who, run)
        return await self._ran(run, lambda states, now: runs.freeze(states, run, who.principal.id, note, now))

    async def resume_run(self, who: Caller, run: str) -> RunView:
        """Only an operator lets a frozen run go on."""
        await self.directed(who, run)
        if "operator" not in who.principal.roles:
            raise forbidden("Resuming a frozen run takes the role operator.")
        return await self._ran(run, lambda states, now: runs.resume(states, run, who.principal.id, now))

    async def events(self, who: Caller, run: str, after: int, limit: int) -> list[Recorded]:
        """The run's events after a seq, its descendants' among them; nothing of the runs above and beside it."""
        tree, _ = await self.seen(who, run)
        family = {one.id for one in tree.family(run)}
        while page := await self.ledger.events(stream_of(run), after, limit):
            if found := [one for one in page if getattr(one.event, "run", None) in family]:
                return found
            after = page[-1].seq
        return []

    async def tools(self, who: Caller, run: str) -> list[ListedTool]:
        """What the run may use, by name; never charged."""
        tree, state = await self.seen(who, run)
        return self._listed(await self.governing(state.policy_digest), budget_left(tree, run, self.clock.now_ms()))

    async def tool_named(self, who: Caller, run: str, name: str) -> str | None:
        """The tool that the run's policy lists under this short name."""
        _, state = await self.seen(who, run)
        return self._naming.of(self.catalog, await self.governing(state.policy_digest)).tools.get(name)

    def _listed(self, policies: PolicySet, left: BudgetLeft | None = None) -> list[ListedTool]:
        return listed(self.catalog.all(), policies, self._naming.of(self.catalog, policies), left)

    async def _ran(self, run: str, decide: Any) -> RunView:
        answer, committed = await self.decide([stream_of(run)], decide)
        if isinstance(answer, Finding):
            raise fault(answer)
        tree = committed.states[stream_of(run)]
        return await self._run_view(tree, tree.runs[run])

    async def _run_view(self, tree: Tree, run: Run, *, existed: bool = False) -> RunView:
        policies = await self.governing(run.policy_digest)
        counts = Counter(record.state for record in tree.calls.values() if record.run == run.id)
        waiting = any(state == "held" for state in run.live.values()) or run.in_doubt > 0
        names = tuple(tool.tool.name for tool in self._listed(policies))
        return RunView(run, budget_left(tree, run.id, self.clock.now_ms()), names, dict(counts), waiting, existed)

    # ---- turns ----------------------------------------------------------------------------------------------------------

    async def open_turn(self, who: Caller, run: str) -> TurnView:
        """Declare the next model call. Raises RequestFault: budget.*, run.*."""
        _, state = await self.owned(who, run)
        policies = await self.governing(state.policy_digest)
        guards = (*policies.policy.guards, *(guard for ceiling in policies.ceilings for guard in ceiling.guards))
        answer, committed = await self.decide([stream_of(run)], lambda states, now: turns.begin(states, run, guards, now))
        if not isinstance(answer, int):
            raise RequestFault(answer[0].reason, answer[0].message, findings=answer)
        tree = committed.states[stream_of(run)]
        return TurnView(tree.runs[run].turns[answer], budget_left(tree, run, committed.at), ())

    async def answer_turn(self, who: Caller, run: str, number: int, calls: Sequence[AskedCall], digest: str | None) -> TurnView:
        """Record what the model asked for in this turn, before any of it runs."""
        await self.owned(who, run)
        asked = [turns.Asked(one.call_id, one.tool, self.ids.seal(stream_of(run), one.arguments)) for one in calls]
        return await self._turned(run, lambda states, now: turns.answer(states, run, number, asked, digest, now))

    async def report_usage(self, who: Caller, run: str, number: int, usage: UsageRequest) -> TurnView:
        """Post a model call's figures: self-reported by the owner, trusted (and lowering) from a principal with the role reporter."""
        reporter = "reporter" in who.principal.roles
        await (self.seen(who, run, roles=frozenset({"reporter"})) if reporter else self.owned(who, run))
        try:
            micros = 0 if usage.cost_usd is None else usd_micros(usage.cost_usd)
        except ValueError as wrong:
            raise malformed(f"cost_usd: {wrong}") from None
        used = turns.Usage(
            usage.model, usage.input, usage.output, usage.cache_creation, usage.cache_read, micros, "reporter" if reporter else "self_reported"
        )  # fmt: skip
        return await self._turned(run, lambda states, now: turns.usage(states, run, number, used, now))

    async def cancel_turn(self, who: Caller, run: str, number: int) -> TurnView:
        """End a turn; the run stays open. Its calls in flight are reached at once."""
        await self.directed(who, run)
        view = await self._turned(run, lambda states, now: turns.end(states, run, number, "cancelled", who.principal.id, now))
        self.cancel_flights({run}, number)
        return view

    async def turn(self, who: Caller, run: str, number: int) -> TurnView:
        """A turn with each asked call's recorded result, so that a restarted worker goes on without paying again."""
        tree, state = await self.seen(who, run)
        turn = state.turns.get(number)
        if turn is None:
            raise fault(unknown(state, number))
        return await self._turn_view(tree, state, turn)

    async def _turned(self, run: str, decide: Any) -> TurnView:
        answer, committed = await self.decide([stream_of(run)], decide)
        if isinstance(answer, Finding):
            raise fault(answer)
        tree = committed.states[stream_of(run)]
        return await self._turn_view(tree, tree.runs[run], answer)

    async def _turn_view(self, tree: Tree, run: Run, turn: Turn) -> TurnView:
        over = turn.status == "cancelled" or run.state in ("closing", "closed")
        results = [await self._turn_result(tree, run, turn, one, over) for one in turn.asked]
        return TurnView(turn, budget_left(tree, run.id, self.clock.now_ms()), tuple(results))

    async def _turn_result(self, tree: Tree, run: Run, turn: Turn, asked: Mapping[str, Any], over: bool) -> TurnResult:
        known = run.by_call_id.get((turn.number, asked["call_id"]))
        record = tree.calls[known] if known is not None else None
        if record is not None and record.result is not None:
            result = await self.value(stream_of(record.id), record.result)
            return TurnResult(asked["call_id"], asked["tool"], record.id, record.state, result)
        text = _synthetic(record, over)
        result = {"content": [{"type": "text", "text": text}], "isError": True} if text else None
        return TurnResult(asked["call_id"], asked["tool"], known, record.state if record else "new", result, text is not None)

    # ---- holds ----------------------------------------------------------------------------------------------------------

    async def holds(self, who: Caller, *, state: str | None, limit: int, before: str | None) -> tuple[list[HoldView], str | None]:
        """A page of those that the caller may decide on, owns or operates, newest first; and what to go on `before`, None at the end."""
        where = {} if state is None else {"state": state}
        views: list[HoldView] = []
        for _ in range(LOOKED_THROUGH // limit + 1):
            rows = await self.ledger.rows("holds", where, limit=limit, before=before)
            for row in rows:
                before = row["hold"]
                views += await self._shown_hold(who, row["hold"])
                if len(views) == limit:
                    return views, before
            if len(rows) < limit:
                return views, None
        return views, before

    async def _shown_hold(self, who: Caller, id: str) -> list[HoldView]:
        tree = await self.ledger.state(stream_of(id))
        hold = tree.holds.get(id)  # a row may be there a moment before its append is acknowledged
        return [await self._hold_view(tree, hold)] if hold is not None and _may_see_hold(who, tree, hold) else []

    async def hold(self, who: Caller, hold: str) -> HoldView:
        tree = await self.ledger.state(stream_of(hold)) if hold.startswith("hold_") else Tree()
        found = tree.holds.get(hold)
        if found is None or not _may_see_hold(who, tree, found):
            raise RequestFault("hold.unknown", f"There is no hold {hold!r}.")
        return await self._hold_view(tree, found)

    async def vote(self, who: Caller, hold: str, vote: str, digest: str, note: str) -> HoldView:
        """Approve or deny. Raises RequestFault: hold.unknown, hold.forbidden, hold.digest, hold.conflict (data: the state)."""
        before = await self.hold(who, hold)
        if who.run is not None:
            raise fault(holds.forbidden("A run token can't vote."))
        command = holds.VoteCommand(hold, who.principal, vote, digest, note)
        answer, committed = await self.decide([stream_of(hold)], lambda states, now: holds.vote(states, command, now))
        if isinstance(answer, Finding):
            now = await self.ledger.state(stream_of(hold))
            raise RequestFault(answer.reason, answer.message, findings=(answer,), data={"state": now.holds[hold].state})
        tree = committed.states[stream_of(hold)]
        if answer.state == "approved" and before.hold.state == "held" and answer.at_once:
            self.execute_ready(tree.calls[answer.call])
        return await self._hold_view(tree, answer)

    async def _hold_view(self, tree: Tree, hold: Hold) -> HoldView:
        record = tree.calls[hold.call]
        arguments = await self.value(stream_of(hold.id), record.arguments) if record.arguments else None
        return HoldView(hold, record, tree.runs[hold.run], arguments)


def forbidden(message: str) -> RequestFault:
    return fault(starting.forbidden(message))


def _may_see_hold(who: Caller, tree: Tree, hold: Hold) -> bool:
    owner = may_see(who, tree, tree.runs[hold.run], frozenset({"operator", "viewer"}))
    return owner or (who.run is None and holds.may_vote(who.principal, hold, tree))


def _tightened(budgets: Mapping[str, Json]) -> Limits:
    """The caller's own caps; what they leave out stays as the policy has it."""
    try:
        return limits_of({"budgets": checked_caps(budgets)}, SAYS_NOTHING)
    except ValueError as wrong:
        raise malformed(f"budgets: {wrong}") from None


def _synthetic(record: CallRecord | None, over: bool) -> str | None:
    """What stands in for a result that will never come; None while it still may."""
    if record is not None and record.state == "in_doubt":
        return "Outcome unknown: the call was dispatched, and whether it took effect is not known. Do not repeat it."
    if record is not None and record.state in ("denied", "cancelled", "failed"):
        return f"Not executed ({record.reason})." if record.state != "failed" else f"Failed ({record.reason})."
    return "Cancelled, not executed." if over and (record is None or record.state != "admitted") else None

