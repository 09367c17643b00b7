"""Asynchronous tests run on asyncio's loop."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
