"""The acceptance tests' gateway as a process of its own, to be killed without a warning and started again in the same folder."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from gateway.demo.stage import any_port
from tests.e2e import deployment
from tests.e2e.serving import Desk
from tests.e2e.web_upstream import Web
from tests.waiting import START_S, WAIT_S, eventually

ROOT = Path(__file__).resolve().parents[2]


class Process:
    """What agents need of a stage, and the process itself. `start` may follow `kill` or `stop`."""

    def __init__(self, folder: Path, web: Web, **described: str) -> None:
        self.web, self.desk = web, Desk(folder / "heard")
        self.clients: list[httpx.AsyncClient] = []
        port = any_port()
        self.url = f"http://127.0.0.1:{port}"
        self._settings = deployment.write(folder, web.url, folder / "heard", port=port, **described)
        self._process: asyncio.subprocess.Process | None = None

    def client(self, id: str | None, **headers: str) -> httpx.AsyncClient:
        known = {} if id is None else {"authorization": f"Bearer {deployment.key_of(id)}"}
        client = httpx.AsyncClient(base_url=self.url, headers=known | headers, timeout=WAIT_S, trust_env=False, verify=False)
        self.clients.append(client)
        return client

    async def start(self) -> None:
        """Returns when the gateway is ready."""
        self._process = process = await self._run("serve")
        async with httpx.AsyncClient(base_url=self.url, trust_env=False) as client:

            async def ready() -> bool:
                assert process.returncode is None, f"the gateway ended with {process.returncode}"
                try:
                    return (await client.get("/readyz")).is_success
                except httpx.TransportError:
                    return False

            await eventually(ready, "the gateway", START_S)

    async def kill(self) -> None:
        """SIGKILL: nothing is said, nothing is written any more."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """SIGTERM, as an init system would."""
        await self._end(signal.SIGTERM)

    async def verify(self) -> int:
        """The exit status of `gateway verify`."""
        return await asyncio.wait_for((await self._run("verify")).wait(), START_S)

    async def close(self) -> None:
        for client in self.clients:
            await client.aclose()
        if self._process is not None:
            await self.stop()

    async def _end(self, by: signal.Signals) -> None:
        process, self._process = self._process, None
        assert process is not None
        if process.returncode is None:
            process.send_signal(by)
        await asyncio.wait_for(process.wait(), WAIT_S)

    async def _run(self, command: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway", "--config", str(self._settings), command,
            env={**os.environ, "PYTHONPATH": str(ROOT), "GATEWAY_SECRET": deployment.SECRET}, stdout=asyncio.subprocess.DEVNULL,
        )  # fmt: skip


@asynccontextmanager
async def gateway_process(folder: Path, web: Web, **described: str) -> AsyncIterator[Process]:
    """A gateway that is ready, and ended at the end."""
    process = Process(folder, web, **described)
    try:
        await process.start()
        yield process
    finally:
        await process.close()
