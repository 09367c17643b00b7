"""The PostgreSQL store: the conformance suite, and what only several processes and a server of its own can show.

Two ledgers on one database are as good as two processes here: they share nothing but the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import asyncpg
import pytest

from gateway.ledger import postgres
from gateway.ledger.sql import migrations
from gateway.ledger.verify import verify
from gateway.ports import Decision, LedgerFault
from tests.ledger.conformance import *  # noqa: F403
from tests.ledger.conformance import Opened
from tests.ledger.runs import RUN, admit, life, open_run
from tests.ledger.tally import append, event
from tests.postgres_server import database, running
from tests.waiting import eventually


@pytest.fixture
def opened(opened_in_postgres: Opened) -> Opened:
    return opened_in_postgres


async def ran(dsn: str, *statements: str) -> Any:
    """The last one's first value."""
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "gateway"})
    try:
        for statement in statements:
            found = await connection.fetchval(statement)
        return found
    finally:
        await connection.close()


async def tables(dsn: str) -> list[Any]:
    """Every column, index, constraint and function of a ledger."""
    connection = await asyncpg.connect(dsn)
    try:
        return [
            tuple(row)
            for query in (
                "SELECT table_name, ordinal_position, column_name, data_type, is_nullable, collation_name FROM information_schema.columns"
                " WHERE table_schema = 'gateway' ORDER BY 1, 2",
                "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'gateway' ORDER BY 1",
                "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'gateway'::regnamespace ORDER BY 1, 2",
                "SELECT proname, prosrc, pg_get_function_arguments(oid) FROM pg_proc WHERE pronamespace = 'gateway'::regnamespace ORDER BY 1",
                "SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1",
                "SELECT * FROM gateway.layout",
            )
            for row in await connection.fetch(query)
        ]
    finally:
        await connection.close()


# ---- several processes --------------------------------------------------------------------------------------------------


async def test_processes_on_one_stream_take_turns_and_no_step_runs_twice(opened: Opened) -> None:
    steps = 0

    def counted(states: Mapping[str, Any], now: int) -> Decision:
        nonlocal steps
        steps += 1
        return Decision((("run_1", event("run_1")),), states["run_1"].seq)

    async with opened() as one, opened() as two, opened() as three:
        for _ in range(5):
            done = await asyncio.gather(*(ledger.transact(("run_1",), counted) for ledger in (one, two, three) for _ in range(10)))
            assert [each.states["run_1"].seq for each in done] == [each.answer + 1 for each in done]
        assert steps == 150
        assert [each.seq for each in await two.events("run_1")] == list(range(1, 151))
        assert not (await verify(three)).problems


async def test_processes_that_need_the_same_streams_in_other_orders_never_wait_in_a_ring(opened: Opened) -> None:
    names = [f"run_{n}" for n in range(200)]

    async def begun(ledger: Any, known: dict[str, None]) -> None:
        for _ in range(20):
            await ledger.store.begin(known)
            await ledger.store.rollback()

    async with opened() as one, opened() as two:
        await asyncio.wait_for(asyncio.gather(begun(one, dict.fromkeys(names)), begun(two, dict.fromkeys(names[::-1]))), 5)


async def test_a_process_that_is_far_behind_loads_instead_of_following(opened: Opened) -> None:
    async with opened() as one, opened() as two:
        await two.transact(("run_1",), append("run_1"))
        await asyncio.gather(*(one.transact(("run_1",), append("run_1")) for _ in range(450)))
        assert (await two.transact(("run_1",), append("run_1"))).answer == [451]
        assert await one.state("run_1") == await two.state("run_1")


async def test_of_many_processes_one_writes_each_checkpoint(opened: Opened, dsn: str) -> None:
    async with opened() as one, opened() as two:
        for _ in range(60):
            await asyncio.gather(*(ledger.transact(("run_1",), append("run_1")) for ledger in (one, two) for _ in range(10)))
        await asyncio.gather(*one._writer._saving, *two._writer._saving)
        assert len(one._writer._checkpoints) + len(two._writer._checkpoints) + (await ran(dsn, "SELECT count(*) FROM checkpoints")) == 1


async def test_a_rebuild_keeps_other_processes_from_the_view_until_it_is_done(opened_for_runs: Opened) -> None:
    async with opened_for_runs() as one, opened_for_runs() as two:
        await life(one, open_run(), *(admit(n) for n in range(1, 6)))
        rebuilding = asyncio.ensure_future(one.rebuild("calls"))
        await life(two, *(admit(n) for n in range(6, 30)))
        await asyncio.wait_for(rebuilding, 5)
        assert len(await two.rows("calls", {"run": RUN})) == 29
        assert not (await verify(one)).problems


# ---- what a commit is worth ---------------------------------------------------------------------------------------------


async def cut_off(one: Any) -> None:
    """Break the writer's connection from this side."""
    one.store._writing.terminate()
    await asyncio.sleep(0)


async def test_a_lost_connection_between_batches_is_made_anew_and_nobody_notices(opened: Opened) -> None:
    async with opened() as one:
        await one.transact(("run_1",), append("run_1"))
        await cut_off(one)
        assert (await one.transact(("run_1",), append("run_1"))).answer == [1]


async def test_a_commit_whose_answer_was_lost_is_found_by_its_event(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as one:
        await one.transact(("run_1",), append("run_1"))
        plain = asyncpg.Connection.execute

        async def lost(connection: Any, query: str, *args: Any, **options: Any) -> object:
            done = await plain(connection, query, *args, **options)
            if "end_batch" in query:
                raise ConnectionResetError("the answer was lost")
            return done

        monkeypatch.setattr(asyncpg.Connection, "execute", lost)
        both = await asyncio.gather(*(one.transact(("run_1",), append("run_1")) for _ in range(2)))
        monkeypatch.undo()
        assert [each.answer for each in both] == [[1], [2]]
        assert (await one.transact(("run_1",), append("run_1"))).answer == [3]
        assert not (await verify(one)).problems


async def test_a_commit_that_did_not_happen_is_decided_anew_by_whoever_asks_again(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as one, opened() as two:
        await one.transact(("run_1",), append("run_1"))
        plain = asyncpg.Connection.execute

        async def never(connection: Any, query: str, *args: Any, **options: Any) -> object:
            if "end_batch" in query:
                connection.terminate()
            return await plain(connection, query, *args, **options)

        monkeypatch.setattr(asyncpg.Connection, "execute", never)
        with pytest.raises(LedgerFault):
            await one.transact(("run_1",), append("run_1"))
        monkeypatch.undo()
        assert (await two.transact(("run_1",), append("run_1"))).answer == [1]
        assert (await asyncio.wait_for(again(one), 5)).answer == [2]


async def again(ledger: Any, stream: str = "run_1") -> Any:
    while True:
        try:
            return await ledger.transact((stream,), append(stream))
        except LedgerFault:
            await asyncio.sleep(0.01)


async def test_a_process_that_sleeps_in_a_batch_loses_it_to_the_others(opened: Opened) -> None:
    """The server ends its session, here after 3 s; what it then wants to write is refused."""
    async with opened() as one, opened() as two:
        await one.transact(("run_1",), append("run_1"))
        plain, asleep = one.store.write, asyncio.Event()

        async def write(rows: Any) -> None:
            await asleep.wait()
            await plain(rows)

        one.store.write = write
        sleeping = asyncio.ensure_future(one.transact(("run_1",), append("run_1")))
        await asyncio.sleep(0.05)
        assert (await asyncio.wait_for(two.transact(("run_1",), append("run_1")), 5)).answer == [1]
        asleep.set()
        with pytest.raises(LedgerFault):
            await asyncio.wait_for(sleeping, 5)
        one.store.write = plain
        assert (await asyncio.wait_for(again(one), 5)).answer == [2]


async def test_a_server_that_came_back_with_less_is_believed(opened: Opened, dsn: str) -> None:
    """As after a failover to a standby that hadn't got it all."""
    async with opened() as one, opened() as two:
        await asyncio.gather(*(one.transact(("run_1",), append("run_1", by="user:leo")) for _ in range(5)))
        assert (await two.state("run_1")).seq == 5
        await ran(dsn, "ALTER TABLE events DISABLE TRIGGER USER", "DELETE FROM events WHERE seq > 3", "ALTER TABLE events ENABLE TRIGGER USER")
        await ran(dsn, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
        assert (await asyncio.wait_for(again(two), 5)).answer == [3]
        assert (await asyncio.wait_for(again(one), 5)).answer == [4]
        assert not (await verify(two)).problems


async def test_nothing_is_told_that_the_standby_does_not_have(opened_at: Callable[[str], Opened]) -> None:
    """Neither by the process that wrote it, nor by one that has seen it."""
    with running() as server:
        dsn = database(server.dsn("postgres"))
        async with opened_at(dsn)() as one, opened_at(dsn)() as two:
            await one.transact(("run_1",), append("run_1"))
            assert (await two.state("run_1")).seq == 1
            await standby(dsn, "nobody")
            pending = [asyncio.ensure_future(one.transact(("run_1",), append("run_1")))]
            await eventually(lambda: ran(dsn, "SELECT count(*) = 2 FROM events"), "the event")
            pending += [asyncio.ensure_future(asked) for asked in (two.state("run_1"), two.events("run_1"), two.watch("run_1", 1))]
            done, _ = await asyncio.wait(pending, timeout=1)
            assert not done
            await standby(dsn, "")
            assert (await asyncio.wait_for(asyncio.gather(*pending), 5))[1].seq == 2


async def test_a_commit_that_waits_too_long_for_the_standby_fails(monkeypatch: pytest.MonkeyPatch, opened_at: Callable[[str], Opened]) -> None:
    for name in ("_COMMIT_S", "STATEMENT_S"):
        monkeypatch.setattr(postgres, name, 0.2)
    with running() as server:
        dsn = database(server.dsn("postgres"))
        async with opened_at(dsn)() as one:
            await one.transact(("run_1",), append("run_1"))
            await standby(dsn, "nobody")
            with pytest.raises(LedgerFault):
                await asyncio.wait_for(one.transact(("run_1",), append("run_1")), 5)
            await standby(dsn, "")
            assert (await asyncio.wait_for(again(one), 5)).answer == [2]


async def standby(dsn: str, names: str) -> None:
    await ran(dsn, f"ALTER SYSTEM SET synchronous_standby_names = '{names}'", "SELECT pg_reload_conf()")
    await eventually(lambda: ran(dsn, f"SELECT current_setting('synchronous_standby_names') = '{names}'"), "the setting")


async def test_commits_wait_for_the_disk_whatever_the_database_says(opened: Opened, dsn: str) -> None:
    name = await ran(dsn, "SELECT current_database()")
    await ran(dsn, f"ALTER DATABASE {name} SET synchronous_commit = off")
    try:
        async with opened() as one:
            for _ in range(10):
                before = await ran(dsn, "SELECT pg_current_wal_insert_lsn()::text")
                await one.transact(("run_1",), append("run_1"))
                assert await ran(dsn, f"SELECT pg_current_wal_flush_lsn() > '{before}'")
    finally:
        await ran(dsn, f"ALTER DATABASE {name} RESET synchronous_commit")


async def test_a_role_that_may_only_use_its_database_is_enough(opened_at: Callable[[str], Opened], dsn: str) -> None:
    name = await ran(dsn, "SELECT current_database()")
    await ran(dsn, "DROP ROLE IF EXISTS plain", "CREATE ROLE plain LOGIN", f"GRANT CREATE ON DATABASE {name} TO plain")
    try:
        async with opened_at(dsn.replace("//gateway@", "//plain@"))() as one:
            assert (await one.transact(("run_1",), append("run_1"))).answer == [0]
            await cut_off(one)
            assert (await asyncio.wait_for(again(one), 5)).answer == [1]
    finally:
        await ran(dsn, "DROP OWNED BY plain CASCADE", "DROP ROLE plain")


async def test_a_role_that_may_only_read_can_verify(opened: Opened, opened_at: Callable[[str], Opened], dsn: str) -> None:
    async with opened() as one:
        await one.transact(("run_1",), append("run_1"))
    may = "GRANT USAGE ON SCHEMA gateway TO looker", "GRANT SELECT ON ALL TABLES IN SCHEMA gateway TO looker"
    await ran(dsn, "DROP ROLE IF EXISTS looker", "CREATE ROLE looker LOGIN", *may)
    try:
        async with opened_at(dsn.replace("//gateway@", "//looker@"))(readonly=True) as reader:
            assert (await reader.state("run_1")).seq == len(await reader.events("run_1")) == 1
            assert (await verify(reader)).events == 1
    finally:
        await ran(dsn, "DROP OWNED BY looker", "DROP ROLE looker")


# ---- what it refuses ----------------------------------------------------------------------------------------------------


async def test_events_can_neither_be_changed_nor_deleted(opened: Opened, dsn: str) -> None:
    async with opened() as ledger:
        await ledger.transact(("run_1",), append("run_1"))
    for statement in ("UPDATE events SET body = '{}'", "DELETE FROM events", "TRUNCATE events"):
        with pytest.raises(asyncpg.RaiseError):
            await ran(dsn, statement)


async def test_readers_work_beside_a_running_ledger_and_write_nothing(opened: Opened) -> None:
    async with opened() as ledger, opened(readonly=False) as other:
        await other.transact(("run_1",), append("run_1"))
        async with opened(readonly=True) as reader:
            assert (await reader.state("run_1")).seq == 1
            await ledger.transact(("run_1",), append("run_1"))
            assert (await reader.state("run_1")).seq == len(await reader.events("run_1")) == 2
            assert not (await verify(reader)).problems
            for asked in (reader.transact(("run_1",), append("run_1")), reader.rebuild("runs"), reader.watch("run_1", 9)):
                with pytest.raises(LedgerFault):
                    await asked


async def test_a_snapshot_sees_one_moment(opened: Opened) -> None:
    async with opened() as ledger:
        await ledger.transact(("run_1",), append("run_1"))
        async with ledger.store.snapshot() as reader:
            await ledger.transact(("run_1",), append("run_1"))
            assert [row.seq for row in await reader.events("run_1", 0, 9)] == [1]
        assert [each.seq for each in await ledger.events("run_1")] == [1, 2]


async def test_what_is_no_ledger_is_refused_and_left_alone(opened: Opened, dsn: str) -> None:
    with pytest.raises(LedgerFault, match="no ledger"):
        async with opened(readonly=True):
            pass
    await ran(dsn, "CREATE SCHEMA gateway", "CREATE TABLE gateway.somebodys (thing int)")
    for readonly in (False, True):
        with pytest.raises(LedgerFault, match="no ledger"):
            async with opened(readonly=readonly):
                pass
    assert await ran(dsn, "SELECT count(*) FROM pg_class WHERE relnamespace = 'gateway'::regnamespace") == 1


async def test_a_database_of_a_newer_gateway_is_refused_and_left_alone(opened: Opened, dsn: str) -> None:
    async with opened():
        pass
    await ran(dsn, "UPDATE layout SET version = 99")
    for readonly in (False, True):
        with pytest.raises(LedgerFault, match="99"):
            async with opened(readonly=readonly):
                pass


async def test_a_server_that_does_not_wait_for_its_disk_is_refused(opened_at: Callable[[str], Opened]) -> None:
    with running(fsync="off") as server, pytest.raises(LedgerFault, match="fsync"):
        async with opened_at(database(server.dsn("postgres")))():
            pass


@pytest.mark.parametrize("from_", range(len(migrations("postgres")) + 1))
async def test_a_migrated_database_is_like_a_fresh_one(opened: Opened, dsn: str, from_: int, fresh: list[Any]) -> None:
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "gateway"})
    for number, script in enumerate(migrations("postgres")[:from_], 1):
        await connection.execute(script)
        await connection.execute("UPDATE layout SET version = $1", number)
    await connection.close()
    async with opened() as ledger:
        await ledger.transact(("run_1",), append("run_1"))
    assert await tables(dsn) == fresh


@pytest.fixture
async def fresh(new_database: Callable[[], str], opened_at: Callable[[str], Opened], anyio_backend: str) -> list[Any]:
    dsn = new_database()
    async with opened_at(dsn)():
        return await tables(dsn)


async def test_processes_that_start_at_once_make_one_ledger(opened: Opened) -> None:
    async def start() -> int:
        async with opened() as ledger:
            seq: int = (await ledger.transact(("run_1",), append("run_1"))).states["run_1"].seq
            return seq

    assert sorted(await asyncio.gather(*(start() for _ in range(5)))) == [1, 2, 3, 4, 5]
