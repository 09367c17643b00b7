"""Frozen values are values, and it is the type checker that keeps them from being changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gateway.core.model import Amounts, Finding
from gateway.core.values import dataclass

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


@dataclass(frozen=True, eq=False)
class Thing:
    x: int


def test_equal_values_are_equal_and_have_one_hash() -> None:
    assert Point(1) == Point(1, 0) != Point(1, 1)
    assert {Point(1), Point(1, 0), Amounts(turns=1)} == {Amounts(turns=1), Point(1)}
    assert Thing(1) != Thing(1)


def test_slots_take_no_other_field() -> None:
    with pytest.raises(AttributeError):
        Finding("g", "r", "m").other = 1  # type: ignore[attr-defined]


def test_the_type_checker_refuses_every_change(tmp_path: Path) -> None:
    change = tmp_path / "change.py"
    change.write_text("from gateway.core.model import Finding\nfinding = Finding('g', 'r', 'm')\nfinding.reason = 'another'\n")
    done = subprocess.run([sys.executable, "-m", "mypy", str(change)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "read-only" in done.stdout, done
