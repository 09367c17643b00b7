"""The evidence's own test: accounts that agree contradict nothing, and each made-up contradiction is found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.core import events as e
from gateway.core.canonical import fingerprint
from gateway.core.run import CallRecord
from gateway.ports import Recorded
from tests.core.build import ACT, DONE, DOUBT, World, never, opened, policy, rule
from tests.faults.evidence import Accounts, Told, contradictions
from tests.faults.journal import DID, TOOK, Entry

POLICY = policy(rule("web.pay", ACT, never()), deadline_ms=60_000)
RESULT = {"content": []}


class Story:
    """A run with one payment that went well, and one that is in doubt."""

    def __init__(self) -> None:
        self.world: World = opened(POLICY)
        self.paid = self.world.does("web.pay", DONE, id="paid")
        self.lost = self.world.does("web.pay", DOUBT, id="lost")
        self.entries = [self.entry(TOOK, self.paid, "paid"), self.entry(DID, self.paid, "paid"), self.entry(TOOK, self.lost, "lost")]
        self.told = [Told(self.paid.id, "succeeded", RESULT), Told(self.lost.id)]
        self.records: dict[str, CallRecord] = dict(self.world.tree().calls)
        self.events: list[Any] = list(self.world.log[self.world.run_id])

    def entry(self, phase: str, record: CallRecord, id: str, after_ms: int = 5) -> Entry:
        return Entry(phase, "pay", record.key, {"id": id}, self.world.now + after_ms)

    def changes(self, record: CallRecord, **changes: Any) -> None:
        self.records[record.id] = replace(record, **changes)

    def accounts(self) -> Accounts:
        events = [Recorded(self.world.run_id, seq, "", at, event, "") for seq, (at, event) in enumerate(self.events, 1)]
        return Accounts(events, self.records, [("web.pay", entry) for entry in self.entries], self.told, {self.paid.result or "": RESULT})


@pytest.fixture
def story() -> Story:
    return Story()


def test_accounts_that_agree_contradict_nothing(story: Story) -> None:
    assert story.paid.fingerprint == fingerprint("web.pay", {"id": "paid"})
    assert contradictions(story.accounts()) == []


def requested_before_its_intent(story: Story) -> None:
    story.entries[0] = dataclasses.replace(story.entries[0], at=story.world.now - 1)


def requested_oftener_than_intended(story: Story) -> None:
    story.entries.append(story.entries[2])


def requested_under_another_key(story: Story) -> None:
    story.entries[2] = dataclasses.replace(story.entries[2], key="other")


def requested_without_any_intent(story: Story) -> None:
    story.entries.append(story.entry(TOOK, story.paid, "never asked for"))


def paid_twice(story: Story) -> None:
    story.entries.append(story.entries[1])


def done_and_recorded_as_not_done(story: Story) -> None:
    story.changes(story.paid, state="failed", not_applied=True)
    story.told.clear()


def done_and_recorded_as_cancelled(story: Story) -> None:
    story.changes(story.paid, state="cancelled")
    story.told.clear()


def requested_after_its_deadline(story: Story) -> None:
    story.entries[2] = story.entry(TOOK, story.lost, "lost", 61_001)


def requested_after_the_run_was_cancelled(story: Story) -> None:
    story.events.append((story.world.now, e.RunClosing(story.world.run_id, "cancelled", "caller_cancelled", "agent:bot")))
    story.entries[2] = story.entry(TOOK, story.lost, "lost", 1_001)


def told_of_a_call_that_is_lost(story: Story) -> None:
    story.told.append(Told("call_r1_9"))


def told_another_state(story: Story) -> None:
    story.told.append(Told(story.lost.id, "succeeded"))


def told_another_result(story: Story) -> None:
    story.told.append(Told(story.paid.id, "succeeded", {"content": ["other"]}))


def never_over(story: Story) -> None:
    story.changes(story.lost, state="admitted")


@pytest.mark.parametrize(
    ("promise", "lie"),
    [
        ("P1", requested_before_its_intent), ("P1", requested_oftener_than_intended), ("P1", requested_without_any_intent),
        ("P2", paid_twice), ("P3", requested_under_another_key), ("P4", done_and_recorded_as_not_done), ("P4", done_and_recorded_as_cancelled),
        ("P7", requested_after_its_deadline), ("P7", requested_after_the_run_was_cancelled), ("P9", told_of_a_call_that_is_lost),
        ("P9", told_another_state), ("P4", told_another_result), ("P10", never_over),
    ],
)  # fmt: skip
def test_a_contradiction_is_found(story: Story, promise: str, lie: Callable[[Story], None]) -> None:
    lie(story)
    assert promise in {one.partition(" ")[0] for one in contradictions(story.accounts())}


def test_what_is_under_way_is_no_contradiction_while_things_go_on(story: Story) -> None:
    never_over(story)
    assert contradictions(story.accounts(), over=False) == []
