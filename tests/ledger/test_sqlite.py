"""The SQLite store: the conformance suite, and what only a file and a process can show."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import stat
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.ledger.sql import statements
from gateway.ledger.verify import verify
from gateway.ledger.views import FILTERS
from gateway.ports import LedgerFault
from tests.ledger.conformance import *  # noqa: F403
from tests.ledger.conformance import Opened, over
from tests.ledger.tally import SettableClock, append, sealed

ROOT = Path(__file__).resolve().parents[2]


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def modes(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


async def appender(path: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.ledger.appender", str(path), cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )


async def killed_after(path: Path, lines: int) -> dict[str, int]:
    """The highest acknowledged seq of each stream of an appender killed with -9 after some acknowledgements."""
    process = await appender(path)
    assert process.stdout
    for _ in range(lines):
        assert await asyncio.wait_for(process.stdout.readline(), 5)
    process.send_signal(signal.SIGKILL)
    rest = await asyncio.wait_for(process.communicate(), 5)
    acknowledged: dict[str, int] = defaultdict(int)
    for line in rest[0].decode().splitlines():
        stream, seq = line.split()
        acknowledged[stream] = max(acknowledged[stream], int(seq))
    return acknowledged


async def no_acknowledged_append_is_lost(path: Path, opened: Opened, kills: int) -> None:
    for number in range(kills):
        acknowledged = await killed_after(path, 30 + 17 * number)
        async with opened() as ledger:
            for stream, seq in acknowledged.items():
                assert (await ledger.state(stream)).seq >= seq
            report = await verify(ledger)
            assert not report.problems
            assert report.payloads == report.events


async def test_no_acknowledged_append_is_lost_to_kill_9(path: Path, opened: Opened) -> None:
    await no_acknowledged_append_is_lost(path, opened, 3)


@pytest.mark.slow
async def test_no_acknowledged_append_is_lost_to_forty_kills(path: Path, opened: Opened) -> None:
    await no_acknowledged_append_is_lost(path, opened, 40)


async def test_a_second_process_is_refused_and_told_who_has_it(path: Path, opened: Opened) -> None:
    async with opened():
        process = await appender(path)
        _, said = await asyncio.wait_for(process.communicate(), 5)
        assert process.returncode
        assert f"process {os.getpid()} ".encode() in said


async def test_a_second_ledger_in_one_process_is_refused_also_by_another_name(path: Path, opened: Opened, tmp_path: Path) -> None:
    async with opened() as ledger:
        link = tmp_path / "other.db"
        link.symlink_to(path)
        with pytest.raises(LedgerFault):
            await type(ledger)(link, empty=ledger.fold.empty, evolve=ledger.fold.evolve, clock=None).open()  # type: ignore[arg-type]
    async with opened():
        pass


async def test_readers_work_beside_a_running_ledger_and_after_a_dead_one(path: Path, opened: Opened, tmp_path: Path) -> None:
    async with opened() as ledger:
        await ledger.transact(("run_1",), append("run_1"))
        async with opened(readonly=True) as reader:
            assert (await reader.state("run_1")).seq == 1
            await ledger.transact(("run_1",), append("run_1"))
            assert (await reader.state("run_1")).seq == 2
            assert not (await verify(reader)).problems
            for asked in (reader.transact(("run_1",), append("run_1")), reader.rebuild("runs"), reader.watch("run_1", 9)):
                with pytest.raises(LedgerFault):
                    await asked
    acknowledged = await killed_after(path, 50)
    before = names(tmp_path)
    assert "ledger.db-wal" in before
    async with opened(readonly=True) as reader:
        for stream, seq in acknowledged.items():
            assert (await reader.state(stream)).seq >= seq
        assert not (await verify(reader)).problems
    assert names(tmp_path) == before


async def test_a_snapshot_sees_one_moment(opened: Opened) -> None:
    async with opened() as ledger:
        await ledger.transact(("run_1",), append("run_1"))
        async with ledger.store.snapshot() as reader:
            await ledger.transact(("run_1",), append("run_1"))
            assert [row.seq for row in await reader.events("run_1", 0, 9)] == [1]
        assert [each.seq for each in await ledger.events("run_1")] == [1, 2]


async def test_a_reader_of_nothing_is_refused(opened: Opened, path: Path) -> None:
    with pytest.raises(LedgerFault):
        async with opened(readonly=True):
            pass
    assert content(path) is None


async def test_only_the_owner_can_read_the_files(opened: Opened, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        async with opened() as ledger:
            await ledger.transact(("run_1",), append("run_1"))
            found = modes(tmp_path)
    finally:
        os.umask(before)
    assert found == dict.fromkeys(["ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db.lock"], 0o600)


async def test_a_database_of_a_newer_gateway_is_refused_and_left_alone(path: Path, opened: Opened) -> None:
    async with opened():
        pass
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA user_version = 99")
    raw.close()
    before = content(path)
    for readonly in (False, True):
        with pytest.raises(LedgerFault, match="99"):
            async with opened(readonly=readonly):
                pass
    assert content(path) == before


def text(path: Path) -> None:
    path.write_bytes(b"not a database at all, though long enough to look like one" * 20)


def foreign(path: Path) -> None:
    raw = sqlite3.connect(path)
    raw.execute("CREATE TABLE somebodys (thing)")
    raw.close()


@pytest.mark.parametrize("make", [text, foreign])
async def test_a_file_that_is_no_ledger_is_refused_and_left_alone(path: Path, opened: Opened, make: Callable[[Path], None]) -> None:
    make(path)
    before = content(path)
    for readonly in (False, True):
        with pytest.raises(LedgerFault):
            async with opened(readonly=readonly):
                pass
    assert content(path) == before


async def test_every_commit_waits_for_the_disk(opened: Opened) -> None:
    async with opened() as ledger:
        raw = ledger.store._raw  # type: ignore[attr-defined]
        assert raw.execute("PRAGMA synchronous").fetchone() == (2,)
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_a_probe_that_died_halfway_is_in_no_later_ones_way(path: Path, opened: Opened) -> None:
    async with opened():
        pass
    with sqlite3.connect(path) as raw:
        raw.execute(statements("sqlite")["add_probe"])
    async with opened() as ledger:
        await ledger.store.probe()  # type: ignore[attr-defined]
    with sqlite3.connect(path) as raw:
        assert raw.execute("SELECT count(*) FROM probes").fetchall() == [(0,)]


async def test_events_can_neither_be_changed_nor_deleted(path: Path, opened: Opened) -> None:
    async with opened() as ledger:
        await ledger.transact(("run_1",), append("run_1"))
    raw = sqlite3.connect(path)
    for statement in ("UPDATE events SET body = '{}'", "DELETE FROM events"):
        with pytest.raises(sqlite3.IntegrityError):
            raw.execute(statement)
    raw.close()


async def test_big_equal_bytes_of_a_stream_stand_once_and_an_erasure_takes_all_that_stand(path: Path, opened: Opened) -> None:
    big, small = sealed(bytes(4096)), sealed(b"small")
    async with opened() as ledger:
        for stream in ("run_1", "run_1", "run_2"):
            await ledger.transact((stream,), append(stream, payloads=(big, small, big)))
        assert (await verify(ledger)).payloads == 2 + 3
    with sqlite3.connect(path) as raw:
        raw.execute("DELETE FROM payloads WHERE stream = 'run_1'")
    raw.close()
    async with opened() as ledger:
        assert [await ledger.payload("run_1", each.hash) for each in (big, small)] == [None, None]
        assert [await ledger.payload("run_2", each.hash) for each in (big, small)] == [big.data, small.data]


@pytest.mark.parametrize("view", ["runs", "calls", "holds", "votes"])
async def test_lists_are_read_from_their_newest_end(path: Path, opened: Opened, view: str) -> None:
    async with opened():
        pass
    raw = sqlite3.connect(path)
    nothing = dict.fromkeys([*FILTERS[view], "before", "before_stream"])
    plan = [row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {statements('sqlite')[f'newest_{view}']}", {**nothing, "limit": 9})]
    raw.close()
    assert f"SCAN {view} USING INDEX {view}_newest" in plan
    assert [step for step in plan if "TEMP B-TREE" in step] == ["USE TEMP B-TREE FOR RIGHT PART OF ORDER BY"]


async def test_a_full_disk_is_a_fault_that_leaves_nothing_half_done_and_passes(opened: Opened) -> None:
    async with opened() as ledger:
        await ledger.transact(("run_1",), append("run_1"))
        raw = ledger.store._raw  # type: ignore[attr-defined]
        (pages,) = raw.execute("PRAGMA page_count").fetchone()
        raw.execute("PRAGMA max_page_count = 1").fetchone()  # SQLite makes it the present size
        big = sealed(os.urandom(64 * 4096))
        done = await asyncio.gather(
            ledger.transact(("run_1",), append("run_1", payloads=(big,))), ledger.transact(("run_2",), append("run_2")), return_exceptions=True
        )
        assert [type(each) for each in done] == [LedgerFault, LedgerFault]
        assert (await ledger.state("run_1")).seq == 1
        assert await ledger.payload("run_1", big.hash) is None
        with pytest.raises(LedgerFault):
            await ledger.transact(("run_1",), append("run_1"))
        assert raw.execute("PRAGMA page_count").fetchone() == (pages,)
        raw.execute("PRAGMA max_page_count = 1000000").fetchone()
        await asyncio.wait_for(recovered(ledger), 5)
        assert (await ledger.transact(("run_1",), append("run_1", payloads=(big,)))).answer == [1]
        assert not (await verify(ledger)).problems


async def recovered(ledger: object) -> None:
    while True:
        try:
            await ledger.transact(("run_9",), append("run_9"))  # type: ignore[attr-defined]
            return
        except LedgerFault:
            await asyncio.sleep(0.001)


async def test_another_program_that_holds_the_database_is_waited_for_off_the_loop(path: Path, opened: Opened) -> None:
    async with opened() as ledger:
        await ledger.transact(("run_1",), append("run_1"))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(ledger.transact(("run_1",), append("run_1")))
        for _ in range(10):
            await asyncio.wait_for(asyncio.sleep(0.001), 0.5)
        assert not waiting.done()
        assert (await ledger.state("run_1")).seq == 1
        other.execute("ROLLBACK")
        other.close()
        assert (await asyncio.wait_for(waiting, 5)).answer == [1]


async def test_a_program_that_never_lets_go_is_a_fault(path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.ledger.sqlite._BUSY_S", 0.05)
    async with opened() as ledger:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerFault):
            await ledger.transact(("run_1",), append("run_1"))
        other.close()
        await asyncio.wait_for(recovered(ledger), 5)


async def test_a_file_limit_of_the_system_is_a_fault_and_no_crash(path: Path, tmp_path: Path) -> None:
    prlimit = shutil.which("prlimit")
    assert prlimit, "util-linux is needed"
    process = await asyncio.create_subprocess_exec(
        prlimit, "--fsize=600000", sys.executable, "-m", "tests.ledger.appender", str(path), cwd=ROOT,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, said = await asyncio.wait_for(process.communicate(), 5)
    assert process.returncode == 1
    assert b"LedgerFault" in said
    assert out


async def test_erased_bytes_are_not_in_the_file_any_more(path: Path, opened_for_runs: Opened) -> None:
    clock, secret = SettableClock(), b"a card number, say"
    async with opened_for_runs(clock=clock) as ledger:
        await over(ledger, clock, "run_a", sealed(secret), sealed(secret * 900), at=clock.now)
    assert secret in (content(path) or b"")
    async with opened_for_runs(clock=clock) as ledger:
        assert await ledger.erase(clock.now) == 2
    assert all(secret not in (content(file) or b"") for file in (path, path.with_name(f"{path.name}-wal")))
