"""One batch: jobs decided over each other's effects, each wholly or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.ledger.batch import Batch, Job
from gateway.ledger.codec import genesis, link
from gateway.ledger.states import Head
from gateway.ports import Committed, Decision, LedgerFault, Step
from tests.ledger.tally import Tally, append, event, evolve, look, sealed

pytestmark = pytest.mark.anyio


def batch(*streams: str, now: int = 7) -> Batch:
    return Batch(evolve, now, {stream: Head(Tally(), genesis(stream)) for stream in streams})


def job(step: Step, *streams: str) -> Job:
    return Job(streams, step, asyncio.get_running_loop().create_future())


async def test_rows_of_one_stream_are_chained_across_jobs() -> None:
    made = batch("run_1")
    for _ in range(3):
        made.decide(job(append("run_1"), "run_1"))
    previous = genesis("run_1")
    for seq, row in enumerate(made.rows.events, 1):
        assert (row.seq, row.at, row.hash) == (seq, 7, link(previous, *row[:-1]))
        previous = row.hash
    assert made.heads["run_1"].hash == previous
    assert len({row.event_id for row in made.rows.events}) == 3


async def test_a_job_that_fails_changes_nothing() -> None:
    made, second = batch("run_1"), job(append("run_1", note="forbidden", payloads=(sealed(b"x"),)), "run_1")
    made.decide(second)
    assert isinstance(second.outcome, ValueError)
    assert not made.rows
    assert made.heads["run_1"].state.seq == 0
    assert made.changed == set()


async def test_a_job_whose_stream_could_not_be_loaded_fails_alone() -> None:
    made, lost, found = batch("run_1"), job(append("run_2"), "run_2"), job(append("run_1"), "run_1")
    made.decide(lost)
    made.decide(found)
    assert isinstance(lost.outcome, LedgerFault)
    assert isinstance(found.outcome, Committed)


async def test_a_look_is_no_row_and_sees_the_batch() -> None:
    made, looking = batch("run_1"), job(look, "run_1")
    made.decide(job(append("run_1"), "run_1"))
    made.decide(looking)
    assert isinstance(looking.outcome, Committed)
    assert looking.outcome.answer == {"run_1": 1}
    assert len(made.rows.events) == 1


async def test_several_events_of_one_decision_follow_each_other() -> None:
    def twice(states: Any, now: int) -> Decision:
        return Decision((("run_1", event("run_1")), ("run_2", event("run_2")), ("run_1", event("run_1"))), None)

    made, both = batch("run_1", "run_2"), job(twice, "run_1", "run_2")
    made.decide(both)
    assert [(row.stream, row.seq) for row in made.rows.events] == [("run_1", 1), ("run_2", 1), ("run_1", 2)]
    assert isinstance(both.outcome, Committed)
    assert both.outcome.states["run_1"].seq == 2


async def test_a_step_without_streams_is_possible() -> None:
    made, alone = batch(), job(lambda states, now: Decision((), now, policies={"d": "t"}))
    made.decide(alone)
    assert isinstance(alone.outcome, Committed)
    assert alone.outcome.at == 7
    assert made.rows.policies == {"d": "t"}


async def test_a_caller_that_left_is_not_told() -> None:
    made, left = batch("run_1"), job(append("run_1"), "run_1")
    waiter = left.waiter
    made.decide(left)
    waiter.cancel()
    left.answer()
    left.fail("too late as well")
    assert waiter.cancelled()
