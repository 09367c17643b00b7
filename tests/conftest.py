"""Asynchronous tests run on asyncio's loop; where `CI` is set, a test that didn't run has failed."""

import os
from collections.abc import Callable, Iterator

import pytest

from tests.postgres_server import databases


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def new_database() -> Iterator[Callable[[], str]]:
    """Makes an empty database on the session's PostgreSQL, and gives its address."""
    with databases() as new:
        yield new


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped") and session.exitstatus == pytest.ExitCode.OK:
        reporter.write_line("\nA test was skipped; here that counts as failed.", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
