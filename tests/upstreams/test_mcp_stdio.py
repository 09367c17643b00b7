"""MCP over stdio against a real child process: both eras, every way to misbehave, restarts, and the end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.core.outcomes import FAULTS
from gateway.ports import Client, UpstreamFault
from gateway.upstreams.mcp_stdio import McpStdio
from tests.upstreams.origin import dispatch, tool
from tests.upstreams.test_child import alive, gone
from tests.waiting import START_S

pytestmark = pytest.mark.anyio

SERVER = str(Path(__file__).with_name("stdio_server.py"))
ERAS = ["modern", "legacy", "silent"]


def stdio(era: str = "legacy", **more) -> McpStdio:
    options = {"kill_grace_s": 0.5, "backoff_s": (0.05, 0.2), "discover_s": 0.3} | more
    return McpStdio("files", [sys.executable, SERVER, era], **options)


@asynccontextmanager
async def served(era: str = "legacy", **more):
    upstream = stdio(era, **more)
    async with asyncio.timeout(START_S):
        await upstream.open()
        try:
            yield upstream
        finally:
            await upstream.close()


def call(name: str, arguments=None, **more):
    return dispatch(arguments, tool=tool(f"files.{name}"), **more)


async def words(upstream: McpStdio, name: str, **arguments) -> str:
    return (await upstream.send(call(name, arguments))).result["content"][0]["text"]


async def fault(upstream: McpStdio, name: str, **more) -> UpstreamFault:
    with pytest.raises(UpstreamFault) as caught:
        await upstream.send(call(name, **more))
    assert caught.value.kind in FAULTS
    return caught.value


async def back(upstream: McpStdio) -> None:
    """Wait until it runs again."""
    for _ in range(500):
        try:
            return await upstream.open()
        except UpstreamFault:
            await asyncio.sleep(0.01)
    raise AssertionError("it did not come back")


def heard(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# ---- eras ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_both_eras_are_spoken(era, tmp_path):
    log = tmp_path / "heard"
    async with served(era, env={"HEARD": str(log)}) as upstream:
        answer = await upstream.send(call("echo", {"id": 2**70}))
    assert answer.result["structuredContent"]["arguments"] == {"id": 2**70}
    assert answer.result["_meta"] == {"theirs": 1}
    assert answer.status is None
    methods = [message["method"] for message in heard(log)]
    old = ["initialize", "notifications/initialized"]
    assert methods == ["server/discover", *([] if era == "modern" else old), "tools/call"]


async def test_a_server_that_dies_of_the_new_era_is_started_again_in_the_old_one():
    upstream = stdio("fragile")
    async with asyncio.timeout(START_S):
        with pytest.raises(UpstreamFault):
            await upstream.open()
        await back(upstream)
        assert (await upstream.send(call("echo"))).result["isError"] is False
        await upstream.close()


@pytest.mark.parametrize("era", ["mute", "refusing"])
async def test_a_server_that_never_comes_to_serve_is_unavailable(era):
    upstream = stdio(era, start_s=0.7)
    async with asyncio.timeout(START_S):
        with pytest.raises(UpstreamFault):
            await upstream.open()
        assert (await fault(upstream, "echo")).kind == "unavailable"
        with pytest.raises(UpstreamFault):
            await upstream.tools()
        await upstream.close()


async def test_all_pages_of_tools_are_read_and_read_again_only_after_a_change():
    async with served() as upstream:
        first = await upstream.tools()
        assert [one["name"] for one in first] == ["echo", "hang", "die", "flood"]
        assert await upstream.tools() is first
        await words(upstream, "change")
        assert [one["name"] for one in await upstream.tools()] == ["echo", "hang", "die", "flood", "new"]


# ---- calls --------------------------------------------------------------------------------------------------------------


async def test_answers_find_their_calls_in_any_order():
    async with served() as upstream:
        late = [asyncio.ensure_future(words(upstream, "late", seconds=seconds)) for seconds in (0.3, 0.2, 0.1)]
        assert await words(upstream, "pid") != "late"
        assert await asyncio.gather(*late) == ["late"] * 3


async def test_the_deadline_ends_the_wait_and_tells_the_server_which_call(tmp_path):
    log = tmp_path / "heard"
    async with served(env={"HEARD": str(log)}) as upstream:
        assert (await fault(upstream, "hang", remaining_ms=100)).kind == "timeout"
        await words(upstream, "pid")
    sent = heard(log)
    hung = next(message["id"] for message in sent if message.get("params", {}).get("name") == "hang")
    assert [message["params"]["requestId"] for message in sent if message["method"] == "notifications/cancelled"] == [hung]


async def test_cancelling_a_call_tells_the_server_which_one_and_leaves_the_others(tmp_path):
    log = tmp_path / "heard"
    async with served("modern", env={"HEARD": str(log)}) as upstream:
        other = asyncio.ensure_future(words(upstream, "late", seconds=0.2))
        hung = asyncio.ensure_future(upstream.send(call("hang")))
        await words(upstream, "pid")
        hung.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hung
        assert await other == "late"
    sent = heard(log)
    id = next(message["id"] for message in sent if message.get("params", {}).get("name") == "hang")
    assert [message["params"]["requestId"] for message in sent if message["method"] == "notifications/cancelled"] == [id]


async def test_without_time_left_nothing_is_written(tmp_path):
    log = tmp_path / "heard"
    async with served(env={"HEARD": str(log)}) as upstream:
        assert not FAULTS[(await fault(upstream, "echo", remaining_ms=0)).kind].sent
        await words(upstream, "pid")
    assert not [message for message in heard(log) if message.get("params", {}).get("name") == "echo"]


async def test_a_key_that_stdio_cannot_carry_stops_the_call():
    async with served() as upstream:
        assert (await fault(upstream, "echo", send_as=("header", "Idempotency-Key"))).kind == "unsendable"


async def test_progress_reaches_who_listens():
    steps = []
    async with served() as upstream:
        await upstream.send(call("progress", client=Client(lambda params: steps.append(params["progress"]))))
    assert steps == [1, 2]


async def test_the_servers_own_requests_are_answered():
    async with served() as upstream:
        answers = (await upstream.send(call("ask"))).result["structuredContent"]
    assert answers["s0"]["result"] == {}
    assert [answers[id]["error"]["code"] for id in ("s1", "s2", "s3")] == [-32601] * 3


async def test_an_error_of_the_protocol_is_the_tools_definite_error():
    async with served() as upstream:
        assert (await upstream.send(call("unknown"))).result["isError"] is True


# ---- misbehaviour -------------------------------------------------------------------------------------------------------


async def test_noise_on_stdout_is_logged_and_skipped(caplog):
    async with served() as upstream:
        assert await words(upstream, "noise") == "after the noise"
    assert any("not understood" in message for message in caplog.messages)
    assert "no json" not in caplog.text


async def test_a_flood_on_stderr_neither_blocks_nor_fills_the_log(caplog):
    with caplog.at_level(logging.INFO, "gateway.upstream.files"):
        async with served() as upstream:
            assert await words(upstream, "flood") == "flooded"
    lines = [message for message in caplog.messages if message.startswith("stderr: ")]
    assert "stderr: starting" in lines
    assert len(lines) < 1000


async def test_a_long_line_is_no_trap():
    async with served() as upstream:
        assert len(await words(upstream, "big", bytes=3_000_000)) == 3_000_000


@pytest.mark.parametrize(("name", "bytes_"), [("big", 200_000), ("big", 18_000_000), ("big_id_last", 18_000_000)])
async def test_an_answer_over_the_cap_is_too_large_and_the_next_one_is_fine(name, bytes_):
    async with served() as upstream:
        assert (await fault(upstream, name, arguments={"bytes": bytes_}, max_bytes=100_000)).kind == "too_large"
        assert await words(upstream, "big", bytes=5) == "xxxxx"


@pytest.mark.parametrize("name", ["twice", "malformed", "no_result"])
async def test_an_answer_that_cannot_be_read_is_garbage_at_once(name):
    async with served() as upstream:
        assert (await fault(upstream, name)).kind == "garbage"
        assert await words(upstream, "pid")


async def test_a_server_that_stops_reading_does_not_take_our_memory():
    async with served() as upstream:
        await words(upstream, "deaf")
        flood = [asyncio.ensure_future(upstream.send(call("echo", {"x": "x" * 1_000_000}))) for _ in range(20)]
        kinds = {getattr(found, "kind", None) for found in await asyncio.gather(*flood[10:], return_exceptions=True)}
        assert kinds == {"unavailable"}
        for one in flood:
            one.cancel()
        await asyncio.gather(*flood, return_exceptions=True)


# ---- life and death -----------------------------------------------------------------------------------------------------


async def test_a_call_whose_process_dies_may_have_happened_and_the_next_process_serves():
    async with served() as upstream:
        hung = asyncio.ensure_future(upstream.send(call("hang")))
        assert (await fault(upstream, "die")).kind == "closed"
        with pytest.raises(UpstreamFault) as caught:
            await hung
        assert caught.value.kind == "closed"
        assert (await fault(upstream, "echo")).kind == "unavailable"
        await back(upstream)
        assert (await upstream.send(call("echo"))).result["isError"] is False


async def test_a_killed_process_is_replaced():
    async with served() as upstream:
        first = int(await words(upstream, "pid"))
        os.kill(first, signal.SIGKILL)
        assert await gone(first)
        await asyncio.sleep(0.02)
        await back(upstream)
        assert int(await words(upstream, "pid")) != first


async def test_closing_ends_the_process_and_what_it_started():
    async with served() as upstream:
        pids = [int(await words(upstream, "pid")), int(await words(upstream, "grandchild"))]
        assert all(alive(pid) for pid in pids)
    assert [await gone(pid) for pid in pids] == [True, True]
    with pytest.raises(UpstreamFault):
        await upstream.send(call("echo"))


async def test_closing_while_it_starts_leaves_nothing_behind():
    upstream = stdio("mute")
    opening = asyncio.ensure_future(upstream.open())
    await asyncio.sleep(0.2)
    async with asyncio.timeout(5):
        await upstream.close()
        with pytest.raises(UpstreamFault):
            await opening


async def test_closing_while_a_failed_start_is_being_cleaned_up_leaves_nothing_behind():
    upstream = stdio("refusing", kill_grace_s=0.3)
    async with asyncio.timeout(5):
        with pytest.raises(UpstreamFault):
            await upstream.open()
        child = upstream._child
        await upstream.close()
        assert child.ended.done()


async def test_a_program_that_does_not_exist_is_unavailable_and_tried_again(caplog):
    upstream = McpStdio("files", ["/no/such/program"], backoff_s=(0.01, 0.02))
    async with asyncio.timeout(5):
        with pytest.raises(UpstreamFault) as caught:
            await upstream.open()
        assert caught.value.kind == "unavailable"
        for _ in range(400):
            await asyncio.sleep(0.01)
            if len(caplog.messages) >= 3:
                break
        assert len(caplog.messages) >= 3
        await upstream.close()


async def test_it_can_be_opened_again_after_it_was_closed():
    upstream = stdio()
    async with asyncio.timeout(START_S):
        for _ in range(2):
            await upstream.open()
            assert await words(upstream, "pid")
            await upstream.close()
