"""A record of what SQLite writes and syncs, in order, and disks as a power cut may leave them.

`recorded` puts a shim before SQLite's own VFS for every connection that this process opens from then on. It changes nothing and notes each
write, truncation, sync and deletion of a file. What was written since a file's last sync is on the disk, or not, or torn at a sector: in any
combination, since disks write in any order. Source: sqlite.org/c3ref/vfs.html, …/io_methods.html, …/atomiccommit.html §2.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

WRITE, TRUNCATE, SYNC, DELETE, ACK = "write", "truncate", "sync", "delete", "ack"
SECTOR = 512
_IOERR_FSYNC = 10 | 4 << 8

Op = tuple[str, str, int, bytes]
"""What, the file's name, an offset or size, the bytes; of an `ack` the name and number are the stream's and the seq."""

_POINTER = ctypes.c_void_p
_OPEN = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, _POINTER, _POINTER, ctypes.c_int, _POINTER)
_DELETE = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, _POINTER, ctypes.c_int)
_WRITE = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, _POINTER, ctypes.c_int, ctypes.c_int64)
_TRUNCATE = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, ctypes.c_int64)
_SYNC = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, ctypes.c_int)


class _Vfs(ctypes.Structure):
    """sqlite3_vfs, version 3."""

    _fields_ = [
        ("iVersion", ctypes.c_int), ("szOsFile", ctypes.c_int), ("mxPathname", ctypes.c_int), ("pNext", _POINTER), ("zName", ctypes.c_char_p),
        ("pAppData", _POINTER), ("xOpen", _OPEN), ("xDelete", _DELETE), *((f"other{number}", _POINTER) for number in range(14)),
    ]  # fmt: skip


class _Methods(ctypes.Structure):
    """sqlite3_io_methods, version 3."""

    _fields_ = [
        ("iVersion", ctypes.c_int), ("xClose", _POINTER), ("xRead", _POINTER), ("xWrite", _WRITE), ("xTruncate", _TRUNCATE), ("xSync", _SYNC),
        *((f"other{number}", _POINTER) for number in range(13)),
    ]  # fmt: skip


class Recorder:
    """The shim. `ops` grows with everything that is done to files. It lives as long as the process, as its connections may.

    `fails`: given, nothing is noted; while it is true, no sync succeeds.
    """

    def __init__(self, fails: Callable[[], bool] | None = None) -> None:
        self.ops: list[Op] = []
        self._fails = fails
        sqlite = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
        sqlite.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
        self._real = sqlite.sqlite3_vfs_find(None)
        self._shims: dict[int, Any] = {}
        self._names: dict[int, str] = {}
        shim = self._vfs = _Vfs.from_buffer_copy(self._real.contents)
        shim.zName, shim.xOpen, shim.xDelete = b"recording", _OPEN(self._open), _DELETE(self._delete)
        assert sqlite.sqlite3_vfs_register(ctypes.byref(shim), 1) == 0
        _ALIVE.append(self)

    def _open(self, vfs: int, name: int | None, file: int, flags: int, out: int) -> int:
        """`name` is passed on as the very pointer that came: SQLite keeps it."""
        status = int(self._real.contents.xOpen(ctypes.addressof(self._real.contents), name, file, flags, out))
        slot = ctypes.cast(file, ctypes.POINTER(_POINTER))
        if status == 0 and slot[0] and name is not None:
            self._names[file] = _base(name)
            slot[0] = ctypes.addressof(self._shim(slot[0]))
        return status

    def _shim(self, methods: int | None) -> Any:
        """The methods of a kind of file, with ours before three of them."""
        known = self._shims.get(methods or 0)
        if known is None:
            real = _Methods.from_address(methods or 0)
            known = self._shims[methods or 0] = _Methods.from_buffer_copy(real)
            write, truncate, known.xSync = self._hooks(real)
            if self._fails is None:
                known.xWrite, known.xTruncate = write, truncate
        return known

    def _hooks(self, real: _Methods) -> tuple[Any, Any, Any]:
        def write(file: int, data: int, size: int, offset: int) -> int:
            self.ops.append((WRITE, self._names[file], offset, ctypes.string_at(data, size)))
            return int(real.xWrite(file, data, size, offset))

        def truncate(file: int, size: int) -> int:
            self.ops.append((TRUNCATE, self._names[file], size, b""))
            return int(real.xTruncate(file, size))

        def sync(file: int, flags: int) -> int:
            if self._fails is not None:
                return _IOERR_FSYNC if self._fails() else int(real.xSync(file, flags))
            status = int(real.xSync(file, flags))
            self.ops.append((SYNC, self._names[file], 0, b""))
            return status

        return _WRITE(write), _TRUNCATE(truncate), _SYNC(sync)

    def _delete(self, vfs: int, name: int, directory: int) -> int:
        if self._fails is None:
            self.ops.append((DELETE, _base(name), 0, b""))
        return int(self._real.contents.xDelete(ctypes.addressof(self._real.contents), name, directory))

    def ack(self, stream: str, seq: int) -> None:
        """Somebody was told that this append is durable."""
        self.ops.append((ACK, stream, seq, b""))


_ALIVE: list[Recorder] = []


def _base(name: int) -> str:
    return os.path.basename(ctypes.string_at(name).decode())


# ---- after the cut ------------------------------------------------------------------------------------------------------


@dataclass
class File:
    """`content`: what is surely on the disk. `pending`: what has been done to it since its last sync."""

    content: bytearray = field(default_factory=bytearray)
    pending: list[Op] = field(default_factory=list)

    def do(self, op: Op) -> None:
        what, _, at, data = op
        if what == TRUNCATE:
            del self.content[at:]
        elif what == WRITE:
            self.content.extend(bytes(max(0, at + len(data) - len(self.content))))
            self.content[at : at + len(data)] = data

    def sync(self) -> None:
        for op in self.pending:
            self.do(op)
        self.pending.clear()

    def survive(self, random: Random) -> None:
        """The power is gone: of what was pending, each may have reached the disk, wholly or in part."""
        share = random.choice((0.0, 0.5, 1.0))
        for what, name, at, data in self.pending:
            if random.random() < share:
                sectors = -(-len(data) // SECTOR)
                kept = len(data) if random.random() < 0.7 else random.randint(0, sectors) * SECTOR
                self.do((what, name, at, data[:kept]))


def cut(ops: Sequence[Op], at: int, folder: Path, random: Random) -> dict[str, int]:
    """Leave in the folder what a power cut after so many operations may leave; stream -> the highest seq that was acknowledged before."""
    files: dict[str, File] = {}
    acknowledged: dict[str, int] = {}
    for op in ops[:at]:
        what, name, number, _ = op
        if what == ACK:
            acknowledged[name] = max(acknowledged.get(name, 0), number)
        elif what == DELETE:
            files.pop(name, None)
        elif what == SYNC:
            files.setdefault(name, File()).sync()
        else:
            files.setdefault(name, File()).pending.append(op)
    folder.mkdir()
    for name, file in files.items():
        file.survive(random)
        (folder / name).write_bytes(file.content)
    return acknowledged
