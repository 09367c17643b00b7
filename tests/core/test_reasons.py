"""Every code that is raised has its row, every row is raised, and run reasons are those of DESIGN §4."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from gateway.core.guards import GUARDS
from gateway.core.reasons import REASONS, reason

SOURCES = sorted((Path(__file__).resolve().parents[2] / "gateway").rglob("*.py"))
FAMILIES = {code.partition(".")[0] for code in REASONS}
CODE = re.compile(rf"({'|'.join(sorted(FAMILIES))})\.[a-z][a-z_]*")
OTHER = re.compile(r"(gateway\.(?!stopping|failed)|tool\.(name|upstream)$|run\.(id|task_type|goal|labels|policy)$).*")
"""Dotted names that mean something else: modules and files, variables of CEL."""


def literals(path: Path) -> set[str]:
    """The text literals of a module that look like codes."""
    texts = (node.value for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return {text for text in texts if CODE.fullmatch(text) and not OTHER.match(text)}


def raised() -> dict[str, set[str]]:
    """code -> the modules, other than the table, that say it."""
    found: dict[str, set[str]] = {}
    for path in SOURCES:
        if path.name != "reasons.py":
            for code in literals(path):
                found.setdefault(code, set()).add(path.stem)
    return found


def test_every_code_that_is_raised_has_its_row() -> None:
    assert set(raised()) - set(REASONS) == set()


def test_every_row_is_raised_somewhere() -> None:
    assert set(REASONS) - set(raised()) == set()


def test_every_reason_of_a_guard_has_its_row() -> None:
    assert {code for guard in GUARDS for code in guard.reasons} <= set(REASONS)


@pytest.mark.parametrize("code", REASONS)
def test_a_row_is_complete(code: str) -> None:
    row = reason(code)
    assert (row.code, bool(row.title), row.hint.rstrip().endswith(".")) == (code, True, True)
    assert 200 <= row.status < 600


def test_a_run_ends_only_with_the_designs_reasons() -> None:
    ends = {row.run_reason for row in REASONS.values()} - {None}
    assert ends == {"turn_budget", "tool_budget", "token_budget", "cost_budget", "deadline_exceeded", "loop"}


def test_a_code_without_a_row_is_a_fault_of_ours() -> None:
    with pytest.raises(KeyError):
        reason("no.such")


SAID_BY_SEVERAL = {
    "approval.denied",  # the hold's end, and what a repeat of the call is told
    "approval.required",  # a guard's, and what a rule in shadow mode would have asked
    "approval.expired", "approval.lapsed", "approval.void",  # a guard names them, the steps say them
    "arguments.invalid", "result.too_large", "call.cancelled", "call.in_doubt",  # also outcomes
    "authorization.denied",  # also a deliberate repeat that nobody may approve
    "budget.open_holds",  # of a run, and of a principal
    "budget.in_flight", "budget.tool_calls_per_turn",  # a call that runs has its place there
    "turn.unknown", "turn.not_open",  # of a call, and of an answer or a report
}  # fmt: skip


def test_a_code_of_the_core_is_said_in_one_module_but_for_these() -> None:
    core = [path for path in SOURCES if "core" in path.parts and path.name != "reasons.py"]
    said = {code: [path for path in core if code in literals(path)] for code in REASONS}
    assert {code for code, paths in said.items() if len(paths) > 1} == SAID_BY_SEVERAL
