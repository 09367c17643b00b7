"""A lock beside a database that one process holds; the system frees it when the process dies, however it dies.

The file stays behind: deleting it would let two processes lock two files of one name. It says who holds it, for the other's message.
"""

from __future__ import annotations

import fcntl
import os

from gateway.ports import LedgerFault


class LockFile:
    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self) -> None:
        """Raises LedgerFault, with the holder's process id, if another process (or another ledger of this one) has it."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise LedgerFault(f"{self._path}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(descriptor, 20).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise LedgerFault(f"{self._path}: process {holder} has this ledger open; one ledger, one gateway") from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
