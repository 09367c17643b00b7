"""Seeded bugs: each patch in `bugs/` breaks a promise, and some test fails for it that knows nothing of the bug.

A patch is applied to a copy of the tree, and a few fast tests run there. A patch that no longer applies fails here: seed its bug anew.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUGS = sorted(path.stem for path in (ROOT / "tests" / "faults" / "bugs").glob("*.patch"))
AT_ONCE = 2
PATIENCE_S = 60

SCOPE = "faults/test_small_scope.py::test_a_crash_at_each_moment_breaks_no_promise"
RIVALS = "faults/test_small_scope.py::test_a_rival_and_a_crash_at_each_moment_break_no_promise"
FOUND_BY: Mapping[str, tuple[str, ...]] = {
    "admitted_while_frozen": (f"{RIVALS}[pay-freeze]",),
    "approval_consumed_twice": ("core/decide/test_ready.py", "core/decide/test_calls_held.py"),
    "approved_call_free": (f"{SCOPE}[ask-ok]",),
    "claim_not_unique": (f"{RIVALS}[pay-same]",),
    "dispatch_after_cancel": (f"{RIVALS}[pay-cancel]",),
    "doubt_dispatched": (f"{SCOPE}[pay-lost]",),
    "doubt_forgotten": (f"{SCOPE}[put-lost,refused]",),
    "fence_ignored": ("core/decide/test_settle.py",),
    "forgotten_calls": ("ledger/test_showing.py",),
    "fresh_key_on_retry": (f"{SCOPE}[put-reset]",),
    "key_outlives_memory": ("core/decide/test_settle.py",),
    "lapsed_approval": ("core/decide/test_ready.py",),
    "lost_commit": ("ledger/test_writer.py",),
    "no_write_ahead": ("ledger/test_writer.py",),
    "normal_sync": ("faults/test_power_cut.py",),
    "payments_rerun": (f"{SCOPE}[pay-ok]",),
    "replay_unmarked": ("engine/test_calls.py",),
    "retry_of_payments": (f"{SCOPE}[pay-lost]",),
    "self_approval": ("core/decide/test_holds.py",),
    "sent_too_late": ("engine/test_flights.py",),
    "unchecked_budget": ("core/guards/test_budgets.py",),
}
"""Bug -> tests that run with it; they are ordinary ones, and pass without it."""


def run_with(bug: str, folder: Path) -> tuple[int, str]:
    """The status and the output of the tests in a copy that has the bug; -1 if the patch doesn't apply."""
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "__pycache__", "*.db*", "node_modules", "build", "dist"))
    patch = ROOT / "tests" / "faults" / "bugs" / f"{bug}.patch"
    applied = subprocess.run(["git", "apply", "-C1", "--whitespace=nowarn", str(patch)], cwd=folder, capture_output=True, text=True, check=False)
    if applied.returncode:
        return -1, applied.stderr
    command = [sys.executable, "-m", "pytest", "-x", "--tb=no", "-p", "no:randomly", *(f"tests/{test}" for test in FOUND_BY[bug])]
    env = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Future[tuple[int, str]]]]:
    """All of them at once, as many at a time as there are cores for."""
    folder = tmp_path_factory.mktemp("bugs")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {bug: pool.submit(run_with, bug, folder / bug) for bug in BUGS}


def test_every_bug_has_its_tests() -> None:
    assert list(FOUND_BY) == BUGS
    assert len(BUGS) >= 14


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_a_seeded_bug_makes_a_test_fail_that_does_not_name_it(runs: Mapping[str, Future[tuple[int, str]]], bug: str) -> None:
    status, output = runs[bug].result()
    assert status != -1, f"bugs/{bug}.patch doesn't apply any more: {output}"
    failed = re.findall(r"^FAILED (\S+)", output, re.MULTILINE)
    assert (status, bool(failed)) == (1, True), output
    assert not [test for test in failed if bug in test]
