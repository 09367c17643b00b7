"""`gateway stdio` as a process of its own, as a client starts it: spoken to in lines, or by the official SDK."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.e2e import deployment
from tests.waiting import START_S

ROOT = Path(__file__).resolve().parents[2]
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


def parameters(settings: Path, *argv: str, by: str = "agent:plain", key: str | None = None) -> StdioServerParameters:
    """`key`: instead of that of a principal of the acceptance tests' deployment."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "GATEWAY_SECRET": deployment.SECRET, "GATEWAY_KEY": key or deployment.key_of(by)}
    return StdioServerParameters(command=sys.executable, args=["-m", "gateway", "--config", str(settings), "stdio", *argv], env=env)


def transport(settings: Path, *argv: str, **by: str) -> Any:
    """For the SDK's client."""
    return stdio_client(parameters(settings, *argv, **by))


def request(id: Any, method: str, **params: Any) -> dict[str, Any]:
    meta = {**META, **params.pop("_meta", {})}
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": meta}}


def call(id: Any, tool: str, /, *, progress: bool = False, **arguments: Any) -> dict[str, Any]:
    return request(id, "tools/call", name=tool, arguments=arguments, **({"_meta": {"progressToken": id}} if progress else {}))


@dataclass
class Stdio:
    """`said`: all lines of its stdout so far, each of which must be JSON; `log`: its stderr, once it has ended."""

    process: asyncio.subprocess.Process
    said: list[dict[str, Any]] = field(default_factory=list)
    log: str = ""

    @classmethod
    async def started(cls, settings: Path, *argv: str, by: str = "agent:plain") -> Stdio:
        how = parameters(settings, *argv, by=by)
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
        process = await asyncio.create_subprocess_exec(how.command, *how.args, env=how.env, limit=1 << 24, **pipes)
        return cls(process)

    async def say(self, *messages: Any) -> None:
        assert self.process.stdin is not None
        for message in messages:
            self.process.stdin.write((message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\n")
        await self.process.stdin.drain()

    async def hears(self) -> dict[str, Any]:
        """The next line."""
        assert self.process.stdout is not None
        async with asyncio.timeout(START_S):
            line = await self.process.stdout.readline()
        assert line, (await self.ended()).log
        self.said.append(json.loads(line))
        return self.said[-1]

    async def answer(self, id: Any) -> dict[str, Any]:
        """The answer to a request, whatever else is said before."""
        while (message := await self.hears()).get("id") != id or "method" in message:
            pass
        return message

    async def result(self, message: dict[str, Any]) -> dict[str, Any]:
        await self.say(message)
        found: dict[str, Any] = (await self.answer(message["id"]))["result"]
        return found

    def close(self) -> None:
        """The client closes its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self) -> Stdio:
        """What was left to say, and the exit status in `process.returncode`."""
        async with asyncio.timeout(START_S):
            out, err = await self.process.communicate()
        self.said += [json.loads(line) for line in out.splitlines()]
        self.log = err.decode()
        return self

    def children(self) -> list[int]:
        """Its own child processes."""
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in listed.split()]


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False
