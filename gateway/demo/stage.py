"""The demo's stage: files with fresh keys in one folder, the gateway and a rates service as processes, and nothing left running at the end.

The processes stay in the demo's own process group, so that Ctrl-C reaches them too; what they log goes to a file beside the ledger.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from gateway.keys import make_key

FILES = Path(__file__).with_name("files")
LOG = "gateway.log"
READY_S = 30.0
STOP_S = 20.0


class StageFault(Exception):
    """The stage couldn't be set; the text says why."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A gateway that answers at `url`. The keys are those of agent:refund-bot and user:mia."""

    folder: Path
    url: str
    agent_key: str
    approver_key: str
    server: subprocess.Popen[bytes]

    @property
    def settings(self) -> Path:
        return self.folder / "gateway.yaml"


@contextmanager
def staged(folder: Path, port: int | None) -> Iterator[Stage]:
    """Set it in `folder`, on `port` or on any that is free. Raises StageFault."""
    port, rates = port or any_port(), any_port()
    url = f"http://127.0.0.1:{port}"
    agent_key, approver_key = lay_out(folder, port, rates)
    command = ("-m", "gateway", "-c", str(folder / "gateway.yaml"), "serve")
    with (folder / LOG).open("ab") as log, _process(log, "-m", "gateway.demo.rates", str(rates)), _process(log, *command) as server:
        _wait_ready(server, url, agent_key, folder / LOG)
        yield Stage(folder, url, agent_key, approver_key, server)


def lay_out(folder: Path, port: int, rates_port: int) -> tuple[str, str]:
    """Write the demo's files with fresh keys and a fresh secret; the keys of agent and approver."""
    (agent, agent_hash), (approver, approver_hash) = make_key(), make_key()
    marks = {
        "@PORT@": str(port), "@RATES_PORT@": str(rates_port), "@PYTHON@": json.dumps(sys.executable), "@AGENT_SHA256@": agent_hash,
        "@APPROVER_SHA256@": approver_hash,
    }  # fmt: skip
    for path in sorted(FILES.rglob("*.yaml")):
        text = path.read_text("utf-8")
        for mark, value in marks.items():
            text = text.replace(mark, value)
        target = folder / path.relative_to(FILES)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
    secret = folder / "gateway.secret"
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_urlsafe(48), "ascii")
    return agent, approver


def any_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def _process(log: Any, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(os.environ))
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_ready(server: subprocess.Popen[bytes], url: str, key: str, log: Path) -> None:
    """Until it is ready and takes a key that no other server at this port could know. Raises StageFault, with what the server said last."""
    end = time.monotonic() + READY_S
    with httpx.Client(base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=2, trust_env=False) as client:
        while time.monotonic() < end and server.poll() is None:
            try:
                if all(client.get(path).status_code == 200 for path in ("/readyz", "/v1/runs")):
                    return
            except httpx.TransportError:
                pass
            try:
                server.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
    what = f"was not ready after {READY_S:g} s" if server.poll() is None else "ended before it was ready"
    raise StageFault("\n".join((f"The demo's server {what}; it said:", *log.read_text("utf-8", "replace").splitlines()[-10:])))
