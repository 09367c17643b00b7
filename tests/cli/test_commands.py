"""The command line as a whole: help, version, exit statuses, and that nothing ends in a traceback."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from gateway.cli import parser
from tests.cli.running import ROOT, ran
from tests.waiting import START_S

Capture = pytest.CaptureFixture[str]


def commands(of: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command with its parser, inner ones too."""
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                yield f"{name} {word}".strip(), inner
                yield from commands(inner, f"{name} {word}".strip())


COMMANDS = dict(commands(parser()))


def test_the_commands_are_those_that_can_be_run() -> None:
    assert set(COMMANDS) == {
        "serve", "stdio", "demo", "init", "keys", "keys new", "schema", "check", "test", "verify", "runs", "runs list", "runs show", "runs freeze",
        "runs resume", "runs cancel", "calls", "calls list", "calls show", "calls reconcile", "holds", "holds list", "holds show", "holds approve",
        "holds deny", "tools", "tools list", "tools diff", "tools accept",
    }  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself_and_its_options(command: str, capsys: Capture) -> None:
    said = ran(capsys, *command.split(), "-h")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(f"usage: gateway {command}")
    assert ("--json" in said.out, "--config" in said.out) == (True, True)
    undocumented = [action.dest for action in COMMANDS[command]._actions if action.option_strings and not action.help]
    assert not [name for name in undocumented if name not in ("state", "principal", "limit", "by_run", "by_tool", "by_state", "group", "task_type")]


def test_nothing_asked_is_answered_with_help(capsys: Capture) -> None:
    said = ran(capsys)
    assert (said.code, said.out) == (2, "")
    assert all(f"    {name} " in said.err for name in COMMANDS if " " not in name)


def test_the_version_is_the_installed_ones(capsys: Capture) -> None:
    assert ran(capsys, "--version").out == f"gateway {version('tool-call-gateway')}\n"


@pytest.mark.parametrize("argv", [
    ("bogus",), ("runs",), ("runs", "show"), ("runs", "list", "--limit", "0"), ("calls", "list", "--state", "in-doubt"), ("serve", "--jso"),
    ("schema", "x"),
])  # fmt: skip
def test_a_wrong_command_line_ends_with_2(argv: tuple[str, ...], capsys: Capture) -> None:
    said = ran(capsys, *argv)
    assert (said.code, said.out) == (2, "")
    assert "usage: gateway" in said.err


def test_what_the_system_refuses_is_one_line(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").write_text("")
    said = ran(capsys, "init", tmp_path / "file" / "inside")
    assert (said.code, said.out, len(said.err.splitlines())) == (1, "", 1)
    assert str(tmp_path / "file") in said.err


def test_a_reader_that_leaves_is_no_failure(folder: Path) -> None:
    code = "import sys; from gateway.cli import main; sys.exit(main(['schema', 'policy']))"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    said = process.stderr.read()
    process.stderr.close()
    assert (process.wait(START_S), said) == (0, b"")


def test_a_module_run_is_the_same_command(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "gateway", "--version"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()[0]) == (0, "gateway")
