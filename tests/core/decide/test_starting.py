"""May something still start? Asked of run, deadline and purse; and what one is told who may not."""

from __future__ import annotations

import pytest

from gateway.core.decide.draft import Draft
from gateway.core.decide.starting import admit, end_if, may_start, not_open, over
from gateway.core.model import NOTHING, Amounts, Finding
from gateway.core.run import principal_stream
from tests.core.build import BOT, NOW, READ, WRITE, World, opened, policy, rule

WRITES = rule("*", WRITE, min_time_ms=500)


def draft(world: World) -> Draft:
    return Draft({world.run_id: world.tree(), principal_stream(BOT.id): world.mine()}, world.run_id, world.now)


def reasons(world: World, run: str = "") -> list[str]:
    return [finding.reason for finding in not_open(draft(world), run or world.run_id, WRITES)]


def test_an_open_run_inside_its_deadline_starts_things() -> None:
    assert reasons(opened(deadline_ms=500)) == []


def test_one_finding_says_what_is_over_here_or_above() -> None:
    world = opened(deadline_ms=500)
    child = world.open(parent=world.run_id)
    world.freeze()
    world.resume(child)
    assert reasons(world, child) == ["run.not_open"]
    assert "run_r1 is frozen" in not_open(draft(world), child)[0].message


def test_a_run_that_has_ended_says_how() -> None:
    world = opened()
    world.finish()
    assert over(world.run(), "try another").message == "Run run_r1 is closed (completed: model_final); try another."
    assert over(opened().run()).message == "Run run_r1 is open."


@pytest.mark.parametrize(("left", "found"), [(500, []), (499, ["run.deadline"]), (1, ["run.deadline"]), (0, ["run.deadline"])])
def test_a_write_needs_its_time(left: int, found: list[str]) -> None:
    world = opened(deadline_ms=1_000)
    world.wait(1_000 - left, sweep=False)
    assert reasons(world) == found
    assert bool(not_open(draft(world), world.run_id)) == (left == 0)
    assert bool(not_open(draft(world), world.run_id, rule("*", READ, min_time_ms=500))) == (left == 0)
    assert [finding.closes for finding in not_open(draft(world), world.run_id, WRITES)] == ([left == 0] if found else [])


@pytest.mark.parametrize("close_on", [(), ("deadline",)])
def test_a_passed_deadline_ends_the_run_only_where_the_policy_says_so(close_on: tuple[str, ...]) -> None:
    world = opened(deadline_ms=1_000, close_on=close_on)
    world.wait(1_000, sweep=False)
    assert [finding.closes for finding in not_open(draft(world), world.run_id)] == [bool(close_on)]


@pytest.mark.parametrize(
    ("finding", "reason"),
    [
        (Finding("g", "budget.tokens", "", closes=True), "token_budget"),
        (Finding("g", "budget.tokens", ""), None),
        (Finding("g", "key.reused", "", closes=True), None),
    ],
)
@pytest.mark.parametrize("frozen", [False, True])
def test_a_run_ends_with_a_finding_that_says_so_and_has_a_reason_to(finding: Finding, reason: str | None, frozen: bool) -> None:
    world = opened()
    if frozen:
        world.freeze()
    one = draft(world)
    end_if(one, world.run_id, [Finding("g", "tool.unknown", ""), finding])
    run = one.tree.runs[world.run_id]
    assert (run.state, run.status, run.reason) == (("closed", "blocked", reason) if reason else ("frozen" if frozen else "open", None, None))


def test_what_is_over_does_not_end_again() -> None:
    world = opened()
    world.cancel()
    one = draft(world)
    end_if(one, world.run_id, [Finding("g", "budget.tokens", "", closes=True)])
    assert one.events == []


def test_another_attempt_has_its_place_in_flight_but_pays_like_the_first() -> None:
    world = opened(tool_calls=2, in_flight_calls=1)
    record, rule_ = world.record(world.call("crm.get")), policy().rule_for("crm.get")
    assert not may_start(draft(world), record, rule_, NOTHING)
    assert may_start(draft(world), record, rule_, Amounts(tool_calls=1), again=True)
    assert not may_start(draft(world), record, rule_, Amounts(tool_calls=2), again=True)


def test_the_next_attempt_of_a_known_call_is_the_same_call() -> None:
    world = opened(deadline_ms=1_000)
    record, one = world.record(world.call("crm.set", a=1)), draft(world)
    admit(one, record, rule("*", WRITE, timeout_ms=5_000, usd_micros=3), "two", 70)
    after = one.tree.calls[record.id]
    assert (after.attempt, after.key, after.owner, after.usd_micros) == (2, record.key, "two", 3)
    assert (after.deadline_at, after.lease_until) == (NOW + 1_000, NOW + 1_070)
