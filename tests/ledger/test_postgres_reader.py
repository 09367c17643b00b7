"""Reads through whatever fetches; the conformance suite reads with it too."""

from __future__ import annotations

import asyncpg
import pytest

from gateway.ledger.postgres_connection import SQL
from gateway.ledger.postgres_reader import PostgresReader
from gateway.ledger.views import COLUMNS, FILTERS
from gateway.ports import LedgerFault
from tests.ledger.conformance import Opened
from tests.ledger.runs import RUN, life, open_run

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("view", ["runs", "calls", "holds", "votes"])
async def test_lists_are_read_from_their_newest_end(dsn: str, opened_in_postgres: Opened, view: str) -> None:
    async with opened_in_postgres():
        pass
    asked = SQL[f"newest_{view}"]
    settings = {"search_path": "gateway", "enable_seqscan": "off", "plan_cache_mode": "force_generic_plan"}
    connection = await asyncpg.connect(dsn, server_settings=settings)
    plan = str(await connection.fetchval(f"EXPLAIN (FORMAT JSON) {asked.text}", *(9 if name == "limit" else None for name in asked.names)))
    await connection.close()
    assert set(asked.names) == FILTERS[view] | {"before", "before_stream", "limit"}
    assert f"{view}_newest" in plan
    assert "Incremental Sort" in plan


async def test_a_row_has_its_columns_in_order(opened_in_postgres: Opened) -> None:
    async with opened_in_postgres(**_of_runs()) as ledger:
        await life(ledger, open_run())
        (row,) = await ledger.store.reader.view("runs", RUN)
        assert dict(zip(COLUMNS["runs"], row, strict=True))["run"] == RUN


async def test_a_name_that_no_column_could_hold_is_found_nowhere(opened_in_postgres: Opened) -> None:
    async with opened_in_postgres(**_of_runs()) as ledger:
        assert (await ledger.state("run_\0")).seq == 0
        assert await ledger.rows("runs", {"run": "run_\0"}) == []


async def test_a_reader_that_cannot_read_is_a_fault(opened_in_postgres: Opened) -> None:
    async with opened_in_postgres() as ledger:
        async def fetch(*_: object) -> list[object]:
            raise ConnectionResetError

        with pytest.raises(LedgerFault):
            await PostgresReader(fetch, ledger.store._server.faults).streams()


def _of_runs() -> dict[str, object]:
    from gateway.core import streams

    return {"empty": streams.empty, "evolve": streams.evolve, "states_of": "gateway.core"}
