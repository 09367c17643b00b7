"""A deployment in a folder, and the same with a gateway that serves it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving import KEYS, SECRET, Served, served, settings_in


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a deployment in it. Its secret stands in the environment, and no key."""
    settings_in(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GATEWAY_SECRET", SECRET)
    monkeypatch.delenv("GATEWAY_KEY", raising=False)
    return tmp_path


@pytest.fixture
async def it(folder: Path, anyio_backend: str) -> AsyncIterator[Served]:
    async with served(folder) as it:
        yield it


def in_postgres(folder: Path, address: str) -> None:
    """The deployment with its ledger there."""
    file = folder / "gateway.yaml"
    file.write_text(file.read_text().replace("sqlite:gateway.db", f'"{address}"'))


@pytest.fixture
def mia(monkeypatch: pytest.MonkeyPatch) -> str:
    """Her key, in the environment."""
    monkeypatch.setenv("GATEWAY_KEY", KEYS["user:mia"])
    return KEYS["user:mia"]


async def opened(it: Served, **asked: Any) -> str:
    """A run of agent:bot."""
    async with it.client() as bot:
        run: str = (await bot.post("/v1/runs", json=asked)).json()["run"]
        return run


async def called(it: Served, run: str, tool: str, **arguments: Any) -> dict[str, Any]:
    """A call of agent:bot, answered without waiting for people."""
    async with it.client() as bot:
        answer: dict[str, Any] = (await bot.post(f"/v1/runs/{run}/calls", json={"tool": tool, "arguments": arguments, "wait": 0})).json()
        return answer
