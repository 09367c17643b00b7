"""Every code has its row and is raised in one place of the whole gateway, and run reasons are those of DESIGN §4."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.core.reasons import REASONS, reason

ROOT = Path(__file__).resolve().parents[2] / "gateway"
TREES = {path.relative_to(ROOT): ast.parse(path.read_text("utf-8")) for path in sorted(ROOT.rglob("*.py")) if path.name != "reasons.py"}
FAMILIES = "|".join(sorted({code.partition(".")[0] for code in REASONS}))
CODE = re.compile(rf"({FAMILIES})\.[a-z][a-z_]*")
OTHER = re.compile(r"(gateway\.(?!stopping|failed)|tool\.(name|upstream)$|run\.(id|task_type|goal|labels|policy)$).*")
"""Dotted names that mean something else: modules and files, variables of CEL."""


def texts(tree: ast.AST) -> Iterator[ast.Constant]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))


def raised(tree: ast.AST) -> Iterator[ast.Constant]:
    """The literals of a module that are codes; one in a comparison is read there, not raised."""
    read = {id(text) for node in ast.walk(tree) if isinstance(node, ast.Compare) for text in texts(node)}
    return (text for text in texts(tree) if CODE.fullmatch(str(text.value)) and not OTHER.match(str(text.value)) and id(text) not in read)


def places() -> dict[str, list[str]]:
    """code -> where in the gateway, outside the table, it is raised."""
    found: dict[str, list[str]] = {}
    for path, tree in TREES.items():
        for text in raised(tree):
            found.setdefault(str(text.value), []).append(f"{path}:{text.lineno}")
    return found


def test_every_code_that_is_raised_has_its_row_and_every_row_is_raised() -> None:
    assert set(places()) == set(REASONS)


def test_every_code_is_raised_in_one_place() -> None:
    assert {code: where for code, where in places().items() if len(where) > 1} == {}


def test_no_code_is_put_together() -> None:
    """Else it would be raised where nobody finds it."""
    begun = re.compile(rf"({FAMILIES})\.")
    parts = [(path, text) for path, tree in TREES.items() for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for text in texts(node)]
    assert [f"{path}:{text.lineno}" for path, text in parts if begun.fullmatch(str(text.value))] == []


def test_no_constant_carries_a_code_into_another_module() -> None:
    """A name that many modules import would only hide that they all raise it."""
    held = {
        (target.id, path.stem)
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant) and node.value in list(raised(tree))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    assert {(name, module) for name, module in held if not name.startswith("_")} == set()


@pytest.mark.parametrize("code", REASONS)
def test_a_row_is_complete(code: str) -> None:
    row = reason(code)
    assert (row.code, bool(row.title), row.hint.rstrip().endswith(".")) == (code, True, True)
    assert 200 <= row.status < 600


def test_waiting_is_offered_only_where_the_same_again_may_do() -> None:
    assert all(row.retryable for row in REASONS.values() if row.wait_s is not None)


def test_a_run_ends_only_with_the_designs_reasons() -> None:
    ends = {row.run_reason for row in REASONS.values()} - {None}
    assert ends == {"turn_budget", "tool_budget", "token_budget", "cost_budget", "deadline_exceeded", "loop"}


def test_a_code_without_a_row_is_a_fault_of_ours() -> None:
    with pytest.raises(KeyError):
        reason("no.such")
