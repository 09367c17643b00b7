"""A gateway of the fault tests with its faulty upstream, each a process of its own: started, killed, watched dying, and started again."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.agents import RestAgent
from tests.faults import deployment
from tests.faults.journal import TOOK, Entry, Journal
from tests.faults.zygote import Zygote
from tests.waiting import START_S, eventually, until

ROOT = Path(__file__).resolve().parents[2]


class Gateway:
    """`start` may follow `kill`, `stop` or `died`. `journal` and `desk`: what its upstreams noted. `web`: as `tests.e2e.agents` wants it."""

    web: Any = None

    def __init__(self, folder: Path, zygote: Zygote, web: int, ledger: str, timeout: str) -> None:
        self.folder = folder
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.settings = deployment.write(folder, port=self.port, web=web, ledger=ledger, timeout=timeout)
        self.journal, self.desk = Journal(folder / "journal"), Journal(folder / "desk")
        self.pid = 0
        self._zygote = zygote
        self._clients: list[httpx.AsyncClient] = []

    # ---- its life -------------------------------------------------------------------------------------------------------

    async def start(self, crash_at: str = "", *, stop_at: str = "", wait: bool = True) -> None:
        """Returns when it is ready (or at once, for one that dies before)."""
        env = {"GATEWAY_SECRET": deployment.SECRET, "FAULTS_FOLDER": str(self.folder), "CRASH_AT": crash_at, "STOP_AT": stop_at}
        self.pid = self._zygote.fork(["--config", str(self.settings), "serve"], env, self.folder / "log")
        if wait:
            await eventually(self._ready, "the gateway", START_S)

    async def _ready(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except ConnectionError:
            assert self.alive, (self.folder / "log").read_text()
            return False
        try:
            writer.write(b"GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
            return b" 200 " in (await reader.read()).split(b"\r\n", 1)[0]
        except ConnectionError:
            return False
        finally:
            writer.close()

    @property
    def alive(self) -> bool:
        """False once it is a zombie."""
        return self.state != "Z"

    @property
    def state(self) -> str:
        """As the system names it: `T` is stopped."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]

    async def died(self) -> int:
        """Wait until it has ended; its exit code, negative for a signal."""
        ended = asyncio.Event()
        file = os.pidfd_open(self.pid)
        loop = asyncio.get_running_loop()
        loop.add_reader(file, ended.set)
        try:
            await asyncio.wait_for(ended.wait(), START_S)
        finally:
            loop.remove_reader(file)
            os.close(file)
        code, self.pid = self._zygote.reap(self.pid), 0
        return code

    async def kill(self) -> None:
        """SIGKILL: nothing is said, nothing is written any more."""
        os.kill(self.pid, signal.SIGKILL)
        await self.died()

    async def stop(self) -> int:
        """SIGTERM, as an init system would."""
        os.kill(self.pid, signal.SIGTERM)
        return await self.died()

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()
        if self.pid:
            await self.kill()
        self.journal.close()
        self.desk.close()

    @contextmanager
    def trouble(self, word: str) -> Iterator[None]:
        """The ledger can't be written for this reason (`crashing` names them), or because no file may grow (`limit`)."""
        if word == "limit":
            size = max(file.stat().st_size for file in self.folder.glob("gateway.db*"))
            before = resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (size // 2, resource.RLIM_INFINITY))
        else:
            (self.folder / "outage").write_text(word)
        try:
            yield
        finally:
            if word == "limit":
                resource.prlimit(self.pid, resource.RLIMIT_FSIZE, before)
            else:
                (self.folder / "outage").unlink()

    def set_clock(self, off_ms: int) -> None:
        """Its wall clock is off by so much from now on."""
        (self.folder / "clock").write_text(str(off_ms))

    # ---- those who talk to it -------------------------------------------------------------------------------------------

    def client(self, id: str | None, **headers: str) -> httpx.AsyncClient:
        known = {} if id is None else {"authorization": f"Bearer {deployment.key_of(id)}"}
        client = httpx.AsyncClient(base_url=self.url, headers=known | headers, timeout=START_S, trust_env=False, verify=False)
        self._clients.append(client)
        return client

    async def agent(self, run_key: str, on: str = "web") -> RestAgent:
        """An agent with an open run."""
        agent = RestAgent(self, "bot", on, run_key)  # type: ignore[arg-type]  # what it needs of a stage
        await agent.open()
        return agent

    async def listed(self, state: str) -> set[str]:
        """The calls in a state, as `gateway calls list` shows them."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway", "--config", str(self.settings), "--json", "calls", "list", "--state", state, "--limit", "1000",
            env={**os.environ, "PYTHONPATH": str(ROOT), "GATEWAY_SECRET": deployment.SECRET}, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, _ = await process.communicate()
        return {call["call"] for call in json.loads(out)}

    # ---- upstreams ------------------------------------------------------------------------------------------------------

    async def took(self, id: str, times: int = 1) -> None:
        """Wait until the HTTP upstream has read a case's request."""
        await until(lambda: len(self.journal.of(TOOK, id)) >= times, f"request {times} of {id!r}")

    def took_by(self, upstream: str, id: str) -> list[Entry]:
        """The requests of a case that an upstream has read."""
        return (self.desk if upstream == "desk" else self.journal).of(TOOK, id)

    def open_gate(self, id: str) -> None:
        (self.folder / "gates" / id).touch()


@asynccontextmanager
async def gateway(folder: Path, zygote: Zygote, ledger: str = deployment.SQLITE, timeout: str = "20s") -> AsyncIterator[Gateway]:
    """A gateway that is still to be started, with its upstream; whatever runs at the end is killed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.faults.upstream", str(folder), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout
    running = Gateway(folder, zygote, int(await process.stdout.readline()), ledger, timeout)
    try:
        yield running
    finally:
        await running.close()
        process.kill()
        await process.wait()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
