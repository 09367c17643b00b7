"""The lock beside a database."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.ledger.lockfile import LockFile
from gateway.ports import LedgerFault


def test_it_is_held_by_one_and_says_by_whom(tmp_path: Path) -> None:
    name = str(tmp_path / "x.lock")
    first, second = LockFile(name), LockFile(name)
    first.take()
    with pytest.raises(LedgerFault, match=f"process {os.getpid()} "):
        second.take()
    first.release()
    second.take()
    second.release()


def test_a_number_left_by_a_dead_holder_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    path.write_text("4294967295999\n")
    lock = LockFile(str(path))
    lock.take()
    assert path.read_text() == f"{os.getpid()}\n"
    lock.release()


def test_a_folder_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(LedgerFault):
        LockFile(str(tmp_path / "none" / "x.lock")).take()


def test_releasing_what_was_never_taken_does_nothing(tmp_path: Path) -> None:
    LockFile(str(tmp_path / "x.lock")).release()
