"""The gateway with its ports wrapped from outside, so that it dies of a real SIGKILL at a named point: $CRASH_AT = `point` or `point#n`.

Points: `K.decided` (inside the step that wants an event of kind K, nothing is written), `K.written` (its rows are, but not committed),
`K.committed` (durable, and nobody knows), `K.durable` (its waiter knows); `send` (before a byte of a dispatch leaves), `sent` (the upstream has
read it whole), `answered` (its answer is here, its outcome isn't recorded), `in_flight` (recovery has just begun). `#n`: the nth time.
A point in $STOP_AT stops the process there (SIGSTOP) instead.

In $FAULTS_FOLDER the file `outage` holds a word for as long as the ledger is in trouble: `away` (no commit is tried), `lost` (commits succeed and
seem to have failed), `full` (SQLite finds no room), `sync` (the disk can't sync); and `clock` how many ms the wall clock is off.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import gateway.app
import gateway.ledger.postgres
from gateway.cli import main as gateway_main
from gateway.ports import Answer, Committed, Decision, Dispatch, LedgerFault, Step
from gateway.system import SystemClock
from tests.faults import disk
from tests.faults.journal import TOOK, Journal
from tests.waiting import until


class Fate:
    """When this process gets its signal. `passed`: how often each point was."""

    def __init__(self, at: str, by: signal.Signals) -> None:
        self._point, _, number = at.partition("#")
        self._number, self._signal = int(number or 1), by
        self._passed: Counter[str] = Counter()

    def at(self, point: str) -> None:
        self._passed[point] += 1
        if point == self._point and self._passed[point] == self._number:
            os.kill(os.getpid(), self._signal)

    def watches(self, point: str) -> bool:
        return point == self._point


class CrashingLedger:
    """The port Ledger. Everything but appends passes through."""

    def __init__(self, ledger: Any, fate: Fate, trouble: Trouble) -> None:
        self._ledger, self._fate, self._trouble = ledger, fate, trouble
        self._batch: list[str] = []
        self._begin, self._commit = ledger.store.begin, ledger.store.commit
        ledger.store.begin, ledger.store.commit = self.begin, self.commit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    async def transact(self, streams: Sequence[str], step: Step) -> Committed:
        kinds: list[str] = []

        def watched(states: Mapping[str, Any], now: int) -> Decision:
            decision = step(states, now)
            kinds[:] = [type(event).__name__ for _, event in decision.events]
            self._batch += kinds
            self._pass(kinds, "decided")
            return decision

        committed: Committed = await self._ledger.transact(streams, watched)
        self._pass(kinds, "durable")
        return committed

    async def begin(self, known: Mapping[str, int | None]) -> Any:
        if (raw := getattr(self._ledger.store, "_raw", None)) is not None:
            raw.execute(f"PRAGMA max_page_count = {1 if self._trouble.word() == 'full' else 1 << 30}").fetchone()  # 1: the present size
        return await self._begin(known)

    async def commit(self) -> None:
        kinds, self._batch = self._batch, []
        self._pass(kinds, "written")
        word = self._trouble.word()
        if word == "away":
            raise LedgerFault("the disk is away")
        await self._commit()
        self._pass(kinds, "committed")
        if word == "lost":
            raise LedgerFault("nobody knows whether that was committed")

    async def in_flight(self) -> list[str]:
        self._fate.at("in_flight")
        found: list[str] = await self._ledger.in_flight()
        return found

    def _pass(self, kinds: Sequence[str], moment: str) -> None:
        for kind in kinds:
            self._fate.at(f"{kind}.{moment}")


class Trouble:
    """What goes wrong with the ledger now, by a file's word."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def word(self) -> str:
        try:
            return self._file.read_text()
        except FileNotFoundError:
            return ""


class JumpingClock(SystemClock):
    """A wall clock that somebody sets."""

    off = Path()

    def now_ms(self) -> int:
        return super().now_ms() + (int(self.off.read_text()) if self.off.exists() else 0)


class CrashingCatalog:
    """The port Catalog. `journal`: the HTTP upstream's, which tells when a request has been read."""

    def __init__(self, catalog: Any, fate: Fate, journal: Path) -> None:
        self._catalog, self._fate, self._journal = catalog, fate, journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    async def send(self, dispatch: Dispatch) -> Answer:
        self._fate.at("send")
        sending = asyncio.ensure_future(self._catalog.send(dispatch))
        try:
            if self._fate.watches("sent"):
                await self._taken(str(dispatch.arguments.get("id")))
                self._fate.at("sent")
            answer: Answer = await sending
        finally:
            sending.cancel()
        self._fate.at("answered")
        return answer

    async def _taken(self, id: str) -> None:
        journal = Journal(self._journal)
        await until(lambda: journal.of(TOOK, id), f"the request of {id!r}")
        journal.close()


def wrapped() -> None:
    """Put the wrappers where the app puts its adapters together."""
    stopping = os.environ.get("STOP_AT", "")
    fate = Fate(stopping or os.environ.get("CRASH_AT", ""), signal.SIGSTOP if stopping else signal.SIGKILL)
    folder, app = Path(os.environ["FAULTS_FOLDER"]), cast(Any, gateway.app)
    trouble, ledger, catalog = Trouble(folder / "outage"), app.ledger, app.catalog
    app.ledger = lambda *args: CrashingLedger(ledger(*args), fate, trouble)
    app.catalog = lambda *args: CrashingCatalog(catalog(*args), fate, folder / "journal")
    JumpingClock.off = folder / "clock"
    app.SystemClock = JumpingClock
    disk.Recorder(fails=lambda: trouble.word() == "sync")


def main(arguments: Sequence[str]) -> int:
    wrapped()
    return gateway_main(list(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
