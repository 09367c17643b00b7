"""Three accounts of what happened, held against each other: the ledger, the upstreams' own journals, and what agents were told.

`contradictions` is pure, so that it can be shown bad histories; `examined` collects the accounts of a gateway, dead or alive, with all that
`gateway verify` finds. Each contradiction begins with the promise that it breaks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.cli.place import reading
from gateway.core import events as e
from gateway.core.canonical import fingerprint
from gateway.core.run import CallRecord, Tree, stream_of
from gateway.ledger.verify import verify
from gateway.ports import Recorded
from gateway.wire import json
from tests.faults import deployment
from tests.faults.journal import DID, TOOK, Entry
from tests.faults.running import Gateway

LATE_MS = 1_000
"""What was sent before a run ended may be read by its upstream this much later."""


@dataclass(frozen=True)
class Told:
    """An answer that an agent got. `state`: what it said of the call, where it said something final; `result` likewise."""

    call: str
    state: str | None = None
    result: Any = None


@dataclass
class Accounts:
    """`records`: every call as it stands. `journal`: full tool name and entry. `results`: payload hash -> the value."""

    events: Sequence[Recorded]
    records: Mapping[str, CallRecord]
    journal: Sequence[tuple[str, Entry]]
    told: Sequence[Told] = ()
    results: Mapping[str, Any] = field(default_factory=dict)

    def admitted(self) -> dict[str, list[Recorded]]:
        """Fingerprint -> the intents of its calls, in order."""
        found = defaultdict(list)
        for one in self.events:
            if isinstance(one.event, e.CallAdmitted):
                found[one.event.fingerprint].append(one)
        return found


def contradictions(accounts: Accounts, *, over: bool = True, ahead_ms: int = 0) -> list[str]:
    """`over`: everything had time to come to its end. `ahead_ms`: how far the ledger's clock may have been ahead of the upstreams'."""
    found = [*_without_intent(accounts, ahead_ms), *_twice(accounts), *_otherwise_recorded(accounts)]
    found += [*_after_the_end(accounts), *_told_otherwise(accounts)]
    if over:
        found += [f"P10 {record.id} is still {record.state}" for record in accounts.records.values() if record.state == "admitted"]
    return found


def _print(tool: str, entry: Entry) -> str:
    return fingerprint(tool, entry.arguments)


def _without_intent(accounts: Accounts, ahead_ms: int) -> Iterator[str]:
    """Each request has an intent of its own, older than it and under its key."""
    intents, seen = accounts.admitted(), Counter[str]()
    for tool, entry in accounts.journal:
        if entry.phase == TOOK:
            seen[_print(tool, entry)] += 1
            before = [one for one in intents[_print(tool, entry)] if one.at <= entry.at + ahead_ms]
            if len(before) < seen[_print(tool, entry)]:
                yield f"P1 {tool} {entry.id} was requested {seen[_print(tool, entry)]} times after {len(before)} intents"
            if entry.key is not None and entry.key not in {one.event.key for one in before}:  # type: ignore[attr-defined]
                yield f"P3 {tool} {entry.id} was requested under a key that no intent of it has"


def _twice(accounts: Accounts) -> Iterator[str]:
    effects = Counter((tool, entry.key) for tool, entry in accounts.journal if entry.phase == DID)
    actions = {record.key for record in accounts.records.values() if record.effect.value == "non_idempotent"}
    yield from (f"P2 {tool} took effect {times} times under one key" for (tool, key), times in effects.items() if times > 1 and key in actions)


def _otherwise_recorded(accounts: Accounts) -> Iterator[str]:
    """What took effect isn't recorded as not done."""
    done = {entry.key for _, entry in accounts.journal if entry.phase == DID and entry.key is not None}
    for record in accounts.records.values():
        undone = record.not_applied or record.state in ("cancelled", "denied", "held", "ready")
        later = any(one.key == record.key and one.id != record.id for one in accounts.records.values()) if undone else False
        if record.key in done and undone and not later:
            yield f"P4 {record.id} took effect and stands as {record.state} ({record.reason})"


def _after_the_end(accounts: Accounts) -> Iterator[str]:
    """Nothing is first requested after its run was cancelled or frozen, nor past its deadline."""
    ended = {one.event.run: one.at for one in accounts.events if isinstance(one.event, e.RunClosing) and one.event.status == "cancelled"}
    intents = accounts.admitted()
    for tool, entry in accounts.journal:
        if entry.phase == TOOK:
            of = [one.event for one in intents[_print(tool, entry)]]
            last = max((min(event.deadline_at, ended.get(event.run, event.deadline_at)) for event in of), default=0)  # type: ignore[attr-defined]
            if of and entry.at > last + LATE_MS:
                yield f"P7 {tool} {entry.id} was requested {entry.at - last} ms after its deadline or its run's end"


def _told_otherwise(accounts: Accounts) -> Iterator[str]:
    for told in accounts.told:
        record = accounts.records.get(told.call)
        if record is None:
            yield f"P9 an agent was told of {told.call}, which is lost"
        elif told.state is not None and record.state != told.state:
            yield f"P9 an agent was told that {told.call} is {told.state}; it is {record.state}"
        elif told.result is not None and (record.result is None or accounts.results[record.result] != told.result):
            yield f"P4 an agent was told another result of {told.call} than stands"


# ---- collecting ---------------------------------------------------------------------------------------------------------


async def examined(running: Gateway, told: Sequence[Told] = (), *, ahead_ms: int = 0) -> list[str]:
    """All contradictions, and all that `gateway verify` finds."""
    accounts, problems = await collected(running, told)
    return problems + contradictions(accounts, ahead_ms=ahead_ms)


async def collected(running: Gateway, told: Sequence[Told] = ()) -> tuple[Accounts, list[str]]:
    """The accounts as they are now, and `verify`'s problems in words."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GATEWAY_SECRET", deployment.SECRET)
        async with reading(str(running.settings)) as ledger:
            problems = [f"{one.what} {one.stream} {one.seq}: {one.message}" for one in (await verify(ledger)).problems]
            events, records, results = [], {}, {}
            async with ledger.store.snapshot() as reader:
                streams = [stream for stream in await reader.streams() if stream.startswith("run_")]
            for stream in streams:
                events += await ledger.events(stream, 0, 1_000_000)
                tree = await ledger.state(stream)
                assert isinstance(tree, Tree)
                records.update(tree.calls)
            for hash in {records[one.call].result for one in told if one.result is not None and one.call in records} - {None}:
                call = next(record for record in records.values() if record.result == hash)
                data = await ledger.payload(stream_of(call.id), hash or "")
                results[hash or ""] = None if data is None else json.parse(data)
    return Accounts(events, records, list(_journal(running)), told, results), problems


def _journal(running: Gateway) -> Iterable[tuple[str, Entry]]:
    for upstream, journal in (("web", running.journal), ("desk", running.desk)):
        yield from ((f"{upstream}.{entry.tool}", entry) for entry in journal.entries())
