"""The house rules that a machine can hold: ceilings, mirrors, forbidden names, import rule, unfinished marks, skips."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import WAIT_S

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "gateway").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
PURE = {
    "__future__", "binascii", "collections", "dataclasses", "decimal", "enum", "fnmatch", "functools", "hashlib", "itertools", "json", "math", "re",
    "typing",
}  # fmt: skip
STDLIB = set(sys.stdlib_module_names)

# package -> what it may import beside the standard library (PURE packages: beside PURE). Longest prefix wins.
MAY_IMPORT: dict[str, set[str]] = {
    "gateway": set(),
    "gateway.core": {"immutables", "msgspec", "gateway.core"},
    "gateway.wire": {"msgspec", "gateway.wire"},
    "gateway.wire.json": {"orjson", "gateway.wire"},
    "gateway.ports": {"msgspec", "gateway.core"},
    "gateway.secret": set(),
    "gateway.system": {"gateway.core", "gateway.ports", "gateway.wire"},
    "gateway.source": {"yaml", "jsonschema", "referencing", "gateway.core", "gateway.source"},
    "gateway.settings": {"gateway.core", "gateway.ports", "gateway.source", "gateway.secret", "gateway.settings"},
    "gateway.engine": {"msgspec", "gateway.core", "gateway.ports", "gateway.engine"},
    "gateway.policy": {
        "jsonschema", "jsonschema_rs", "referencing", "cel", "common_expression_language", "gateway.core", "gateway.ports", "gateway.source",
        "gateway.policy",
    },
    "gateway.policy.lint": {"gateway.core", "gateway.ports", "gateway.source", "gateway.policy", "gateway.settings"},
    "gateway.ledger": {"immutables", "msgspec", "gateway.core", "gateway.ports", "gateway.wire", "gateway.ledger"},
    "gateway.ledger.postgres": {"asyncpg", "gateway.core", "gateway.ports", "gateway.wire", "gateway.ledger"},
    "gateway.ledger.sqlite": {"aiosqlite", "gateway.core", "gateway.ports", "gateway.wire", "gateway.ledger"},
    "gateway.upstreams": {"gateway.core", "gateway.ports", "gateway.wire", "gateway.upstreams"},
    "gateway.upstreams.http": {"httptools", "gateway.core", "gateway.ports", "gateway.wire", "gateway.upstreams"},
    "gateway.upstreams.openapi": {"gateway.core", "gateway.ports", "gateway.source", "gateway.wire", "gateway.upstreams"},
    "gateway.upstreams.oauth": {"httpx", "gateway.core", "gateway.ports", "gateway.wire", "gateway.upstreams"},
    "gateway.doors": {
        "starlette", "msgspec", "gateway.core", "gateway.ports", "gateway.engine", "gateway.wire", "gateway.settings", "gateway.secret",
        "gateway.doors",
    },
    "gateway.client": {"httpx"},
    "gateway.stdio": {"httpx", "gateway.wire", "gateway.upstreams.lines", "gateway.stdio"},
    "gateway.app": {"*"},
    "gateway.cli": {"*"},
    "gateway.demo": {"*"},
    "gateway.__main__": {"*"},
}  # fmt: skip
PURE_PACKAGES = ("gateway.core", "gateway.wire")
ONLY_FOR = {"gateway.app": ("gateway.cli", "gateway.demo", "gateway.app"), "gateway.cli": ("gateway.cli", "gateway.__main__")}


WAITS = {"asyncio.timeout": 0, "asyncio.wait_for": -1, "until": -1, "eventually": -1}
"""Calls that wait -> which of their arguments is the bound, where it isn't the keyword `timeout`."""


def bounds_of(path: Path) -> Iterator[float]:
    """How long a test waits, where a number says it."""
    calls = (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call))
    for call in calls:
        name = ast.unparse(call.func)
        given = [word.value for word in call.keywords if word.arg == "timeout"]
        given += [call.args[WAITS[name]]] if name in WAITS else []
        yield from (one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, int | float))


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_test_waits_no_longer_than_is_agreed(path: Path) -> None:
    """What may take longer has a name that says why, as START_S has."""
    assert [bound for bound in bounds_of(path) if bound > WAIT_S] == []


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return found


def within(name: str, package: str) -> bool:
    return name == package or name.startswith((package + ".", package + "_"))


def rule_for(module: str) -> set[str]:
    return MAY_IMPORT[max((package for package in MAY_IMPORT if within(module, package)), key=len)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: module_of(path))
def test_a_module_imports_only_what_its_package_may(path: Path) -> None:
    module, allowed = module_of(path), rule_for(module_of(path))
    pure = any(within(module, package) for package in PURE_PACKAGES)
    for name in imports_of(path):
        top = name.partition(".")[0]
        if "*" in allowed or any(within(name, one) for one in allowed) or within(name, module):
            continue
        assert top in (PURE if pure else STDLIB), f"{module} may not import {name}"
    for target, users in ONLY_FOR.items():
        if any(within(name, target) for name in imports_of(path)):
            assert any(within(module, user) for user in users), f"only {users} may import {target}, not {module}"


def test_nothing_imports_the_tests() -> None:
    assert not [path for path in SOURCES if any(within(name, "tests") for name in imports_of(path))]


@pytest.mark.parametrize("path", SOURCES + TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_stay_under_the_ceilings(path: Path) -> None:
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= 40, f"{path}:{node.lineno} {node.name} has {length} lines"


def test_every_source_file_has_its_test_file() -> None:
    missing = []
    for path in SOURCES:
        relative = path.relative_to(ROOT / "gateway")
        if path.name in ("__init__.py", "__main__.py") or not path.read_text("utf-8").strip():
            continue
        mirror = ROOT / "tests" / relative.parent / f"test_{relative.name}"
        if not mirror.exists():
            missing.append(f"{relative} -> {mirror.relative_to(ROOT)}")
    assert not missing, "\n".join(missing)


def test_no_file_has_a_name_that_says_nothing() -> None:
    bad = {"utils", "common", "helpers", "manager", "service", "base"}
    assert not [path for path in SOURCES + TESTS if path.stem in bad]


def test_nothing_is_left_unfinished_and_no_test_is_skipped() -> None:
    marks = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    assert not [path for path in SOURCES if marks.search(path.read_text("utf-8"))]
    skips = re.compile(r"pytest\.(skip|importorskip|mark\.(skip|skipif|xfail))")
    me = Path(__file__)
    assert not [path for path in TESTS if path != me and skips.search(path.read_text("utf-8"))]


def test_the_top_level_holds_only_what_was_agreed() -> None:
    allowed = {"pyproject.toml", "gateway", "policies", "tests", "Dockerfile", "README.md"}
    names = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    assert names <= allowed | {"build", "dist"} | {name for name in names if name.endswith(".egg-info")}
