"""The bench of replicas, in small: whoever shares a run waits, and nobody tries again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.bench.replicas import measured

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("hot", [True, False])
async def test_processes_in_one_run_cause_no_storm_of_retries(new_database: Callable[[], str], hot: bool) -> None:
    counted, undone, problems = await measured(new_database(), 2, 4, 0.5, hot=hot)
    assert counted.appends > 0
    assert (counted.steps - counted.appends, problems) == (0, 0)
    assert undone <= 3  # a process that ends may break off the hint that it is giving
