"""`init`, `keys`, `schema`: what beginners start from works as it comes, and overwrites nothing."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path

import pytest

from gateway.settings import load_settings
from tests.cli.running import ran


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_init_writes_a_deployment_that_checks_and_tests_well(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(capsys, "init").code == 0
    check = ran(capsys, "check", "--json")
    assert (check.code, check.json["ok"], check.json["files"]) == (0, True, ["gateway.yaml", "policies/first.yaml"])
    test = ran(capsys, "test", "--json")
    assert (test.code, test.json["ok"], len(test.json["cases"]) >= 6) == (0, True, True)


def test_the_rules_of_the_starter_fit_the_tools_of_its_shop(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran(capsys, "init")
    warnings = ran(capsys, "check", "--upstreams", "--json").json["warnings"]
    assert [warning["line"] for warning in warnings] == [7], warnings


def test_init_names_all_it_wrote_and_where_to_go_on(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrote = ran(capsys, "init", "here", "--json").json["files"]
    assert sorted(wrote) == sorted(str(path.relative_to(empty)) for path in empty.rglob("*") if path.is_file())
    said = ran(capsys, "init", "my folder")
    assert ("my folder/gateway.secret" in said.err, "`cd 'my folder'`" in said.err) == (True, True)
    assert "`cd" not in ran(capsys, "init", ".").err


def test_the_keys_that_init_shows_are_those_of_its_file(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = ran(capsys, "init", "here", "--json").json["keys"]
    found = load_settings(empty / "here" / "gateway.yaml", {})
    assert {key.id: key.sha256 for key in found.keys} == {id: sha256(key.encode()).hexdigest() for id, key in shown.items()}
    assert not any(key in path.read_text() for key in shown.values() for path in (empty / "here").rglob("*.yaml"))


def test_the_secret_of_init_is_its_owners_alone(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mask = os.umask(0)
    try:
        said = ran(capsys, "init")
    finally:
        os.umask(mask)
    secret = empty / "gateway.secret"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert len(secret.read_text()) >= 32
    assert secret.read_text() not in said.out + said.err


@pytest.mark.parametrize("there", ["gateway.yaml", "gateway.secret", "policies/first.yaml", "policies/first_test.yaml"])
def test_init_overwrites_nothing(empty: Path, capsys: pytest.CaptureFixture[str], there: str) -> None:
    (empty / there).parent.mkdir(exist_ok=True)
    (empty / there).write_text("mine")
    said = ran(capsys, "init")
    assert (said.code, said.out) == (1, "")
    assert there in said.err
    assert [path.name for path in empty.rglob("*") if path.is_file()] == [Path(there).name]


def test_a_new_key_comes_with_the_entry_that_settings_take(empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = ran(capsys, "keys", "new", "user:mia", "--person", "--group", "leads", "--task-type", "interactive", "--json").json
    (empty / "gateway.yaml").write_text(f"principals: {{keys: [{json.dumps(made['entry'])}]}}\n")
    (key,) = load_settings(empty / "gateway.yaml", {}).keys
    assert (key.id, key.person, key.groups, key.task_types) == ("user:mia", True, {"leads"}, {"interactive"})
    assert key.sha256 == sha256(made["key"].encode()).hexdigest()
    text = ran(capsys, "keys", "new", "agent:x")
    assert text.lines[0].split()[0] == "key"
    assert json.loads(text.lines[1].split(maxsplit=1)[1])["id"] == "agent:x"


@pytest.mark.parametrize("argv", [("mia",), ("group:leads",), ("user:mia", "--group", "group:leads")])
def test_an_entry_that_settings_would_not_take_is_not_made(empty: Path, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]) -> None:
    said = ran(capsys, "keys", "new", *argv)
    assert (said.code, said.out, len(said.err.splitlines())) == (1, "", 1)


@pytest.mark.parametrize("of", ["policy", "tests", "settings"])
def test_schemas_are_printed_for_editors(capsys: pytest.CaptureFixture[str], of: str) -> None:
    assert ran(capsys, "schema", of).json["$schema"].startswith("https://json-schema.org/")
