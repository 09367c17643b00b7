"""The README is true: its blocks are executed or checked, its diagrams are those of the tables, and every command and setting stands in it."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from gateway.app_adapters import refuse_unusable
from gateway.cli import parser
from gateway.demo.agent import Agent
from gateway.demo.stage import Stage, staged
from gateway.ports import PolicyError
from gateway.settings import SETTINGS_SCHEMA, Settings, load_settings
from tests.cli.running import ran
from tests.cli.test_commands import COMMANDS
from tests.lives import README, drawn

ROOT = README.parent
TEXT = README.read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
DOCUMENTED = TEXT + (ROOT / "policies" / "README.md").read_text("utf-8")
URL = "http://127.0.0.1:8700"
SECRETS = dict.fromkeys(re.findall(r"\$\{env:(\w+)\}", TEXT), "x" * 40)


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def console() -> Iterator[str]:
    """Each command of the console blocks, without what is said about it."""
    for line in "".join(blocks("console")).splitlines():
        yield line.partition("  #")[0].strip()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The demo's gateway with its shop, which the README's examples speak to."""
    with staged(tmp_path_factory.mktemp("stage"), None) as stage:
        yield stage


# ---- blocks -------------------------------------------------------------------------------------------------------------


def test_every_block_is_of_a_kind_that_is_checked_here() -> None:
    kinds = re.findall(r"^```(.*)$", TEXT, re.MULTILINE)[::2]
    assert set(kinds) == {"console", "json", "python", "yaml", "mermaid", ""}
    assert kinds.count("") == 1, "the one picture of a call"


def test_the_two_commands_are_what_the_project_offers() -> None:
    demo, tests = [line for line in console() if line.startswith("python3 -m venv")]
    assert demo == "python3 -m venv .venv && .venv/bin/pip install -q -e . && .venv/bin/gateway demo"
    assert tests == "python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]' && .venv/bin/python -m pytest"
    assert PROJECT["scripts"] == {"gateway": "gateway.cli:main"}
    assert "test" in PROJECT["optional-dependencies"]
    assert "3.11 or later" in TEXT
    assert PROJECT["requires-python"] == ">=3.11"


def test_ci_runs_the_same_commands() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    for words in ("python3 -m venv", "-e '.[test]'", "python -m pytest"):
        assert words in script


@pytest.mark.parametrize("line", [line for line in console() if line.startswith("gateway ")])
def test_each_command_line_can_be_given(line: str) -> None:
    parser().parse_args(shlex.split(line)[1:])


def test_starting_with_your_own_tools_works_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [line for line in console() if line in ("gateway init", "gateway check", "gateway test", "gateway serve")]
    assert lines == ["gateway init", "gateway check", "gateway test", "gateway serve"]
    assert [ran(capsys, *line.split()[1:]).code for line in lines[:3]] == [0, 0, 0]


def test_the_python_blocks_run(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    for block in blocks("python"):
        assert URL in block
        exec(compile(block.replace(URL, stage.url), str(README), "exec"), {"key": stage.agent_key})
    said = capsys.readouterr().out
    assert "'order_id': 'A-1001'" in said
    assert said.split()[-1] == "11", "tool calls left"


def test_an_mcp_client_set_up_as_shown_reaches_the_gateway(stage: Stage) -> None:
    (server,) = json.loads(blocks("json")[0])["mcpServers"].values()
    base, _, run_key = server["url"].removesuffix("/mcp").rpartition("/r/")
    assert server == {"type": "http", "url": f"{URL}/r/{run_key}/mcp", "headers": {"Authorization": "Bearer ${GATEWAY_KEY}"}}
    with Agent(base.replace(URL, stage.url), stage.agent_key, run_key) as agent:
        assert "shop__get_order" in agent.tools()


def test_a_client_that_starts_processes_is_given_a_command_that_can_be_run() -> None:
    (server,) = json.loads(blocks("json")[1])["mcpServers"].values()
    assert (server["command"], server["env"]) == ("gateway", {"GATEWAY_KEY": "…"})
    asked = parser().parse_args(server["args"])
    assert (asked.config, asked.run_key) == ("gateway.yaml", "ticket-880")


def test_any_http_client_can_do_what_is_shown(stage: Stage) -> None:
    given = {"$URL": stage.url, "$KEY": stage.agent_key}
    lines = [line for line in console() if line.startswith("curl ")]
    assert len(lines) == 3
    answers = []
    for line in lines:
        for name, value in given.items():
            line = line.replace(name, value)
        url, headers, body = _curl(line)
        answer = httpx.post(url, headers=headers, content=body, trust_env=False)
        assert answer.is_success, answer.text
        given.setdefault("$RUN", answer.json().get("run", ""))
        answers.append(answer)
    _, read, held = answers
    assert read.json()["result"]["structuredContent"]["order_id"] == "A-1001"
    assert (held.status_code, held.json()["status"], held.json()["hold"]["hold"].partition("_")[0]) == (202, "held", "hold")


def test_each_way_in_has_a_run_key_of_its_own() -> None:
    keys = re.findall(r'run_key="([\w-]+)"|/r/([\w-]+)/mcp"|"run_key":"([\w-]+)"', TEXT)
    named = ["".join(one) for one in keys]
    assert len(named) == len(set(named)) == 3, named


def _curl(line: str) -> tuple[str, dict[str, str], str]:
    words = shlex.split(line)
    assert words[:2] == ["curl", "-s"]
    options = dict(zip(words[3::2], words[4::2], strict=True))
    name, _, value = options["-H"].partition(": ")
    return words[2], {name: value}, options["-d"]


# ---- the deployment file ------------------------------------------------------------------------------------------------


def loaded(folder: Path, block: str) -> Settings:
    (folder / "gateway.yaml").write_text(block)
    (folder / "gateway.secret").write_text("x" * 40)
    return load_settings(folder / "gateway.yaml", SECRETS)


def test_the_deployment_file_is_one_that_this_gateway_runs(tmp_path: Path) -> None:
    refuse_unusable(loaded(tmp_path, blocks("yaml")[0]))


def test_what_is_called_refused_is_refused_line_by_line(tmp_path: Path) -> None:
    block = blocks("yaml")[1]
    with pytest.raises(PolicyError) as refused:
        refuse_unusable(loaded(tmp_path, block))
    refusals = str(refused.value).splitlines()
    data: dict[str, Any] = yaml.safe_load(block)
    assert len(refusals) == len(data)
    assert all(any(f" {part}" in line for line in refusals) for part in data), refusals


def keys(schema: Any, at: str = "") -> Iterator[str]:
    """The dotted names of all settings; what stands for a name of the reader's own is left out."""
    if at.endswith(("input_schema", "output_schema")):
        return
    for name, inner in schema.get("properties", {}).items():
        yield f"{at}.{name}".strip(".")
        yield from keys(inner, f"{at}.{name}".strip("."))
    for inner in (*schema.get("anyOf", ()), schema.get("items", {}), schema.get("additionalProperties", {})):
        if isinstance(inner, dict) and inner:
            yield from keys(inner, at)


@pytest.mark.parametrize("key", sorted(set(keys(SETTINGS_SCHEMA))))
def test_every_setting_stands_in_the_readme(key: str) -> None:
    assert re.search(rf"\b{key.rpartition('.')[2]}\b", "".join(blocks("yaml")))


# ---- names --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("runs", "calls", "holds", "keys", "tools")])
def test_every_command_stands_in_the_readme(command: str) -> None:
    assert f"`gateway {command}`" in DOCUMENTED


def test_every_command_of_the_readme_exists() -> None:
    named = set(re.findall(r"`gateway ([a-z]+(?: [a-z]+)?)", DOCUMENTED))
    assert not {name for name in named if name not in COMMANDS and name.split()[0] not in ("schema", "check")}


def test_the_files_that_are_named_are_there() -> None:
    for name in re.findall(r"`((?:gateway|tests|policies)/[\w/.-]+)`", TEXT):
        assert (ROOT / name).exists() or (ROOT / "gateway" / name).exists(), name


def test_the_diagrams_are_those_of_the_lifecycle_tables() -> None:
    assert drawn(TEXT) == TEXT, "write them anew with `python -m tests.lives`"
