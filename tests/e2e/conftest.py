"""One gateway for all tests of a module; each test has runs of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.e2e.serving import Stage, staged


@pytest.fixture(scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Stage]:
    async with staged(tmp_path_factory.mktemp("stage")) as it:
        yield it
