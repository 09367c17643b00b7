"""Programs as tools through the gateway as its users run it: what the record says of each way in which one can end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.running import AGENT, gateway
from tests.upstreams.test_child import alive, gone
from tests.waiting import START_S, WAIT_S, until

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

POLICY = """\
version: 1
name: own
match: {task_types: [interactive]}
run:
  budgets: {turns: unlimited, tool_calls: 50, deadline: 10m, tokens: unlimited}
defaults: {approvers: ["group:leads"]}
tools:
  - {tool: own.say, effect: read_only}
  - {tool: own.slow, effect: non_idempotent, approval: never, timeout: 1s}
  - {tool: own.gone, effect: non_idempotent, approval: never}
  - {tool: own.die, effect: non_idempotent, approval: never}
  - {tool: own.wait, effect: read_only}
"""
SAY = "import sys,json,os; print(json.dumps({'said': sys.argv[1], 'secret': os.environ.get('GATEWAY_SECRET')})); sys.exit(len(sys.argv[1]))"
SLEEP = "import os,time; open('pid','w').write(str(os.getpid())); time.sleep(60)"
TEXT = "{type: object, properties: {text: {type: string}}, required: [text], additionalProperties: false}"
UPSTREAM = f"""\
own:
  command:
    tools:
      - {{name: say, argv: ["{sys.executable}", -c, "{SAY}", "{{args.text}}"], ok_codes: [0, 2], input_schema: {TEXT}}}
      - {{name: slow, argv: [sleep, "60"], input_schema: {{type: object}}}}
      - {{name: wait, argv: ["{sys.executable}", -c, "{SLEEP}"], input_schema: {{type: object}}}}
      - {{name: die, argv: [sh, -c, "kill -9 $$"], input_schema: {{type: object}}}}
      - {{name: gone, argv: [/no/such/program], input_schema: {{type: object}}}}
"""


@pytest.fixture
async def bot(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        gateway(tmp_path, UPSTREAM, POLICY, {}) as url,
        httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {AGENT}"}, timeout=WAIT_S) as bot,
    ):
        run = (await bot.post("/v1/runs", json={})).json()["run"]
        bot.base_url = bot.base_url.join(f"/v1/runs/{run}/")
        yield bot


async def call(bot: httpx.AsyncClient, tool: str, **arguments: Any) -> dict[str, Any]:
    body: dict[str, Any] = (await bot.post("calls", json={"tool": f"own.{tool}", "arguments": arguments})).json()
    return body


async def test_each_end_of_a_program_is_recorded_as_what_it_is(bot: httpx.AsyncClient) -> None:
    said = await call(bot, "say", text="ab")
    assert (said["status"], said["result"]["structuredContent"]) == ("succeeded", {"said": "ab", "secret": None})
    failed = await call(bot, "say", text="abc")
    assert (failed["status"], failed["result"]["isError"]) == ("failed", True)
    assert (await call(bot, "say", text="-x"))["reason"] == "arguments.unsendable"
    assert (await call(bot, "gone"))["reason"] == "upstream.unavailable"
    for tool in ("slow", "die"):
        assert (await call(bot, tool))["reason"] == "call.in_doubt"
    assert (await bot.get(str(bot.base_url).rstrip("/"))).json()["calls"] == {"succeeded": 1, "failed": 3, "in_doubt": 2}


async def test_cancelling_a_run_ends_its_program(bot: httpx.AsyncClient, tmp_path: Path) -> None:
    waiting = asyncio.ensure_future(call(bot, "wait"))
    file = tmp_path / "pid"
    pid = int(await until(lambda: file.read_text() if file.exists() else "", "the program's start", START_S))
    assert alive(pid)
    await bot.post("cancel")
    assert await gone(pid)
    assert (await waiting)["reason"] == "call.cancelled"
