"""What the fault tests share: one zygote a session, a gateway a test, and which ledger it has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.faults import deployment
from tests.faults.running import Gateway, gateway
from tests.faults.zygote import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    one = Zygote()
    yield one
    one.close()


@pytest.fixture
def ledger() -> str:
    """The ledger's line in gateway.yaml."""
    return deployment.SQLITE


@pytest.fixture
async def prepared(tmp_path: Path, zygote: Zygote, ledger: str, anyio_backend: str) -> AsyncIterator[Gateway]:
    """Not started yet."""
    async with gateway(tmp_path, zygote, ledger) as one:
        yield one


@pytest.fixture
async def running(prepared: Gateway) -> Gateway:
    await prepared.start()
    return prepared
