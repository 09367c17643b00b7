"""The promises' manifest is whole: the README promises exactly these, and each is held by tests that exist and run."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.promises import PROMISES

TESTS = Path(__file__).resolve().parent
README = TESTS.parent / "README.md"


@cache
def found_in(path: Path) -> dict[str, list[str]]:
    """Test functions with their decorators, and state machines' test cases, which are assigned."""
    found: dict[str, list[str]] = {}
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = [ast.unparse(one) for one in node.decorator_list]
        elif isinstance(node, ast.Assign):
            found.update((target.id, []) for target in node.targets if isinstance(target, ast.Name) and target.id.lower().startswith("test"))
    return found


def test_the_readme_promises_exactly_what_the_manifest_holds() -> None:
    promised = re.findall(r"^\| (P\d+) \| \S", README.read_text("utf-8"), re.MULTILINE)
    assert promised == list(PROMISES) == [f"P{number}" for number in range(1, 17)]


@pytest.mark.parametrize("promise", PROMISES)
def test_each_promise_is_held_by_tests_that_exist_and_run(promise: str) -> None:
    assert PROMISES[promise]
    assert len(set(PROMISES[promise])) == len(PROMISES[promise])
    for named in PROMISES[promise]:
        path, _, name = named.partition("::")
        decorators = found_in(TESTS / path).get(name)
        assert decorators is not None, f"{named} is not there"
        assert not re.search("skip|xfail", " ".join(decorators)), f"{named} does not always run"
        assert path.rpartition("/")[2].startswith("test_") or _is_collected(path), f"{named} is run by no test file"


def _is_collected(path: str) -> bool:
    """Shared suites are imported by a test file."""
    module = f"tests.{path.removesuffix('.py').replace('/', '.')}"
    return any(f"from {module} import *" in one.read_text("utf-8") for one in TESTS.rglob("test_*.py"))
