"""`verify`: whatever is changed behind the ledger's back is found, with stream and seq; an erased payload is only listed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway.core.events import TurnAnswered, TurnOpened
from gateway.core.run import principal_stream
from gateway.ledger.sqlite import SqliteLedger
from gateway.ledger.verify import Report, verify
from gateway.ports import Decision
from tests.ledger.conformance import Opened
from tests.ledger.runs import AGENT, RUN, admit, hold, life, open_run, settle, told, vote
from tests.ledger.tally import append, sealed

pytestmark = pytest.mark.anyio
ARGUMENTS, RESULT, LISTED = sealed(b"arguments"), sealed(b"result"), sealed(b"listed")


async def lived(ledger: SqliteLedger) -> None:
    events = [
        open_run(), admit(1, arguments=ARGUMENTS.hash), settle(1, result=RESULT.hash), hold(2), vote("user:mia", 2), TurnOpened(RUN, 1),
        TurnAnswered(RUN, 1, "digest", ({"call_id": "x", "tool": "t", "arguments": LISTED.hash},)),
    ]  # fmt: skip
    payloads = tuple((RUN, each) for each in (ARGUMENTS, RESULT, LISTED))
    await ledger.transact((RUN, principal_stream(AGENT)), lambda states, now: Decision(told(*events), None, payloads))


def tamper(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript("DROP TRIGGER events_are_never_changed; DROP TRIGGER events_are_never_deleted;")
        for statement in statements:
            assert raw.execute(statement).rowcount, statement
        raw.commit()


async def verified(opened: Opened, **options: Any) -> Report:
    async with opened(readonly=True, **options) as ledger:
        return await verify(ledger)


async def test_a_sound_ledger_has_no_problem_and_everything_is_counted(opened_for_runs: Opened) -> None:
    async with opened_for_runs() as ledger:
        await lived(ledger)
        report = await verify(ledger)
    assert report == Report(streams=2, events=9, payloads=3, rows=5)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("stream = 'run_other'", "seq"),
        ("seq = 9", "seq"),
        ("event_id = 'other'", "chain"),
        ("at = at + 1", "chain"),
        ("at = at - 1", "at"),
        ("kind = 'RunFrozen'", "chain"),
        ("version = 0", "chain"),
        ("body = replace(body, 'mia', 'leo')", "chain"),
        ("hash = replace(hash, substr(hash, 1, 1), 'x')", "chain"),
    ],
)
async def test_a_change_of_any_column_is_found(path: Path, opened_for_runs: Opened, change: str, what: str) -> None:
    async with opened_for_runs() as ledger:
        await lived(ledger)
    tamper(path, f"UPDATE events SET {change} WHERE seq = 5")
    found = {(problem.what, problem.stream) for problem in (await verified(opened_for_runs)).problems}
    assert (what, RUN) in found
    assert any(problem.seq in (5, 6, 9) for problem in (await verified(opened_for_runs)).problems)


@pytest.mark.parametrize("gone", ["= 1", "= 4", ">= 5"])
async def test_a_deleted_event_is_found(path: Path, opened_for_runs: Opened, gone: str) -> None:
    async with opened_for_runs() as ledger:
        await lived(ledger)
    tamper(path, f"DELETE FROM events WHERE seq {gone}")
    assert (await verified(opened_for_runs)).problems


async def test_an_erased_payload_is_listed_and_no_problem(path: Path, opened_for_runs: Opened) -> None:
    async with opened_for_runs() as ledger:
        await lived(ledger)
    tamper(path, f"DELETE FROM payloads WHERE hash IN ('{RESULT.hash}', '{LISTED.hash}')")
    report = await verified(opened_for_runs)
    assert report.problems == []
    assert [(each.stream, each.seq, each.hash) for each in report.erased] == [(RUN, 3, RESULT.hash), (RUN, 7, LISTED.hash)]


@pytest.mark.parametrize("change", ["bytes = x'00'", "salt = x'00'"])
async def test_a_changed_payload_is_found(path: Path, opened_for_runs: Opened, change: str) -> None:
    async with opened_for_runs() as ledger:
        await lived(ledger)
    tamper(path, f"UPDATE payloads SET {change} WHERE hash = '{ARGUMENTS.hash}'")
    assert [(each.what, each.seq) for each in (await verified(opened_for_runs)).problems] == [("payload", 2)]


@pytest.mark.parametrize(
    ("change", "view"),
    [
        ("UPDATE runs SET principal = 'agent:b'", "runs"),
        ("UPDATE runs SET due_at = NULL", "runs"),
        ("UPDATE calls SET state = 'admitted' WHERE call = 'call_r_1'", "calls"),
        ("DELETE FROM holds", "holds"),
        ("INSERT INTO votes VALUES ('hold_r_1/x', 'hold_r_1', 'x', 'approve', 1, '', 'run_r')", "votes"),
        ("INSERT INTO votes VALUES ('hold_z_1/x', 'hold_z_1', 'x', 'approve', 1, '', 'run_z')", "votes"),
    ],
)
async def test_a_row_that_no_event_made_is_found_and_a_rebuild_mends_it(path: Path, opened_for_runs: Opened, change: str, view: str) -> None:
    async with opened_for_runs() as ledger:
        await lived(ledger)
    tamper(path, change)
    assert [each.what for each in (await verified(opened_for_runs)).problems] == [view]
    async with opened_for_runs() as ledger:
        await ledger.rebuild(view)
        assert (await verify(ledger)).problems == []


@pytest.mark.parametrize("change", ["seq = 9999", "state = replace(state, 'user:mia', 'user:leo')"])
async def test_a_checkpoint_that_the_fold_does_not_reproduce_is_found(path: Path, opened: Opened, change: str) -> None:
    async with opened() as ledger:
        for _ in range(120):
            await ledger.transact(("run_1",), append("run_1"))
    tamper(path, f"UPDATE checkpoints SET {change}")
    assert [each.what for each in (await verified(opened)).problems] == ["checkpoint"]
    assert (await verified(opened, fold_version=2)).problems == ([] if "state" in change else (await verified(opened)).problems)


async def test_an_event_that_the_fold_refuses_is_found_and_the_chain_checked_on(path: Path, opened: Opened) -> None:
    async with opened() as ledger:
        await ledger.transact(("run_1",), append("run_1", note="allowed"))
        await ledger.transact(("run_1",), append("run_1"))
    tamper(path, "UPDATE events SET body = replace(body, 'allowed', 'forbidden') WHERE seq = 1")
    report = await verified(opened)
    assert {(each.what, each.seq) for each in report.problems} == {("chain", 1), ("fold", 1)}
    assert report.events == 2


async def test_an_event_that_breaks_a_promise_is_found_and_the_promise_named(opened_for_runs: Opened) -> None:
    async with opened_for_runs() as ledger:
        await life(ledger, open_run(), admit(1, key="another"), settle(1), hold(2), vote(AGENT, 2))
        report = await verify(ledger)
    assert [(each.what, each.seq) for each in report.problems] == [("P3", 2), ("P8", 5)]


async def test_a_principal_that_counts_otherwise_than_its_runs_stand_is_found(opened_for_runs: Opened) -> None:
    async with opened_for_runs() as ledger:
        await ledger.transact((RUN,), lambda states, now: Decision(((RUN, open_run()), (RUN, hold(1))), None))
        report = await verify(ledger)
    assert [(each.what, each.stream) for each in report.problems] == [("P6", principal_stream(AGENT))] * 2


async def test_the_problems_of_all_streams_are_listed(path: Path, opened: Opened) -> None:
    async with opened() as ledger:
        for stream in ("run_1", "run_2", "run_3"):
            await ledger.transact((stream,), append(stream))
    tamper(path, "UPDATE events SET at = at + 1 WHERE stream != 'run_2'")
    assert [each.stream for each in (await verified(opened)).problems] == ["run_1", "run_3"]


async def test_who_watches_is_told_each_stream_before_it_is_checked(opened_for_runs: Opened) -> None:
    told: list[tuple[str, int]] = []
    async with opened_for_runs() as ledger:
        await lived(ledger)
        await verify(ledger, lambda stream, done: told.append((stream, done)))
    assert told == [(principal_stream(AGENT), 0), (RUN, 1)]
