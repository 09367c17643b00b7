"""What all parts of the engine share: the ports, deciding with whatever streams it takes, the run's policy, who may see what."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from gateway.core.decide.draft import Draft, NeedsStream
from gateway.core.decide.starting import unknown
from gateway.core.model import Finding, Principal, PrincipalCaps
from gateway.core.policy import PolicySet
from gateway.core.run import Run, Tree, stream_of
from gateway.core.streams import State
from gateway.engine.api import Caller
from gateway.ports import Catalog, Clock, Committed, Decision, Ids, Ledger, Policies, PolicyError, RequestFault

A = TypeVar("A")
Decide = Callable[[Mapping[str, State], int], tuple[Draft, A]]


class Desk:
    """`owner` names this process in intents; `caps` are a principal's over all its runs; `lease_ms` is granted beyond an attempt's deadline.

    `retain_payloads_ms`: how long after a run's end its arguments and results are kept; None: for good. `stopping`: nothing more is admitted;
    `over`: the grace has ended, so nothing is sent any more.
    """

    def __init__(
        self,
        ledger: Ledger,
        catalog: Catalog,
        policies: Policies,
        clock: Clock,
        ids: Ids,
        *,
        caps: Callable[[Principal], PrincipalCaps] = lambda principal: PrincipalCaps(),
        lease_ms: int = 5_000,
        retain_payloads_ms: int | None = None,
    ):
        self.ledger = ledger
        self.catalog = catalog
        self.policies = policies
        self.clock = clock
        self.ids = ids
        self.caps = caps
        self.lease_ms = lease_ms
        self.retain_payloads_ms = retain_payloads_ms
        self.owner = ids.new("proc")
        self.stopping = False
        self.over = False
        self.watches: set[asyncio.Future[None]] = set()
        self._kept: set[str] = set()

    # ---- deciding -------------------------------------------------------------------------------------------------------

    async def decide(self, streams: Sequence[str], decide: Decide[A], keep: PolicySet | None = None) -> tuple[A, Committed]:
        """Decide and append; again with more streams where the step asks for them. `keep`: store this set's texts beside the events."""
        texts = self.policies.texts(keep.digest) if keep is not None and keep.digest not in self._kept else {}

        def step(states: Mapping[str, Any], now: int) -> Decision:
            draft, answer = decide(states, now)
            return Decision(tuple(draft.events), answer, tuple(draft.payloads), texts)

        wanted = list(streams)
        while True:
            try:
                committed = await self.ledger.transact(wanted, step)
                break
            except NeedsStream as need:
                wanted.append(need.stream)
        self._kept.update(texts)
        return committed.answer, committed

    async def streams_of(self, run: Run) -> list[str]:
        """The run's stream, and those of the runs it continues."""
        streams, at = [stream_of(run.id)], run
        while at.continues is not None:
            streams.append(stream_of(at.continues))
            at = (await self.ledger.state(streams[-1])).runs[at.continues]
        return streams

    async def governing(self, digest: str) -> PolicySet:
        """The set a run is pinned to, from the loaded files or from the texts kept with it. Raises PolicyError."""
        found = self.policies.by_digest(digest)
        if found is not None:
            return found
        text = await self.ledger.policy_text(digest)
        if text is None:
            raise PolicyError(f"the texts of policy set {digest[:12]} are not in the ledger")
        return self.policies.revive(digest, text)

    # ---- seeing ---------------------------------------------------------------------------------------------------------

    async def seen(self, who: Caller, run: str, *, roles: frozenset[str] = frozenset({"operator", "viewer"})) -> tuple[Tree, Run]:
        """The run, if this caller may see it; for others there is no such run."""
        return _shown(await self.ledger.state(stream_of(run)) if run.startswith("run_") else Tree(), who, run, roles)

    async def owned(self, who: Caller, run: str, roles: frozenset[str] = frozenset()) -> tuple[Tree, Run]:
        """The run, if it is the caller's own to act in. Other processes may have moved it since: what is done with it is decided anew."""
        tree = self.ledger.at_hand(stream_of(run)) if run.startswith("run_") else None
        return await self.seen(who, run, roles=roles) if tree is None or run not in tree.runs else _shown(tree, who, run, roles)

    async def directed(self, who: Caller, run: str) -> tuple[Tree, Run]:
        """The run, if the caller owns or operates it; as with `owned`."""
        return await self.owned(who, run, frozenset({"operator"}))

    # ---- waiting --------------------------------------------------------------------------------------------------------

    async def until(self, stream: str, done: Callable[[Tree], bool], wait_ms: int, gone: asyncio.Future[None] | None = None) -> bool:
        """Watch a stream until something is so; False when the time is up, the caller has gone or the gateway stops. Raises LedgerFault."""
        end = self.clock.boot_ms() + wait_ms
        while True:
            tree = await self.ledger.state(stream)
            if done(tree):
                return True
            left = end - self.clock.boot_ms()
            if left <= 0 or self.stopping or (gone is not None and gone.done()):
                return False
            watch = asyncio.ensure_future(self.ledger.watch(stream, tree.seq))
            self.watches.add(watch)
            try:
                await asyncio.wait({watch, gone} if gone is not None else {watch}, timeout=left / 1000, return_when=asyncio.FIRST_COMPLETED)
                if watch.done() and not watch.cancelled():
                    watch.result()  # raises LedgerFault where nobody can tell any more
            finally:
                watch.cancel()
                self.watches.discard(watch)


def _shown(tree: Tree, who: Caller, run: str, roles: frozenset[str]) -> tuple[Tree, Run]:
    found = tree.runs.get(run)
    if found is None or not may_see(who, tree, found, roles):
        raise fault(unknown(run))
    return tree, found


def may_see(who: Caller, tree: Tree, run: Run, roles: frozenset[str]) -> bool:
    """Its owner (by key, or by a token of it or of a run above it), or one of the roles."""
    if who.run is not None:
        return who.run in {one.id for one in tree.lineage(run.id)}
    return who.principal.id in (run.principal, run.opened_by) or bool(who.principal.roles & roles)


def stopping(message: str = "The gateway is stopping; nothing was started.") -> Finding:
    return Finding("gateway", "gateway.stopping", message)


def fault(finding: Finding) -> RequestFault:
    """A decision's refusal as the fault a door answers with."""
    return RequestFault(finding.reason, finding.message, findings=(finding,))
