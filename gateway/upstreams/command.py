"""Programs as tools: one process a call, without a shell, inside the call's deadline, in a group of its own that ends with it.

An exit code is a definite answer. A program that was never started did nothing; one that was ended, by us or by a signal, may have done
anything. What has to be ended is asked with SIGTERM and after a grace killed, while nobody waits for it any more.
"""

from __future__ import annotations

import asyncio
import codecs
import logging
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gateway.core.model import Json
from gateway.ports import Answer, Dispatch, UpstreamFault
from gateway.upstreams.command_argv import argv
from gateway.upstreams.command_run import Run
from gateway.upstreams.http_answer import block, structured
from gateway.upstreams.lines import Foreign, readable
from gateway.upstreams.sending import arguments_of, refuse_way, rfc3339, seconds_left, tool_definition
from gateway.wire.json import dumps

_DEADLINE: Final = "GATEWAY_DEADLINE"
_REMAINING: Final = "GATEWAY_REMAINING_MS"


@dataclass(frozen=True, slots=True)
class CommandTool:
    """One program as the deployment file describes it.

    `argv`: `{args.NAME}` stands for an argument. `sends_json`: it gets all arguments as one JSON object on stdin, else no stdin.
    `ok_codes`: the exit codes that are no error. `env` comes on top of a minimal environment.
    """

    name: str
    description: str
    argv: Sequence[str]
    input_schema: Mapping[str, Json]
    output_schema: Mapping[str, Json] | None = None
    annotations: Mapping[str, Json] = field(default_factory=dict)
    timeout_ms: int | None = None
    sends_json: bool = False
    ok_codes: frozenset[int] = frozenset({0})
    cwd: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict, repr=False)


class CommandUpstream:
    """`kill_grace_s`: how long a program that has to end may take for it."""

    def __init__(self, name: str, tools: Sequence[CommandTool], *, kill_grace_s: float = 5.0) -> None:
        self.name = name
        self._tools = {tool.name: tool for tool in tools}
        self._definitions = [tool_definition(it.name, it.description, it.input_schema, it.output_schema, it.annotations) for it in tools]
        self._kill_grace_s = kill_grace_s
        self._foreign = Foreign(logging.getLogger(f"gateway.upstream.{name}"), time.monotonic)
        self._ending: set[asyncio.Task[None]] = set()
        self._running: set[Run] = set()

    async def open(self) -> None:
        """There is nothing to open: programs are started when they are called."""

    async def close(self) -> None:
        for run in list(self._running):
            self._end(run)
        if self._ending:
            await asyncio.wait(self._ending)

    async def tools(self) -> list[dict[str, Json]]:
        return self._definitions

    async def send(self, dispatch: Dispatch) -> Answer:
        refuse_way(dispatch, "header", "header_quoted", "meta")
        tool, arguments = self._tools[dispatch.tool.local_name], arguments_of(dispatch)
        loop = asyncio.get_running_loop()
        remaining_ms = min(dispatch.remaining_ms, tool.timeout_ms or dispatch.remaining_ms)
        until = loop.time() + seconds_left(remaining_ms)
        env = {**tool.env, _DEADLINE: rfc3339(dispatch.deadline_at), _REMAINING: str(remaining_ms)}
        run = await Run.start(
            argv(tool.argv, arguments, all_placed=not tool.sends_json), dumps(arguments) if tool.sends_json else None, self._foreign,
            max_bytes=dispatch.max_bytes, cwd=tool.cwd, env=env,
        )  # fmt: skip
        self._running.add(run)
        try:
            async with asyncio.timeout_at(until):
                code = await asyncio.shield(run.ended)
        except TimeoutError:
            raise UpstreamFault("timeout", f"it did not end within {remaining_ms} ms, and was ended") from None
        finally:
            self._end(run)
        return _answer(tool, run, code, dispatch.tool.name)

    def _end(self, run: Run) -> None:
        """Stop what still runs; clear away what has ended."""
        if run in self._running:
            self._running.discard(run)
            task = asyncio.get_running_loop().create_task(run.stop(self._kill_grace_s, patience_s=0))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)


def _answer(tool: CommandTool, run: Run, code: int, name: str) -> Answer:
    if code < 0:
        raise UpstreamFault("cut", f"the program was ended by {_signal(-code)}")
    stdout = _without_a_cut_character(run.stdout) if run.is_cut else bytes(run.stdout)
    content: list[Json] = [block("", stdout, name)] if stdout else []
    if run.is_cut:
        content.append({"type": "text", "text": f"The output was cut here, after {len(stdout)} bytes."})
    if code in tool.ok_codes:
        return Answer({"content": content, "isError": False, **({} if run.is_cut else structured(stdout))})
    said = "\n".join(map(readable, bytes(run.stderr).splitlines()))
    content.append({"type": "text", "text": f"The program ended with exit code {code}." + (f" Its stderr ends with:\n{said}" if said else "")})
    return Answer({"content": content, "isError": True, **({} if run.is_cut else structured(stdout))})


def _without_a_cut_character(data: bytearray) -> bytes:
    """UTF-8 up to its last whole character; what isn't UTF-8 as it is."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(data).encode()
    except UnicodeDecodeError:
        return bytes(data)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
