"""policies/README.md: its tables are those of the schema, its examples load, and each pack passes its own tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.core.guards import GUARDS
from gateway.policy.cases import run_cases
from gateway.policy.cases_schema import CASES_SCHEMA
from gateway.policy.compile import compile_document
from gateway.policy.lint import Deployment, lint
from gateway.policy.schema import SHADOWABLE, document_schema
from gateway.policy.store import LoadedPolicies, load_policies

FOLDER = Path(__file__).resolve().parents[2] / "policies"
README = FOLDER / "README.md"


def rows(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """(dotted key, what it is), nested mappings opened."""
    for name, one in schema.get("properties", {}).items():
        yield path + name, said(one)
        for inner in (one, *one.get("oneOf", ()), one.get("items", {})):
            if inner.get("type") == "object":
                yield from rows(inner, f"{path}{name}.")


def said(one: dict[str, Any]) -> str:
    values = one.get("enum", one.get("items", {}).get("enum", ()))
    words = [one["description"]] + [", ".join(f"`{value}`" for value in values)] * bool(values)
    return ": ".join(words).replace("|", "\\|")


def table(found: Iterator[tuple[str, str]]) -> str:
    return "\n".join(["| key | what |", "|---|---|", *(f"| `{key}` | {what} |" for key, what in found)])


def tables() -> dict[str, str]:
    document = document_schema()
    top = document["properties"]
    flat = {"properties": {name: one for name, one in top.items() if name not in ("run", "defaults", "tools")}}
    step = CASES_SCHEMA["properties"]["cases"]["items"]["properties"]
    return {
        "The file": table(rows(flat)),
        "`run`": table(rows(top["run"])),
        "`defaults`": table(rows(top["defaults"])),
        "A rule": table(rows(top["tools"]["items"])),
        "What happened before (`given`)": table((name, said(one)) for name, one in step["given"]["items"]["properties"].items()),
        "What is expected (`then`)": table((name, said(one)) for name, one in step["then"]["properties"].items()),
    }


@pytest.mark.parametrize("heading", tables())
def test_each_table_of_the_reference_is_the_schemas(heading: str) -> None:
    assert f"{heading}\n\n{tables()[heading]}\n" in README.read_text("utf-8"), f"README.md wants, under {heading}:\n{tables()[heading]}"


def test_the_reference_names_every_guard_and_reason_that_can_be_shadowed() -> None:
    text = README.read_text("utf-8")
    assert {guard.kind for guard in GUARDS if guard.kind not in SHADOWABLE} == {"allow", "approval"}
    assert f"`shadow` may name {', '.join(f'`{kind}`' for kind in SHADOWABLE)}" in text


def test_every_example_that_is_a_whole_document_loads() -> None:
    examples = re.findall(r"```yaml\n(version: 1\n.*?)```", README.read_text("utf-8"), re.DOTALL)
    assert examples
    for number, text in enumerate(examples):
        compile_document(f"example {number}", text.encode())


@pytest.fixture(scope="module")
def packs() -> LoadedPolicies:
    return load_policies(FOLDER)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*_test.yaml")), ids=lambda path: path.stem)
def test_each_pack_passes_its_own_tests(path: Path, packs: LoadedPolicies) -> None:
    failures = [str(result) for result in run_cases(path, packs) if not result.passed]
    assert not failures, "\n".join(failures)


def test_every_pack_has_tests(packs: LoadedPolicies) -> None:
    assert {path.name for path in FOLDER.glob("*_test.yaml")} == {file.replace(".yaml", "_test.yaml") for file in packs.files}


def test_no_pack_has_an_error(packs: LoadedPolicies) -> None:
    assert [remark for remark in lint(packs, Deployment()) if remark.is_error] == []


def test_a_pack_stands_on_its_own(tmp_path: Path, packs: LoadedPolicies) -> None:
    for policy in packs.policies:
        alone = tmp_path / policy.name
        alone.mkdir()
        (alone / policy.file).write_bytes((FOLDER / policy.file).read_bytes())
        tests = policy.file.replace(".yaml", "_test.yaml")
        assert all(result.passed for result in run_cases(FOLDER / tests, load_policies(alone)))
