"""The gateway as its users run it: a process of its own with a deployment file, spoken to over its port."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import indent

import httpx

from gateway.demo.stage import any_port
from tests.waiting import START_S, WAIT_S

ROOT = Path(__file__).resolve().parents[2]
AGENT, MIA = "key-of-the-agent", "key-of-mia"
_DEPLOYMENT = """\
listen: 127.0.0.1:{port}
ledger: sqlite:gateway.db
policies: policies/
secret: ["${{env:GATEWAY_SECRET}}"]
upstreams:
{upstreams}
principals:
  keys:
    - {{id: "agent:e2e", task_types: [interactive], sha256: "{agent}"}}
    - {{id: "user:mia", person: true, groups: [leads], sha256: "{mia}"}}
roles: {{approver: ["group:leads"], operator: ["group:leads"]}}
"""


@asynccontextmanager
async def gateway(folder: Path, upstreams: str, policy: str, env: Mapping[str, str]) -> AsyncIterator[str]:
    """The base URL of a gateway that serves until the end, stopped as an init system would."""
    port = any_port()
    agent, mia = (hashlib.sha256(key.encode()).hexdigest() for key in (AGENT, MIA))
    (folder / "policies").mkdir(parents=True)
    (folder / "policies" / "one.yaml").write_text(policy)
    (folder / "gateway.yaml").write_text(_DEPLOYMENT.format(port=port, upstreams=indent(upstreams, "  "), agent=agent, mia=mia))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", "--config", str(folder / "gateway.yaml"), "serve",
        env={**os.environ, "PYTHONPATH": str(ROOT), "GATEWAY_SECRET": "x" * 40, **env},
        stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}"
        async with asyncio.timeout(START_S):
            await _ready(process, url)
        yield url
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(WAIT_S):
            await process.wait()


async def _ready(process: asyncio.subprocess.Process, url: str) -> None:
    async with httpx.AsyncClient() as client:
        while True:
            assert process.returncode is None, f"the gateway ended with {process.returncode}; its log stands above"
            try:
                if (await client.get(f"{url}/readyz")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.05)  # a process that starts has no other way to be waited for
