"""A fresh stage for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.doors.rest.stage import Stage, stage


@pytest.fixture
async def it(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as it:
        yield it
