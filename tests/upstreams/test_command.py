"""Programs as tools, with real processes: what they get, what their ends mean, and that none outlives its call."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.core.outcomes import FAULTS
from gateway.ports import UpstreamFault
from gateway.upstreams.command import CommandTool, CommandUpstream
from tests.upstreams.origin import dispatch, tool
from tests.upstreams.test_child import alive, gone
from tests.waiting import START_S, until

pytestmark = pytest.mark.anyio

SLEEPER = "import subprocess,sys,time; p=subprocess.Popen([sys.executable,'-c','import time; time.sleep(60)']); "
IGNORES = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "


@asynccontextmanager
async def serving(script: str, *words: str, grace_s: float = 0.2, program: str = sys.executable, **more):
    """An upstream with one tool, which runs a script."""
    it = CommandTool("run", "Runs.", [program, "-c", script, *words], {"type": "object"}, **more)
    upstream = CommandUpstream("own", [it], kill_grace_s=grace_s)
    await upstream.open()
    try:
        async with asyncio.timeout(START_S):
            yield upstream
    finally:
        await upstream.close()


def calling(upstream: CommandUpstream, arguments=None, **more):
    return upstream.send(dispatch(arguments or {}, tool=tool("own.run"), **more))


async def answer(script: str, *words: str, arguments=None, dispatched=None, **more):
    async with serving(script, *words, **more) as upstream:
        return (await calling(upstream, arguments, **(dispatched or {}))).result


async def fault(script: str, *words: str, arguments=None, dispatched=None, **more) -> UpstreamFault:
    with pytest.raises(UpstreamFault) as caught:
        await answer(script, *words, arguments=arguments, dispatched=dispatched, **more)
    assert caught.value.kind in FAULTS
    return caught.value


# ---- what goes in -------------------------------------------------------------------------------------------------------


async def test_arguments_are_words():
    result = await answer("import sys, json; print(json.dumps(sys.argv[1:]))", "--", "{args.a}", "--b={args.b}", arguments={"a": "-x $(y)", "b": "*"})
    assert json.loads(result["content"][0]["text"]) == ["--", "-x $(y)", "--b=*"]


async def test_arguments_are_one_json_object_on_stdin():
    result = await answer("import sys; print(sys.stdin.read())", arguments={"a": [2**70, "ü"]}, sends_json=True)
    assert result["structuredContent"] == {"a": [2**70, "ü"]}


async def test_an_argument_without_a_place_or_a_key_that_cannot_be_sent_starts_nothing(tmp_path):
    made = tmp_path / "made"
    script = f"open({str(made)!r}, 'w').write('x')"
    for more in ({"arguments": {"z": 1}}, {"dispatched": {"send_as": ("header", "Idempotency-Key")}}, {"dispatched": {"send_as": ("meta", "k")}}):
        assert (await fault(script, **more)).kind == "unsendable"
    assert (await fault(script, dispatched={"remaining_ms": 0})).kind == "connect_timeout"
    assert not written(made)


async def test_the_key_can_be_an_argument():
    result = await answer("import sys; print(sys.argv[1])", "{args.key}", dispatched={"send_as": ("argument", "key")})
    assert result["content"][0]["text"].strip() == "k" * 64


async def test_the_environment_is_minimal_and_says_when_time_is_up(monkeypatch, tmp_path):
    monkeypatch.setenv("GATEWAY_SECRET", "s3cret")
    result = await answer("import os, json; print(json.dumps({**os.environ, 'cwd': os.getcwd()}))", env={"TOKEN": "t"}, cwd=tmp_path, timeout_ms=4000)
    seen = result["structuredContent"]
    assert (seen["TOKEN"], seen["GATEWAY_DEADLINE"], seen["GATEWAY_REMAINING_MS"]) == ("t", "2026-11-29T18:00:05.000Z", "4000")
    assert seen["cwd"].endswith(tmp_path.name)
    assert "GATEWAY_SECRET" not in seen


# ---- what comes out -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "content", "structured"),
    [
        ("print('hello')", [{"type": "text", "text": "hello\n"}], None),
        ("print('{\"a\": 1}')", [{"type": "text", "text": '{"a": 1}\n'}], {"a": 1}),
        ("print('[1]')", [{"type": "text", "text": "[1]\n"}], None),
        ("pass", [], None),
        ("import sys; sys.stdout.buffer.write(b'\\xff\\x00')", [
            {"type": "resource", "resource": {"uri": "tool:own.run", "mimeType": "application/octet-stream", "blob": "/wA="}}], None),
    ],
)  # fmt: skip
async def test_what_it_says_is_text_and_a_json_object_is_structured_too(script, content, structured):
    result = await answer(script)
    assert (result["content"], result.get("structuredContent"), result["isError"]) == (content, structured, False)


async def test_an_exit_code_is_a_definite_answer_with_the_end_of_stderr():
    result = await answer("import sys; print('{\"done\": 1}'); print('oh\\x1b[0m no', file=sys.stderr); sys.exit(3)")
    assert (result["isError"], result["structuredContent"], len(result["content"])) == (True, {"done": 1}, 2)
    assert "code 3" in result["content"][1]["text"]
    assert "oh\\u001b[0m no" in result["content"][1]["text"]


async def test_some_codes_may_be_no_errors():
    assert not (await answer("import sys; sys.exit(1)", ok_codes=frozenset({0, 1})))["isError"]
    assert (await answer("pass", ok_codes=frozenset({1})))["isError"]


async def test_a_flood_is_cut_and_said_to_be():
    result = await answer("print('ü' * 1_000_000)", dispatched={"max_bytes": 1001})
    assert (result["content"][0]["text"], len(result["content"]), result["isError"]) == ("ü" * 500, 2, False)
    result = await answer("print('{\"a\": 1}' + ' ' * 2000)", dispatched={"max_bytes": 1001})
    assert "structuredContent" not in result


async def test_an_endless_flood_ends_at_the_deadline_and_fills_no_memory():
    script = "import os\nwhile True: os.write(1, b'x' * 65536); os.write(2, b'y\\n' * 3000)"
    assert (await fault(script, dispatched={"remaining_ms": 500, "max_bytes": 1000})).kind == "timeout"


# ---- how it ends --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{"program": "/no/such/program"}, {"cwd": Path("/no/such/folder")}])
async def test_a_program_that_cannot_be_started_did_nothing(more):
    found = await fault("", **more)
    assert (found.kind, FAULTS[found.kind].sent) == ("unavailable", False)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
async def test_a_program_that_was_killed_may_have_done_anything(number):
    found = await fault(f"import os; os.kill(os.getpid(), {int(number)})")
    assert (FAULTS[found.kind].sent, number.name in found.message) == (True, True)


async def test_a_program_that_takes_too_long_is_asked_to_end_at_once():
    async with serving("import time; time.sleep(60)", grace_s=5, timeout_ms=200) as upstream:
        before = time.monotonic()
        with pytest.raises(UpstreamFault):
            await calling(upstream)
        await asyncio.wait(upstream._ending)
        assert time.monotonic() - before < 2


@pytest.mark.parametrize("script", ["import time; time.sleep(60)", IGNORES + "import time; print(1, flush=True); time.sleep(60)"])
async def test_a_program_that_takes_too_long_is_ended_and_nobody_waits_for_that(script):
    before = time.monotonic()
    async with serving(script, grace_s=1, timeout_ms=300) as upstream:
        with pytest.raises(UpstreamFault) as caught:
            await calling(upstream)
        assert time.monotonic() - before < 1
        (ending,) = upstream._ending
        await ending
    assert (caught.value.kind, FAULTS["timeout"].sent) == ("timeout", True)


def written(file: Path) -> str:
    return file.read_text() if file.exists() else ""


async def pid_in(file: Path) -> int:
    """What a program writes there, once it has."""
    return int(await until(lambda: written(file).strip(), "the program's start", START_S))


@pytest.mark.parametrize("ends", ["timeout", "cancel", "close"])
async def test_whatever_ends_a_call_its_program_and_all_that_it_started_end_too(tmp_path, ends):
    file = tmp_path / "pid"
    script = SLEEPER + IGNORES + f"open({str(file)!r}, 'w').write(f'{{p.pid}}\\n'); time.sleep(60)"
    async with serving(script, timeout_ms=1000 if ends == "timeout" else None) as upstream:
        call = asyncio.ensure_future(calling(upstream))
        pid = await pid_in(file)
        assert alive(pid)
        if ends == "cancel":
            call.cancel()
        elif ends == "close":
            await upstream.close()
        with pytest.raises((UpstreamFault, asyncio.CancelledError)):
            await call
        assert await gone(pid)


async def test_what_a_program_leaves_behind_ends_with_it(tmp_path):
    async with serving(SLEEPER + "print(p.pid)") as upstream:
        result = (await calling(upstream)).result
        assert await gone(int(result["content"][0]["text"]))


async def test_what_fled_from_the_group_does_not_hold_the_answer_up():
    script = SLEEPER.replace("'])", "'], start_new_session=True)") + "print(p.pid)"
    before = time.monotonic()
    result = await answer(script)
    os.kill(int(result["content"][0]["text"]), signal.SIGKILL)
    assert time.monotonic() - before < 4


async def test_many_calls_leave_no_process_no_task_and_no_descriptor():
    async with serving("print(1)", program=sys.executable) as upstream:
        await calling(upstream)
        await asyncio.wait(upstream._ending)
        tasks, descriptors = len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))
        for _ in range(10):
            await asyncio.gather(*(calling(upstream) for _ in range(4)))
        while upstream._ending:
            await asyncio.wait(upstream._ending)
        assert (len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))) == (tasks, descriptors)
        assert not upstream._running


async def test_the_definitions_are_in_mcp_shape():
    async with serving("", annotations={"readOnlyHint": True}) as upstream:
        assert await upstream.tools() == [
            {"name": "run", "description": "Runs.", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
        ]
