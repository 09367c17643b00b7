"""The machine's clocks and ids."""

import hashlib
import time

import pytest

from gateway.core.run import stream_of
from gateway.system import SystemClock, SystemIds
from tests.fakes import FakeClock


def ids(secret: bytes = b"s" * 32, clock: FakeClock | None = None) -> SystemIds:
    return SystemIds(clock or FakeClock(), secret)


def test_the_wall_clock_is_the_machines() -> None:
    assert abs(SystemClock().now_ms() - time.time_ns() // 1_000_000) < 1000


def test_the_boottime_clock_never_goes_back() -> None:
    clock = SystemClock()
    seen = [clock.boot_ms() for _ in range(100)]
    assert seen == sorted(seen)


@pytest.mark.anyio
async def test_sleeping_takes_at_least_that_long() -> None:
    clock = SystemClock()
    before = time.monotonic_ns()
    await clock.sleep(20)
    assert time.monotonic_ns() - before >= 19_000_000


def test_an_id_is_its_prefix_and_26_characters_without_separators() -> None:
    prefix, _, rest = ids().new("run").partition("_")
    assert prefix == "run"
    assert len(rest) == 26
    assert set(rest) <= set("0123456789abcdefghjkmnpqrstvwxyz")


def test_an_id_is_the_name_of_its_own_stream() -> None:
    run = ids().new("run")
    assert stream_of(run) == run


def test_ids_sort_by_time() -> None:
    clock = FakeClock()
    made = []
    for step in (1, 1, 31, 1023, 1024, 10**6, 10**9):
        clock.now += step
        made.append(ids(clock=clock).new("run"))
    assert made == sorted(made)


def test_ids_of_one_moment_differ() -> None:
    one = ids()
    assert len({one.new("call") for _ in range(1000)}) == 1000


def test_a_time_far_ahead_keeps_the_form() -> None:
    assert len(ids(clock=FakeClock(2**48 - 1)).new("run")) == len("run_") + 26


def test_a_payload_is_hashed_with_its_salt_and_read_back() -> None:
    value = {"id": 2**70, "text": "ä\x00", "deep": [[[1.5, None, True]]]}
    payload = ids().seal("run_a", value)
    assert payload.hash == hashlib.sha256(payload.salt + payload.data).hexdigest()
    assert ids().unseal(payload.data) == value


def test_equal_values_get_equal_hashes_in_one_stream_only() -> None:
    assert ids().seal("run_a", {"a": 1}) == ids().seal("run_a", {"a": 1})
    assert ids().seal("run_a", {"a": 1}).hash != ids().seal("run_b", {"a": 1}).hash
    assert ids().seal("run_a", {"a": 1}).hash != ids().seal("run_a", {"a": 2}).hash


def test_the_border_between_stream_and_data_counts() -> None:
    assert ids().seal("run_a1", 23).salt != ids().seal("run_a", 123).salt


def test_a_salt_cannot_be_told_without_the_secret() -> None:
    assert ids(b"a" * 32).seal("run_a", {}).salt != ids(b"b" * 32).seal("run_a", {}).salt


def test_a_value_nested_deeper_than_a_request_may_be_is_read_back() -> None:
    value: list[object] = []
    for _ in range(200):
        value = [value]
    assert ids().unseal(ids().seal("run_a", value).data) == value
